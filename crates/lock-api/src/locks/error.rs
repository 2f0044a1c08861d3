//! Errors of lock calls. Refusals, unavailability and unknown outcomes never share a variant: the caller has to react
//! differently to each.

use lock_node::{HistoryError, ProposeError, Unavailable};
use znode_store::{Refusal, Reply};

/// Reason why a lock call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// The cluster has decided, and changed nothing. Another try fails as well unless something changes.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Nothing was done. To ask again later may help.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// It may have been done, or may yet be. To ask again under the same request id tells.
    #[error("the outcome is unknown: {0}")]
    OutcomeUnknown(String),
}

impl LockError {
    pub(super) fn unavailable(reason: &str) -> Self {
        Self::Unavailable(Unavailable::new(reason))
    }

    /// A reply that belongs to another command. That would be a mistake in this program; what was done, nobody knows.
    pub(super) fn unexpected(reply: &Reply) -> Self {
        Self::OutcomeUnknown(format!("the cluster answered to something else: {reply}"))
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

/// Reason why there is no history to show.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockHistoryError {
    /// The caller may not read the lock.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The node has none, or not now.
    #[error(transparent)]
    History(#[from] HistoryError),
}
