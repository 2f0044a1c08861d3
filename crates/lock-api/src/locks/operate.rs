//! Operations of administrators on locks of other clients, and the holders' answers.

use znode_store::{HolderId, LockCommand, LockName, Reply, RequestId, Revocation, SessionId};

use super::{LockError, Locks};

impl Locks {
    /// Removes a contender, a holder or a waiter, by force. For administrators: a holder that still works does not
    /// notice at once. Callers that ask for the outcome get the principal (`by`) and the reason.
    pub async fn break_holder(
        &self,
        lock: LockName,
        holder: HolderId,
        by: &str,
        reason: &str,
        request_id: Option<RequestId>,
    ) -> Result<(), LockError> {
        let command = LockCommand::Break {
            lock,
            holder,
            by: by.into(),
            reason: reason.into(),
        };
        match self.propose(None, request_id, command).await? {
            Reply::Broken => Ok(()),
            other => Err(LockError::unexpected(&other)),
        }
    }

    /// Sends a release request to one holder, or to all, and returns the number of holders. The holders may ignore it.
    pub async fn revoke(
        &self,
        lock: LockName,
        holder: Option<HolderId>,
        by: &str,
        reason: &str,
        request_id: Option<RequestId>,
    ) -> Result<u32, LockError> {
        let command = LockCommand::Revoke {
            lock,
            holder,
            by: by.into(),
            reason: reason.into(),
        };
        match self.propose(None, request_id, command).await? {
            Reply::RevokeRequested(count) => Ok(count),
            other => Err(LockError::unexpected(&other)),
        }
    }

    /// Records the answer of a holder to a release request, for operators.
    pub async fn answer_revoke(
        &self,
        session: SessionId,
        lock: LockName,
        holder: HolderId,
        answer: &str,
        request_id: Option<RequestId>,
    ) -> Result<(), LockError> {
        let answer = answer.into();
        let command = LockCommand::AnswerRevoke { lock, holder, answer };
        match self.propose(Some(session), request_id, command).await? {
            Reply::RevokeAnswered => Ok(()),
            other => Err(LockError::unexpected(&other)),
        }
    }

    /// Returns the pending release requests to a session's holders, as this node knows them.
    pub fn revocations(&self, session: SessionId) -> Vec<(LockName, HolderId, Revocation)> {
        self.shared.node.read(|store| store.revocations(session))
    }

    /// Changes the settings of a lock: a semaphore's `limit` (`Some(None)`: again the limit that its first user sets),
    /// and `draining`: a drained lock grants nothing.
    pub async fn configure(
        &self,
        lock: LockName,
        limit: Option<Option<u32>>,
        draining: Option<bool>,
        request_id: Option<RequestId>,
    ) -> Result<(), LockError> {
        let command = LockCommand::Configure {
            lock,
            limit,
            draining,
        };
        match self.propose(None, request_id, command).await? {
            Reply::Configured => Ok(()),
            other => Err(LockError::unexpected(&other)),
        }
    }
}
