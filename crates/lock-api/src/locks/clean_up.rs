//! Taking back what a call has caused whose caller went away. One task for each such call; it ends when the call stands
//! nowhere in the cluster any more, or never will, or the node stops: then it has one last try.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lock_node::WatchKind;
use tokio::time::Instant;
use znode_store::{AttemptId, Identities, Identity, LockName, SessionFate, SessionId, Store, WithdrawCause};

use super::call::{CallKind, Contenders, GrantWaiter, Stage, contenders, withdrawal};
use super::error::LockError;
use super::{CLOSING_GRACE, Shared};

/// After a proposal that failed: the node has waited for a leader meanwhile, this only keeps a node that cannot even
/// do that from spinning.
const WITHDRAW_PAUSE: Duration = Duration::from_millis(500);

/// Likewise after a read that could not be made linearizable. Shorter, because a caller may be waiting for it.
pub(super) const BARRIER_PAUSE: Duration = Duration::from_millis(100);

/// For how many times the patience of a proposal its effect is looked for after it was given up. A proposal that was
/// given up is not sent again, so it can be late by the time that a frame is on its way, and no more.
const SEEK_TIMEOUTS: u32 = 2;

/// Longest time for which a lock that was granted to an absent caller is kept. Others wait for the lock meanwhile, and the caller may never
/// come back. It suffices for a client that sends its request again at once or after a first pause.
pub const GRANTED_GRACE: Duration = Duration::from_secs(1);

/// Call whose caller has gone.
pub(super) struct Abandoned {
    pub shared: Arc<Shared>,
    pub session: SessionId,
    pub kind: CallKind,
    pub attempt: AttemptId,
    /// End of the grace for its places; in the past without one.
    pub kept_until: Instant,
}

impl Abandoned {
    /// Withdraws the call at whatever stage it is, after the grace. If the caller has sent the request again meanwhile, the places belong to
    /// that later call and stay. Without a majority it tries again and again; once closing has begun, for [`CLOSING_GRACE`].
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
        let (session, attempt) = (self.session, self.attempt);
        let shared = &*self.shared;
        let found = match stage {
            Stage::Over => return,
            Stage::Waiting(contenders) => Some(contenders),
            Stage::Unknown => seek(shared, session, self.kind.locks(), attempt).await,
            Stage::Proposed(proposal) => match proposal.await.map_err(LockError::from) {
                Ok(applied) => match applied.outcome {
                    Ok(reply) => contenders(&reply),
                    // Refused: it has left nothing behind.
                    Err(_) => None,
                },
                Err(LockError::OutcomeUnknown(_)) => seek(shared, session, self.kind.locks(), attempt).await,
                Err(LockError::Unavailable(_) | LockError::Refused(_)) => None,
            },
        };
        if let Some(contenders) = found {
            if self.kept_until > Instant::now() {
                self.keep(&contenders).await;
            }
            withdraw(shared, session, contenders, attempt).await;
        }
    }

    /// Waits until the grace is over. It ends early when a place is lost, [`GRANTED_GRACE`] after a place got its lock, or when the node
    /// stops.
    async fn keep(&self, contenders: &Contenders) {
        let waiter = GrantWaiter::new(self.shared.clone(), self.session, &self.kind);
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

/// Finds the contenders that stand for a call whose outcome was not told. They may come yet, all at once.
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
        // The server looks for itself, and no list stops it.
        let caller = Identities::new([Identity::Super]);
        let watched = node.read_and_watch(locks[0].znode(), WatchKind::PersistentRecursive, caller, find);
        let (found, change) = match watched {
            Ok((found, change)) => (found, Some(change)),
            // The clients have all the watches: then it looks again and again.
            Err(_) => (node.read(find), None),
        };
        match found {
            // With the session everything has gone.
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

/// Goes on until the call is withdrawn.
async fn withdraw(shared: &Shared, session: SessionId, contenders: Contenders, attempt: AttemptId) {
    loop {
        let command = withdrawal(contenders.clone(), attempt, WithdrawCause::Abandoned);
        let turn = shared
            .clean_up_permits
            .acquire()
            .await
            .expect("this semaphore is never closed");
        // The caller has gone, and perhaps what it was allowed with it.
        let node = Identities::internal();
        let withdrawn = shared.propose(node, Some(session), None, command).await;
        drop(turn);
        match withdrawn {
            // Refused: its session has ended, and the call with it.
            Ok(_) | Err(LockError::Refused(_)) => return,
            Err(LockError::Unavailable(_) | LockError::OutcomeUnknown(_)) => {
                if shared.node.is_stopping() {
                    tracing::warn!(
                        %session, ?contenders,
                        "this node stops before it could withdraw the call of a caller that went away"
                    );
                    return;
                }
                tokio::time::sleep(WITHDRAW_PAUSE).await;
            }
        }
    }
}
