//! One of the two that only store: what comes is synced, and up to where it is is said.

use std::path::Path;

use anyhow::{Context, ensure};
use bytes::Buf;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::serve::serve;
use super::{Frames, disk};

/// Stores what one leader sends, until it closes its connection; and answers clients that want nothing stored.
pub async fn follow(clients: TcpListener, listener: TcpListener, log: &Path) -> anyhow::Result<()> {
    tokio::task::spawn_local(serve(clients, None));
    let (entries, mut synced) = disk::log(log).with_context(|| log.display().to_string())?;
    let (leader, _) = listener.accept().await?;
    leader.set_nodelay(true)?;
    let (from, mut to) = leader.into_split();
    let mut frames = Frames::new(from);
    loop {
        tokio::select! {
            frame = frames.next() => {
                let Some(mut entry) = frame? else { return Ok(()) };
                ensure!(entry.len() >= size_of::<u64>(), "an entry without its number");
                let number = entry.get_u64_le();
                entries.send((number, entry)).context("the log has ended")?;
            }
            Some(stored) = synced.recv() => to.write_all(&stored?.to_le_bytes()).await?,
        }
    }
}
