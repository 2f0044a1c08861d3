//! What was made of files, and is made again when they change: all of it or nothing.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::error::TlsError;

/// How often files are looked at. Whoever replaces a certificate does not wait for it, and a look costs three system calls.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);

/// So long before this side's certificate expires the log begins to say so, once a day: time to find out who renews it.
pub const EXPIRY_WARNING: Duration = Duration::from_secs(30 * 24 * 3600);

/// How often the same warning is repeated.
const WARN_EVERY: Duration = Duration::from_secs(24 * 3600);

/// What is made of files.
pub(crate) struct Made<T> {
    pub thing: T,
    /// When the first certificate of this side expires; `None` if it has none.
    pub not_after: Option<SystemTime>,
}

type Make<T> = Box<dyn Fn() -> Result<Made<T>, TlsError> + Send + Sync>;

/// A thing that is made of files.
pub(crate) struct Kept<T> {
    what: &'static str,
    files: Vec<PathBuf>,
    make: Make<T>,
    current: RwLock<Current<T>>,
    seen: Mutex<Seen>,
}

struct Current<T> {
    thing: Arc<T>,
    not_after: Option<SystemTime>,
}

#[derive(Default)]
struct Seen {
    files: Vec<Option<FileState>>,
    /// The last failure, so that it is logged once.
    failure: Option<String>,
    warned: Option<tokio::time::Instant>,
}

/// By what a changed file is told. A file that is renamed into place has another number, one that is written to another time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    mode: u32,
}

/// Something that follows its files.
pub trait Refresh: Send + Sync {
    /// What it is, for people.
    fn what(&self) -> &'static str;

    /// Reads its files again if they have changed, or could not be read the last time. What is wrong with them is logged and
    /// returned, and changes nothing. Says whether something new is in use.
    fn refresh(&self) -> Result<bool, TlsError>;

    /// When this side's certificate expires; `None` if it has none.
    fn not_after(&self) -> Option<SystemTime>;

    /// Logs a warning if that is soon.
    fn warn_of_expiry(&self);
}

/// Something that follows its files, shared.
pub type Reloadable = Arc<dyn Refresh>;

impl<T> Kept<T> {
    pub fn new(what: &'static str, files: Vec<PathBuf>, make: Make<T>) -> Result<Arc<Self>, TlsError> {
        // Looked at before they are read: what changes in between is found by the next look.
        let seen = Seen {
            files: look(&files),
            ..Seen::default()
        };
        let Made { thing, not_after } = make()?;
        let current = Current {
            thing: Arc::new(thing),
            not_after,
        };
        Ok(Arc::new(Self {
            what,
            files,
            make,
            current: RwLock::new(current),
            seen: Mutex::new(seen),
        }))
    }

    /// What is in use now.
    pub fn get(&self) -> Arc<T> {
        self.current.read().thing.clone()
    }
}

impl<T: Send + Sync> Refresh for Kept<T> {
    fn what(&self) -> &'static str {
        self.what
    }

    fn refresh(&self) -> Result<bool, TlsError> {
        let mut seen = self.seen.lock();
        let files = look(&self.files);
        if files == seen.files && seen.failure.is_none() {
            return Ok(false);
        }
        seen.files = files;
        match (self.make)() {
            Ok(Made { thing, not_after }) => {
                *self.current.write() = Current {
                    thing: Arc::new(thing),
                    not_after,
                };
                seen.failure = None;
                seen.warned = None;
                info!(
                    what = self.what,
                    "certificates were read again and are in use for new connections"
                );
                Ok(true)
            }
            Err(problem) => {
                let text = problem.to_string();
                if seen.failure.as_ref() != Some(&text) {
                    error!(
                        what = self.what,
                        error = text,
                        "changed certificates are of no use, the earlier ones stay in use"
                    );
                }
                seen.failure = Some(text);
                Err(problem)
            }
        }
    }

    fn not_after(&self) -> Option<SystemTime> {
        self.current.read().not_after
    }

    fn warn_of_expiry(&self) {
        let Some(not_after) = self.not_after() else {
            return;
        };
        let left = not_after.duration_since(SystemTime::now()).unwrap_or_default();
        if left >= EXPIRY_WARNING {
            return;
        }
        let mut seen = self.seen.lock();
        if seen.warned.is_some_and(|at| at.elapsed() < WARN_EVERY) {
            return;
        }
        seen.warned = Some(tokio::time::Instant::now());
        let days_left = left.as_secs() / (24 * 3600);
        match left.is_zero() {
            true => error!(
                what = self.what,
                "this node's certificate has expired: nobody will accept it"
            ),
            false => warn!(
                what = self.what,
                days_left, "this node's certificate expires soon"
            ),
        }
    }
}

fn look(files: &[PathBuf]) -> Vec<Option<FileState>> {
    let state = |path: &PathBuf| {
        let about = fs::metadata(path).ok()?;
        Some(FileState {
            device: about.dev(),
            inode: about.ino(),
            bytes: about.size(),
            modified: (about.mtime(), about.mtime_nsec()),
            mode: about.mode(),
        })
    };
    files.iter().map(state).collect()
}

/// Follows the files of all of `things` until `stop`: looks at them every few seconds, and at once when `now` is notified.
pub async fn keep_fresh(things: Vec<Reloadable>, now: Arc<Notify>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = now.notified() => {}
            _ = ticks.tick() => {}
        }
        let things = things.clone();
        // Files may be on a disk that is slow, or on a network.
        let looked = tokio::task::spawn_blocking(move || {
            for thing in &things {
                // What is wrong was logged where it was found, and is looked at again the next time.
                let _ = thing.refresh();
                thing.warn_of_expiry();
            }
        });
        if let Err(error) = looked.await {
            // A panic: there is a hook that ends the process where that is wanted.
            error!(%error, "certificates could not be looked at");
        }
    }
}
