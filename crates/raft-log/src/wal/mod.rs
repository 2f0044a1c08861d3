//! The write-ahead log: entries, vote, commit mark and purge point in one serial order.
//!
//! ```text
//!  append, save_vote, truncate_after, purge          read, vote, last
//!        |  change the index, then queue                ^
//!        v                                              |
//!     [queue] --whole queue--> writer thread         [index: newest entries in memory, older ones by location]
//!                                  | one write, one fdatasync
//!                                  v
//!                           segment files  <-- preallocated and removed by the preallocator thread
//!                                  |
//!                                  v
//!                           on_durable, newest first
//! ```
//!
//! Guarantees:
//!
//! * An entry can be read as soon as `append` returns. It is durable when its `on_durable` is called with
//!   `Ok`, and so is everything that was queued before it.
//! * After a crash the log has the state after some prefix of the calls, and the prefix includes every call
//!   that was reported durable. A torn last write is cut off; damage anywhere else is an error that says what
//!   to do.
//! * The first failed write or sync ends the log: it accepts nothing and reports nothing durable any more.
//!   After a failed sync the contents of the disk are unknown, and a second sync may report success for data
//!   that was lost.
//!
//! Limits: the log knows no rules of Raft beyond "no gaps" and "votes never go back". The caller of a purge
//! must have a durable snapshot first. The commit mark gets no sync of its own, since it only speeds up the
//! next start.

mod encode;
mod format;
mod preallocator;
mod fsync_stats;
mod recover;
mod segment;
mod types;
mod log_index;
mod writer_signal;
mod writer;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

pub use self::encode::{entry_of_record, push_entry};
pub use self::format::{RECORD_HEADER_BYTES, SECTOR_BYTES, SEGMENT_HEADER_BYTES, record_start};
pub use self::fsync_stats::{FSYNC_BUCKETS_US, FsyncStats, FsyncTimes};
use self::log_index::LogIndex;
pub use self::log_index::ReadPlan;
pub use self::preallocator::{RESERVED_SEGMENTS, SEGMENTS_AHEAD};
pub use self::types::*;
pub use self::writer::{Step, WalWriter};
use self::writer_signal::WriterSignal;
use super::disk::Disk;
use super::error::StorageError;

enum Op {
    Append {
        entries: Vec<(u64, WalEntry)>,
        done: OnDurable,
    },
    Vote {
        vote: VoteRecord,
        done: OnDurable,
    },
    Truncate {
        after: Option<u64>,
        done: OnDurable,
    },
    Purge {
        upto: LogPos,
        done: OnDurable,
    },
    Cluster {
        id: [u8; 16],
    },
}

#[derive(Default)]
struct Queue {
    ops: Vec<Op>,
    bytes: usize,
    committed: Option<LogPos>,
    closing: bool,
    /// The writer waits without a timeout, so a new commit mark has to wake it.
    sleeping: bool,
}

/// State shared by the handle, the writer and the preallocator. Lock order: index, then queue.
struct Shared {
    log_index: Mutex<LogIndex>,
    queue: Mutex<Queue>,
    /// Signals the writer that something was queued.
    work: WriterSignal,
    /// Signals waiting callers that the writer took the queue.
    room: Notify,
    failure: watch::Sender<Option<Arc<StorageError>>>,
    /// Measured times of syncs.
    fsync_stats: FsyncStats,
    /// The disk had no space for the last segment to preallocate.
    starved: AtomicBool,
    /// Number of bytes of the last request that was rejected for lack of space.
    refused: AtomicUsize,
    /// Allocated space that is not used yet.
    space: Mutex<Space>,
    /// Number of segments, including the active one.
    segments: AtomicUsize,
    /// Length of a segment in bytes.
    segment_bytes: usize,
}

/// Allocated space for records. Its mutex is locked last.
#[derive(Debug, Default, Clone, Copy)]
struct Space {
    /// Bytes left in the active segment.
    left: usize,
    /// Number of preallocated segments.
    spares: usize,
}

impl Shared {
    /// Returns the approximate number of bytes for records in a segment.
    fn usable(&self) -> usize {
        self.segment_bytes.saturating_sub(segment::OVERHEAD_BYTES)
    }

    fn check(&self) -> Result<(), StorageError> {
        match &*self.failure.borrow() {
            Some(failure) => Err(StorageError::Failed(failure.clone())),
            None => Ok(()),
        }
    }

    /// Records the failure of the log. The first failure is kept.
    fn fail(&self, error: StorageError) {
        let error = Arc::new(error);
        let first = self.failure.send_if_modified(|failure| {
            let first = failure.is_none();
            failure.get_or_insert(error.clone());
            first
        });
        if first {
            tracing::error!(%error, "log: failed, no further writes are accepted");
        }
    }
}

/// Guard that fails the log when one of its threads panics, since callers would wait for the thread
/// otherwise.
struct PanicAlarm {
    shared: Arc<Shared>,
    thread: &'static str,
}

impl Drop for PanicAlarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let text = format!("the {} thread of the log has panicked", self.thread);
            self.shared.fail(StorageError::Contract(text));
        }
    }
}

struct Handle {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The writer of a simulated node, which has no threads; a task steps it.
    #[cfg(feature = "simulation")]
    stepped: Mutex<Option<Arc<Mutex<WalWriter>>>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.queue.lock().closing = true;
        self.shared.work.notify();
    }
}

/// Handle to the log. Clones share the same log. When the last clone is dropped, the writer writes the queue
/// and ends.
#[derive(Clone)]
pub struct Wal {
    handle: Arc<Handle>,
}

impl Wal {
    /// Opens or creates the log in a directory, and starts its writer thread.
    pub fn start(
        disk: Arc<dyn Disk>,
        dir: &Path,
        identity: WalIdentity,
        options: WalOptions,
    ) -> Result<Self, StorageError> {
        let (wal, writer) = Self::open(disk, dir, identity, options)?;
        wal.start_writer(writer)?;
        Ok(wal)
    }

    /// Starts a thread that runs the writer.
    pub fn start_writer(&self, writer: WalWriter) -> Result<(), StorageError> {
        #[cfg(feature = "simulation")]
        if crate::simulation::is_on() {
            let writer = Arc::new(Mutex::new(writer));
            *self.handle.stepped.lock() = Some(writer.clone());
            tokio::spawn(writer_signal::step_as_task(self.handle.shared.clone(), writer));
            return Ok(());
        }
        let alarm = PanicAlarm {
            shared: self.handle.shared.clone(),
            thread: "writer",
        };
        let thread = std::thread::Builder::new()
            .name("raft-log".into())
            .spawn(move || {
                let _alarm = alarm;
                writer.run();
            });
        let thread = thread.map_err(|source| StorageError::Io {
            what: "start the writer thread of the log".into(),
            source: Arc::new(source),
        })?;
        *self.handle.thread.lock() = Some(thread);
        Ok(())
    }

    /// Opens the log without a writer thread. The caller steps the returned writer.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        identity: WalIdentity,
        options: WalOptions,
    ) -> Result<(Self, WalWriter), StorageError> {
        segment::check_options(&options)?;
        let recovered = recover::recover(disk.as_ref(), dir, &identity, &options)?;
        let (failure, _) = watch::channel(None);
        let shared = Arc::new(Shared {
            log_index: Mutex::new(recovered.log_index),
            queue: Mutex::new(Queue::default()),
            work: WriterSignal::default(),
            room: Notify::new(),
            failure,
            fsync_stats: FsyncStats::default(),
            starved: AtomicBool::new(false),
            refused: AtomicUsize::new(0),
            space: Mutex::default(),
            segments: AtomicUsize::new(0),
            segment_bytes: options.segment_bytes,
        });
        let writer = WalWriter::new(shared.clone(), disk, dir, identity, options, recovered.tail)?;
        let handle = Arc::new(Handle {
            shared,
            thread: Mutex::new(None),
            #[cfg(feature = "simulation")]
            stepped: Mutex::new(None),
        });
        Ok((Self { handle }, writer))
    }

    fn shared(&self) -> &Shared {
        &self.handle.shared
    }

    /// Appends entries. They can be read when this returns.
    pub fn append(&self, entries: Vec<WalEntry>, on_durable: OnDurable) -> Result<(), StorageError> {
        let shared = self.shared();
        shared.check()?;
        let mut log_index = shared.log_index.lock();
        let mut last = log_index.last();
        for entry in &entries {
            follows(last, entry)?;
            last = Some(entry.pos);
        }
        let bytes: usize = entries.iter().map(|entry| entry.payload.len()).sum();
        let entries = entries
            .into_iter()
            .map(|entry| {
                (
                    log_index.push(entry.pos, entry.payload.clone(), log_index::RecordLocation::NONE),
                    entry,
                )
            })
            .collect();
        self.queue(
            bytes,
            Op::Append {
                entries,
                done: on_durable,
            },
        )
    }

    /// Saves a vote.
    pub fn save_vote(&self, vote: VoteRecord, on_durable: OnDurable) -> Result<(), StorageError> {
        let shared = self.shared();
        shared.check()?;
        let mut log_index = shared.log_index.lock();
        if let Some(old) = log_index.vote
            && vote.term < old.term
        {
            let text = format!(
                "a vote of term {} cannot follow one of term {}",
                vote.term, old.term
            );
            return Err(StorageError::Contract(text));
        }
        log_index.vote = Some(vote);
        self.queue(
            0,
            Op::Vote {
                vote,
                done: on_durable,
            },
        )
    }

    /// Records the last entry known to be committed. The mark reaches the disk with the next write.
    pub fn save_committed(&self, committed: LogPos) -> Result<(), StorageError> {
        let shared = self.shared();
        shared.check()?;
        let mut log_index = shared.log_index.lock();
        log_index.committed = Some(committed);
        let mut queue = shared.queue.lock();
        // Usually a batch has just been written, and the writer checks the queue again without being woken.
        let wake = queue.sleeping;
        queue.committed = Some(committed);
        drop(queue);
        if wake {
            shared.work.notify();
        }
        Ok(())
    }

    /// Removes the entries after `after`, or all entries if it is `None`.
    pub fn truncate_after(&self, after: Option<u64>, on_durable: OnDurable) -> Result<(), StorageError> {
        let shared = self.shared();
        shared.check()?;
        let mut log_index = shared.log_index.lock();
        log_index.truncate_after(after);
        self.queue(
            0,
            Op::Truncate {
                after,
                done: on_durable,
            },
        )
    }

    /// Removes the entries up to `upto`, which a durable snapshot must cover. The next entry is the one after
    /// `upto`, even if the log ended before it.
    pub fn purge(&self, upto: LogPos, on_durable: OnDurable) -> Result<(), StorageError> {
        let shared = self.shared();
        shared.check()?;
        let mut log_index = shared.log_index.lock();
        log_index.purge(upto);
        self.queue(
            0,
            Op::Purge {
                upto,
                done: on_durable,
            },
        )
    }

    /// Sets the id of the cluster once it is formed. Later segments carry it.
    pub fn set_cluster_id(&self, id: [u8; 16]) -> Result<(), StorageError> {
        self.shared().check()?;
        self.queue(0, Op::Cluster { id })
    }

    /// Queues an operation. Called with the index locked, so that the queue has the order of the changes of
    /// the index.
    fn queue(&self, bytes: usize, op: Op) -> Result<(), StorageError> {
        let shared = self.shared();
        let mut queue = shared.queue.lock();
        if queue.closing {
            return Err(StorageError::Closed);
        }
        let wake = queue.ops.is_empty();
        queue.bytes += bytes;
        queue.ops.push(op);
        drop(queue);
        if wake {
            shared.work.notify();
        }
        Ok(())
    }

    /// Waits until less than [`MAX_QUEUED_BYTES`] are queued for the disk, or until the log fails.
    pub async fn wait_for_room(&self) {
        let shared = self.shared();
        loop {
            let taken = shared.room.notified();
            tokio::pin!(taken);
            taken.as_mut().enable();
            if shared.queue.lock().bytes < MAX_QUEUED_BYTES {
                return;
            }
            taken.await;
        }
    }

    /// Returns whether entries with these payload lengths (bytes) can be written even if the disk allocates
    /// no more space: into the active segment and the preallocated ones, of which one is reserved for votes.
    /// Always true while the disk has space.
    pub fn has_room_for(&self, payloads: impl IntoIterator<Item = usize>) -> bool {
        let shared = self.shared();
        if !shared.starved.load(Relaxed) {
            return true;
        }
        let mut bytes = 0;
        let mut largest = 0;
        for payload in payloads {
            bytes += payload + segment::RECORD_OVERHEAD_BYTES;
            largest = largest.max(payload);
        }
        let room = self.has_room(bytes, largest);
        if !room {
            shared.refused.store(bytes, Relaxed);
        }
        room
    }

    /// Returns whether records of `bytes` in total, the largest with a payload of `largest`, fit into the
    /// allocated space.
    fn has_room(&self, bytes: usize, largest: usize) -> bool {
        let shared = self.shared();
        let usable = shared.usable();
        let Space { left, spares } = *shared.space.lock();
        // Entries do not cross segment borders, so a part of each segment may stay unused. The segment
        // reserved for votes is large enough to compensate.
        let room = left + spares.saturating_sub(1) * usable;
        spares > 0 && largest <= usable && shared.queue.lock().bytes + bytes <= room
    }

    /// Returns whether [`Wal::has_room_for`] has rejected a request and would reject it again.
    pub fn is_full(&self) -> bool {
        let refused = self.shared().refused.load(Relaxed);
        self.is_starved() && !self.has_room(refused, 0)
    }

    /// Returns whether the disk has no space for another segment, so that the log can use only the allocated
    /// ones.
    pub fn is_starved(&self) -> bool {
        self.shared().starved.load(Relaxed)
    }

    /// Returns the number of segments, including the active one.
    pub fn segments(&self) -> usize {
        self.shared().segments.load(Relaxed)
    }

    /// Returns the length of a segment in bytes.
    pub fn segment_bytes(&self) -> usize {
        self.shared().segment_bytes
    }

    /// Returns the measured times of syncs.
    pub fn fsync_stats(&self) -> &FsyncStats {
        &self.shared().fsync_stats
    }

    /// Returns the last saved vote.
    pub fn vote(&self) -> Option<VoteRecord> {
        self.shared().log_index.lock().vote
    }

    /// Returns the last commit mark.
    pub fn committed(&self) -> Option<LogPos> {
        self.shared().log_index.lock().committed
    }

    /// Returns the position of the last purged entry.
    pub fn purged(&self) -> Option<LogPos> {
        self.shared().log_index.lock().purged()
    }

    /// Returns the position of the last entry, or of the last purged one if the log is empty.
    pub fn last(&self) -> Option<LogPos> {
        self.shared().log_index.lock().last()
    }

    /// Returns the range of indexes in the log.
    pub fn range(&self) -> Range<u64> {
        self.shared().log_index.lock().range()
    }

    /// Returns the number of bytes of the records after `index`.
    pub fn bytes_after(&self, index: u64) -> u64 {
        self.shared().log_index.lock().bytes_after(index)
    }

    /// Returns the lowest index from which the entries up to `upto` have at most `max` bytes of records.
    /// Returns `upto + 1` if that entry alone has more.
    pub fn first_within(&self, upto: u64, max: u64) -> u64 {
        self.shared().log_index.lock().first_within(upto, max)
    }

    /// Plans a read of a range: the entries in the log, from the first one, until `max_bytes` of payload are
    /// reached, but at least one if there is any.
    pub fn plan_read(&self, range: Range<u64>, max_bytes: usize) -> ReadPlan {
        self.shared().log_index.lock().plan(range, max_bytes)
    }

    /// Returns the same as [`Wal::plan_read`], with the vote at the same moment.
    pub fn plan_read_with_vote(&self, range: Range<u64>, max_bytes: usize) -> (Option<VoteRecord>, ReadPlan) {
        let log_index = self.shared().log_index.lock();
        (log_index.vote, log_index.plan(range, max_bytes))
    }

    /// Returns the entries of a range that the log has. Reads those from the disk that are not in memory.
    pub fn read(&self, range: Range<u64>) -> Result<Vec<WalEntry>, StorageError> {
        self.plan_read(range, usize::MAX).load()
    }

    /// Waits until the log fails. Never returns if it does not.
    pub async fn failed(&self) -> StorageError {
        let mut failure = self.shared().failure.subscribe();
        let failed = failure.wait_for(Option::is_some).await;
        match failed.as_ref().map(|failure| failure.as_ref()) {
            Ok(Some(failure)) => StorageError::clone(failure),
            Ok(None) | Err(_) => StorageError::Closed,
        }
    }

    /// Returns the error with which the log failed, if it has.
    pub fn failure(&self) -> Option<StorageError> {
        self.shared().failure.borrow().as_deref().cloned()
    }

    /// Closes the log: rejects new calls, writes and syncs the queue, and waits until the writer has ended.
    /// Blocks.
    pub fn close(&self) -> Result<(), StorageError> {
        self.shared().queue.lock().closing = true;
        self.shared().work.notify();
        #[cfg(feature = "simulation")]
        if let Some(writer) = self.handle.stepped.lock().take() {
            while writer.lock().step(false) != Step::Closed {}
        }
        let thread = self.handle.thread.lock().take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            self.shared().fail(StorageError::Contract(
                "the writer thread of the log has panicked".into(),
            ));
        }
        self.shared().check()
    }
}

/// Checks that an entry may follow the last one.
fn follows(last: Option<LogPos>, entry: &WalEntry) -> Result<(), StorageError> {
    if entry.payload.len() > MAX_PAYLOAD_BYTES {
        let text = format!(
            "entry {} has {} bytes, more than the maximum",
            entry.pos,
            entry.payload.len()
        );
        return Err(StorageError::Contract(text));
    }
    match last {
        Some(last) if entry.pos.index != last.index.saturating_add(1) || entry.pos.term < last.term => Err(
            StorageError::Contract(format!("entry {} cannot follow {last}", entry.pos)),
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
