//! The accept loop: sockets in, a task for each connection, an orderly end.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::meter::DoorMeter;
use crate::places::{NoPlace, Places};
use crate::turns::{Socket, Turns};

/// How long the loop rests when the system has no more file descriptors: an immediate retry would spin.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// How often at most the log says that callers were refused: at every connection it would be a flood.
const CROWDED_EVERY: Duration = Duration::from_secs(10);

/// Bytes of answers that the kernel holds for a connection and has not sent yet, at most. Without this bound it holds megabytes for a caller
/// that never reads. All answers but lists and backups fit, and a fast network sends this much in milliseconds.
const MAX_UNSENT_BYTES: u32 = 128 * 1024;

/// What is behind a door.
#[derive(Debug, Clone)]
pub struct Door {
    /// For whom it is, in a word for the log.
    pub what: &'static str,
    /// The places of those who are let in. Doors that share them let in so many together.
    pub places: Places,
    /// What is said to a caller who finds all places taken, before the connection is closed; nothing where TLS is spoken.
    pub when_full: Vec<u8>,
    /// The same for a caller whose address has as many as it may.
    pub when_too_many: Vec<u8>,
    /// How long connections that still have something to do are waited for in the end.
    pub drain_timeout: Duration,
    /// Counts who comes and who is there.
    pub meter: DoorMeter,
}

/// Accepts connections until `shutdown` completes, and then waits until they are over; those that take too long are cut off.
/// All connections are gone when this returns. `connect` makes a connection of a socket, or nothing if it is of no use.
pub async fn serve<Connection>(
    listener: TcpListener,
    door: Door,
    mut connect: impl FnMut(Socket, SocketAddr) -> Option<Connection>,
    shutdown: impl Future<Output = ()>,
) where
    Connection: Future<Output = ()> + Send + 'static,
{
    let places = door.places.clone();
    let turns = Turns::new();
    door.meter.opens(places.bounds());
    let mut connections = JoinSet::new();
    let mut refusals = Refusals::default();
    let mut shutdown = pin!(shutdown);
    loop {
        // The finished are taken out as they end; their results were logged where they arose.
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => match places.take(address.ip()) {
                Ok(place) => {
                    if let Err(error) = SockRef::from(&stream).set_tcp_notsent_lowat(MAX_UNSENT_BYTES) {
                        debug!(%error, %address, "connection lost");
                        continue;
                    }
                    if let Some(connection) = connect(Socket::new(stream, &turns), address) {
                        let counted = door.meter.connection();
                        // In a box, for a task keeps what it waits for beside what it was made of: twice all that a connection needs.
                        let connection = Box::pin(connection);
                        connections.spawn(async move {
                            connection.await;
                            drop(counted);
                            drop(place);
                        });
                    }
                }
                Err(why) => {
                    refuse(&stream, &door, why);
                    door.meter.refused(why);
                    refusals.note(&door, why, address);
                }
            },
            // The caller was gone before it was accepted: its own affair.
            Err(error) if is_of_the_caller(&error) => {
                debug!(%error, "connection lost before it was accepted")
            }
            Err(error) => {
                warn!(%error, "no connection can be accepted for now");
                tokio::select! {
                    () = &mut shutdown => break,
                    () = tokio::time::sleep(ACCEPT_BACKOFF) => {}
                }
            }
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(door.drain_timeout, drained).await.is_err() {
        warn!(
            door = door.what,
            connections = connections.len(),
            "connections still busy at the end of the drain are cut off"
        );
        connections.shutdown().await;
    }
}

/// Says why, if that takes no time. Whoever has sent much already may not hear it.
fn refuse(stream: &TcpStream, door: &Door, why: NoPlace) {
    let said = match why {
        NoPlace::Full => &door.when_full,
        NoPlace::TooMany => &door.when_too_many,
    };
    if !said.is_empty()
        && let Err(error) = stream.try_write(said)
    {
        debug!(%error, "a caller that was refused is gone");
    }
}

/// What was refused since the log said so.
#[derive(Default)]
struct Refusals {
    since_told: u64,
    told: Option<Instant>,
}

impl Refusals {
    fn note(&mut self, door: &Door, why: NoPlace, address: SocketAddr) {
        self.since_told += 1;
        if self.told.is_some_and(|at| at.elapsed() < CROWDED_EVERY) {
            return;
        }
        let bounds = door.places.bounds().get();
        let (door, refused, limit) = match why {
            NoPlace::Full => (door.what, self.since_told, bounds.in_all),
            NoPlace::TooMany => (door.what, self.since_told, bounds.of_an_address),
        };
        let of = match why {
            NoPlace::Full => "in all",
            NoPlace::TooMany => "of one address",
        };
        warn!(door, refused, limit, of, %address, "there are as many connections as there may be, callers are refused");
        self.told = Some(Instant::now());
        self.since_told = 0;
    }
}

fn is_of_the_caller(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, Type};
    use tokio::io::AsyncWriteExt;
    use tokio::sync::mpsc;

    use super::*;
    use crate::places::Bounds;

    /// Bytes that the caller's own kernel holds for it. Linux doubles what is asked for.
    const RECEIVE_BUFFER: usize = 16 * 1024;

    #[tokio::test]
    async fn kernel_keeps_little_for_a_caller_that_never_reads() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (taken, mut all_taken) = mpsc::channel(1);
        let door = Door {
            what: "test",
            places: Places::new(Bounds {
                in_all: 1,
                of_an_address: 1,
            }),
            when_full: Vec::new(),
            when_too_many: Vec::new(),
            drain_timeout: Duration::ZERO,
            meter: DoorMeter::default(),
        };
        // Writes until the kernel takes nothing more for a while.
        let connect = |mut socket: Socket, _| {
            let taken = taken.clone();
            Some(async move {
                let mut bytes = 0;
                let piece = [7; 4096];
                while let Ok(wrote) =
                    tokio::time::timeout(Duration::from_millis(200), socket.write(&piece)).await
                {
                    bytes += wrote.unwrap();
                }
                taken.send(bytes).await.unwrap();
            })
        };
        let caller = async {
            let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_recv_buffer_size(RECEIVE_BUFFER).unwrap();
            socket.connect(&address.into()).unwrap();
            let bytes: usize = all_taken.recv().await.unwrap();
            let most = MAX_UNSENT_BYTES as usize + 4 * RECEIVE_BUFFER;
            assert!(
                bytes <= most,
                "the kernel took {bytes} bytes, and {most} were expected at most"
            );
        };
        tokio::select! {
            () = serve(listener, door, connect, std::future::pending()) => {}
            () = caller => {}
        }
    }
}
