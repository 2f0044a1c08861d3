//! Values loaded from files, and reloaded when the files change. A reload replaces the whole value or
//! nothing.

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

/// Interval between checks of the files. A renewed certificate is not urgent, and a check costs three system
/// calls.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Remaining validity of this side's certificate at which the log starts to warn, once a day: enough time to
/// find out who renews it.
pub const EXPIRY_WARNING: Duration = Duration::from_secs(30 * 24 * 3600);

/// Interval between repetitions of a warning.
const WARNING_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// Value loaded from files.
pub(crate) struct Loaded<T> {
    pub value: T,
    /// Earliest expiry in this side's certificate chain; `None` if it has no certificate.
    pub not_after: Option<SystemTime>,
}

type Loader<T> = Box<dyn Fn() -> Result<Loaded<T>, TlsError> + Send + Sync>;

/// Value that is reloaded when its files change.
pub(crate) struct ReloadableValue<T> {
    what: &'static str,
    files: Vec<PathBuf>,
    make: Loader<T>,
    current: RwLock<Current<T>>,
    observed: Mutex<ObservedFiles>,
}

struct Current<T> {
    value: Arc<T>,
    not_after: Option<SystemTime>,
}

#[derive(Default)]
struct ObservedFiles {
    files: Vec<Option<FileState>>,
    /// Last error, so that it is logged once.
    failure: Option<String>,
    warned: Option<tokio::time::Instant>,
}

/// Attributes by which a changed file is detected. A file that is renamed into place has another inode, one
/// that is written in place another modification time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    mode: u32,
}

/// Value that is reloaded when its files change.
pub trait Refresh: Send + Sync {
    /// Name of the value, for the log.
    fn what(&self) -> &'static str;

    /// Reloads the value if its files have changed, or could not be loaded the last time. Returns whether a
    /// new value is in use. An error is logged and returned, and leaves the old value in use.
    fn refresh(&self) -> Result<bool, TlsError>;

    /// Expiry of this side's certificate; `None` if it has none.
    fn not_after(&self) -> Option<SystemTime>;

    /// Logs a warning if the certificate expires within [`EXPIRY_WARNING`].
    fn warn_of_expiry(&self);
}

/// Shared handle of a value that is reloaded when its files change.
pub type Reloadable = Arc<dyn Refresh>;

impl<T> ReloadableValue<T> {
    pub fn new(what: &'static str, files: Vec<PathBuf>, make: Loader<T>) -> Result<Arc<Self>, TlsError> {
        // The state of the files is taken before they are read, so the next check finds a change in between.
        let observed = ObservedFiles {
            files: file_states(&files),
            ..ObservedFiles::default()
        };
        let Loaded { value, not_after } = make()?;
        let current = Current {
            value: Arc::new(value),
            not_after,
        };
        Ok(Arc::new(Self {
            what,
            files,
            make,
            current: RwLock::new(current),
            observed: Mutex::new(observed),
        }))
    }

    /// Current value.
    pub fn get(&self) -> Arc<T> {
        self.current.read().value.clone()
    }
}

impl<T: Send + Sync> Refresh for ReloadableValue<T> {
    fn what(&self) -> &'static str {
        self.what
    }

    fn refresh(&self) -> Result<bool, TlsError> {
        let mut observed = self.observed.lock();
        let files = file_states(&self.files);
        if files == observed.files && observed.failure.is_none() {
            return Ok(false);
        }
        observed.files = files;
        match (self.make)() {
            Ok(Loaded { value, not_after }) => {
                *self.current.write() = Current {
                    value: Arc::new(value),
                    not_after,
                };
                observed.failure = None;
                observed.warned = None;
                info!(
                    what = self.what,
                    "TLS certificates reloaded; new connections use them"
                );
                Ok(true)
            }
            Err(problem) => {
                let text = problem.to_string();
                if observed.failure.as_ref() != Some(&text) {
                    error!(
                        what = self.what,
                        error = text,
                        "TLS cannot load the changed certificates; the earlier ones stay in use"
                    );
                }
                observed.failure = Some(text);
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
        let mut observed = self.observed.lock();
        if observed.warned.is_some_and(|at| at.elapsed() < WARNING_INTERVAL) {
            return;
        }
        observed.warned = Some(tokio::time::Instant::now());
        let days_left = left.as_secs() / (24 * 3600);
        match left.is_zero() {
            true => error!(
                what = self.what,
                "the TLS certificate of this node has expired; others will reject it"
            ),
            false => warn!(
                what = self.what,
                days_left, "the TLS certificate of this node expires soon"
            ),
        }
    }
}

fn file_states(files: &[PathBuf]) -> Vec<Option<FileState>> {
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

/// Reloads `values` when their files change, until `stop` is cancelled. The files are checked every
/// [`CHECK_INTERVAL`], and at once when `now` is notified.
pub async fn keep_fresh(values: Vec<Reloadable>, now: Arc<Notify>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = now.notified() => {}
            _ = ticks.tick() => {}
        }
        let values = values.clone();
        // The files may be on a slow disk or on a network file system.
        let check = tokio::task::spawn_blocking(move || {
            for value in &values {
                // `refresh` has logged the error, and retries with the next check.
                let _ = value.refresh();
                value.warn_of_expiry();
            }
        });
        if let Err(error) = check.await {
            // The task panicked. If the process is to end on a panic, a panic hook does that.
            error!(%error, "the check of the TLS certificate files panicked");
        }
    }
}
