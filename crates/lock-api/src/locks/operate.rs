//! Operations of administrators on locks that others hold, and the holders' answers.

use znode_store::{HolderId, LockCommand, LockName, Reply, RequestId, Revocation, SessionId};

use super::{LockError, Locks};

impl Locks {
    /// Takes the lock, or the place in its queue, from its contender. For administrators: a holder that still works does
    /// not notice at once. Callers that ask for the outcome get the principal (`by`) and the reason.
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

    /// Asks one holder, or all, to give a lock up; returns how many were asked. It is up to them.
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

    /// Notes what a holder says to that, for operators to see.
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

    /// Changes what holds for a lock: a semaphore's `limit` (`Some(None)`: again what its first user says), and whether it
    /// is drained, that is, takes nobody in.
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
