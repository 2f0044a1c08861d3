//! One call of `acquire`, from its proposal to its end. It owns whatever it has caused in the cluster: however it ends
//! without a lock in its caller's hands, what it stands for there is taken back.

use std::pin::Pin;
use std::sync::Arc;

use raft_node::{ProposeError, Verdict};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use znode_store::{
    Applied, AttemptId, Command, ContenderEnd, Grant, HolderId, Identities, LockCommand, LockName, LockWish,
    Refusal, Reply, Request, RequestId, SessionFate, SessionId, Standing, WithdrawCause,
};

use super::clean_up::{BARRIER_PAUSE, clean_up};
use super::error::LockError;
use super::{Shared, random_guid};

/// One call of `acquire`. Dropped before it is over, it is tidied up after in the background.
pub(super) struct Call {
    pub shared: Arc<Shared>,
    pub session: SessionId,
    pub lock: LockName,
    pub attempt: AttemptId,
    /// Whether the caller can make it again.
    repeatable: bool,
    stage: Stage,
    /// Where the clean-up runs: a future may be dropped where there is no runtime.
    runtime: Handle,
    place: Option<OwnedSemaphorePermit>,
}

/// A proposal that is on its way, which goes on when its call is dropped: what it leads to has to be known before it
/// can be taken back.
pub(super) type Proposal = Pin<Box<dyn Future<Output = Result<Applied, ProposeError>> + Send>>;

/// How far a call has come.
pub(super) enum Stage {
    /// Its outcome is not known yet.
    Proposed(Proposal),
    /// Its contender stands in the queue.
    Waiting(HolderId),
    /// Its outcome will not be told any more.
    Unknown,
    /// There is nothing to take back.
    Over,
}

impl Call {
    /// Proposes to stand in the queue.
    #[expect(
        clippy::too_many_arguments,
        reason = "what a call is made of, for the one place that makes them"
    )]
    pub fn propose(
        shared: &Arc<Shared>,
        place: OwnedSemaphorePermit,
        caller: Identities,
        session: SessionId,
        wish: LockWish,
        wait: bool,
        request_id: Option<RequestId>,
        attempt: AttemptId,
    ) -> Self {
        let (lock, repeatable) = (wish.lock.clone(), request_id.is_some());
        let acquire = LockCommand::Acquire {
            wish,
            guid: random_guid(),
            attempt,
            wait,
        };
        let request = Request {
            session: Some(session),
            request_id,
            caller,
            command: Command::Lock(acquire),
        };
        let node = shared.node.clone();
        Self {
            shared: shared.clone(),
            session,
            lock,
            attempt,
            repeatable,
            stage: Stage::Proposed(Box::pin(async move { node.propose(request).await })),
            runtime: Handle::current(),
            place: Some(place),
        }
    }

    /// Waits until the proposal is carried out. `None`: the contender stands in the queue.
    pub async fn outcome(&mut self) -> Result<Option<Grant>, LockError> {
        let Stage::Proposed(proposal) = &mut self.stage else {
            unreachable!("a call has one outcome");
        };
        let outcome = proposal.await;
        self.stage = Stage::Over;
        match outcome {
            Ok(Applied {
                outcome: Ok(Reply::Granted(grant)),
                ..
            }) => Ok(Some(grant)),
            Ok(Applied {
                outcome: Ok(Reply::Queued(place)),
                ..
            }) => {
                self.stage = Stage::Waiting(place.holder);
                Ok(None)
            }
            Ok(Applied {
                outcome: Ok(other), ..
            }) => Err(LockError::unexpected(&other)),
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

    /// Waits in the queue.
    pub async fn wait(mut self, deadline: Option<Instant>) -> Result<Grant, LockError> {
        let Stage::Waiting(holder) = &self.stage else {
            unreachable!("only a call that was queued waits");
        };
        let holder = holder.clone();
        let shared = self.shared.clone();
        let mut patience = std::pin::pin!(until(deadline));
        loop {
            let mut wait = shared.node.wait_for_grant(&self.lock, &holder);
            let verdict = tokio::select! {
                biased;
                verdict = wait.verdict() => verdict,
                () = &mut patience => return self.time_out(holder).await,
                () = shared.closing.cancelled() => return self.send_away(holder).await,
            };
            match verdict {
                Verdict::Granted(grant) => {
                    self.stage = Stage::Over;
                    return Ok(grant);
                }
                Verdict::Ended(how) => {
                    self.stage = Stage::Over;
                    return Err(self.ended(holder, how).into());
                }
                // The node has taken over a snapshot, or stops; or the contender is gone already.
                Verdict::Lost => {
                    let found = tokio::select! {
                        biased;
                        found = self.look_again(&holder) => found?,
                        () = &mut patience => return self.time_out(holder).await,
                    };
                    if let Some(grant) = found {
                        self.stage = Stage::Over;
                        return Ok(grant);
                    }
                }
            }
        }
    }

    /// Asks the state what the events do not tell. `None`: the contender still waits.
    async fn look_again(&mut self, holder: &str) -> Result<Option<Grant>, LockError> {
        let node = &self.shared.node;
        // What this node has applied may be older than the end of the wait that it has to tell of.
        while let Err(unavailable) = node.read_barrier().await {
            if node.is_stopping() {
                return Err(LockError::OutcomeUnknown(unavailable.reason));
            }
            tokio::time::sleep(BARRIER_PAUSE).await;
        }
        let (standing, fate) = node.read(|store| {
            (
                store.standing(&self.lock, holder),
                store.session_fate(self.session),
            )
        });
        match standing {
            Some(Standing::Holds(grant)) => Ok(Some(grant)),
            Some(Standing::Waits(_)) => Ok(None),
            None => {
                self.stage = Stage::Over;
                Err(match fate {
                    SessionFate::Live => self.not_holder(holder.into()),
                    SessionFate::Ended => Refusal::SessionEnded(self.session),
                    SessionFate::Unknown => Refusal::NoSession(self.session),
                }
                .into())
            }
        }
    }

    /// The caller's time is over. Whether the grant was faster is decided in the log.
    async fn time_out(mut self, holder: HolderId) -> Result<Grant, LockError> {
        match self.withdraw(holder, WithdrawCause::TimedOut).await? {
            Reply::Granted(grant) => Ok(grant),
            _ => Err(Refusal::LockTimeout(self.lock.clone()).into()),
        }
    }

    /// This node stops while the call waits.
    async fn send_away(mut self, holder: HolderId) -> Result<Grant, LockError> {
        if self.repeatable {
            self.stage = Stage::Over;
            let told = "this node is stopping; the place in the queue is kept for the same request_id";
            return Err(LockError::OutcomeUnknown(told.to_owned()));
        }
        self.withdraw(holder, WithdrawCause::Abandoned).await?;
        Err(LockError::unavailable("this node is stopping"))
    }

    async fn withdraw(&mut self, holder: HolderId, cause: WithdrawCause) -> Result<Reply, LockError> {
        let (lock, attempt) = (self.lock.clone(), self.attempt);
        let command = LockCommand::Withdraw {
            lock,
            holder,
            attempt,
            cause,
        };
        // To take its own call back is a matter of the session's, whoever calls.
        let nobody = Identities::none();
        let withdrawn = self.shared.propose(nobody, Some(self.session), None, command);
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

    /// Why a wait ended without a grant.
    fn ended(&self, holder: HolderId, how: ContenderEnd) -> Refusal {
        match how {
            ContenderEnd::SessionClosed | ContenderEnd::SessionExpired => Refusal::SessionEnded(self.session),
            ContenderEnd::Broken(reason) => Refusal::Broken {
                lock: self.lock.clone(),
                holder,
                reason,
            },
            // The same request, made again at another node, ran out of time there.
            ContenderEnd::Withdrawn => Refusal::LockTimeout(self.lock.clone()),
            ContenderEnd::Released | ContenderEnd::Deleted => self.not_holder(holder),
        }
    }

    fn not_holder(&self, holder: HolderId) -> Refusal {
        Refusal::NotHolder {
            lock: self.lock.clone(),
            holder,
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Over => {}
            stage => {
                let shared = self.shared.clone();
                let tidied = clean_up(shared, self.session, self.lock.clone(), self.attempt, stage);
                let place = self.place.take();
                self.runtime.spawn(async move {
                    tidied.await;
                    drop(place);
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
