//! Errors of the index, and setting a damaged index aside.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Reason why the index is unusable. In every case only history is lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// The disk failed or is full. Reopening the index later may succeed.
    #[error("{0}")]
    Disk(String),
    /// The data on disk is damaged. The index has to be recreated.
    #[error("{0}")]
    Damaged(String),
    /// The index belongs to another data directory. It has to be recreated.
    #[error("the index belongs to another data directory")]
    Foreign,
    /// The index was written by another version. It has to be recreated.
    #[error("the index has version {0} of the format, which this release cannot read")]
    OtherVersion(u8),
    /// This build has no index: the feature `index` is off.
    #[error("this build keeps no lock history")]
    Absent,
}

impl IndexError {
    /// Returns whether the same files may become usable later, without being recreated.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Disk(_))
    }
}

#[cfg(feature = "index")]
impl From<sled::Error> for IndexError {
    fn from(error: sled::Error) -> Self {
        match error {
            sled::Error::Io(error) => Self::Disk(error.to_string()),
            other => Self::Damaged(other.to_string()),
        }
    }
}

thread_local! {
    /// Nesting depth of [`contained`] calls on this thread.
    static CONTAINED: Cell<u32> = const { Cell::new(0) };
}

/// Name prefixes of sled's own threads.
const SLEDS_THREADS: [&str; 2] = ["sled-io-", "log flusher"];

/// Returns whether a panic of this thread concerns the index alone, so that it becomes an [`IndexError`] or
/// ends only a thread of sled. For the panic hook of a program that otherwise ends the process.
pub fn contains_this_panic() -> bool {
    let thread = std::thread::current();
    let is_sleds = |name: &str| SLEDS_THREADS.iter().any(|prefix| name.starts_with(prefix));
    CONTAINED.get() > 0 || thread.name().is_some_and(is_sleds)
}

/// Runs `work` and converts a panic into an error. sled panics when it finds unexpected data on disk or
/// cannot write.
pub fn contained<T>(work: impl FnOnce() -> Result<T, IndexError>) -> Result<T, IndexError> {
    CONTAINED.set(CONTAINED.get() + 1);
    let done = catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(CONTAINED.get() - 1);
    done.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_default();
        Err(IndexError::Damaged(format!(
            "the storage library panicked: {text}"
        )))
    })
}

/// Renames the directory of an index that cannot be opened, so that a new one can be created, and returns the
/// new name. An older directory that was set aside is removed, so that their number does not grow.
pub fn set_aside(dir: &Path) -> io::Result<PathBuf> {
    let mut aside = dir.as_os_str().to_owned();
    aside.push(".damaged");
    let aside = PathBuf::from(aside);
    match std::fs::symlink_metadata(&aside) {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(&aside)?,
        Ok(_) => std::fs::remove_file(&aside)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    std::fs::rename(dir, &aside)?;
    Ok(aside)
}
