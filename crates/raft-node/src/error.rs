//! What can go wrong beside a refusal. A caller always learns whether something may have been done.

use std::time::Duration;

use znode_store::Refusal;

use crate::admission::TooFast;

/// Nothing was done. Trying again later may help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unavailable {
    /// For the person who reads it.
    pub reason: String,
    /// When another try makes sense.
    pub retry_after: Duration,
    /// The cluster takes only what makes the state smaller, because its disks are nearly full.
    pub read_only: bool,
}

/// When another try makes sense at a cluster whose disks are nearly full: somebody has to make room first.
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

/// Why a proposal has no outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Nothing was done, for sure.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// It may have been done, or may yet be.
    #[error("the outcome is unknown: {0}")]
    OutcomeUnknown(String),
}

/// Why no session was opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenSessionError {
    /// The state refused it; nothing was done.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// There is no outcome.
    #[error(transparent)]
    Propose(#[from] ProposeError),
    /// The caller's address opens sessions faster than one may; nothing was done.
    #[error("too many sessions are opened from this address")]
    TooMany {
        /// When there is one for it again.
        retry_after: Duration,
    },
}

impl From<TooFast> for OpenSessionError {
    fn from(too_fast: TooFast) -> Self {
        match too_fast {
            TooFast::OfAddress(retry_after) => Self::TooMany { retry_after },
            TooFast::OfAll(retry_after) => Unavailable {
                retry_after,
                ..Unavailable::new("too many sessions are opened at this node")
            }
            .into(),
        }
    }
}

impl From<Unavailable> for OpenSessionError {
    fn from(unavailable: Unavailable) -> Self {
        Self::Propose(unavailable.into())
    }
}

/// Why a heartbeat was not counted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeartbeatError {
    /// The session has ended.
    #[error("the session has ended")]
    SessionEnded,
    /// There is no such session, and there was none lately.
    #[error("there is no such session")]
    NoSession,
    /// The leader could not be asked, or could not prove that it leads.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
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
    /// What is on the disk cannot be read.
    #[error("{0}")]
    Damaged(String),
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What it said.
        source: std::io::Error,
    },
    /// Raft did not start.
    #[error("raft: {0}")]
    Raft(String),
}
