//! openraft's storage traits on top of [`Wal`]. This module only translates, and keeps disk I/O off the
//! threads of the runtime.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};

use futures_util::stream::{self, Stream};
use openraft::errors::LeaderChanged;
use openraft::storage::{IOFlushed, LeaderBoundedStreamError, LogState, RaftLogReader, RaftLogStorage};
use openraft::type_config::alias::LeaderIdOf;
use tokio::sync::oneshot;

use super::log_entry::{decode_entry, encode_entry, id_at, position};
use crate::blocking;
use crate::types::{Entry, LogId, TypeConfig, Vote};
use fault_injection::fail_step;
use raft_log::StorageError;
use raft_log::wal::{ReadPlan, VoteRecord, Wal};

/// Maximum size of a read for a lagging follower, and for the apply loop, which reads ahead. Each of them has
/// one such read in memory, beside the log's own cache.
pub const MAX_READ_BYTES: usize = 1024 * 1024;

/// The log. Clones share the same log.
#[derive(Clone)]
pub struct LogStore {
    wal: Wal,
}

impl LogStore {
    /// Wraps a log.
    pub fn new(wal: Wal) -> Self {
        Self { wal }
    }

    /// Returns the wrapped log.
    pub fn wal(&self) -> &Wal {
        &self.wal
    }

    /// Reports entries that are about to be appended to the simulated machine that this node runs on.
    #[cfg(feature = "simulation")]
    fn report_to_simulation(&self, entries: &[raft_log::wal::WalEntry]) {
        let place = |pos: raft_log::wal::LogPos| crate::simulation::Place {
            term: pos.term,
            index: pos.index,
        };
        let mut before = self.wal.last().map(place);
        for entry in entries {
            let at = place(entry.pos);
            crate::simulation::request(|host| host.appended(at, &entry.payload, before));
            before = Some(at);
        }
    }

    /// Calls and waits until the operation is durable.
    async fn durably(
        &self,
        call: impl FnOnce(&Wal, raft_log::wal::OnDurable) -> Result<(), StorageError>,
    ) -> Result<(), io::Error> {
        let (sender, receiver) = oneshot::channel();
        // The caller may have been dropped, and then needs no answer.
        call(&self.wal, Box::new(move |result| drop(sender.send(result))))?;
        match receiver.await {
            Ok(result) => Ok(result?),
            Err(_) => Err(StorageError::Closed.into()),
        }
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        Ok(LogState {
            last_purged_log_id: self.wal.purged().map(id_at),
            last_log_id: self.wal.last().map(id_at),
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let vote = VoteRecord {
            term: vote.leader_id.term,
            node_id: Some(vote.leader_id.voted_for),
            committed: vote.committed,
        };
        fail_step!(async "vote::before_save", |error| error);
        self.durably(|wal, done| wal.save_vote(vote, done)).await?;
        #[cfg(feature = "simulation")]
        if let Some(candidate) = vote.node_id {
            crate::simulation::request(|host| host.voted(vote.term, candidate, vote.committed));
        }
        fail_step!(async "vote::after_save", |error| error);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        // A commit mark never returns to nothing, so `None` has no news.
        if let Some(committed) = committed {
            self.wal.save_committed(position(&committed))?;
        }
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.wal.committed().map(id_at))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let entries: Vec<_> = entries.into_iter().map(|entry| encode_entry(&entry)).collect();
        self.wal.wait_for_room().await;
        fail_step!(async "log::before_append", |error| error);
        #[cfg(feature = "simulation")]
        self.report_to_simulation(&entries);
        let done =
            move |result: Result<(), StorageError>| callback.io_completed(result.map_err(io::Error::from));
        Ok(self.wal.append(entries, Box::new(done))?)
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        // Not awaited: the entries appended instead are reported durable after it. Until then the old entries
        // may reappear, as on any follower that missed the change.
        let after = last_log_id.map(|last| last.index);
        self.wal.truncate_after(after, Box::new(log_failure))?;
        fail_step!(async "log::after_truncate", |error| error);
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        // Not awaited: segments are removed after the purge point is durable, and a lost purge leaves entries
        // that the snapshot covers.
        self.wal.purge(position(&log_id), Box::new(log_failure))?;
        fail_step!(async "log::after_purge", |error| error);
        Ok(())
    }
}

/// Logs a failed change. The failure itself is returned by the next call and by [`Wal::failed`].
fn log_failure(result: Result<(), StorageError>) {
    if let Err(error) = result {
        tracing::error!(%error, "storage: a change of the log did not reach the disk");
    }
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<Entry>, io::Error>
    where
        RB: RangeBounds<u64> + Clone + Debug + Send,
    {
        load(self.wal.plan_read(indexes(&range), usize::MAX)).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, io::Error> {
        load(self.wal.plan_read(start..end, MAX_READ_BYTES)).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.wal.vote().and_then(to_vote))
    }

    async fn entries_stream<RB>(&mut self, range: RB) -> impl Stream<Item = Result<Entry, io::Error>> + Send
    where
        RB: RangeBounds<u64> + Clone + Debug + Send,
    {
        let wal = self.wal.clone();
        chunks(indexes(&range), move |range| {
            let plan = wal.plan_read(range, MAX_READ_BYTES);
            async move { load(plan).await }
        })
    }

    async fn leader_bounded_stream<RB>(
        &mut self,
        leader: LeaderIdOf<TypeConfig>,
        range: RB,
    ) -> impl Stream<Item = Result<Entry, LeaderBoundedStreamError<TypeConfig>>> + Send
    where
        RB: RangeBounds<u64> + Clone + Debug + Send,
    {
        let wal = self.wal.clone();
        chunks(indexes(&range), move |range| {
            // Both are read at the same moment: entries found under the leader's vote are that leader's.
            let (vote, plan) = wal.plan_read_with_vote(range, MAX_READ_BYTES);
            let vote = vote.and_then(to_vote);
            async move {
                match vote {
                    Some(vote) if vote.committed && vote.leader_id == leader => Ok(load(plan).await?),
                    vote => Err(LeaderChanged::new(leader, vote).into()),
                }
            }
        })
    }
}

/// Converts a vote to openraft's. openraft has no value for a term without a vote, and never saves one.
fn to_vote(vote: VoteRecord) -> Option<Vote> {
    let leader_id = LeaderIdOf::<TypeConfig> {
        term: vote.term,
        voted_for: vote.node_id?,
    };
    Some(Vote {
        leader_id,
        committed: vote.committed,
    })
}

/// Converts a range of indexes to one with an included start and an excluded end.
fn indexes(range: &impl RangeBounds<u64>) -> Range<u64> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    start..end
}

/// Loads a planned read, on a blocking thread if it needs the disk.
async fn load(plan: ReadPlan) -> Result<Vec<Entry>, io::Error> {
    let entries = if plan.needs_disk() {
        blocking::run(move || plan.load()).await??
    } else {
        plan.load()?
    };
    Ok(entries.into_iter().map(decode_entry).collect::<Result<_, _>>()?)
}

/// Stream of the entries of a range, read in chunks on demand. Ends with the range, at the end of the log, or
/// after an error.
fn chunks<E, F>(
    range: Range<u64>,
    read: impl Fn(Range<u64>) -> F + Send,
) -> impl Stream<Item = Result<Entry, E>> + Send
where
    E: Send,
    F: Future<Output = Result<Vec<Entry>, E>> + Send,
{
    let state = (Some(range), Vec::new().into_iter(), read);
    stream::unfold(state, async |(mut range, mut chunk, read)| {
        loop {
            if let Some(entry) = chunk.next() {
                return Some((Ok(entry), (range, chunk, read)));
            }
            let wanted = range.take().filter(|range| !range.is_empty())?;
            match read(wanted.clone()).await {
                Ok(entries) => {
                    range = entries
                        .last()
                        .map(|last: &Entry| last.log_id.index + 1..wanted.end);
                    chunk = entries.into_iter();
                }
                Err(error) => return Some((Err(error), (None, chunk, read))),
            }
        }
    })
}

#[cfg(test)]
mod tests;
