//! The write-ahead log: entries, vote, commit mark and purge point in one serial order.
//!
//! ```text
//!  append, save_vote, truncate_after, purge          read, vote, last
//!        |  change the view, then queue                 ^
//!        v                                              |
//!     [queue] --all that waits--> writer thread      [view: newest entries in memory, older ones by place]
//!                                  | one write, one fdatasync
//!                                  v
//!                           segment files  <-- made ahead and removed by the preallocator thread
//!                                  |
//!                                  v
//!                           on_durable, newest first
//! ```
//!
//! What it guarantees:
//!
//! * What was appended can be read as soon as `append` returns. It is durable when its `on_durable` is called
//!   with `Ok`, and so is everything that was queued before it.
//! * After a crash the log is what it was after some prefix of the calls, and that prefix holds every call that
//!   was reported durable. A torn last write is cut off; damage anywhere else is an error that says what to do.
//! * The first failed write or sync ends it: nothing is accepted or reported durable any more. After a failed
//!   sync nobody knows what the disk holds, and asking again can answer a lie.
//!
//! Limits: it does not know Raft's rules beyond "no holes" and "votes never go back"; a caller that
//! purges must have a durable snapshot first; and it does not save the commit mark with a sync of its own, since
//! the mark only speeds up the next start.

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
pub use self::fsync_stats::{FsyncStats, FSYNC_BUCKETS_US, FsyncTimes};
pub use self::preallocator::{RESERVED_SEGMENTS, SEGMENTS_AHEAD};
pub use self::types::*;
pub use self::log_index::ReadPlan;
use self::log_index::LogIndex;
use self::writer_signal::WriterSignal;
pub use self::writer::{Step, WalWriter};
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
    /// The writer waits without a timeout, so a commit mark has to wake it.
    sleeping: bool,
}

/// State shared by the handle, the writer and the preallocator. Locks are taken in the order view, queue.
struct Shared {
    log_index: Mutex<LogIndex>,
    queue: Mutex<Queue>,
    /// Something was queued.
    work: WriterSignal,
    /// The queue was taken.
    room: Notify,
    failure: watch::Sender<Option<Arc<StorageError>>>,
    /// Times of syncs.
    fsync_stats: FsyncStats,
    /// The disk had no space for the last segment that was to be made ahead.
    starved: AtomicBool,
    /// Bytes that were last refused on that account.
    refused: AtomicUsize,
    /// Allocated space without records.
    space: Mutex<Space>,
    /// Segments, the one that is written to among them.
    segments: AtomicUsize,
    /// Length of a segment.
    segment_bytes: usize,
}

/// Room for records. Locked for itself, after whatever else is.
#[derive(Debug, Default, Clone, Copy)]
struct Space {
    /// Bytes left in the segment that is written to.
    left: usize,
    /// Segments made ahead.
    spares: usize,
}

impl Shared {
    /// Returns the approximate space for entries in a segment.
    fn usable(&self) -> usize {
        self.segment_bytes.saturating_sub(segment::OVERHEAD_BYTES)
    }

    fn check(&self) -> Result<(), StorageError> {
        match &*self.failure.borrow() {
            Some(failure) => Err(StorageError::Failed(failure.clone())),
            None => Ok(()),
        }
    }

    /// The first failure stays.
    fn fail(&self, error: StorageError) {
        let error = Arc::new(error);
        let first = self.failure.send_if_modified(|failure| {
            let first = failure.is_none();
            failure.get_or_insert(error.clone());
            first
        });
        if first {
            tracing::error!(%error, "the log has failed and takes nothing more");
        }
    }
}

/// A thread of the log that panics leaves everybody waiting; so the log has failed.
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
    /// The writer of a simulated node, which has no threads: a task steps it.
    #[cfg(feature = "simulation")]
    stepped: Mutex<Option<Arc<Mutex<WalWriter>>>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.queue.lock().closing = true;
        self.shared.work.notify();
    }
}

/// The log. Clones are the same log; when the last one goes, the writer writes what is queued and ends.
#[derive(Clone)]
pub struct Wal {
    handle: Arc<Handle>,
}

impl Wal {
    /// Opens the log in a directory, or begins one, and starts its writer thread.
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

    /// Gives the writer a thread.
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

    /// Opens the log and leaves the writing to the caller, who steps the writer.
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

    /// Notes the last entry known to be committed. It reaches the disk with the next write, whenever that is.
    pub fn save_committed(&self, committed: LogPos) -> Result<(), StorageError> {
        let shared = self.shared();
        shared.check()?;
        let mut log_index = shared.log_index.lock();
        log_index.committed = Some(committed);
        let mut queue = shared.queue.lock();
        // Usually a batch has just been written, and the writer looks again by itself in a moment.
        let wake = queue.sleeping;
        queue.committed = Some(committed);
        drop(queue);
        if wake {
            shared.work.notify();
        }
        Ok(())
    }

    /// Removes the entries after `after`, or all.
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

    /// Removes the entries up to `upto`. A durable snapshot must cover them. The next entry is the one after
    /// `upto`, also if the log ended before it.
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

    /// The cluster has been formed: segments begun from now on carry its id.
    pub fn set_cluster_id(&self, id: [u8; 16]) -> Result<(), StorageError> {
        self.shared().check()?;
        self.queue(0, Op::Cluster { id })
    }

    /// Called with the view locked, so that the queue has the order of the view's changes.
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

    /// Waits until less than [`MAX_QUEUED_BYTES`] wait for the disk, or the log has failed.
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

    /// Returns whether entries with these payload sizes in bytes can be written even if the disk provides no more space: into the
    /// current segment and those made ahead, of which one is reserved for votes. Always true while the disk has space.
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

    /// Returns whether `bytes` bytes of records, the largest payload among them of `largest` bytes, fit into the allocated space.
    fn has_room(&self, bytes: usize, largest: usize) -> bool {
        let shared = self.shared();
        let usable = shared.usable();
        let Space { left, spares } = *shared.space.lock();
        // Entries do not cross from one segment to the next, so some of each may be left unused; the one for votes
        // is large enough to make up for that.
        let room = left + spares.saturating_sub(1) * usable;
        spares > 0 && largest <= usable && shared.queue.lock().bytes + bytes <= room
    }

    /// Returns whether [`Wal::takes`] refused entries, and would refuse them again.
    pub fn is_full(&self) -> bool {
        let refused = self.shared().refused.load(Relaxed);
        self.is_starved() && !self.has_room(refused, 0)
    }

    /// Returns whether the disk has no space for another segment, so that the log uses only existing ones.
    pub fn is_starved(&self) -> bool {
        self.shared().starved.load(Relaxed)
    }

    /// Returns the number of segments, including the current one.
    pub fn segments(&self) -> usize {
        self.shared().segments.load(Relaxed)
    }

    /// Returns the length of a segment in bytes.
    pub fn segment_bytes(&self) -> usize {
        self.shared().segment_bytes
    }

    /// Returns the times of syncs.
    pub fn fsync_stats(&self) -> &FsyncStats {
        &self.shared().fsync_stats
    }

    /// The last vote saved.
    pub fn vote(&self) -> Option<VoteRecord> {
        self.shared().log_index.lock().vote
    }

    /// The last commit mark.
    pub fn committed(&self) -> Option<LogPos> {
        self.shared().log_index.lock().committed
    }

    /// The last entry that was purged.
    pub fn purged(&self) -> Option<LogPos> {
        self.shared().log_index.lock().purged()
    }

    /// Returns the position of the last entry, or of the last purged one if the log is empty.
    pub fn last(&self) -> Option<LogPos> {
        self.shared().log_index.lock().last()
    }

    /// The indexes of the entries that are there.
    pub fn range(&self) -> Range<u64> {
        self.shared().log_index.lock().range()
    }

    /// Returns the number of bytes of the records of the entries after `index`.
    pub fn bytes_after(&self, index: u64) -> u64 {
        self.shared().log_index.lock().bytes_after(index)
    }

    /// The first index from which on the entries up to `upto` have at most `max` bytes of records; the one after `upto`
    /// if that one alone has more.
    pub fn first_within(&self, upto: u64, max: u64) -> u64 {
        self.shared().log_index.lock().first_within(upto, max)
    }

    /// Notes what has to be read for the entries of a range: those that are there, from the first, until
    /// `max_bytes` of payload are reached. At least one if there is one.
    pub fn plan_read(&self, range: Range<u64>, max_bytes: usize) -> ReadPlan {
        self.shared().log_index.lock().plan(range, max_bytes)
    }

    /// As [`Wal::plan_read`], together with the vote at the same moment.
    pub fn plan_read_with_vote(&self, range: Range<u64>, max_bytes: usize) -> (Option<VoteRecord>, ReadPlan) {
        let log_index = self.shared().log_index.lock();
        (log_index.vote, log_index.plan(range, max_bytes))
    }

    /// The entries of a range that are there. Reads from the disk what is not in memory.
    pub fn read(&self, range: Range<u64>) -> Result<Vec<WalEntry>, StorageError> {
        self.plan_read(range, usize::MAX).load()
    }

    /// Waits until the log fails; forever if it never does.
    pub async fn failed(&self) -> StorageError {
        let mut failure = self.shared().failure.subscribe();
        let failed = failure.wait_for(Option::is_some).await;
        match failed.as_ref().map(|failure| failure.as_ref()) {
            Ok(Some(failure)) => StorageError::clone(failure),
            Ok(None) | Err(_) => StorageError::Closed,
        }
    }

    /// Returns the reason why the log failed, if it did.
    pub fn failure(&self) -> Option<StorageError> {
        self.shared().failure.borrow().as_deref().cloned()
    }

    /// Takes nothing more, writes and syncs what is queued, and waits until the writer has ended. Blocks.
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

/// Checks that `entry` may follow the entry at `last`.
fn follows(last: Option<LogPos>, entry: &WalEntry) -> Result<(), StorageError> {
    if entry.payload.len() > MAX_PAYLOAD_BYTES {
        let text = format!(
            "entry {} has {} bytes, more than one may have",
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
