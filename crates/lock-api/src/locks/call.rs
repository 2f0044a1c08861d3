//! One call of `acquire` or `upgrade`, from its proposal to its end. The call owns its contenders in the cluster: if it
//! ends without handing a lock to its caller, it withdraws them.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_node::{ProposeError, WaitOutcome};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use znode_store::planted::{self, Bug};
use znode_store::{
    Applied, AttemptId, ContenderEnd, ContenderState, Grant, HolderId, Identities, LeaseContender, LeaseKey,
    LockCommand, LockMode, LockName, Refusal, Reply, Request, Right, SessionFate, SessionId, Store,
    WithdrawCause,
};

use super::Shared;
use super::clean_up::{Abandoned, BARRIER_PAUSE};
use super::error::LockError;

/// One call of `acquire` or `upgrade`, for one lock or several. If it is dropped before it ends, a background task
/// withdraws it: at once, or after a grace if the caller may send the same request again.
pub(super) struct LockCall {
    pub shared: Arc<Shared>,
    /// Session of the contenders. For a lease that of the first request with the same id, once the outcome is known.
    pub session: SessionId,
    /// The lease that the call has opened.
    pub lease: Option<Lease>,
    pub kind: CallKind,
    pub attempt: AttemptId,
    /// Set if the caller can repeat the call.
    repeatable: bool,
    /// Time for which the contenders of the call are kept for the same request after its future was dropped.
    grace: Duration,
    /// Deadline of the caller.
    deadline: Option<Instant>,
    stage: Stage,
    /// Runtime of the clean-up: a future may be dropped outside of a runtime.
    runtime: Handle,
    permit: Option<OwnedSemaphorePermit>,
}

/// Kind of a call, with its locks.
#[derive(Debug, Clone)]
pub(super) enum CallKind {
    /// Acquires these locks.
    Acquire(Vec<LockName>),
    /// Upgrades a hold of this lock.
    Upgrade(LockName),
}

impl CallKind {
    /// Returns the locks of the call.
    pub fn locks(&self) -> &[LockName] {
        match self {
            Self::Acquire(locks) => locks,
            Self::Upgrade(lock) => std::slice::from_ref(lock),
        }
    }
}

/// An open lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Its secret.
    pub key: LeaseKey,
    /// Time without a renewal after which it ends.
    pub timeout: Duration,
}

/// Proposal under way. It continues when its call is dropped, because only its outcome shows which contenders to withdraw.
pub(super) type Proposal = Pin<Box<dyn Future<Output = Result<Applied, ProposeError>> + Send>>;

/// Contenders of a call, in the order of its locks.
pub(super) type Contenders = Vec<(LockName, HolderId)>;

/// Progress of a call.
pub(super) enum Stage {
    /// Its outcome is not known yet.
    Proposed(Proposal),
    /// Its contenders are in their queues, or hold.
    Waiting(Contenders),
    /// Its outcome is unknown and will not be reported any more.
    Unknown,
    /// Nothing has to be withdrawn.
    Over,
}

/// Returns the contenders in a reply to a call; `None` for other replies.
pub(super) fn contenders(reply: &Reply) -> Option<Contenders> {
    match reply {
        Reply::Granted(grant) => Some(vec![(grant.lock.clone(), grant.holder.clone())]),
        Reply::Queued(queued) => Some(vec![(queued.lock.clone(), queued.holder.clone())]),
        Reply::Leased { contender, .. } => Some(vec![match contender {
            LeaseContender::Holds(grant) => (grant.lock.clone(), grant.holder.clone()),
            LeaseContender::Waits(place) => (place.lock.clone(), place.holder.clone()),
        }]),
        Reply::Multi(parts) => {
            let parts: Option<Vec<Contenders>> = parts.iter().map(contenders).collect();
            Some(parts?.into_iter().flatten().collect())
        }
        _ => None,
    }
}

/// Returns the grants in a reply; `None` if one is missing.
fn grants(reply: Reply) -> Option<Vec<Grant>> {
    match reply {
        Reply::Granted(grant)
        | Reply::Leased {
            contender: LeaseContender::Holds(grant),
            ..
        } => Some(vec![grant]),
        Reply::Multi(parts) => {
            let parts: Option<Vec<Vec<Grant>>> = parts.into_iter().map(grants).collect();
            Some(parts?.into_iter().flatten().collect())
        }
        _ => None,
    }
}

/// Builds the command that withdraws a call.
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
    /// Time for which the contenders of a repeatable call are kept once its future is dropped.
    pub grace: Duration,
}

impl LockCall {
    /// Proposes the command of a call, whose attempt number is `attempt`.
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
            lease: None,
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
                if let Reply::Leased {
                    lease, timeout_ms, ..
                } = &reply
                {
                    self.session = lease.session;
                    self.lease = Some(Lease {
                        key: *lease,
                        timeout: Duration::from_millis(u64::from(*timeout_ms)),
                    });
                }
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

    /// Returns the contender of a queued call for one lock.
    pub fn contender(&self) -> (&LockName, &HolderId) {
        let Stage::Waiting(contenders) = &self.stage else {
            unreachable!("a queued call waits");
        };
        let (lock, holder) = contenders.first().expect("a call has a contender");
        (lock, holder)
    }

    /// Ends the call without a withdrawal.
    pub fn stay_in_queue(mut self) {
        if !planted::is(Bug::PlaceOfRequest) {
            self.stage = Stage::Over;
        }
    }

    /// Waits in the queues until all locks are granted, or until `dismissed` returns the reason for which the caller
    /// may not wait any more.
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
        // If one of several locks cannot be had, the call does not keep the others.
        if ended.is_err() && contenders.len() > 1 {
            self.withdraw(contenders, WithdrawCause::Abandoned).await?;
        }
        self.stage = Stage::Over;
        ended
    }

    /// Withdraws the call at its deadline. The order of the log decides between the withdrawal and a simultaneous
    /// grant.
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

    /// Ends the wait because this node stops.
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
        // The node itself withdraws its call, whatever permissions the caller has by now.
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
            // The contenders remain in the cluster until the clean-up, which keeps retrying, succeeds. So "nothing was
            // done" would be wrong.
            Err(LockError::Unavailable(unavailable)) => Err(LockError::OutcomeUnknown(unavailable.reason)),
            Err(unknown @ LockError::OutcomeUnknown(_)) => Err(unknown),
        }
    }
}

/// Waits for the outcomes of a call's contenders.
pub(super) struct GrantWaiter {
    shared: Arc<Shared>,
    session: SessionId,
    /// Set for a holder that waits to become the only one.
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

    /// Waits until the first of the contenders holds its lock or is gone. Returns `true` if it holds.
    pub async fn first(&self, contenders: &Contenders) -> bool {
        let ends = contenders.iter().map(|(lock, holder)| self.granted(lock, holder));
        let mut ends: FuturesUnordered<_> = ends.collect();
        matches!(ends.next().await, Some(Ok(_)))
    }

    /// Waits until all contenders hold their locks at the same time, or until any of them is gone, whether it waited or
    /// held.
    async fn all(&self, contenders: &Contenders) -> Result<Vec<Grant>, LockError> {
        if let [(lock, holder)] = contenders.as_slice() {
            return Ok(vec![self.granted(lock, holder).await?]);
        }
        let ends = contenders
            .iter()
            .map(|(lock, holder)| self.wait_until_gone(lock, holder));
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
        // A contender that was granted early may have gone since, before its event arrived here.
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
            None => Err(ends.next().await.expect("there is one for each contender")),
        }
    }

    /// Waits until a contender is gone, and returns the reason.
    async fn wait_until_gone(&self, lock: &LockName, holder: &HolderId) -> LockError {
        loop {
            match self.shared.node.wait_for_end(lock, holder).outcome().await {
                WaitOutcome::Ended(how) => return self.ended(lock, holder, how).into(),
                WaitOutcome::Granted(_) | WaitOutcome::Lost => {
                    if let Err(gone) = self.read_state(lock, holder).await {
                        return gone;
                    }
                }
            }
        }
    }

    /// Waits until a contender holds its lock, or is gone.
    async fn granted(&self, lock: &LockName, holder: &HolderId) -> Result<Grant, LockError> {
        let node = &self.shared.node;
        loop {
            let mut wait = match self.upgrades {
                false => node.wait_for_grant(lock, holder),
                true => node.wait_for_upgrade(lock, holder),
            };
            match wait.outcome().await {
                WaitOutcome::Granted(grant) => return Ok(grant),
                WaitOutcome::Ended(how) => return Err(self.ended(lock, holder, how).into()),
                // The node has installed a snapshot, or stops; or the contender is gone already.
                WaitOutcome::Lost => {
                    if let Some(grant) = self.read_state(lock, holder).await? {
                        return Ok(grant);
                    }
                }
            }
        }
    }

    /// Reads the state of a contender after the wait for its event was lost. `None`: the contender still waits.
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
            // The same request, sent again to another node, timed out there.
            ContenderEnd::Withdrawn => Refusal::LockTimeout(lock.clone()),
            ContenderEnd::Released
            | ContenderEnd::Deleted
            | ContenderEnd::MaxHold
            | ContenderEnd::Upgraded => self.not_holder(lock, holder),
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
