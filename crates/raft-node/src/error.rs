//! Errors of a node that are independent of a request: it is unavailable, or does not start.

use std::io;
use std::time::Duration;

use raft_log::StorageError;

/// The node is unavailable. Nothing was done, and a later attempt may succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unavailable {
    /// Description, for operators.
    pub reason: String,
    /// Time after which a retry makes sense.
    pub retry_after: Duration,
    /// Set if the cluster accepts only commands that shrink the state, because its disks are nearly full.
    pub read_only: bool,
}

/// Time until a retry at a cluster whose disks are nearly full: an operator has to free space first.
const READ_ONLY_RETRY: Duration = Duration::from_secs(5);

impl Unavailable {
    /// Creates an error with the default time until a retry: about an election.
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            retry_after: Duration::from_secs(1),
            read_only: false,
        }
    }

    /// Creates an error for a command that would enlarge the state while the disks are nearly full.
    pub fn read_only(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            retry_after: READ_ONLY_RETRY,
            read_only: true,
        }
    }
}

/// Error of the start of a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration contradicts itself.
    #[error("the configuration is not usable: {0}")]
    Config(String),
    /// The data directory belongs to another node or another cluster, or is new although the cluster knows an
    /// older one.
    #[error("{0}")]
    Identity(String),
    /// The data on the disk cannot be read.
    #[error("{0}")]
    Damaged(String),
    /// An operating system call failed.
    #[error("{what}: {source}")]
    Io {
        /// Operation that failed.
        what: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// Raft did not start.
    #[error("raft: {0}")]
    Raft(String),
}

impl From<StorageError> for StartError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Io { what, source } => {
                let source = io::Error::new(source.kind(), source.to_string());
                StartError::Io { what, source }
            }
            StorageError::Foreign(text) => StartError::Identity(text),
            StorageError::InUse(text) => StartError::Config(text),
            StorageError::Damaged(text) => StartError::Damaged(text),
            other => StartError::Damaged(other.to_string()),
        }
    }
}
