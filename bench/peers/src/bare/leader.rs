//! The one that is asked: gathers requests into entries, has them stored, and answers.

use std::collections::VecDeque;
use std::path::Path;

use anyhow::{Context, ensure};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::locks::{Locks, answer};
use super::serve::{Asked, serve};
use super::{Request, Want, disk};

/// Entries on their way, as many as Lockgate has: with one, the disks idle while the next is gathered.
const MAX_IN_FLIGHT: usize = 4;

/// Who else stores what this one takes: two, so that a majority is itself and one of them, or both.
const FOLLOWERS: usize = 2;

/// An entry that is on its way.
struct InFlight {
    number: u64,
    asked: Vec<Asked>,
}

/// Serves clients, until it is ended.
pub async fn lead(clients: TcpListener, followers: &[String], log: &Path) -> anyhow::Result<()> {
    ensure!(followers.len() == FOLLOWERS, "two followers, no more and no less");
    let log = disk::log(log).with_context(|| log.display().to_string())?;
    let (tell_stored, stored) = mpsc::unbounded_channel();
    let mut writers = Vec::new();
    for (which, follower) in followers.iter().enumerate() {
        let stream = TcpStream::connect(follower).await;
        let stream = stream.with_context(|| format!("the follower at {follower}"))?;
        stream.set_nodelay(true)?;
        let (mut from, to) = stream.into_split();
        writers.push(to);
        let tell_stored = tell_stored.clone();
        tokio::task::spawn_local(async move {
            let mut read = BytesMut::with_capacity(1024);
            while from.read_buf(&mut read).await.is_ok_and(|read| read > 0) {
                let mut last = None;
                while read.len() >= size_of::<u64>() {
                    last = Some(read.get_u64_le());
                }
                if let Some(number) = last
                    && tell_stored.send((which, number)).is_err()
                {
                    return;
                }
            }
        });
    }
    let (ask, asked) = mpsc::unbounded_channel();
    tokio::task::spawn_local(serve(clients, Some(ask)));
    store(log, writers, stored, asked).await
}

/// Has everything stored that is asked for, and answers what two of three have.
async fn store(
    (entries, mut synced): disk::Log,
    mut writers: Vec<OwnedWriteHalf>,
    mut stored: mpsc::UnboundedReceiver<(usize, u64)>,
    mut asked: mpsc::UnboundedReceiver<Asked>,
) -> anyhow::Result<()> {
    let mut locks = Locks::default();
    let mut in_flight: VecDeque<InFlight> = VecDeque::new();
    let mut next = Vec::new();
    let mut number = 0;
    // Up to where it is on each disk, one's own first.
    let mut on_disks = [0; 1 + FOLLOWERS];
    loop {
        tokio::select! {
            biased;
            Some(own) = synced.recv() => on_disks[0] = own?,
            follower = stored.recv() => {
                let (which, number) = follower.context("both followers have gone")?;
                on_disks[1 + which] = number;
            }
            one = asked.recv(), if in_flight.len() < MAX_IN_FLIGHT => {
                next.push(one.context("nobody listens any more")?);
                // Those who have come with it are heard, too.
                tokio::task::yield_now().await;
                while let Ok(one) = asked.try_recv() {
                    next.push(one);
                }
            }
        }
        let mut sorted = on_disks;
        sorted.sort_unstable();
        let committed = sorted[1];
        while let Some(entry) = in_flight.pop_front_if(|entry| entry.number <= committed) {
            entry.asked.into_iter().for_each(|one| carry_out(&mut locks, one));
        }
        // Who has to wait for a lock anyway waits here for whoever lets somebody in.
        let is_in_flight = !in_flight.is_empty();
        if in_flight.len() < MAX_IN_FLIGHT && next.iter().any(|one| !has_to_wait(&locks, one, is_in_flight)) {
            number += 1;
            let frame = entry(number, &next);
            for writer in &mut writers {
                writer.write_all(&frame).await.context("a follower")?;
            }
            entries.send((number, frame)).ok().context("the log has ended")?;
            in_flight.push_back(InFlight {
                number,
                asked: std::mem::take(&mut next),
            });
        }
    }
}

/// As it goes to followers and into the log.
fn entry(number: u64, asked: &[Asked]) -> Bytes {
    let length: usize = asked.iter().map(|one| one.frame.len()).sum();
    let mut frame = BytesMut::with_capacity(4 + 8 + length);
    frame.put_u32_le((8 + length) as u32);
    frame.put_u64_le(number);
    asked.iter().for_each(|one| frame.put_slice(&one.frame));
    frame.freeze()
}

fn has_to_wait(locks: &Locks, one: &Asked, is_in_flight: bool) -> bool {
    let Request { want, permits, key } = &one.request;
    *want == Want::Acquire && locks.has_to_wait(key, *permits, is_in_flight)
}

fn carry_out(locks: &mut Locks, one: Asked) {
    let Request { want, permits, key } = &one.request;
    match want {
        Want::Answer | Want::Tell | Want::Write => answer(one.waiting),
        Want::Acquire => locks.acquire(key, *permits, one.waiting),
        Want::Release => locks.release(key, one.waiting),
    }
}
