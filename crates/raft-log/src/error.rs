//! Errors of the storage. Every text is for the person who has to act on it.

use std::io;
use std::path::Path;
use std::sync::Arc;

/// Failure of a storage call. Cloneable, because one failed write fails all callers that waited for it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StorageError {
    /// An operating system call failed.
    #[error("{what}: {source}")]
    Io {
        /// Operation and path.
        what: String,
        /// Error of the operating system.
        source: Arc<io::Error>,
    },
    /// The bytes on disk are not those that were written.
    #[error("{0}")]
    Damaged(String),
    /// The data on disk belongs to another node or another cluster.
    #[error("{0}")]
    Foreign(String),
    /// Another process uses the data directory.
    #[error("{0}")]
    InUse(String),
    /// The log failed earlier. It accepts no more writes, because its state on disk is unknown.
    #[error("the log accepts no writes after an earlier failure: {0}")]
    Failed(Arc<StorageError>),
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
    /// The caller broke the contract, for example by a gap in the log or an older vote. Nothing was written.
    #[error("{0}")]
    Contract(String),
}

impl StorageError {
    /// Wraps an error of the operating system with the operation and the file.
    pub fn io(what: &str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            what: format!("{what} {}", path.display()),
            source: Arc::new(source),
        }
    }

    /// Returns whether the operating system refused the call for lack of space.
    pub fn is_full_disk(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full_disk(source))
    }
}

/// Returns whether the error means lack of space: on the file system, or in this user's quota.
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
