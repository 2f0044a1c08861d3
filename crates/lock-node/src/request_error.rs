//! Errors of requests, besides a refusal by the state. They always tell the caller whether its request may have been applied.

use std::time::Duration;

use znode_store::Refusal;

use raft_node::Unavailable;

/// Error of a proposal without a known outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// The command was certainly not applied, and will not be.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The command may have been applied, or may yet be applied.
    #[error("the outcome is unknown: {0}")]
    OutcomeUnknown(String),
}

/// Error of the opening of a session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenSessionError {
    /// The state refused the command, and nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The proposal has no known outcome.
    #[error(transparent)]
    Propose(#[from] ProposeError),
    /// The caller's address exceeds its rate of session openings, and nothing was changed.
    #[error("too many sessions are opened from this address")]
    TooMany {
        /// Time after which the client should retry.
        retry_after: Duration,
    },
}

impl From<Unavailable> for OpenSessionError {
    fn from(unavailable: Unavailable) -> Self {
        Self::Propose(unavailable.into())
    }
}

/// Error of a heartbeat that was not counted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeartbeatError {
    /// The session has ended.
    #[error("the session has ended")]
    SessionEnded,
    /// The session does not exist, and did not exist recently.
    #[error("there is no such session")]
    NoSession,
    /// The leader could not be reached, or could not prove that it leads.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}
