//! Leader's end of a stream of entries to a follower. The follower's end is in `answers.rs`.
//!
//! Each message wakes a node, which costs more than its processing. Therefore the commit index is usually
//! sent with the next entries. A follower with waiting callers or recent readers gets it at once, even before
//! the leader applies the entry itself, because callers at a follower have the longer path.

pub mod answers;

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::{Stream, StreamExt};
use openraft::raft::{AppendEntriesRequest, StreamAppendResult};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::Instant;

use super::wire::{
    FrameReader, WireAppend, WireAppendResult, WireLogId, decode_frame, put_frame, send_frames,
};
use crate::types::TypeConfig;
use fault_injection::fail_step;

/// Maximum number of unanswered appends to one follower. Enough to keep a connection of 100 ms round trip
/// busy with batches; beyond that the follower is the bottleneck.
const MAX_APPENDS_IN_FLIGHT: usize = 128;

/// Maximum number of unanswered bytes to one follower, beside the frame that exceeds it. It bounds the memory
/// that a stalled follower costs the leader.
const MAX_BYTES_IN_FLIGHT: usize = 16 * 1024 * 1024;

/// Maximum delay of a commit-index update to a follower without waiting callers, so that the next entries can
/// carry it. Longer than the pause between two writes of one client. The first reader at such a follower may
/// see a state that is older by this time.
const MAX_COMMIT_UPDATE_DELAY: Duration = Duration::from_millis(2);

/// Stream of appends: requests are sent as they arrive, and answers arrive in the same order.
pub struct Appends<S, R, W> {
    /// According to the follower's last answer, no caller there waits for committed entries or reads.
    is_quiet: bool,
    /// Index up to which the log is truncated. openraft keeps entries as long as a stream needs them, however
    /// long the log becomes.
    floor: watch::Receiver<u64>,
    /// Index up to which the follower has the log.
    acknowledged: u64,
    /// Last commit index sent to the follower, or about to be sent.
    committed: u64,
    reader: FrameReader<R>,
    writer: W,
    input: Option<S>,
    /// Appends without an answer, oldest first.
    in_flight: VecDeque<InFlight>,
    bytes_in_flight: usize,
    /// Set if the follower has answered on this stream.
    answered: bool,
    last_progress: Instant,
    /// Maximum time without an answer to an append.
    timeout: Duration,
    /// Encoded append that is not sent yet: empty, or an append with the commit index alone.
    out: BytesMut,
    /// Time at which it was encoded.
    commit_pending_since: Option<Instant>,
}

/// An append in transit to the follower.
struct InFlight {
    /// Size of its frame in bytes.
    bytes: usize,
    /// Set if it carries only the commit index. Its answer contains nothing new.
    commit_only: bool,
}

impl<S, R, W> Appends<S, R, W>
where
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Unpin,
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    /// Creates a stream to the follower at the other end of `reader` and `writer`, which has the log up to
    /// `acknowledged` as far as the leader knows.
    pub fn new(
        floor: watch::Receiver<u64>,
        acknowledged: u64,
        reader: FrameReader<R>,
        writer: W,
        input: S,
        timeout: Duration,
    ) -> Self {
        Self {
            is_quiet: false,
            floor,
            acknowledged,
            committed: 0,
            reader,
            writer,
            input: Some(input),
            in_flight: VecDeque::new(),
            bytes_in_flight: 0,
            answered: false,
            last_progress: Instant::now(),
            timeout,
            out: BytesMut::new(),
            commit_pending_since: None,
        }
    }

    /// Returns the last commit index that was sent to the follower, or is about to be.
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// Sends pending appends until an answer arrives. Returns `None` when all are sent, and all answers that
    /// matter have arrived.
    pub async fn next_answer(&mut self) -> io::Result<Option<StreamAppendResult<TypeConfig>>> {
        loop {
            let waiting = !self.in_flight.is_empty();
            if self.input.is_none()
                && self.out.is_empty()
                && self.in_flight.iter().all(|append| append.commit_only)
            {
                return Ok(None);
            }
            let room =
                self.in_flight.len() < MAX_APPENDS_IN_FLIGHT && self.bytes_in_flight < MAX_BYTES_IN_FLIGHT;
            let give_up = self.last_progress + self.timeout;
            let acknowledged = self.acknowledged;
            tokio::select! {
                // Answers first: they let both nodes proceed.
                biased;
                frame = self.reader.next(), if waiting => {
                    let frame = frame?.ok_or(io::ErrorKind::UnexpectedEof)?;
                    let result = self.take_answers(&frame)?;
                    fail_step!(async "append::after_answer", |error| error);
                    self.answered = true;
                    return Ok(Some(result.into()));
                }
                request = next_of(&mut self.input), if room && self.input.is_some() => match request {
                    Some(request) => {
                        if !waiting {
                            self.last_progress = Instant::now();
                        }
                        let commit_only = self.put(request);
                        if !commit_only {
                            self.send().await?;
                        }
                    }
                    None => self.input = None,
                },
                () = commit_update_due(self.commit_pending_since, self.is_quiet), if self.commit_pending_since.is_some() => self.send().await?,
                () = wait_above(&mut self.floor, acknowledged) => {
                    return Err(io::Error::other("the follower is so far behind that it needs a snapshot"));
                }
                () = tokio::time::sleep_until(give_up), if waiting => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
    }

    /// Encodes an append to be sent next. Returns whether it carries only the commit index.
    fn put(&mut self, request: AppendEntriesRequest<TypeConfig>) -> bool {
        // Until the first answer, an append without entries asks for the end of the follower's log.
        let commit_only = self.answered && request.entries.is_empty();
        if let Some(committed) = request.leader_commit {
            self.committed = committed.index;
        }
        // This append replaces one that is not sent yet: its commit index is at least as high.
        if self.commit_pending_since.is_some() {
            self.out.clear();
            self.bytes_in_flight -= self.in_flight.pop_back().map_or(0, |append| append.bytes);
        }
        let since = self.commit_pending_since.take().unwrap_or_else(Instant::now);
        self.commit_pending_since = commit_only.then_some(since);
        let before = self.out.len();
        put_frame(&mut self.out, &WireAppend::from(request));
        let bytes = self.out.len() - before;
        self.in_flight.push_back(InFlight { bytes, commit_only });
        self.bytes_in_flight += bytes;
        commit_only
    }

    async fn send(&mut self) -> io::Result<()> {
        fail_step!(async "append::before_send", |error| error);
        tokio::time::timeout(self.timeout, send_frames(&mut self.writer, &self.out)).await??;
        fail_step!(async "append::after_send", |error| error);
        self.out.clear();
        self.commit_pending_since = None;
        Ok(())
    }

    /// Processes the answer in `frame` and those that arrived with it. An answer gives the end of the
    /// follower's log, so the most advanced one suffices.
    fn take_answers(&mut self, frame: &[u8]) -> io::Result<WireAppendResult> {
        let mut most = self.take_answer(frame)?;
        while let Some(so_far) = most.stored()
            && let Some(frame) = self.reader.take_buffered()?
        {
            let next = self.take_answer(&frame)?;
            let less = next
                .stored()
                .is_some_and(|last| index_of(last) < index_of(so_far));
            if !less {
                most = next;
            }
        }
        Ok(most)
    }

    fn take_answer(&mut self, frame: &[u8]) -> io::Result<WireAppendResult> {
        let result: WireAppendResult = decode_frame(frame)?;
        self.bytes_in_flight -= self.in_flight.pop_front().map_or(0, |append| append.bytes);
        self.last_progress = Instant::now();
        if let Some(Some(last)) = result.stored() {
            self.acknowledged = last.index;
        }
        self.is_quiet = matches!(result, WireAppendResult::StoredQuietly(_));
        Ok(result)
    }
}

fn index_of(last: Option<WireLogId>) -> Option<u64> {
    last.map(|last| last.index)
}

/// Completes when the commit index must be sent that was encoded at `commit_pending_since`: at once, unless no caller at
/// the follower waits for it.
async fn commit_update_due(commit_pending_since: Option<Instant>, is_quiet: bool) {
    if let Some(since) = commit_pending_since
        && is_quiet
    {
        tokio::time::sleep_until(since + MAX_COMMIT_UPDATE_DELAY).await;
    }
}

/// Waits until the floor is higher than `acknowledged`.
async fn wait_above(floor: &mut watch::Receiver<u64>, acknowledged: u64) {
    if floor.wait_for(|floor| *floor > acknowledged).await.is_err() {
        // The sender was dropped with the node.
        std::future::pending().await
    }
}

async fn next_of<S: Stream + Unpin>(input: &mut Option<S>) -> Option<S::Item> {
    match input {
        Some(input) => input.next().await,
        None => None,
    }
}

#[cfg(test)]
mod tests;
