//! One of the two that only store: what comes is synced, and up to where it is is said; what clients want goes to the leader.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Context;
use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::locks::{Waiting, answer};
use super::serve::{Asked, Door};
use super::{ANSWERS, Frames, disk, put_numbered, take_number};

/// Stores what one leader sends, until it closes its connection; and answers clients when it says so.
pub async fn follow(clients: Door, listener: TcpListener, log: &Path) -> anyhow::Result<()> {
    let (ask, mut asked) = mpsc::unbounded_channel();
    tokio::task::spawn_local(clients.serve(ask));
    let (entries, mut synced) = disk::log(log).with_context(|| log.display().to_string())?;
    let (leader, _) = listener.accept().await?;
    leader.set_nodelay(true)?;
    let (from, mut to) = leader.into_split();
    let mut frames = Frames::new(from);
    let mut forwarded = Forwarded::default();
    let mut out = BytesMut::new();
    loop {
        tokio::select! {
            biased;
            frame = frames.next() => {
                let Some(mut frame) = frame? else { return Ok(()) };
                match take_number(&mut frame)? {
                    ANSWERS => forwarded.answer(frame)?,
                    number => entries.send((number, frame)).context("the log has ended")?,
                }
            }
            Some(stored) = synced.recv() => put_numbered(&mut out, stored?, &[]),
            one = asked.recv() => {
                let first = one.context("nobody listens any more")?;
                forwarded.put(first, &mut asked, &mut out).await;
            }
        }
        to.write_all_buf(&mut out).await?;
    }
}

/// What clients here want of the leader, and who waits for it.
#[derive(Default)]
pub struct Forwarded {
    waiting: HashMap<u64, Waiting>,
    last: u64,
}

impl Forwarded {
    /// Puts the first one, and those who have come with it, to what is sent next.
    pub async fn put(
        &mut self,
        first: Asked,
        asked: &mut mpsc::UnboundedReceiver<Asked>,
        out: &mut BytesMut,
    ) {
        tokio::task::yield_now().await;
        let mut next = Some(first);
        while let Some(Asked { frame, waiting, .. }) = next {
            self.last += 1;
            put_numbered(out, self.last, &[&frame]);
            self.waiting.insert(self.last, waiting);
            next = asked.try_recv().ok();
        }
    }

    /// The leader says the numbers of those that are done.
    pub fn answer(&mut self, mut numbers: Bytes) -> anyhow::Result<()> {
        while numbers.has_remaining() {
            let done = self.waiting.remove(&take_number(&mut numbers)?);
            answer(done.context("an answer to what nobody has asked")?);
        }
        Ok(())
    }
}
