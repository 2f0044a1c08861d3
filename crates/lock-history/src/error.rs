//! What can go wrong with the index, and how a bad one is put out of the way.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Why the index is of no more use. Whatever it is, nothing but history is lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// The disk failed or is full. To open the index again later may help.
    #[error("{0}")]
    Disk(String),
    /// What is on the disk makes no sense. It has to be made anew.
    #[error("{0}")]
    Damaged(String),
    /// It belongs to another data directory. It has to be made anew.
    #[error("it belongs to another data directory")]
    Foreign,
    /// It was written by another version. It has to be made anew.
    #[error("it was written in version {0} of the format")]
    OtherVersion(u8),
    /// This build has no index: the feature `index` is off.
    #[error("this build keeps no lock history")]
    Absent,
}

impl IndexError {
    /// Whether the same files can do as they are, perhaps later.
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
    /// How many calls of [`contained`] this thread is in.
    static CONTAINED: Cell<u32> = const { Cell::new(0) };
}

/// What sled calls its own threads.
const SLEDS_THREADS: [&str; 2] = ["sled-io-", "log flusher"];

/// Whether a panic of this thread stays here: it concerns the index alone and becomes an [`IndexError`]. For programs
/// whose panic hook ends the process; to be asked by that hook.
pub fn contains_this_panic() -> bool {
    let thread = std::thread::current();
    let is_sleds = |name: &str| SLEDS_THREADS.iter().any(|prefix| name.starts_with(prefix));
    CONTAINED.get() > 0 || thread.name().is_some_and(is_sleds)
}

/// Runs what may panic, and makes an error of the panic: sled panics where it finds on a disk what it did not expect
/// there, or cannot write.
pub fn contained<T>(work: impl FnOnce() -> Result<T, IndexError>) -> Result<T, IndexError> {
    CONTAINED.set(CONTAINED.get() + 1);
    let done = catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(CONTAINED.get() - 1);
    done.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_default();
        Err(IndexError::Damaged(format!("a panic: {text}")))
    })
}

/// Renames the directory of an index that cannot be opened, so that a new one can be made, and returns where it is now. An
/// older one that was set aside is removed: so their number does not grow.
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
