//! One call of `acquire` or `upgrade`, from its proposal to its end. It owns whatever it has caused in the cluster: however it ends
//! without a lock in its caller's hands, what it stands for there is taken back.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_node::{ProposeError, Verdict};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use znode_store::{
    Applied, AttemptId, ContenderEnd, ContenderState, Grant, HolderId, Identities, LockCommand, LockMode,
    LockName, Refusal, Reply, Request, Right, SessionFate, SessionId, Store, WithdrawCause,
};

use super::Shared;
use super::clean_up::{Abandoned, BARRIER_PAUSE};
use super::error::LockError;

/// One call of `acquire` or `upgrade`, for one lock or several. Dropped before it is over, it is tidied up after in the
/// background: at once, or, if its caller may come back under the same request, after a grace.
pub(super) struct LockCall {
    pub shared: Arc<Shared>,
    pub session: SessionId,
    pub kind: CallKind,
    pub attempt: AttemptId,
    /// Set if the caller can repeat the call.
    repeatable: bool,
    /// Time for which the places of the call are kept for the same request after its future was dropped.
    grace: Duration,
    /// Deadline of the caller.
    deadline: Option<Instant>,
    stage: Stage,
    /// Runtime of the clean-up: a future may be dropped outside of a runtime.
    runtime: Handle,
    permit: Option<OwnedSemaphorePermit>,
}

/// Subject of a call.
#[derive(Debug, Clone)]
pub(super) enum CallKind {
    /// These locks.
    Acquire(Vec<LockName>),
    /// A lock that is held already.
    Upgrade(LockName),
}

impl CallKind {
    /// The locks.
    pub fn locks(&self) -> &[LockName] {
        match self {
            Self::Acquire(locks) => locks,
            Self::Upgrade(lock) => std::slice::from_ref(lock),
        }
    }
}

/// A proposal that is on its way, which goes on when its call is dropped: what it leads to has to be known before it
/// can be taken back.
pub(super) type Proposal = Pin<Box<dyn Future<Output = Result<Applied, ProposeError>> + Send>>;

/// The contenders that stand for a call, in the order of its locks.
pub(super) type Contenders = Vec<(LockName, HolderId)>;

/// Progress of a call.
pub(super) enum Stage {
    /// Its outcome is not known yet.
    Proposed(Proposal),
    /// Its contenders are in their queues, or hold.
    Waiting(Contenders),
    /// Its outcome will not be reported any more.
    Unknown,
    /// There is nothing to take back.
    Over,
}

/// Returns the places of the contenders in a reply to a call; `None` for other replies.
pub(super) fn contenders(reply: &Reply) -> Option<Contenders> {
    match reply {
        Reply::Granted(grant) => Some(vec![(grant.lock.clone(), grant.holder.clone())]),
        Reply::Queued(queued) => Some(vec![(queued.lock.clone(), queued.holder.clone())]),
        Reply::Multi(parts) => {
            let parts: Option<Vec<Contenders>> = parts.iter().map(contenders).collect();
            Some(parts?.into_iter().flatten().collect())
        }
        _ => None,
    }
}

/// The grants of a reply; `None` if one of them is not there yet.
fn grants(reply: Reply) -> Option<Vec<Grant>> {
    match reply {
        Reply::Granted(grant) => Some(vec![grant]),
        Reply::Multi(parts) => {
            let parts: Option<Vec<Vec<Grant>>> = parts.into_iter().map(grants).collect();
            Some(parts?.into_iter().flatten().collect())
        }
        _ => None,
    }
}

/// The command that takes a call back.
pub(super) fn withdrawal(
    mut contenders: Contenders,
    attempt: AttemptId,
    cause: WithdrawCause,
) -> LockCommand {
    if contenders.len() != 1 {
        return LockCommand::WithdrawMany {
            holders: contenders,
            attempt,
            cause,
        };
    }
    let (lock, holder) = contenders.remove(0);
    LockCommand::Withdraw {
        lock,
        holder,
        attempt,
        cause,
    }
}

/// Deadline of a call, and the grace for a caller that hangs up.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitTerms {
    /// Deadline of the caller.
    pub deadline: Option<Instant>,
    /// Time for which the places of a repeatable call are kept once its future is dropped.
    pub grace: Duration,
}

impl LockCall {
    /// Proposes the command of a call, which says of itself that it is `attempt`.
    pub fn propose(
        shared: &Arc<Shared>,
        permit: OwnedSemaphorePermit,
        request: Request,
        session: SessionId,
        kind: CallKind,
        attempt: AttemptId,
        terms: WaitTerms,
    ) -> Self {
        let repeatable = request.request_id.is_some();
        let node = shared.node.clone();
        Self {
            shared: shared.clone(),
            session,
            kind,
            attempt,
            repeatable,
            grace: if repeatable { terms.grace } else { Duration::ZERO },
            deadline: terms.deadline,
            stage: Stage::Proposed(Box::pin(async move { node.propose(request).await })),
            runtime: Handle::current(),
            permit: Some(permit),
        }
    }

    /// Waits until the proposal is applied. `None`: contenders are in their queues.
    pub async fn outcome(&mut self) -> Result<Option<Vec<Grant>>, LockError> {
        let Stage::Proposed(proposal) = &mut self.stage else {
            unreachable!("a call has one outcome");
        };
        let outcome = proposal.await;
        self.stage = Stage::Over;
        match outcome {
            Ok(Applied {
                outcome: Ok(reply), ..
            }) => {
                let Some(contenders) = contenders(&reply) else {
                    return Err(LockError::unexpected(&reply));
                };
                let granted = grants(reply);
                if granted.is_none() {
                    self.stage = Stage::Waiting(contenders);
                }
                Ok(granted)
            }
            Ok(Applied {
                outcome: Err(refusal),
                ..
            }) => Err(refusal.into()),
            Err(ProposeError::Unavailable(unavailable)) => Err(unavailable.into()),
            Err(ProposeError::OutcomeUnknown(reason)) => {
                self.stage = Stage::Unknown;
                Err(LockError::OutcomeUnknown(reason))
            }
        }
    }

    /// Waits in the queues, until all is granted, or the caller is dismissed.
    pub async fn wait(mut self, dismissed: impl Future<Output = Refusal>) -> Result<Vec<Grant>, LockError> {
        let Stage::Waiting(contenders) = &self.stage else {
            unreachable!("only a call that was queued waits");
        };
        let contenders = contenders.clone();
        let waiter = GrantWaiter::new(self.shared.clone(), self.session, &self.kind);
        let shared = self.shared.clone();
        let ended = tokio::select! {
            biased;
            ended = waiter.all(&contenders) => ended,
            refusal = dismissed => {
                // A caller that may not wait any more may not repeat the call either.
                self.grace = Duration::ZERO;
                return Err(refusal.into());
            }
            () = until(self.deadline) => return self.withdraw_on_timeout(contenders).await,
            () = shared.closing.cancelled() => return self.stop_waiting(contenders).await,
        };
        // Without one of several the others are of no use.
        if ended.is_err() && contenders.len() > 1 {
            self.withdraw(contenders, WithdrawCause::Abandoned).await?;
        }
        self.stage = Stage::Over;
        ended
    }

    /// The caller's time is over. Whether the grant was faster is decided in the log.
    async fn withdraw_on_timeout(mut self, contenders: Contenders) -> Result<Vec<Grant>, LockError> {
        let waits = |store: &Store| {
            let mut late = contenders.iter().filter(|(lock, holder)| {
                !matches!(
                    store.contender_state(lock, holder),
                    Some(ContenderState::Holds(_))
                )
            });
            late.next().map(|(lock, _)| lock.clone())
        };
        let late = self.shared.node.read(waits);
        let late = late.unwrap_or_else(|| contenders[0].0.clone());
        let reply = self.withdraw(contenders, WithdrawCause::TimedOut).await?;
        grants(reply).ok_or_else(|| Refusal::LockTimeout(late).into())
    }

    /// This node stops while the call waits.
    async fn stop_waiting(mut self, contenders: Contenders) -> Result<Vec<Grant>, LockError> {
        if self.repeatable {
            self.stage = Stage::Over;
            let reason = "this node is stopping; the place in the queue is kept for the same request_id";
            return Err(LockError::OutcomeUnknown(reason.to_owned()));
        }
        self.withdraw(contenders, WithdrawCause::Abandoned).await?;
        Err(LockError::unavailable("this node is stopping"))
    }

    async fn withdraw(&mut self, contenders: Contenders, cause: WithdrawCause) -> Result<Reply, LockError> {
        let command = withdrawal(contenders, self.attempt, cause);
        // To take its own call back is the node's own doing, whatever the caller may do by now.
        let node = Identities::internal();
        let withdrawn = self.shared.propose(node, Some(self.session), None, command);
        match withdrawn.await {
            Ok(reply) => {
                self.stage = Stage::Over;
                Ok(reply)
            }
            // The session has ended, and the call with it.
            Err(LockError::Refused(refusal)) => {
                self.stage = Stage::Over;
                Err(refusal.into())
            }
            // The call still stands somewhere in the cluster, for a while: the clean-up goes on trying. So it is not
            // true that nothing was done.
            Err(LockError::Unavailable(unavailable)) => Err(LockError::OutcomeUnknown(unavailable.reason)),
            Err(unknown @ LockError::OutcomeUnknown(_)) => Err(unknown),
        }
    }
}

/// Waits for the ends of a call's places.
pub(super) struct GrantWaiter {
    shared: Arc<Shared>,
    session: SessionId,
    /// Set for a holder that waits to be the only one.
    upgrades: bool,
}

impl GrantWaiter {
    pub fn new(shared: Arc<Shared>, session: SessionId, kind: &CallKind) -> Self {
        Self {
            shared,
            session,
            upgrades: matches!(kind, CallKind::Upgrade(_)),
        }
    }

    /// Waits until the first of the contenders holds its lock or is gone. Returns whether it holds.
    pub async fn first(&self, contenders: &Contenders) -> bool {
        let ends = contenders.iter().map(|(lock, holder)| self.granted(lock, holder));
        let mut ends: FuturesUnordered<_> = ends.collect();
        matches!(ends.next().await, Some(Ok(_)))
    }

    /// Waits until all contenders hold their locks at one moment, or until any of them is gone, whether that one waited or held.
    async fn all(&self, contenders: &Contenders) -> Result<Vec<Grant>, LockError> {
        if let [(lock, holder)] = contenders.as_slice() {
            return Ok(vec![self.granted(lock, holder).await?]);
        }
        let ends = contenders.iter().map(|(lock, holder)| self.gone(lock, holder));
        let mut ends: FuturesUnordered<_> = ends.collect();
        let granted = async {
            for (lock, holder) in contenders {
                self.granted(lock, holder).await?;
            }
            Ok::<(), LockError>(())
        };
        tokio::select! {
            biased;
            Some(error) = ends.next() => return Err(error),
            granted = granted => granted?,
        }
        // One that was granted early may have gone since, and its end is not heard yet.
        let held = |store: &Store| {
            let held = contenders
                .iter()
                .map(|(lock, holder)| match store.contender_state(lock, holder)? {
                    ContenderState::Holds(grant) | ContenderState::Upgrades(grant) => Some(grant),
                    ContenderState::Waits(_) => None,
                });
            held.collect::<Option<Vec<Grant>>>()
        };
        match self.shared.node.read(held) {
            Some(grants) => Ok(grants),
            None => Err(ends.next().await.expect("there is one for each place")),
        }
    }

    /// Waits until a contender is gone, and says why.
    async fn gone(&self, lock: &LockName, holder: &HolderId) -> LockError {
        loop {
            match self.shared.node.wait_for_end(lock, holder).verdict().await {
                Verdict::Ended(how) => return self.ended(lock, holder, how).into(),
                Verdict::Granted(_) | Verdict::Lost => {
                    if let Err(gone) = self.read_state(lock, holder).await {
                        return gone;
                    }
                }
            }
        }
    }

    /// Waits until one of the contenders holds its lock, or is gone.
    async fn granted(&self, lock: &LockName, holder: &HolderId) -> Result<Grant, LockError> {
        let node = &self.shared.node;
        loop {
            let mut wait = match self.upgrades {
                false => node.wait_for_grant(lock, holder),
                true => node.wait_for_upgrade(lock, holder),
            };
            match wait.verdict().await {
                Verdict::Granted(grant) => return Ok(grant),
                Verdict::Ended(how) => return Err(self.ended(lock, holder, how).into()),
                // The node has taken over a snapshot, or stops; or the contender is gone already.
                Verdict::Lost => {
                    if let Some(grant) = self.read_state(lock, holder).await? {
                        return Ok(grant);
                    }
                }
            }
        }
    }

    /// Asks the state what the events do not tell. `None`: the contender still waits.
    async fn read_state(&self, lock: &LockName, holder: &str) -> Result<Option<Grant>, LockError> {
        let node = &self.shared.node;
        // This node's state may be older than the end of the wait.
        while let Err(unavailable) = node.read_barrier().await {
            if node.is_stopping() {
                return Err(LockError::OutcomeUnknown(unavailable.reason));
            }
            tokio::time::sleep(BARRIER_PAUSE).await;
        }
        let (standing, fate) = node.read(|store| {
            (
                store.contender_state(lock, holder),
                store.session_fate(self.session),
            )
        });
        match (standing, self.upgrades) {
            // The next wait for an upgrade reports its outcome.
            (Some(ContenderState::Holds(_) | ContenderState::Upgrades(_)), true) => Ok(None),
            (Some(ContenderState::Holds(grant) | ContenderState::Upgrades(grant)), false) => Ok(Some(grant)),
            (Some(ContenderState::Waits(_)), _) => Ok(None),
            (None, _) => Err(match fate {
                SessionFate::Live => self.not_holder(lock, holder),
                SessionFate::Ended => Refusal::SessionEnded(self.session),
                SessionFate::Unknown => Refusal::NoSession(self.session),
            }
            .into()),
        }
    }

    /// Returns the reason why a wait ended without a grant.
    fn ended(&self, lock: &LockName, holder: &str, how: ContenderEnd) -> Refusal {
        match how {
            ContenderEnd::SessionClosed | ContenderEnd::SessionExpired => Refusal::SessionEnded(self.session),
            ContenderEnd::Broken { by, reason } => Refusal::Broken {
                lock: lock.clone(),
                holder: holder.into(),
                by,
                reason,
            },
            ContenderEnd::NeverGrantable { limit } => Refusal::ModeConflict {
                lock: lock.clone(),
                in_use: LockMode::Semaphore { limit },
            },
            ContenderEnd::Forbidden => Refusal::Forbidden {
                right: Right::Lock,
                path: lock.znode().clone(),
            },
            // The same request, made again at another node, ran out of time there.
            ContenderEnd::Withdrawn => Refusal::LockTimeout(lock.clone()),
            ContenderEnd::Released | ContenderEnd::Deleted | ContenderEnd::Upgraded => {
                self.not_holder(lock, holder)
            }
        }
    }

    fn not_holder(&self, lock: &LockName, holder: &str) -> Refusal {
        Refusal::NotHolder {
            lock: lock.clone(),
            holder: holder.into(),
        }
    }
}

impl Drop for LockCall {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Over => {}
            stage => {
                let now = Instant::now();
                let end = now + self.grace;
                let abandoned = Abandoned {
                    shared: self.shared.clone(),
                    session: self.session,
                    kind: self.kind.clone(),
                    attempt: self.attempt,
                    kept_until: self.deadline.map_or(end, |deadline| deadline.min(end)),
                };
                let tidied = abandoned.clean_up(stage);
                let permit = self.permit.take();
                self.runtime.spawn(async move {
                    tidied.await;
                    drop(permit);
                });
            }
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
