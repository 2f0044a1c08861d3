//! The one that is asked: gathers requests into entries, has them stored, and answers.

use std::collections::VecDeque;
use std::path::Path;

use anyhow::{Context, ensure};
use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use super::locks::{Done, Locks, Waiting, carry_out, take_done};
use super::serve::{Asked, Door};
use super::{ANSWERS, Frames, Request, Want, disk, put_numbered, take_number};

/// Entries on their way, as many as Lockgate has: with one, the disks idle while the next is gathered.
pub const MAX_IN_FLIGHT: usize = 4;

/// Who else stores what this one takes: two, so that a majority is itself and one of them, or both.
const FOLLOWERS: usize = 2;

/// An entry that is on its way.
struct InFlight {
    number: u64,
    asked: Vec<Asked>,
}

/// One of those who store.
pub struct Follower {
    pub to: OwnedWriteHalf,
    /// Which of its requests are done, and not told yet.
    pub done: Done,
    /// What is sent next.
    pub out: BytesMut,
}

/// Serves clients, until it is ended.
pub async fn lead(clients: Door, followers: &[String], log: &Path) -> anyhow::Result<()> {
    ensure!(followers.len() == FOLLOWERS, "two followers, no more and no less");
    let log = disk::log(log).with_context(|| log.display().to_string())?;
    let (tell_stored, stored) = mpsc::unbounded_channel();
    let (ask, asked) = mpsc::unbounded_channel();
    let mut all = Vec::new();
    for (which, follower) in followers.iter().enumerate() {
        let stream = TcpStream::connect(follower).await;
        let stream = stream.with_context(|| format!("the follower at {follower}"))?;
        stream.set_nodelay(true)?;
        let (from, to) = stream.into_split();
        let done = Done::default();
        let (tell_stored, ask, of_it) = (tell_stored.clone(), ask.clone(), done.clone());
        tokio::task::spawn_local(async move {
            let heard = hear(from, |number| tell_stored.send((which, number)), &ask, &of_it).await;
            if let Err(error) = heard {
                eprintln!("bench-peers: a follower: {error:#}");
            }
        });
        let out = BytesMut::new();
        all.push(Follower { to, done, out });
    }
    drop(tell_stored);
    tokio::task::spawn_local(clients.serve(ask));
    store(log, all, stored, asked).await
}

/// What a follower says: up to where it has stored, and what its clients want.
pub async fn hear<E: std::error::Error + Send + Sync + 'static>(
    from: OwnedReadHalf,
    stored: impl Fn(u64) -> Result<(), E>,
    ask: &mpsc::UnboundedSender<Asked>,
    done: &Done,
) -> anyhow::Result<()> {
    let mut frames = Frames::new(from);
    while let Some(mut frame) = frames.next().await? {
        let number = take_number(&mut frame)?;
        if frame.has_remaining() {
            let asked = Asked {
                request: Request::of(frame.clone())?,
                frame,
                waiting: Waiting::There(done.clone(), number),
            };
            ask.send(asked).ok().context("nothing is stored any more")?;
        } else {
            stored(number)?;
        }
    }
    Ok(())
}

/// Has everything stored that is asked for, and answers what two of three have.
async fn store(
    (entries, mut synced): disk::Log,
    mut followers: Vec<Follower>,
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
            let entry = entry(&next);
            for follower in &mut followers {
                put_numbered(&mut follower.out, number, &[&entry]);
            }
            entries.send((number, entry)).ok().context("the log has ended")?;
            in_flight.push_back(InFlight {
                number,
                asked: std::mem::take(&mut next),
            });
        }
        for follower in &mut followers {
            tell_done(follower);
            let Follower { to, out, .. } = follower;
            to.write_all_buf(out).await.context("a follower")?;
        }
    }
}

/// Puts what is done to what is sent next.
pub fn tell_done(follower: &mut Follower) {
    let done = take_done(&follower.done);
    if !done.is_empty() {
        let numbers: Vec<[u8; 8]> = done.into_iter().map(u64::to_le_bytes).collect();
        put_numbered(&mut follower.out, ANSWERS, &[numbers.as_flattened()]);
    }
}

/// As it goes to followers and into the log.
pub fn entry(asked: &[Asked]) -> Bytes {
    let frames: Vec<&[u8]> = asked.iter().map(|one| &one.frame[..]).collect();
    frames.concat().into()
}

/// Whether it waits in a queue, whatever is on its way.
pub fn has_to_wait(locks: &Locks, one: &Asked, is_in_flight: bool) -> bool {
    let Request { want, permits, key } = &one.request;
    *want == Want::Acquire && locks.has_to_wait(key, *permits, is_in_flight)
}
