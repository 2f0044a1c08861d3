//! Writes into the tree by the program that the server runs in: transactions of a session, and those that are carried
//! out only while a lock is held.

use znode_store::{Command, Op, Refusal, Reply, Request};

use super::{LocalGuard, LocalLockError, LocalSession, RETRY_PAUSE, Shared, fresh_request_id, operator};
use raft_node::ProposeError;

impl LocalSession {
    /// Carries out all of these changes of the tree or none, at one position, and once whatever happens on the way.
    /// Returns what came of each; ephemeral znodes among them are this session's.
    ///
    /// It is done in the name of the node's operator, whom neither roles nor access control lists stop. For others there is
    /// [`Node::propose`](raft_node::Node::propose).
    pub async fn transaction(&self, ops: Vec<Op>) -> Result<Vec<Reply>, LocalLockError> {
        transaction(&self.shared, ops).await
    }
}

impl LocalGuard {
    /// Carries out all of these changes of the tree if this guard's lock is held at that very position, or else none:
    /// a write that cannot come too late. Without the lock it is refused with [`Refusal::NotHeld`].
    pub async fn write(&self, mut ops: Vec<Op>) -> Result<Vec<Reply>, LocalLockError> {
        ops.insert(0, self.held());
        match transaction(&self.shared, ops).await {
            Ok(mut replies) => {
                replies.remove(0);
                Ok(replies)
            }
            // The condition was not among the caller's changes, so they are counted without it.
            Err(LocalLockError::Refused(Refusal::Multi { index, refusal })) => {
                Err(LocalLockError::Refused(match index.checked_sub(1) {
                    Some(index) => Refusal::Multi { index, refusal },
                    None => *refusal,
                }))
            }
            Err(other) => Err(other),
        }
    }

    /// The condition that this guard's lock is held, for a [`LocalSession::transaction`] of the same session: so one can
    /// be guarded by several locks.
    pub fn held(&self) -> Op {
        Op::Held {
            lock: self.grant.lock.clone(),
            fencing_token: self.grant.fencing_token,
        }
    }
}

async fn transaction(shared: &Shared, ops: Vec<Op>) -> Result<Vec<Reply>, LocalLockError> {
    let request = Request {
        session: Some(shared.session),
        request_id: Some(fresh_request_id()),
        caller: operator(),
        command: Command::Multi(ops),
    };
    let outcome = async {
        loop {
            match shared.node.propose(request.clone()).await {
                Ok(applied) => return Ok(applied.outcome),
                // The same request again: if it was carried out, this finds what came of it.
                Err(ProposeError::OutcomeUnknown(_)) => tokio::time::sleep(RETRY_PAUSE).await,
                Err(ProposeError::Unavailable(unavailable)) => return Err(unavailable),
            }
        }
    };
    let outcome = tokio::select! {
        outcome = outcome => outcome,
        () = shared.lost() => return Err(LocalLockError::SessionLost),
    };
    match outcome {
        Ok(Ok(Reply::Multi(replies))) => Ok(replies),
        Ok(Ok(other)) => {
            unreachable!("a transaction is answered by the replies of its parts, not by {other}")
        }
        Ok(Err(Refusal::SessionEnded(_) | Refusal::NoSession(_))) => Err(LocalLockError::SessionLost),
        Ok(Err(refusal)) => Err(LocalLockError::Refused(refusal)),
        Err(unavailable) => Err(LocalLockError::Unavailable(unavailable.to_string())),
    }
}
