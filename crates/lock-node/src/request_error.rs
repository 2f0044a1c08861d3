//! Errors of requests, beside a refusal by the state. A caller always learns whether its request may have been applied.

use std::time::Duration;

use znode_store::Refusal;

use raft_node::Unavailable;

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
        /// Time after which another attempt makes sense.
        retry_after: Duration,
    },
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
