//! Withdrawal of calls whose callers disconnected. Each such call has one task. The task ends when the call has no
//! contender in the cluster and cannot get one any more. When the node stops, the task gets a last attempt.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lock_node::WatchKind;
use tokio::time::Instant;
use znode_store::{
    AttemptId, Identities, Identity, LockName, Reply, SessionFate, SessionId, Store, WithdrawCause,
};

use super::call::{CallKind, Contenders, GrantWaiter, Stage, contenders, withdrawal};
use super::error::LockError;
use super::{CLOSING_GRACE, Shared};

/// Pause after a failed proposal. The node has waited for a leader meanwhile; the pause only prevents a busy loop on a
/// node that cannot even do that.
const WITHDRAW_PAUSE: Duration = Duration::from_millis(500);

/// Pause after a failed read barrier. It is shorter, because a caller may be waiting for the result.
pub(super) const BARRIER_PAUSE: Duration = Duration::from_millis(100);

/// Time for which the effect of a proposal with an unknown outcome is sought, in proposal timeouts. Such a proposal is
/// not sent again, so it can be late by the transmission time of one frame at most.
const SEEK_TIMEOUTS: u32 = 2;

/// Maximum time for which a lock granted to an absent caller is kept. Others wait for the lock meanwhile, and the
/// caller may never come back. The time suffices for a client that sends its request again at once or after a first
/// pause.
pub const GRANTED_GRACE: Duration = Duration::from_secs(1);

/// Call whose caller has disconnected.
pub(super) struct Abandoned {
    pub shared: Arc<Shared>,
    pub session: SessionId,
    pub kind: CallKind,
    pub attempt: AttemptId,
    /// End of the grace for its contenders; in the past without one.
    pub kept_until: Instant,
}

impl Abandoned {
    /// Withdraws the call at whatever stage it is, after the grace. If the caller has sent the request again meanwhile,
    /// the contenders belong to that later call and stay. Without a majority this retries until it succeeds; once
    /// closing has begun, for [`CLOSING_GRACE`].
    pub async fn clean_up(self, stage: Stage) {
        let shared = self.shared.clone();
        let closing = async {
            shared.closing.cancelled().await;
            tokio::time::sleep(CLOSING_GRACE).await;
        };
        tokio::select! {
            () = self.take_back(stage) => {}
            () = closing => {
                shared.not_withdrawn.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    async fn take_back(&self, stage: Stage) {
        let (mut session, attempt) = (self.session, self.attempt);
        let shared = &*self.shared;
        let found = match stage {
            Stage::Over => return,
            Stage::Waiting(contenders) => Some(contenders),
            Stage::Unknown => seek(shared, session, self.kind.locks(), attempt).await,
            Stage::Proposed(proposal) => match proposal.await.map_err(LockError::from) {
                Ok(applied) => match applied.outcome {
                    Ok(reply) => {
                        if let Reply::Leased { lease, .. } = &reply {
                            session = lease.session;
                        }
                        contenders(&reply)
                    }
                    // A rejected command has no effect.
                    Err(_) => None,
                },
                Err(LockError::OutcomeUnknown(_)) => seek(shared, session, self.kind.locks(), attempt).await,
                Err(LockError::Unavailable(_) | LockError::Refused(_)) => None,
            },
        };
        if let Some(contenders) = found {
            if self.kept_until > Instant::now() {
                self.keep(session, &contenders).await;
            }
            withdraw(shared, session, contenders, attempt).await;
        }
    }

    /// Waits until the grace is over. It ends early when a contender is gone, [`GRANTED_GRACE`] after a contender got
    /// its lock, or when the node stops.
    async fn keep(&self, session: SessionId, contenders: &Contenders) {
        let waiter = GrantWaiter::new(self.shared.clone(), session, &self.kind);
        let kept = async {
            if let Ok(true) = tokio::time::timeout_at(self.kept_until, waiter.first(contenders)).await {
                let end = self.kept_until.min(Instant::now() + GRANTED_GRACE);
                tokio::time::sleep_until(end).await;
            }
        };
        tokio::select! {
            () = kept => {}
            () = self.shared.closing.cancelled() => {}
        }
    }
}

/// Finds the contenders of a call with an unknown outcome. They may still appear, all at once.
async fn seek(
    shared: &Shared,
    session: SessionId,
    locks: &[LockName],
    attempt: AttemptId,
) -> Option<Contenders> {
    let node = &shared.node;
    let end = Instant::now() + node.config().raft.propose_timeout * SEEK_TIMEOUTS;
    while node.read_barrier().await.is_err() {
        if node.is_stopping() || Instant::now() > end {
            break;
        }
        tokio::time::sleep(BARRIER_PAUSE).await;
    }
    loop {
        let find = |store: &Store| match store.session_fate(session) {
            SessionFate::Live => {
                let contender = |lock: &LockName| {
                    let holder = store.holder_of_attempt(session, lock, attempt)?;
                    Some((lock.clone(), holder))
                };
                let contenders: Contenders = locks.iter().filter_map(contender).collect();
                Some((!contenders.is_empty()).then_some(contenders))
            }
            SessionFate::Ended | SessionFate::Unknown => None,
        };
        // The server reads on its own behalf, so no access control list stops it.
        let caller = Identities::new([Identity::Super]);
        let watched = node.read_and_watch(locks[0].znode(), WatchKind::PersistentRecursive, caller, find);
        let (found, change) = match watched {
            Ok((found, change)) => (found, Some(change)),
            // The clients use all watches of this node, so the state is polled instead.
            Err(_) => (node.read(find), None),
        };
        match found {
            // The session has ended, and all its contenders with it.
            None => return None,
            Some(Some(contenders)) => return Some(contenders),
            Some(None) => {}
        }
        let changed = async {
            match change {
                Some(change) => drop(change.fired().await),
                None => tokio::time::sleep(BARRIER_PAUSE).await,
            }
        };
        if node.is_stopping() || tokio::time::timeout_at(end, changed).await.is_err() {
            return None;
        }
    }
}

/// Retries until the call is withdrawn.
async fn withdraw(shared: &Shared, session: SessionId, contenders: Contenders, attempt: AttemptId) {
    loop {
        let command = withdrawal(contenders.clone(), attempt, WithdrawCause::Abandoned);
        let turn = shared
            .clean_up_permits
            .acquire()
            .await
            .expect("this semaphore is never closed");
        // The permissions of the caller may be gone, so the node withdraws on its own behalf.
        let node = Identities::internal();
        let withdrawn = shared.propose(node, Some(session), None, command).await;
        drop(turn);
        match withdrawn {
            // Rejected: the session has ended, and the call with it.
            Ok(_) | Err(LockError::Refused(_)) => return,
            Err(LockError::Unavailable(_) | LockError::OutcomeUnknown(_)) => {
                if shared.node.is_stopping() {
                    tracing::warn!(
                        %session, ?contenders,
                        "locks: this node stops before it could withdraw the call of a disconnected caller"
                    );
                    return;
                }
                tokio::time::sleep(WITHDRAW_PAUSE).await;
            }
        }
    }
}
