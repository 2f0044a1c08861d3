//! Errors of the storage. Each text is for the person who has to act on it.

use std::io;
use std::path::Path;
use std::sync::Arc;

/// Reason why the storage could not carry out an operation. Cloneable, because one failed write is reported to every caller
/// that waited for it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StorageError {
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Io {
        /// Operation that failed, with its path.
        what: String,
        /// Error of the operating system.
        source: Arc<io::Error>,
    },
    /// The bytes on the disk differ from those that were written.
    #[error("{0}")]
    Damaged(String),
    /// The data on the disk belongs to another node or another cluster.
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
    /// Error of the operating system, with the operation and the file.
    pub fn io(what: &str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            what: format!("{what} {}", path.display()),
            source: Arc::new(source),
        }
    }

    /// Returns whether the disk is full.
    pub fn is_full_disk(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full_disk(source))
    }
}

/// Returns whether the operating system refused an operation because the file system, or this user's quota of it, is full.
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
