//! The accept loop: connections in, tasks for them, an orderly end. It knows nothing of what they say.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use transport_security::ServerTls;

use crate::front::Front;
use crate::handshake;

/// How long the loop rests when the system has no more file descriptors: an immediate retry would spin.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// How often at most the log says that all places are taken.
const CROWDED_EVERY: Duration = Duration::from_secs(10);

/// Serves clients on `listener` until `stop`, and then until what they had asked is answered, for a while. All connections
/// are gone when this returns; sessions live on, for their clients to take up at other nodes. With `tls` nothing else is spoken,
/// and a client is also who its certificate says.
pub async fn serve(listener: TcpListener, front: Front, tls: Option<ServerTls>, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(front.config().max_connections));
    let mut connections = JoinSet::new();
    let mut crowded: Option<Instant> = None;
    loop {
        while connections.try_join_next().is_some() {}
        if places.available_permits() == 0 && crowded.is_none_or(|at| at.elapsed() > CROWDED_EVERY) {
            let connections = front.config().max_connections;
            warn!(connections, "all places for clients are taken, new ones wait");
            crowded = Some(Instant::now());
        }
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            // Who finds all places taken waits in the backlog, where it costs nothing.
            accepted = async {
                let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
                listener.accept().await.map(|(stream, address)| (stream, address, place))
            } => accepted,
        };
        match accepted {
            Ok((stream, address, place)) => {
                if let Err(error) = prepare(&stream, front.config().send_timeout) {
                    debug!(%error, %address, "connection lost");
                    continue;
                }
                // It has not proven anything, so it is not told why: an operator reads it in the log.
                if front.serves_nobody() {
                    debug!(%address, "a client was not served: the cluster is not secured, or this node has not heard of it yet");
                    continue;
                }
                let client = front.list(address);
                let connection = handshake::serve(front.clone(), client, stream, tls.clone(), stop.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Err(error) if is_of_the_client(&error) => {
                debug!(%error, "connection lost before it was accepted")
            }
            Err(error) => {
                warn!(%error, "no connection can be accepted for now");
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = tokio::time::sleep(ACCEPT_BACKOFF) => {}
                }
            }
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(front.config().drain_timeout, drained)
        .await
        .is_err()
    {
        let busy = connections.len();
        warn!(
            connections = busy,
            "clients that still wait at the end of the drain are cut off"
        );
        connections.shutdown().await;
    }
}

fn prepare(stream: &TcpStream, send_timeout: Duration) -> io::Result<()> {
    // Answers are single small writes; Nagle's algorithm would hold each back for the last one's ACK.
    stream.set_nodelay(true)?;
    let send_timeout_ms = u32::try_from(send_timeout.as_millis()).unwrap_or(u32::MAX);
    setsockopt(stream, sockopt::TcpUserTimeout, &send_timeout_ms)?;
    Ok(())
}

fn is_of_the_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}
