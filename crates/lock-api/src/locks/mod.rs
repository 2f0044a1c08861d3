//! Lock calls: commands of the state machine, waits for their results, and clean-up after callers that
//! disconnected. This module contains no HTTP and no decision about holders, which is `znode_store`'s.
//!
//! A call of [`Locks::acquire`] proposes one command. If the reply is "queued", the call waits on its own node for the
//! event that ends the wait, without polling. A call that ends without its lock, because of its deadline or because its
//! future was dropped, withdraws exactly its own contenders: see `call.rs` and `clean_up.rs`.

mod call;
mod clean_up;
mod error;
mod history;
mod leases;
mod places;
mod reads;
mod operate;
#[cfg(test)]
mod tests;

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_node::Node;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use znode_store::{
    AttemptId, Command, Downgraded, Grant, HoldBounds, HolderId, Identities, LockCommand, LockName, LockWish,
    Refusal, Reply, Request, RequestId, SessionId,
};

pub use call::Lease;
use call::{CallKind, LockCall, WaitTerms};
pub use clean_up::GRANTED_GRACE;
pub use error::{LockError, LockHistoryError};
pub use leases::{LeaseStatus, Leased};
pub use places::PlaceOutcome;
pub use reads::LockPage;

/// Maximum number of `acquire` calls at a node, including those that are being cleaned up. Each costs some
/// kilobytes while it waits; more callers than this belong on more nodes.
pub const MAX_CALLS: usize = 100_000;

/// Maximum number of clean-ups at a time. A thousand callers that vanish together must not push the present ones
/// out of the queue of proposals.
pub const MAX_CLEAN_UPS_AT_ONCE: usize = 256;

/// Time that [`Locks::close`] waits for calls to end. The remaining ones then wait for a majority, which is missing.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(1_000);

/// Time for which a call whose caller disconnected may still be cleaned up once closing has begun: some round trips to
/// a busy leader.
const CLOSING_GRACE: Duration = Duration::from_millis(500);

/// Maximum wait of a call for its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitFor {
    /// No wait.
    Try,
    /// Maximum time, counted from the call.
    For(Duration),
    /// Wait until the grant.
    Forever,
}

impl WaitFor {
    /// Returns whether a call enters the queue at all.
    pub fn may_wait(self) -> bool {
        match self {
            Self::Try => false,
            Self::For(time) => !time.is_zero(),
            Self::Forever => true,
        }
    }
}

/// Lock service of a cluster, accessed through one of its nodes on behalf of a caller. Cheap to clone.
#[derive(Clone)]
pub struct Locks {
    shared: Arc<Shared>,
    caller: Identities,
    grace: Duration,
}

struct Shared {
    node: Node,
    /// One permit for each call, kept until its clean-up is finished.
    call_permits: Arc<Semaphore>,
    /// One permit for each proposal of a clean-up.
    clean_up_permits: Semaphore,
    /// Cancelled when no further call is accepted.
    closing: CancellationToken,
    /// Number of calls that could not be cleaned up before this node stopped.
    not_withdrawn: AtomicUsize,
}

/// State of a call after its command was applied.
pub(crate) enum Started {
    /// It has all its locks.
    Granted(Vec<Grant>),
    /// It waits in the queue of one of them.
    Queued(Queued),
}

impl From<(LockCall, Option<Vec<Grant>>)> for Started {
    fn from((call, granted): (LockCall, Option<Vec<Grant>>)) -> Self {
        match granted {
            Some(grants) => Self::Granted(grants),
            None => Self::Queued(Queued(call)),
        }
    }
}

impl Started {
    /// Returns the contender of a call for one lock that waits in the queue.
    pub(crate) fn queued_contender(&self) -> Option<(&LockName, &HolderId)> {
        match self {
            Self::Granted(_) => None,
            Self::Queued(Queued(call)) => Some(call.contender()),
        }
    }

    /// Ends the call without a withdrawal: its contender stays in the queue as long as its session.
    pub(crate) fn stay_in_queue(self) {
        if let Self::Queued(Queued(call)) = self {
            call.stay_in_queue();
        }
    }

    async fn granted(self) -> Result<Vec<Grant>, LockError> {
        match self {
            Self::Granted(grants) => Ok(grants),
            Self::Queued(queued) => queued.granted_unless(pending()).await,
        }
    }
}

/// A call that waits in the queue. Dropping it abandons the call.
pub(crate) struct Queued(LockCall);

impl Queued {
    /// Returns the locks that the call waits for, including those that are already granted.
    pub fn locks(&self) -> &[LockName] {
        self.0.kind.locks()
    }

    /// Waits for the locks, until `dismissed` returns the reason for which the caller may not wait any more.
    pub async fn granted_unless(
        self,
        dismissed: impl Future<Output = Refusal>,
    ) -> Result<Vec<Grant>, LockError> {
        self.0.wait(dismissed).await
    }
}

impl Locks {
    /// Creates the lock service on `node`, for anonymous callers. They have the rights of `world:anyone`.
    pub fn new(node: Node) -> Self {
        let shared = Shared {
            node,
            call_permits: Arc::new(Semaphore::new(MAX_CALLS)),
            clean_up_permits: Semaphore::new(MAX_CLEAN_UPS_AT_ONCE),
            closing: CancellationToken::new(),
            not_withdrawn: AtomicUsize::new(0),
        };
        Self {
            shared: Arc::new(shared),
            caller: Identities::none(),
            grace: Duration::ZERO,
        }
    }

    /// Returns the same locks on behalf of a caller with the proven identities `caller`.
    pub fn on_behalf_of(&self, caller: Identities) -> Self {
        let shared = self.shared.clone();
        let grace = self.grace;
        Self {
            shared,
            caller,
            grace,
        }
    }

    /// Returns the same locks for callers whose connection may break. If the future of a waiting call with a
    /// `request_id` is dropped, the call keeps its contenders for that time, for a repetition of the same request. A
    /// lock granted meanwhile is kept for at most [`GRANTED_GRACE`].
    pub fn with_disconnect_grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Returns a name for a new call, which is part of the names of its contenders.
    fn new_guid(&self) -> u128 {
        u128::from_le_bytes(self.shared.node.random_bytes())
    }

    /// Returns an attempt number for a call that was sent `retry` times before.
    fn new_attempt(&self, retry: u16) -> AttemptId {
        AttemptId::of_retry(retry, u64::from_le_bytes(self.shared.node.random_bytes()))
    }

    /// Acquires a lock, or adds a hold if the owner already holds it.
    ///
    /// Dropping the future withdraws the call: it leaves the queue, and a grant that the caller has not received is
    /// released (with [`Locks::with_disconnect_grace`] after a grace). With a `request_id` a call with an unknown
    /// outcome can be repeated on any node. The repetition may have another maximum wait: the rest of the first one, no
    /// limit, or none, which ends a wait that continues elsewhere.
    pub async fn acquire(
        &self,
        session: SessionId,
        wish: LockWish,
        wait: WaitFor,
        request_id: Option<RequestId>,
    ) -> Result<Grant, LockError> {
        self.acquire_again(session, wish, wait, request_id, 0).await
    }

    /// Does the same as [`Locks::acquire`] for a call that was sent `retry` times before under its `request_id`. A
    /// caller that counts is protected from late copies of its own calls: an older attempt that is applied late takes
    /// nothing from a newer one.
    pub async fn acquire_again(
        &self,
        session: SessionId,
        wish: LockWish,
        wait: WaitFor,
        request_id: Option<RequestId>,
        retry: u16,
    ) -> Result<Grant, LockError> {
        let begun = self.begin_acquire(session, wish, HoldBounds::default(), wait, request_id, retry);
        only(begun.await?.granted().await?)
    }

    /// Runs [`Locks::acquire_again`] until its command is applied, for callers that watch over the wait.
    pub(crate) async fn begin_acquire(
        &self,
        session: SessionId,
        wish: LockWish,
        bounds: HoldBounds,
        wait: WaitFor,
        request_id: Option<RequestId>,
        retry: u16,
    ) -> Result<Started, LockError> {
        let attempt = self.new_attempt(retry);
        let kind = CallKind::Acquire(vec![wish.lock.clone()]);
        let (guid, may_wait) = (self.new_guid(), wait.may_wait());
        // Members of the former release know only the first.
        let command = match bounds.is_some() {
            false => LockCommand::Acquire {
                wish,
                guid,
                attempt,
                wait: may_wait,
            },
            true => LockCommand::AcquireBounded {
                wish,
                guid,
                attempt,
                wait: may_wait,
                bounds,
                lease: None,
            },
        };
        self.begin(session, command, kind, wait, request_id, attempt)
            .await
    }

    /// Acquires several locks, or none. The call waits for all of them at once, so that two such calls never wait for
    /// each other. The grants are in the order of the wishes. Everything else is as for [`Locks::acquire_again`].
    pub async fn acquire_many(
        &self,
        session: SessionId,
        wishes: Vec<LockWish>,
        wait: WaitFor,
        request_id: Option<RequestId>,
        retry: u16,
    ) -> Result<Vec<Grant>, LockError> {
        let begun = self.begin_acquire_many(session, wishes, wait, request_id, retry);
        begun.await?.granted().await
    }

    /// Runs [`Locks::acquire_many`] until its command is applied.
    pub(crate) async fn begin_acquire_many(
        &self,
        session: SessionId,
        wishes: Vec<LockWish>,
        wait: WaitFor,
        request_id: Option<RequestId>,
        retry: u16,
    ) -> Result<Started, LockError> {
        let attempt = self.new_attempt(retry);
        let kind = CallKind::Acquire(wishes.iter().map(|wish| wish.lock.clone()).collect());
        let command = LockCommand::AcquireMany {
            wishes,
            guid: self.new_guid(),
            attempt,
            wait: wait.may_wait(),
        };
        self.begin(session, command, kind, wait, request_id, attempt)
            .await
    }

    /// Makes an upgradeable holder exclusive as soon as the other shared holders are gone. If the upgrade is not
    /// granted, or the future is dropped, the holder stays upgradeable.
    pub async fn upgrade(
        &self,
        session: SessionId,
        lock: LockName,
        holder: HolderId,
        wait: WaitFor,
        request_id: Option<RequestId>,
        retry: u16,
    ) -> Result<Grant, LockError> {
        let begun = self.begin_upgrade(session, lock, holder, wait, request_id, retry);
        only(begun.await?.granted().await?)
    }

    /// Runs [`Locks::upgrade`] until its command is applied.
    pub(crate) async fn begin_upgrade(
        &self,
        session: SessionId,
        lock: LockName,
        holder: HolderId,
        wait: WaitFor,
        request_id: Option<RequestId>,
        retry: u16,
    ) -> Result<Started, LockError> {
        let attempt = self.new_attempt(retry);
        let kind = CallKind::Upgrade(lock.clone());
        let command = LockCommand::Upgrade {
            lock,
            holder,
            attempt,
            wait: wait.may_wait(),
        };
        self.begin(session, command, kind, wait, request_id, attempt)
            .await
    }

    /// Reduces the mode of a holder, and grants the lock at once to waiters compatible with the new mode. The fencing
    /// token stays.
    pub async fn downgrade(
        &self,
        session: SessionId,
        lock: LockName,
        holder: HolderId,
        to: Downgraded,
        request_id: Option<RequestId>,
    ) -> Result<Grant, LockError> {
        let command = LockCommand::Downgrade { lock, holder, to };
        match self.propose(Some(session), request_id, command).await? {
            Reply::Granted(grant) => Ok(grant),
            other => Err(LockError::unexpected(&other)),
        }
    }

    /// Proposes the command of a call and waits until it is applied: the call then has all its locks, or waits in a
    /// queue.
    async fn begin(
        &self,
        session: SessionId,
        command: LockCommand,
        kind: CallKind,
        wait: WaitFor,
        request_id: Option<RequestId>,
        attempt: AttemptId,
    ) -> Result<Started, LockError> {
        let call = self.call(session, command, kind, wait, request_id, attempt);
        call.await.map(Started::from)
    }

    /// Proposes the command of a call whose contenders will belong to `session`, and waits until it is applied. Returns the
    /// call, with its grants if it has all its locks.
    async fn call(
        &self,
        session: SessionId,
        command: LockCommand,
        kind: CallKind,
        wait: WaitFor,
        request_id: Option<RequestId>,
        attempt: AttemptId,
    ) -> Result<(LockCall, Option<Vec<Grant>>), LockError> {
        let deadline = match wait {
            WaitFor::Forever => None,
            // It is in the queue only if it is a repetition of a call that waited there: that wait is over now.
            WaitFor::Try => Some(Instant::now()),
            // A deadline beyond the clock's range is no deadline.
            WaitFor::For(time) => Instant::now().checked_add(time),
        };
        let permit = self.shared.acquire_call_permit()?;
        // The command of a lease opens the session itself.
        let opens_session = matches!(command, LockCommand::AcquireBounded { lease: Some(_), .. });
        let request = Request {
            session: (!opens_session).then_some(session),
            request_id,
            caller: self.caller.clone(),
            command: Command::Lock(command),
        };
        // A call that only tries has no place in a queue to keep.
        let grace = if wait.may_wait() {
            self.grace
        } else {
            Duration::ZERO
        };
        let terms = WaitTerms { deadline, grace };
        let mut call = LockCall::propose(&self.shared, permit, request, session, kind, attempt, terms);
        let granted = call.outcome().await?;
        Ok((call, granted))
    }

    /// Releases one hold; returns the number of holds that remain.
    pub async fn release(
        &self,
        session: SessionId,
        lock: LockName,
        holder: HolderId,
        request_id: Option<RequestId>,
    ) -> Result<u32, LockError> {
        let command = LockCommand::Release { lock, holder };
        match self.propose(Some(session), request_id, command).await? {
            Reply::Released { holds } => Ok(holds),
            other => Err(LockError::unexpected(&other)),
        }
    }

    /// Releases one hold of each contender, in one command. Returns the number of holds that remain, or `None` for
    /// contenders that the session does not hold (any more).
    pub async fn release_many(
        &self,
        session: SessionId,
        holders: Vec<(LockName, HolderId)>,
        request_id: Option<RequestId>,
    ) -> Result<Vec<Option<u32>>, LockError> {
        let command = LockCommand::ReleaseMany { holders };
        match self.propose(Some(session), request_id, command).await? {
            Reply::ReleasedMany(holds) => Ok(holds),
            other => Err(LockError::unexpected(&other)),
        }
    }

    async fn propose(
        &self,
        session: Option<SessionId>,
        request_id: Option<RequestId>,
        command: LockCommand,
    ) -> Result<Reply, LockError> {
        self.shared
            .propose(self.caller.clone(), session, request_id, command)
            .await
    }

    /// Rejects further calls from all callers, ends the waiting ones, and returns when every call is cleaned up, after
    /// a second at the latest. Call it before the node is stopped: a stopped node cannot withdraw the calls from the
    /// queues. It cannot do so without a majority either; the remaining contenders then end with their sessions.
    ///
    /// A waiting call with a request id ends with an unknown outcome and keeps its place in the queue, so that its
    /// caller can repeat it on another node.
    pub async fn close(&self) {
        self.shared.closing.cancel();
        let all = u32::try_from(MAX_CALLS).expect("the limit of calls is small");
        // All permits are free when all calls are over. An error means that another caller has closed already.
        let over = tokio::time::timeout(CLOSE_TIMEOUT, self.shared.call_permits.acquire_many(all)).await;
        let unanswered = match over {
            Ok(_) => 0,
            Err(_) => MAX_CALLS - self.shared.call_permits.available_permits(),
        };
        let left = unanswered + self.shared.not_withdrawn.swap(0, Ordering::Relaxed);
        if left > 0 {
            tracing::warn!(
                calls = left,
                "locks: this node stops before it could withdraw these calls; their contenders end with their sessions"
            );
        }
    }

    /// Returns the token that [`Locks::close`] cancels, for streams and polls, which have to end then.
    pub(crate) fn closing(&self) -> CancellationToken {
        self.shared.closing.clone()
    }
}

impl Shared {
    /// Takes the permit for a call.
    fn acquire_call_permit(&self) -> Result<OwnedSemaphorePermit, LockError> {
        if self.closing.is_cancelled() {
            return Err(LockError::unavailable("this node is stopping"));
        }
        let permit = self.call_permits.clone().try_acquire_owned();
        permit.map_err(|_| LockError::unavailable("too many callers wait for locks at this node"))
    }

    async fn propose(
        &self,
        caller: Identities,
        session: Option<SessionId>,
        request_id: Option<RequestId>,
        command: LockCommand,
    ) -> Result<Reply, LockError> {
        let request = Request {
            session,
            request_id,
            caller,
            command: Command::Lock(command),
        };
        Ok(self.node.propose(request).await?.outcome?)
    }
}

/// Returns the grant of a call for one lock.
pub(crate) fn only(grants: Vec<Grant>) -> Result<Grant, LockError> {
    let mut grants = grants.into_iter();
    match (grants.next(), grants.next()) {
        (Some(grant), None) => Ok(grant),
        _ => Err(LockError::OutcomeUnknown(
            "the cluster answered a call for one lock with several grants".to_owned(),
        )),
    }
}
