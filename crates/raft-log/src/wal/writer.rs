//! Writer of the log: takes the whole queue, writes it with one call, syncs once and calls the completions.
//! It does not decide about the log's contents: the queue defines the order, the index the meaning.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::time::Instant;

use fault_injection::planted::{self, Bug};

use super::encode::{NewSegment, Record, RecordPlace, begin_segment};
use super::format::{RECORD_HEADER_BYTES, offset_u32, record_start, segment_name};
use super::log_index::RecordLocation;
use super::preallocator::SegmentPreallocator;
use super::recover::{Active, Markers, SegmentInfo, Tail};
use super::segment::bytes_for;
use super::{LogPos, OnDurable, Op, Shared, WalIdentity, WalOptions};
use crate::disk::Disk;
use crate::error::StorageError;
use fault_injection::fail_step;

/// Capacity above which the buffer is freed after a write.
const KEPT_BUFFER_BYTES: usize = 1024 * 1024;

/// Outcome of one step of the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The queue was empty.
    Idle,
    /// The queue was written, or the write failed.
    Worked,
    /// The log was closed and no work is left.
    Closed,
}

/// Writing half of a log.
pub struct WalWriter {
    shared: Arc<Shared>,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    identity: WalIdentity,
    options: WalOptions,
    preallocator: SegmentPreallocator,
    segments: VecDeque<SegmentInfo>,
    active: Active,
    markers: Markers,
    /// Encoded but unwritten bytes; the first one belongs at `active.end`.
    buffer: Vec<u8>,
    /// Set if something was written since the last sync.
    unsynced: bool,
    /// Entries were written, so a commit mark for them will follow soon.
    expects_committed: bool,
}

struct Batch {
    ops: Vec<Op>,
    committed: Option<LogPos>,
    closing: bool,
}

impl WalWriter {
    pub(super) fn new(
        shared: Arc<Shared>,
        disk: Arc<dyn Disk>,
        dir: &Path,
        identity: WalIdentity,
        options: WalOptions,
        tail: Tail,
    ) -> Result<Self, StorageError> {
        let Tail {
            mut segments,
            active,
            markers,
        } = tail;
        let preallocator = SegmentPreallocator::new(
            disk.clone(),
            dir,
            options.segment_bytes,
            options.preallocator_thread,
            shared.clone(),
        )?;
        let active = match active {
            Some(active) => active,
            None => {
                let bytes = options.segment_bytes;
                let first = NewSegment {
                    dir,
                    identity,
                    bytes,
                    sequence: 1,
                    chain: 0,
                    markers: &markers,
                };
                let active = begin_segment(&*disk, &preallocator, first)?;
                shared
                    .log_index
                    .lock()
                    .add_file(active.sequence, active.file.clone());
                segments.push_back(SegmentInfo {
                    sequence: active.sequence,
                    max_index: None,
                });
                active
            }
        };
        let writer = Self {
            shared,
            disk,
            dir: dir.to_owned(),
            identity,
            options,
            preallocator,
            segments,
            active,
            markers,
            buffer: Vec::new(),
            unsynced: false,
            expects_committed: false,
        };
        writer.notify_room_waiters();
        Ok(writer)
    }

    /// Publishes the allocated space for [`Wal::has_room_for`](super::Wal::has_room_for).
    fn notify_room_waiters(&self) {
        let left = self.active.bytes.saturating_sub(self.active.end);
        self.shared.space.lock().left = left;
        self.shared.segments.store(self.segments.len(), Relaxed);
    }

    /// Returns the idle time after which a commit mark is written alone.
    #[cfg(feature = "simulation")]
    pub(super) fn idle_flush(&self) -> Option<std::time::Duration> {
        self.options.idle_flush
    }

    /// Lets the preallocator work, if it has no thread.
    #[cfg(feature = "simulation")]
    pub(super) fn step_preallocator(&self) {
        self.preallocator.step();
    }

    /// Writes until the log is closed.
    pub fn run(mut self) {
        while self.step(true) != Step::Closed {}
    }

    /// Writes what is queued. With `wait` it first waits until something is queued.
    pub fn step(&mut self, wait: bool) -> Step {
        let batch = self.take(wait);
        if batch.ops.is_empty() && batch.committed.is_none() {
            return if batch.closing { Step::Closed } else { Step::Idle };
        }
        self.shared.room.notify_waiters();
        let mut waiting = Vec::new();
        let shared = self.shared.clone();
        let written = match shared.check() {
            Ok(()) => {
                let working = shared.fsync_stats.start_write();
                let written = self.write(batch, &mut waiting);
                drop(working);
                self.notify_room_waiters();
                written.inspect_err(|error| self.shared.fail(error.clone()))
            }
            Err(error) => {
                waiting.extend(batch.ops.into_iter().filter_map(Op::into_done));
                Err(error)
            }
        };
        // Newest first: a completion implies that everything before it is durable, so the first one wakes the
        // waiting task and the others find nothing left to do.
        for done in waiting.into_iter().rev() {
            done(written.clone());
        }
        Step::Worked
    }

    fn take(&mut self, wait: bool) -> Batch {
        let mut queue = self.shared.queue.lock();
        while wait && queue.ops.is_empty() && !queue.closing {
            match self.options.idle_flush {
                Some(idle_flush) if queue.committed.is_some() || self.expects_committed => {
                    if self.shared.work.wait_for(&mut queue, idle_flush) {
                        self.expects_committed = false;
                        if queue.committed.is_some() {
                            break;
                        }
                    }
                }
                _ => {
                    queue.sleeping = true;
                    self.shared.work.wait(&mut queue);
                    queue.sleeping = false;
                }
            }
        }
        self.expects_committed = !queue.ops.is_empty();
        queue.bytes = 0;
        Batch {
            ops: std::mem::take(&mut queue.ops),
            committed: queue.committed.take(),
            closing: queue.closing,
        }
    }

    /// Writes a batch. On return, `waiting` has the completions of the batch, also if it failed.
    fn write(&mut self, batch: Batch, waiting: &mut Vec<OnDurable>) -> Result<(), StorageError> {
        let sync = batch.closing || !batch.ops.is_empty();
        let votes_only = !batch.closing && batch.ops.iter().all(|op| matches!(op, Op::Vote { .. }));
        // A commit mark alone means that nothing was appended for a while: the followers have all entries,
        // and all are applied.
        let idle = batch.ops.is_empty() && batch.committed.is_some();
        let mut places = Vec::new();
        let mut purged = false;
        let mut result = Ok(());
        for op in batch.ops {
            // After a failure the remaining operations are only completed with the error.
            if result.is_ok() {
                purged |= matches!(op, Op::Purge { .. });
                result = self.encode(&op, &mut places);
            }
            waiting.extend(op.into_done());
        }
        result?;
        if let Some(committed) = batch.committed {
            self.markers.committed = Some(committed);
            self.put(Record::committed(committed))?;
        }
        self.write_buffer()?;
        if sync && !(votes_only && planted::is(Bug::UnsyncedVote)) {
            self.sync()?;
        }
        let mut log_index = self.shared.log_index.lock();
        for (index, stamp, place) in places {
            log_index.written(index, stamp, place);
        }
        match idle {
            true => log_index.evict_all(),
            false => log_index.evict(),
        }
        drop(log_index);
        if purged {
            self.remove_purged();
        }
        // A failed preallocator fails the log, also for the callers of this batch: their data is on disk, but
        // a failed log reports nothing durable any more.
        self.shared.check()
    }

    fn encode(&mut self, op: &Op, places: &mut Vec<(u64, u64, RecordLocation)>) -> Result<(), StorageError> {
        match op {
            Op::Append { entries, .. } => {
                for (stamp, entry) in entries {
                    let index = entry.pos.index;
                    let place = self.put(Record::entry(entry))?;
                    let segment = self
                        .segments
                        .back_mut()
                        .expect("the active segment is in the list");
                    segment.max_index = segment.max_index.max(Some(index));
                    places.push((index, *stamp, place));
                }
            }
            Op::Vote { vote, .. } => {
                fail_step!("log::before_vote", |e| StorageError::io(
                    "write a vote to",
                    &self.active_path(),
                    e
                ));
                self.markers.vote = Some(*vote);
                self.put(Record::vote(vote))?;
            }
            Op::Truncate { after, .. } => {
                fail_step!("log::before_truncate", |e| StorageError::io(
                    "truncate",
                    &self.active_path(),
                    e
                ));
                self.put(Record::truncate(*after))?;
            }
            Op::Purge { upto, .. } => {
                fail_step!("log::before_purge", |e| StorageError::io(
                    "purge",
                    &self.active_path(),
                    e
                ));
                if self.markers.purged.is_none_or(|purged| purged.index < upto.index) {
                    self.markers.purged = Some(*upto);
                }
                self.put(Record::purge(*upto))?;
            }
            Op::Cluster { id } => self.identity.cluster_id = *id,
        }
        Ok(())
    }

    /// Appends a record to the buffer, in a new segment if the active one is full.
    fn put(&mut self, record: Record<'_>) -> Result<RecordLocation, StorageError> {
        let payload = record.payload;
        let fits = |active: &Active, buffered: usize| {
            let start = record_start(active.end + buffered);
            (start + RECORD_HEADER_BYTES + payload.len() <= active.bytes).then_some(start)
        };
        let start = match fits(&self.active, self.buffer.len()) {
            Some(start) => start,
            None => {
                self.roll(payload.len())?;
                fits(&self.active, 0).expect("a new segment is large enough for what it was made for")
            }
        };
        self.buffer.resize(start - self.active.end, 0);
        let place = RecordPlace {
            sequence: self.active.sequence,
            chain: self.active.chain,
            synced_to: self.active.synced_to,
        };
        self.active.chain = record.push(&mut self.buffer, place)?;
        Ok(RecordLocation {
            segment: self.active.sequence,
            offset: offset_u32(start)?,
            payload_len: offset_u32(payload.len())?,
        })
    }

    fn write_buffer(&mut self) -> Result<(), StorageError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.unsynced = true;
        fail_step!("log::before_write", |e| StorageError::io(
            "write to",
            &self.active_path(),
            e
        ));
        let file = &self.active.file;
        let written = file.write_all_at(&self.buffer, self.active.end as u64);
        written.map_err(|source| StorageError::io("write to", &self.active_path(), source))?;
        fail_step!("log::after_write", |e| StorageError::io(
            "write to",
            &self.active_path(),
            e
        ));
        self.active.end += self.buffer.len();
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BUFFER_BYTES);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StorageError> {
        if self.unsynced {
            let began = Instant::now();
            fail_step!("log::before_sync", |e| StorageError::io(
                "sync",
                &self.active_path(),
                e
            ));
            let synced = match planted::is(Bug::UnsyncedLog) {
                true => Ok(()),
                false => self.active.file.sync_data(),
            };
            self.shared.fsync_stats.record(began.elapsed());
            synced.map_err(|source| StorageError::io("sync", &self.active_path(), source))?;
            fail_step!("log::after_sync", |e| StorageError::io(
                "sync",
                &self.active_path(),
                e
            ));
            self.active.synced_to = self.active.end;
            self.unsynced = false;
        }
        Ok(())
    }

    /// Continues in a new segment. Everything in the old one is synced before the new one gets its name.
    fn roll(&mut self, payload_len: usize) -> Result<(), StorageError> {
        fail_step!("log::before_roll", |e| StorageError::io(
            "go on after",
            &self.active_path(),
            e
        ));
        self.write_buffer()?;
        self.sync()?;
        let bytes = bytes_for(&self.options, payload_len);
        let sequence = self.active.sequence + 1;
        let next = NewSegment {
            dir: &self.dir,
            identity: self.identity,
            bytes,
            sequence,
            chain: self.active.chain,
            markers: &self.markers,
        };
        self.active = begin_segment(&*self.disk, &self.preallocator, next)?;
        self.shared
            .log_index
            .lock()
            .add_file(sequence, self.active.file.clone());
        self.segments.push_back(SegmentInfo {
            sequence,
            max_index: None,
        });
        fail_step!("log::after_roll", |e| StorageError::io(
            "go on in",
            &self.active_path(),
            e
        ));
        Ok(())
    }

    /// Removes the oldest segments as long as the purge point covers all their entries. Vote, purge point and
    /// commit mark are repeated at the beginning of every later segment.
    fn remove_purged(&mut self) {
        let Some(purged) = self.markers.purged else { return };
        let mut remove = Vec::new();
        while self.segments.len() > 1
            && let Some(oldest) = self.segments.front()
            && oldest.max_index.is_none_or(|max| max <= purged.index)
        {
            remove.push(oldest.sequence);
            self.segments.pop_front();
        }
        if remove.is_empty() {
            return;
        }
        let mut log_index = self.shared.log_index.lock();
        remove
            .iter()
            .for_each(|sequence| log_index.remove_file(*sequence));
        drop(log_index);
        self.preallocator.remove(remove);
    }

    fn active_path(&self) -> PathBuf {
        self.dir.join(segment_name(self.active.sequence))
    }
}

impl Op {
    fn into_done(self) -> Option<OnDurable> {
        match self {
            Op::Append { done, .. }
            | Op::Vote { done, .. }
            | Op::Truncate { done, .. }
            | Op::Purge { done, .. } => Some(done),
            Op::Cluster { .. } => None,
        }
    }
}
