//! Errors of lock calls. Refusals, unavailability and unknown outcomes never share a variant: the caller has to react
//! differently to each.

use lock_node::{HistoryError, ProposeError, Unavailable};
use znode_store::{Refusal, Reply};

/// Error of a lock call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// The cluster has rejected the call and changed nothing. A retry fails as well unless something changes.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Nothing was done. A later retry may succeed.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The call may have been done, or may still be done. A retry under the same request id returns the outcome.
    #[error("the outcome is unknown: {0}")]
    OutcomeUnknown(String),
}

impl LockError {
    pub(super) fn unavailable(reason: &str) -> Self {
        Self::Unavailable(Unavailable::new(reason))
    }

    /// Reports a reply that belongs to another command, which would be a bug in this program. The outcome is then
    /// unknown.
    pub(super) fn unexpected(reply: &Reply) -> Self {
        Self::OutcomeUnknown(format!("the cluster sent the reply of another command: {reply}"))
    }
}

impl From<ProposeError> for LockError {
    fn from(error: ProposeError) -> Self {
        match error {
            ProposeError::Unavailable(unavailable) => Self::Unavailable(unavailable),
            ProposeError::OutcomeUnknown(reason) => Self::OutcomeUnknown(reason),
        }
    }
}

/// Error of a read of a lock's history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockHistoryError {
    /// The caller may not read the lock.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The node keeps no history, or cannot read it now.
    #[error(transparent)]
    History(#[from] HistoryError),
}
