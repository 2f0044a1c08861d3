//! openraft's log: entries in memory, and a [log file](super::log_file) that is only written.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use bytes::Bytes;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};

use super::{Entry, LEADER, LogId, Types, Vote, log_file, wire};

/// Number of entries retained for followers. A follower that is further behind cannot catch up.
const RETAINED_ENTRIES: usize = 65_536;

/// A log. Clones share it.
#[derive(Clone)]
pub struct LogStore {
    inner: Arc<Mutex<Inner>>,
    disk: mpsc::Sender<(Waiter, Bytes)>,
    acks: Acks,
}

#[derive(Default)]
struct Inner {
    vote: Option<Vote>,
    /// Index of the first retained entry.
    first: u64,
    entries: VecDeque<Entry>,
}

/// The caller to notify once bytes are on the disk.
enum Waiter {
    /// openraft, about entries up to this index.
    Entries(u64, IOFlushed<Types>),
    Vote(mpsc::Sender<io::Result<()>>),
}

/// Delayed notifications to openraft about the leader's own disk. They are delivered along with a follower's
/// response, which openraft waits for in any case.
#[derive(Clone, Default)]
pub struct Acks(Arc<Mutex<DelayedAcks>>);

#[derive(Default)]
struct DelayedAcks {
    /// True for the leader, which waits for followers.
    leads: bool,
    /// Highest index that a follower has acknowledged.
    acknowledged: u64,
    delayed: Vec<IOFlushed<Types>>,
}

impl Acks {
    /// Records that a follower has all entries up to this index, of which openraft is about to learn.
    pub fn answered(&self, index: u64) {
        let mut acks = lock(&self.0);
        acks.acknowledged = acks.acknowledged.max(index);
        let delayed = std::mem::take(&mut acks.delayed);
        drop(acks);
        delayed.into_iter().rev().for_each(|one| one.io_completed(Ok(())));
    }

    fn synced(&self, last: u64, flushed: IOFlushed<Types>, result: io::Result<()>) {
        let mut acks = lock(&self.0);
        if acks.leads && result.is_ok() && acks.acknowledged < last {
            acks.delayed.push(flushed);
        } else {
            drop(acks);
            flushed.io_completed(result);
        }
    }
}

impl LogStore {
    /// Creates an empty log for this process.
    pub fn new(node: u64, path: &Path) -> io::Result<Self> {
        let acks = Acks::default();
        lock(&acks.0).leads = node == LEADER;
        let told = acks.clone();
        let disk = log_file::start(path, move |written: Vec<Waiter>, result| {
            // The last notification also covers those before it.
            for one in written.into_iter().rev() {
                let result = match &result {
                    Ok(()) => Ok(()),
                    Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
                };
                match one {
                    Waiter::Entries(last, flushed) => told.synced(last, flushed, result),
                    // A caller that has disconnected needs no result.
                    Waiter::Vote(notify) => drop(notify.send(result)),
                }
            }
            true
        })?;
        let inner = Arc::default();
        Ok(Self { inner, disk, acks })
    }

    /// Returns the delayed notifications, for the network to release.
    pub fn acks(&self) -> Acks {
        self.acks.clone()
    }

    fn write(&self, written: Waiter, bytes: Bytes) -> io::Result<()> {
        let sent = self.disk.send((written, bytes));
        sent.map_err(|_| io::Error::other("the log's thread has ended"))
    }

    fn read(&self, range: &impl RangeBounds<u64>) -> io::Result<Vec<Entry>> {
        let inner = lock(&self.inner);
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last + 1,
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        let end = end.min(inner.first + inner.entries.len() as u64);
        if start >= end {
            return Ok(Vec::new());
        }
        if start < inner.first {
            return Err(io::Error::other("a follower is too far behind"));
        }
        let at = |index: u64| (index - inner.first) as usize;
        Ok(inner.entries.range(at(start)..at(end)).cloned().collect())
    }
}

/// Locks a mutex. No thread panics while it holds one.
fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<Entry>, io::Error>
    where
        RB: RangeBounds<u64> + Clone + Debug + Send,
    {
        self.read(&range)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(lock(&self.inner).vote)
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, io::Error> {
        let last = lock(&self.inner).entries.back().map(|entry| entry.log_id);
        Ok(LogState {
            last_purged_log_id: None,
            last_log_id: last,
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let mut bytes = Vec::new();
        wire::put_vote(&mut bytes, vote);
        let (notify, told) = mpsc::channel();
        self.write(Waiter::Vote(notify), bytes.into())?;
        // A process stores a single vote, and does nothing else before it is stored.
        told.recv()
            .map_err(|_| io::Error::other("the log's thread has ended"))??;
        lock(&self.inner).vote = Some(*vote);
        Ok(())
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + Send,
        I::IntoIter: Send,
    {
        let mut bytes = Vec::new();
        let mut last = 0;
        {
            let mut inner = lock(&self.inner);
            for entry in entries {
                wire::put_entry(&mut bytes, &entry);
                last = entry.log_id.index;
                if inner.entries.is_empty() {
                    inner.first = last;
                }
                inner.entries.push_back(entry);
            }
            while inner.entries.len() > RETAINED_ENTRIES {
                inner.entries.pop_front();
                inner.first += 1;
            }
        }
        self.write(Waiter::Entries(last, callback), bytes.into())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        let mut inner = lock(&self.inner);
        let kept = last_log_id
            .map_or(0, |last| last.index + 1)
            .saturating_sub(inner.first);
        inner.entries.truncate(kept as usize);
        Ok(())
    }

    async fn purge(&mut self, _log_id: LogId) -> Result<(), io::Error> {
        // `append` already drops the oldest entries.
        Ok(())
    }
}
