//! What the storage can say when something is wrong. Every text is for the person who has to act on it.

use std::io;
use std::path::Path;
use std::sync::Arc;

/// Why the storage did not do what it was asked. Cloneable, because one failed write is told to everybody
/// who waited for it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StorageError {
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, with the path.
        what: String,
        /// What it said.
        source: Arc<io::Error>,
    },
    /// What is on the disk is not what was written.
    #[error("{0}")]
    Damaged(String),
    /// What is on the disk was written for another node or another cluster.
    #[error("{0}")]
    Foreign(String),
    /// Another process uses the data directory.
    #[error("{0}")]
    InUse(String),
    /// The log has failed before. What it holds on disk is not known any more, so it takes nothing more.
    #[error("the log takes nothing more since an earlier failure: {0}")]
    Failed(Arc<StorageError>),
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
    /// The caller broke the contract: a hole, a vote that goes back. Nothing was written.
    #[error("{0}")]
    Contract(String),
}

impl StorageError {
    /// An error of the operating system with what was tried on which file.
    pub fn io(what: &str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            what: format!("{what} {}", path.display()),
            source: Arc::new(source),
        }
    }

    /// Whether the operating system has no space to give.
    pub fn is_full_disk(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full_disk(source))
    }
}

/// Whether the operating system has no space to give: of the file system, or of what this user may have of it.
pub fn is_full_disk(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

impl From<StorageError> for io::Error {
    fn from(error: StorageError) -> Self {
        let kind = match &error {
            StorageError::Io { source, .. } => source.kind(),
            StorageError::Damaged(_) | StorageError::Foreign(_) => io::ErrorKind::InvalidData,
            StorageError::Contract(_) => io::ErrorKind::InvalidInput,
            StorageError::InUse(_) | StorageError::Failed(_) | StorageError::Closed => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
