//! Preallocates segments and removes the oldest ones, so that the writer waits for neither. It writes no
//! records and decides nothing: the writer decides what is removed, and when.
//!
//! One segment more is preallocated than the next one needs: the reserve. A segment's bytes are on the disk
//! before it is used, so on a full disk the log can still use the rest of the active segment and the
//! preallocated ones. [`super::Wal::has_room_for`] decides what may be written there.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::format::segment_name;
use super::{Shared, Space, segment};
use crate::disk::{Disk, DiskFile};
use crate::error::StorageError;
use fault_injection::fail_step;

/// Number of preallocated segments beside the next one, reserved for a full disk. One holds some ten thousand
/// releases, and then as many votes as any number of elections needs.
pub const RESERVED_SEGMENTS: usize = 1;

/// Number of preallocated segments.
pub const SEGMENTS_AHEAD: usize = 1 + RESERVED_SEGMENTS;

/// Interval between attempts to create a segment after a failure, because no event signals that the disk has
/// space again.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Temporary name of a segment that is created while the writer waits.
const INLINE_NAME: &str = "extra.tmp";

/// Returns the temporary name of a preallocated segment. The file outlives the process, because on a full
/// disk it could not be created again.
fn spare_name(slot: usize) -> String {
    format!("spare-{slot}.tmp")
}

/// Returns whether a file in the log's directory may be a segment that an earlier process preallocated.
pub(super) fn is_spare_name(name: &str) -> bool {
    (0..SEGMENTS_AHEAD).any(|slot| name == spare_name(slot))
}

/// A segment file filled with zeros, under a temporary name.
pub(super) struct Spare {
    pub file: Arc<dyn DiskFile>,
    pub path: PathBuf,
}

enum Slot {
    /// The thread should create a segment.
    Wanted,
    /// The segment is available.
    Ready(Spare),
    /// The creation failed, and is retried later.
    Failed(StorageError),
    /// The writer has taken the segment and has not yet renamed it.
    Taken,
}

struct State {
    ahead: [Slot; SEGMENTS_AHEAD],
    remove: VecDeque<u64>,
    closing: bool,
}

impl State {
    fn wanted(&self) -> Option<usize> {
        self.ahead.iter().position(|slot| matches!(slot, Slot::Wanted))
    }

    /// Makes failed creations due again.
    fn retry_failed(&mut self) {
        for slot in &mut self.ahead {
            if matches!(slot, Slot::Failed(_)) {
                *slot = Slot::Wanted;
            }
        }
    }

    fn ready(&self) -> Option<usize> {
        self.ahead.iter().position(|slot| matches!(slot, Slot::Ready(_)))
    }

    fn ready_count(&self) -> usize {
        let ready = self.ahead.iter().filter(|slot| matches!(slot, Slot::Ready(_)));
        ready.count()
    }
}

struct PreallocatorShared {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    segment_bytes: usize,
    state: Mutex<State>,
    changed: Condvar,
    shared: Arc<Shared>,
}

/// The writer's handle to the preallocator.
pub(super) struct SegmentPreallocator {
    inner: Arc<PreallocatorShared>,
    thread: Option<JoinHandle<()>>,
    /// State of a preallocator without a thread, which works when it is stepped.
    #[cfg(feature = "simulation")]
    stepped: Option<Stepped>,
}

/// Time of the last retry of a preallocator without a thread.
#[cfg(feature = "simulation")]
struct Stepped {
    tried: Mutex<tokio::time::Instant>,
}

impl SegmentPreallocator {
    pub fn new(
        disk: Arc<dyn Disk>,
        dir: &Path,
        segment_bytes: usize,
        own_thread: bool,
        shared: Arc<Shared>,
    ) -> Result<Self, StorageError> {
        let state = State {
            ahead: std::array::from_fn(|_| Slot::Wanted),
            remove: VecDeque::new(),
            closing: false,
        };
        let inner = Arc::new(PreallocatorShared {
            disk,
            dir: dir.to_owned(),
            segment_bytes,
            state: Mutex::new(state),
            changed: Condvar::new(),
            shared,
        });
        let mut thread = None;
        #[cfg(feature = "simulation")]
        if own_thread && crate::simulation::is_on() {
            inner.adopt_spares();
            let stepped = Some(Stepped {
                tried: Mutex::new(tokio::time::Instant::now()),
            });
            let preallocator = Self {
                inner,
                thread,
                stepped,
            };
            preallocator.step();
            return Ok(preallocator);
        }
        if own_thread {
            let inner = inner.clone();
            let spawned = std::thread::Builder::new()
                .name("raft-log-segments".into())
                .spawn(move || {
                    let _missed = PanicGuard(&inner);
                    inner.run();
                });
            thread =
                Some(spawned.map_err(|source| StorageError::io("start the preallocator of", dir, source))?);
        }
        Ok(Self {
            inner,
            thread,
            #[cfg(feature = "simulation")]
            stepped: None,
        })
    }

    /// Returns whether segments are created before they are needed.
    fn works_ahead(&self) -> bool {
        #[cfg(feature = "simulation")]
        if self.stepped.is_some() {
            return true;
        }
        self.thread.is_some()
    }

    /// Does the work that a thread would have done by now.
    #[cfg(feature = "simulation")]
    pub fn step(&self) {
        let Some(stepped) = &self.stepped else { return };
        let mut tried = stepped.tried.lock();
        if tried.elapsed() >= RETRY_INTERVAL {
            *tried = tokio::time::Instant::now();
            self.inner.state.lock().retry_failed();
        }
        loop {
            let mut state = self.inner.state.lock();
            let (remove, make) = (std::mem::take(&mut state.remove), state.wanted());
            drop(state);
            if remove.is_empty() && make.is_none() {
                return;
            }
            self.inner.work(remove, make);
        }
    }

    /// Returns a segment of at least `bytes` bytes, a preallocated one if available.
    pub fn take(&self, bytes: usize) -> Result<Spare, StorageError> {
        #[cfg(feature = "simulation")]
        self.step();
        if self.works_ahead() && bytes == self.inner.segment_bytes {
            let mut state = self.inner.state.lock();
            while state.ready().is_none() && state.wanted().is_some() {
                self.inner.changed.wait(&mut state);
            }
            if let Some(slot) = state.ready()
                && let Slot::Ready(spare) = std::mem::replace(&mut state.ahead[slot], Slot::Taken)
            {
                // In one step: otherwise a concurrent reader could see neither the preallocated segment nor
                // the active one.
                *self.inner.shared.space.lock() = Space {
                    left: self.inner.shared.usable(),
                    spares: state.ready_count(),
                };
                return Ok(spare);
            }
            // The failed creation may succeed now; if not, the error is current.
            for slot in &state.ahead {
                if let Slot::Failed(error) = slot {
                    tracing::warn!(%error, "log: a segment could not be preallocated");
                }
            }
        }
        self.inner.make(INLINE_NAME, bytes)
    }

    /// Confirms that the taken segment has its final name, so that another one can be created.
    pub fn confirm_taken(&self) {
        let mut state = self.inner.state.lock();
        for slot in &mut state.ahead {
            if matches!(slot, Slot::Taken) {
                *slot = Slot::Wanted;
            }
        }
        self.inner.changed.notify_all();
    }

    /// Removes segments in this order.
    pub fn remove(&self, sequences: Vec<u64>) {
        if self.works_ahead() {
            self.inner.state.lock().remove.extend(sequences);
            self.inner.changed.notify_all();
        } else {
            self.inner.remove_all(sequences);
        }
    }
}

impl Drop for SegmentPreallocator {
    fn drop(&mut self) {
        self.inner.state.lock().closing = true;
        self.inner.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("log: the preallocator thread panicked");
        }
    }
}

/// Guard that fails the log if the thread panics, because the writer may be waiting for it.
struct PanicGuard<'a>(&'a PreallocatorShared);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let error = StorageError::Contract("the preallocator thread of the log has panicked".into());
            self.0.shared.fail(error.clone());
            self.0.state.lock().ahead = std::array::from_fn(|_| Slot::Failed(error.clone()));
            self.0.changed.notify_all();
        }
    }
}

impl PreallocatorShared {
    fn run(&self) {
        self.adopt_spares();
        loop {
            let mut state = self.state.lock();
            while !state.closing && state.remove.is_empty() && state.wanted().is_none() {
                if !state.ahead.iter().any(|slot| matches!(slot, Slot::Failed(_))) {
                    self.changed.wait(&mut state);
                } else if self.changed.wait_for(&mut state, RETRY_INTERVAL).timed_out() {
                    state.retry_failed();
                }
            }
            let remove = std::mem::take(&mut state.remove);
            let make = state.wanted().filter(|_| !state.closing);
            let closing = state.closing;
            drop(state);

            self.work(remove, make);
            if closing {
                return;
            }
        }
    }

    /// Removes old segments first, to free the space that a new one needs.
    fn work(&self, remove: VecDeque<u64>, make: Option<usize>) {
        self.remove_all(remove);
        if let Some(slot) = make {
            let made = self.make(&spare_name(slot), self.segment_bytes);
            let full = made.as_ref().is_err_and(StorageError::is_full_disk);
            if full != self.shared.starved.swap(full, Relaxed) {
                match full {
                    true => tracing::warn!("log: the disk is full, only allocated segments are left"),
                    false => tracing::info!("log: the disk has space for new segments again"),
                }
            }
            let mut state = self.state.lock();
            state.ahead[slot] = made.map_or_else(Slot::Failed, Slot::Ready);
            self.count_spares(&state);
            drop(state);
            self.changed.notify_all();
        }
    }

    fn count_spares(&self, state: &State) {
        self.shared.space.lock().spares = state.ready_count();
    }

    /// Takes over the segments that an earlier process preallocated: on a disk that has become full since,
    /// they are all the space that the log has. Incomplete ones are created again.
    fn adopt_spares(&self) {
        for slot in 0..SEGMENTS_AHEAD {
            let path = self.dir.join(spare_name(slot));
            if let Some(file) = segment::adopt_zeroed(self.disk.as_ref(), &path, self.segment_bytes) {
                let mut state = self.state.lock();
                state.ahead[slot] = Slot::Ready(Spare { file, path });
                self.count_spares(&state);
            }
            self.changed.notify_all();
        }
    }

    fn make(&self, name: &str, bytes: usize) -> Result<Spare, StorageError> {
        let path = self.dir.join(name);
        match segment::create_zeroed(self.disk.as_ref(), &path, bytes) {
            Ok(file) => Ok(Spare { file, path }),
            Err(error) => {
                // On a full disk an incomplete segment would take space from everything else.
                if let Err(error) = self.disk.remove(&path) {
                    tracing::debug!(path = %path.display(), %error, "log: an incomplete segment could not be removed");
                }
                Err(error)
            }
        }
    }

    /// Removes segments one by one, each durably before the next: a crash must not leave a gap between
    /// segments.
    fn remove_all(&self, sequences: impl IntoIterator<Item = u64>) {
        for sequence in sequences {
            if self.shared.check().is_err() {
                return;
            }
            if let Err(error) = self.remove_one(sequence) {
                self.shared.fail(error);
            }
        }
    }

    fn remove_one(&self, sequence: u64) -> Result<(), StorageError> {
        let path = self.dir.join(segment_name(sequence));
        fail_step!("segment::before_remove", |e| StorageError::io("remove", &path, e));
        let removed = self.disk.remove(&path);
        removed.map_err(|source| StorageError::io("remove", &path, source))?;
        fail_step!("segment::after_remove", |e| StorageError::io(
            "sync", &self.dir, e
        ));
        let synced = self.disk.sync_dir(&self.dir);
        synced.map_err(|source| StorageError::io("sync", &self.dir, source))
    }
}
