//! Errors of a node that have nothing to do with a request: it is unavailable, or does not start.

use std::io;
use std::time::Duration;

use raft_log::StorageError;

/// Nothing was done. Trying again later may help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unavailable {
    /// Description, for people.
    pub reason: String,
    /// Time after which another try makes sense.
    pub retry_after: Duration,
    /// The cluster takes only what makes the state smaller, because its disks are nearly full.
    pub read_only: bool,
}

/// Time until a retry at a cluster whose disks are nearly full: an operator has to make room first.
const READ_ONLY_RETRY: Duration = Duration::from_secs(5);

impl Unavailable {
    /// With the usual time until another try: about an election.
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            retry_after: Duration::from_secs(1),
            read_only: false,
        }
    }

    /// The disks are nearly full, and this would have made the state larger.
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
    /// The data directory belongs to another node or another cluster, or is new where the cluster knows an
    /// older one.
    #[error("{0}")]
    Identity(String),
    /// The data on the disk cannot be read.
    #[error("{0}")]
    Damaged(String),
    /// The operating system refused something.
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
