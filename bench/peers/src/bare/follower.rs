//! One of the two that only store: what comes is synced, and up to where it is is said; what clients want goes to the leader.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Context;
use bytes::{Buf, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::locks::{Waiting, answer};
use super::serve::{Asked, serve};
use super::{ANSWERS, Frames, disk, put_numbered, take_number};

/// Stores what one leader sends, until it closes its connection; and answers clients when it says so.
pub async fn follow(clients: TcpListener, listener: TcpListener, log: &Path) -> anyhow::Result<()> {
    let (ask, mut asked) = mpsc::unbounded_channel();
    tokio::task::spawn_local(serve(clients, ask));
    let (entries, mut synced) = disk::log(log).with_context(|| log.display().to_string())?;
    let (leader, _) = listener.accept().await?;
    leader.set_nodelay(true)?;
    let (from, mut to) = leader.into_split();
    let mut frames = Frames::new(from);
    let mut waiting: HashMap<u64, Waiting> = HashMap::new();
    let mut out = BytesMut::new();
    let mut last = 0;
    loop {
        tokio::select! {
            biased;
            frame = frames.next() => {
                let Some(mut frame) = frame? else { return Ok(()) };
                match take_number(&mut frame)? {
                    ANSWERS => while frame.has_remaining() {
                        let done = waiting.remove(&take_number(&mut frame)?);
                        answer(done.context("an answer to what nobody has asked")?);
                    },
                    number => entries.send((number, frame)).context("the log has ended")?,
                }
            }
            Some(stored) = synced.recv() => put_numbered(&mut out, stored?, &[]),
            one = asked.recv() => {
                let mut next = Some(one.context("nobody listens any more")?);
                // Those who have come with it go with it.
                tokio::task::yield_now().await;
                while let Some(Asked { frame, waiting: who, .. }) = next {
                    last += 1;
                    put_numbered(&mut out, last, &[&frame]);
                    waiting.insert(last, who);
                    next = asked.try_recv().ok();
                }
            }
        }
        to.write_all_buf(&mut out).await?;
    }
}
