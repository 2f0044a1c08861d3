//! Transfer of one connection's bytes in both directions, one portion at a time.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::conditions::{Fate, LinkConditions};
use super::{Counts, DuplexConditions};

/// Size of a read: most messages of nodes are smaller.
const READ_BYTES: usize = 64 * 1024;

/// Limit of portions in flight; further ones stay with their sender, as in a network.
const MAX_IN_FLIGHT: usize = 256;

/// Returns whether an error is an ordinary end of a connection.
pub fn is_ordinary(error: &io::Error) -> bool {
    use io::ErrorKind::*;
    matches!(
        error.kind(),
        ConnectionReset
            | ConnectionAborted
            | ConnectionRefused
            | BrokenPipe
            | NotConnected
            | UnexpectedEof
            | TimedOut
    ) || matches!(error.kind(), HostUnreachable | NetworkUnreachable)
}

/// Makes the connection end with a reset instead of an orderly close when it is dropped.
pub fn reset(stream: &TcpStream) -> io::Result<()> {
    stream.set_zero_linger()
}

/// Transfers bytes in both directions until both sides have ended, or until the connection is reset.
pub async fn transfer_both(
    mut client: TcpStream,
    mut server: TcpStream,
    duplex: watch::Receiver<DuplexConditions>,
    counts: &Counts,
    ended: CancellationToken,
    seed: u64,
) -> io::Result<()> {
    // Borrowed halves: owned halves close their direction in an orderly way when they are dropped, before the
    // reset.
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let there = transfer(
        &mut from_client,
        &mut to_server,
        duplex.clone(),
        |now| now.there,
        counts,
        seed,
    );
    let back = transfer(
        &mut from_server,
        &mut to_client,
        duplex,
        |now| now.back,
        counts,
        !seed,
    );
    let torn = tokio::select! {
        both = async { tokio::try_join!(there, back) } => both.err(),
        () = ended.cancelled() => Some(io::ErrorKind::ConnectionReset.into()),
    };
    let Some(error) = torn else { return Ok(()) };
    counts.reset.fetch_add(1, Ordering::Relaxed);
    reset(&client)?;
    reset(&server)?;
    Err(error)
}

/// Transfers one direction: a reader that draws each portion's fate, and a writer that waits until the
/// portion is due.
async fn transfer(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    mut duplex: watch::Receiver<DuplexConditions>,
    of: impl Fn(&DuplexConditions) -> LinkConditions,
    counts: &Counts,
    seed: u64,
) -> io::Result<()> {
    let (sender, mut receiver) = mpsc::channel::<(Instant, Vec<u8>)>(MAX_IN_FLIGHT);
    let mut rng = Rng::with_seed(seed);
    let conditions = duplex.clone();
    let read = async {
        loop {
            let mut portion = vec![0; READ_BYTES];
            let length = from.read(&mut portion).await?;
            portion.truncate(length);
            let conditions = of(&conditions.borrow());
            let after = match conditions.fate(&mut rng) {
                Fate::Reset => return Err(io::ErrorKind::ConnectionReset.into()),
                Fate::Arrives { after, losses } => {
                    counts.lost.fetch_add(u64::from(losses), Ordering::Relaxed);
                    after
                }
            };
            if after > Duration::ZERO {
                counts.delayed.fetch_add(1, Ordering::Relaxed);
            }
            // An empty portion is the end of the stream; it is due after everything before it.
            if sender.send((Instant::now() + after, portion)).await.is_err() || length == 0 {
                drop(sender);
                return Ok(());
            }
        }
    };
    let write = async {
        while let Some((due, portion)) = receiver.recv().await {
            tokio::time::sleep_until(due).await;
            if of(&duplex.borrow()).cut {
                counts.held.fetch_add(1, Ordering::Relaxed);
                if duplex.wait_for(|now| !of(now).cut).await.is_err() {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
            }
            if portion.is_empty() {
                break;
            }
            to.write_all(&portion).await?;
        }
        to.shutdown().await
    };
    tokio::try_join!(read, write)?;
    Ok(())
}
