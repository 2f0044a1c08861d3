//! Waits for the grant of a contender that stays in the queue without an open call: its place belongs to its session or lease.

use std::time::Duration;

use lock_node::WaitOutcome;
use tokio::time::{Instant, timeout_at};
use znode_store::{ContenderEnd, ContenderState, Grant, HolderId, LockName};

use super::{LockError, Locks};

/// State of a contender at the end of a wait for its grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlaceOutcome {
    /// It holds the lock.
    Granted(Grant),
    /// It still waits.
    Waits,
    /// It is gone, for this reason if this node knows it.
    Gone(Option<ContenderEnd>),
}

impl Locks {
    /// Waits until a contender holds its lock or is gone, for at most `time`. The wait has no influence on the contender.
    pub async fn wait_for_grant(
        &self,
        lock: &LockName,
        holder: &HolderId,
        time: Duration,
    ) -> Result<PlaceOutcome, LockError> {
        let node = &self.shared.node;
        let end = Instant::now() + time;
        loop {
            let mut wait = node.wait_for_grant(lock, holder);
            let outcome = tokio::select! {
                biased;
                outcome = timeout_at(end, wait.outcome()) => outcome,
                () = self.shared.closing.cancelled() => return Ok(PlaceOutcome::Waits),
            };
            match outcome {
                Err(_) => return Ok(PlaceOutcome::Waits),
                Ok(WaitOutcome::Granted(grant)) => return Ok(PlaceOutcome::Granted(grant)),
                Ok(WaitOutcome::Ended(how)) => return Ok(PlaceOutcome::Gone(Some(how))),
                // The contender is gone, or this node does not know it yet.
                Ok(WaitOutcome::Lost) => {
                    node.read_barrier().await?;
                    match node.read(|store| store.contender_state(lock, holder)) {
                        Some(ContenderState::Holds(grant) | ContenderState::Upgrades(grant)) => {
                            return Ok(PlaceOutcome::Granted(grant));
                        }
                        Some(ContenderState::Waits(_)) => {}
                        None => return Ok(PlaceOutcome::Gone(None)),
                    }
                }
            }
        }
    }
}
