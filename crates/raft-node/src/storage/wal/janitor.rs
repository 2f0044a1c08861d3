//! Makes the next segment ahead of time and removes the oldest ones, so that the writer waits for neither.
//! It writes no record and decides nothing: what is removed, and when, says the writer.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use super::format::segment_name;
use super::{Shared, segment};
use crate::storage::disk::{Disk, DiskFile};
use crate::storage::error::StorageError;

/// The segment made ahead. A start removes it: nobody knows how far it had come.
const SPARE_NAME: &str = "next.tmp";
/// A segment made while the writer waits.
const INLINE_NAME: &str = "extra.tmp";

/// A segment file full of zeros under a temporary name.
pub(super) struct Spare {
    pub file: Arc<dyn DiskFile>,
    pub path: PathBuf,
}

enum Ahead {
    /// The thread is to make one.
    Wanted,
    /// It is there.
    Ready(Spare),
    /// It could not be made.
    Failed(StorageError),
    /// The writer has it and has not given it its name yet.
    Taken,
}

struct State {
    ahead: Ahead,
    remove: VecDeque<u64>,
    closing: bool,
}

struct Yard {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    segment_bytes: usize,
    state: Mutex<State>,
    changed: Condvar,
    shared: Arc<Shared>,
}

/// The writer's handle to the janitor.
pub(super) struct Janitor {
    yard: Arc<Yard>,
    thread: Option<JoinHandle<()>>,
}

impl Janitor {
    pub fn new(
        disk: Arc<dyn Disk>,
        dir: &Path,
        segment_bytes: usize,
        own_thread: bool,
        shared: Arc<Shared>,
    ) -> Result<Self, StorageError> {
        let state = State {
            ahead: Ahead::Wanted,
            remove: VecDeque::new(),
            closing: false,
        };
        let yard = Arc::new(Yard {
            disk,
            dir: dir.to_owned(),
            segment_bytes,
            state: Mutex::new(state),
            changed: Condvar::new(),
            shared,
        });
        let mut thread = None;
        if own_thread {
            let yard = yard.clone();
            let spawned = std::thread::Builder::new()
                .name("raft-log-janitor".into())
                .spawn(move || {
                    let _missed = Missed(&yard);
                    yard.run();
                });
            thread = Some(spawned.map_err(|source| StorageError::io("start the janitor of", dir, source))?);
        }
        Ok(Self { yard, thread })
    }

    /// A segment of at least so many bytes, made ahead if there is one.
    pub fn take(&self, bytes: usize) -> Result<Spare, StorageError> {
        if self.thread.is_some() && bytes == self.yard.segment_bytes {
            let mut state = self.yard.state.lock();
            while matches!(state.ahead, Ahead::Wanted) {
                self.yard.changed.wait(&mut state);
            }
            match std::mem::replace(&mut state.ahead, Ahead::Taken) {
                Ahead::Ready(spare) => return Ok(spare),
                // What failed then may be possible now; if not, the error is fresh.
                Ahead::Failed(error) => tracing::warn!(%error, "could not make a segment of the log ahead"),
                Ahead::Wanted | Ahead::Taken => {}
            }
        }
        self.yard.make(INLINE_NAME, bytes)
    }

    /// The segment that was taken has its name now, so the next one can be made.
    pub fn taken_is_named(&self) {
        let mut state = self.yard.state.lock();
        if matches!(state.ahead, Ahead::Taken) {
            state.ahead = Ahead::Wanted;
            self.yard.changed.notify_all();
        }
    }

    /// Removes segments, in this order.
    pub fn remove(&self, sequences: Vec<u64>) {
        if self.thread.is_some() {
            self.yard.state.lock().remove.extend(sequences);
            self.yard.changed.notify_all();
        } else {
            self.yard.remove_all(sequences);
        }
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        self.yard.state.lock().closing = true;
        self.yard.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the janitor thread of the log has panicked");
        }
    }
}

/// Ends the log if the thread panics. The writer may be waiting for it just then.
struct Missed<'a>(&'a Yard);

impl Drop for Missed<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let error = StorageError::Contract("the janitor thread of the log has panicked".into());
            self.0.shared.fail(error.clone());
            self.0.state.lock().ahead = Ahead::Failed(error);
            self.0.changed.notify_all();
        }
    }
}

impl Yard {
    fn run(&self) {
        loop {
            let mut state = self.state.lock();
            while !state.closing && state.remove.is_empty() && !matches!(state.ahead, Ahead::Wanted) {
                self.changed.wait(&mut state);
            }
            let remove = std::mem::take(&mut state.remove);
            let make = matches!(state.ahead, Ahead::Wanted) && !state.closing;
            let closing = state.closing;
            drop(state);

            self.remove_all(remove);
            if make {
                let made = self.make(SPARE_NAME, self.segment_bytes);
                self.state.lock().ahead = made.map_or_else(Ahead::Failed, Ahead::Ready);
                self.changed.notify_all();
            }
            if closing {
                return;
            }
        }
    }

    fn make(&self, name: &str, bytes: usize) -> Result<Spare, StorageError> {
        let path = self.dir.join(name);
        match segment::create_zeroed(self.disk.as_ref(), &path, bytes) {
            Ok(file) => Ok(Spare { file, path }),
            Err(error) => {
                // On a full disk half a segment would be in the way of everything else.
                if let Err(error) = self.disk.remove(&path) {
                    tracing::debug!(path = %path.display(), %error, "could not remove a segment that was not made");
                }
                Err(error)
            }
        }
    }

    /// One after the other, each durable before the next: a crash must not leave a hole between segments.
    fn remove_all(&self, sequences: impl IntoIterator<Item = u64>) {
        for sequence in sequences {
            if self.shared.check().is_err() {
                return;
            }
            let path = self.dir.join(segment_name(sequence));
            let removed = self
                .disk
                .remove(&path)
                .map_err(|source| StorageError::io("remove", &path, source))
                .and_then(|()| {
                    let synced = self.disk.sync_dir(&self.dir);
                    synced.map_err(|source| StorageError::io("sync", &self.dir, source))
                });
            if let Err(error) = removed {
                self.shared.fail(error);
            }
        }
    }
}
