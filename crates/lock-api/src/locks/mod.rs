//! Lock calls: commands of the state machine, waits for their results, and clean-up after callers that
//! disconnected. No HTTP here, and no decision about holders: that is `znode_store`'s.
//!
//! A call of [`Locks::acquire`] proposes one command. If it is answered "queued", the call waits on its own node for
//! the event that ends the wait; nobody polls. A call that ends without its lock, because its time is over or its
//! future was dropped, takes back exactly itself: see `call.rs` and `clean_up.rs`.

mod call;
mod clean_up;
mod random_ids;
mod error;
mod history;
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
    AttemptId, Command, Downgraded, Grant, HolderId, Identities, LockCommand, LockName, LockWish, Refusal,
    Reply, Request, RequestId, SessionId,
};

use call::{CallKind, LockCall, WaitTerms};
pub use clean_up::GRANTED_GRACE;
pub use error::{LockError, LockHistoryError};
use random_ids::IdGenerator;
pub use reads::LockPage;

/// Maximum number of `acquire` calls at a node, including those that are being cleaned up. Each costs about
/// a kilobyte while it waits; more callers than this belong on more nodes.
pub const MAX_CALLS: usize = 100_000;

/// Maximum number of clean-ups at a time. A thousand callers that vanish together must not push the present ones
/// out of the queue of proposals.
pub const MAX_CLEAN_UPS_AT_ONCE: usize = 256;

/// Time that [`Locks::close`] waits for calls to end. The remaining ones then wait for a majority that is not there.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(1_000);

/// Time for which a call whose caller disconnected may still be cleaned up once closing has begun: some round trips to a busy leader.
const CLOSING_GRACE: Duration = Duration::from_millis(500);

/// Maximum wait of a call for its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitFor {
    /// Not at all.
    Try,
    /// Maximum time, counted from the call.
    For(Duration),
    /// Until it is granted.
    Forever,
}

/// The locks of a cluster, by way of one of its nodes and on behalf of a caller. Cheap to clone.
#[derive(Clone)]
pub struct Locks {
    shared: Arc<Shared>,
    caller: Identities,
    grace: Duration,
}

struct Shared {
    node: Node,
    /// One permit for each call, kept until nothing is left to do about it.
    call_permits: Arc<Semaphore>,
    /// One permit for each proposal of a clean-up.
    clean_up_permits: Semaphore,
    /// Cancelled when no call is taken any more.
    closing: CancellationToken,
    /// Number of calls that could not be cleaned up before this node stopped.
    not_withdrawn: AtomicUsize,
    ids: IdGenerator,
}

/// State of a call after its command was applied.
pub(crate) enum Started {
    /// It has all its locks.
    Granted(Vec<Grant>),
    /// It waits in the queue of one of them.
    Queued(Queued),
}

impl Started {
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
    /// The locks that it waits for, or in part has.
    pub fn locks(&self) -> &[LockName] {
        self.0.kind.locks()
    }

    /// Waits for the locks, until the caller is dismissed with a refusal.
    pub async fn granted_unless(
        self,
        dismissed: impl Future<Output = Refusal>,
    ) -> Result<Vec<Grant>, LockError> {
        self.0.wait(dismissed).await
    }
}

impl Locks {
    /// Locks by way of `node`, for callers that have proven nothing: they have the rights of the whole world.
    pub fn new(node: Node) -> Self {
        let shared = Shared {
            node,
            call_permits: Arc::new(Semaphore::new(MAX_CALLS)),
            clean_up_permits: Semaphore::new(MAX_CLEAN_UPS_AT_ONCE),
            closing: CancellationToken::new(),
            not_withdrawn: AtomicUsize::new(0),
            ids: IdGenerator::new(),
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

    /// The same locks for callers that may be cut off: a call that waits under a `request_id` and whose future is dropped keeps its
    /// places for that time, for a repetition of the same request. What is granted meanwhile is kept for at most [`GRANTED_GRACE`].
    pub fn with_disconnect_grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Acquires a lock, or enters once more where the owner is already.
    ///
    /// Dropping the future gives the call up: its place in the queue is left, and a grant that nobody has learnt of is
    /// given back (with [`Locks::with_disconnect_grace`] after a grace). With a `request_id` a call whose outcome is not known can be made again, on any node, and with
    /// another time to wait: the rest of it, no limit, or none, which ends a wait that continues elsewhere.
    pub async fn acquire(
        &self,
        session: SessionId,
        wish: LockWish,
        wait: WaitFor,
        request_id: Option<RequestId>,
    ) -> Result<Grant, LockError> {
        self.acquire_again(session, wish, wait, request_id, 0).await
    }

    /// [`Locks::acquire`] for a call that was sent `retry` times before under its `request_id`. Who counts is safe from
    /// copies of its own calls that are applied late: they take nothing from a later one.
    pub async fn acquire_again(
        &self,
        session: SessionId,
        wish: LockWish,
        wait: WaitFor,
        request_id: Option<RequestId>,
        retry: u16,
    ) -> Result<Grant, LockError> {
        let begun = self.begin_acquire(session, wish, wait, request_id, retry);
        only(begun.await?.granted().await?)
    }

    /// [`Locks::acquire_again`] until its command is applied, for callers that watch over the wait.
    pub(crate) async fn begin_acquire(
        &self,
        session: SessionId,
        wish: LockWish,
        wait: WaitFor,
        request_id: Option<RequestId>,
        retry: u16,
    ) -> Result<Started, LockError> {
        let attempt = self.shared.ids.attempt(retry);
        let kind = CallKind::Acquire(vec![wish.lock.clone()]);
        let command = LockCommand::Acquire {
            wish,
            guid: self.shared.ids.guid(),
            attempt,
            wait: may_wait(wait),
        };
        self.begin(session, command, kind, wait, request_id, attempt)
            .await
    }

    /// Acquires several locks, or none: all of them are waited for at once, so that two such calls never wait for each
    /// other. Their grants come in the order of the wishes. As [`Locks::acquire_again`] otherwise.
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

    /// [`Locks::acquire_many`] until its command is applied.
    pub(crate) async fn begin_acquire_many(
        &self,
        session: SessionId,
        wishes: Vec<LockWish>,
        wait: WaitFor,
        request_id: Option<RequestId>,
        retry: u16,
    ) -> Result<Started, LockError> {
        let attempt = self.shared.ids.attempt(retry);
        let kind = CallKind::Acquire(wishes.iter().map(|wish| wish.lock.clone()).collect());
        let command = LockCommand::AcquireMany {
            wishes,
            guid: self.shared.ids.guid(),
            attempt,
            wait: may_wait(wait),
        };
        self.begin(session, command, kind, wait, request_id, attempt)
            .await
    }

    /// Makes an upgradeable holder the only one, when the other shared holders are gone. If that is not granted it
    /// stays upgradeable; so it does if the future is dropped.
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

    /// [`Locks::upgrade`] until its command is applied.
    pub(crate) async fn begin_upgrade(
        &self,
        session: SessionId,
        lock: LockName,
        holder: HolderId,
        wait: WaitFor,
        request_id: Option<RequestId>,
        retry: u16,
    ) -> Result<Started, LockError> {
        let attempt = self.shared.ids.attempt(retry);
        let kind = CallKind::Upgrade(lock.clone());
        let command = LockCommand::Upgrade {
            lock,
            holder,
            attempt,
            wait: may_wait(wait),
        };
        self.begin(session, command, kind, wait, request_id, attempt)
            .await
    }

    /// Lets a holder go on with fewer rights, and lets those in at once who get along with that. The token stays.
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

    /// Proposes the command of a call and waits until it is applied: the call then has all its locks, or waits in a queue.
    async fn begin(
        &self,
        session: SessionId,
        command: LockCommand,
        kind: CallKind,
        wait: WaitFor,
        request_id: Option<RequestId>,
        attempt: AttemptId,
    ) -> Result<Started, LockError> {
        let deadline = match wait {
            WaitFor::Forever => None,
            // It is in the queue only if it is a repetition of a call that waited there: that wait is over now.
            WaitFor::Try => Some(Instant::now()),
            // A deadline beyond the clock's range is no deadline.
            WaitFor::For(time) => Instant::now().checked_add(time),
        };
        let permit = self.shared.acquire_call_permit()?;
        let request = Request {
            session: Some(session),
            request_id,
            caller: self.caller.clone(),
            command: Command::Lock(command),
        };
        // A call that only tries has no place to keep.
        let grace = if may_wait(wait) {
            self.grace
        } else {
            Duration::ZERO
        };
        let terms = WaitTerms { deadline, grace };
        let mut call = LockCall::propose(&self.shared, permit, request, session, kind, attempt, terms);
        match call.outcome().await? {
            Some(grants) => Ok(Started::Granted(grants)),
            None => Ok(Started::Queued(Queued(call))),
        }
    }

    /// Gives one hold back; returns how many are left.
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

    /// Gives one hold of each back, in one command; returns how many are left, or `None` for those that the session does
    /// not hold (any more).
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

    /// Takes no more calls, from no caller, sends those away that wait, and returns when nothing is left to tidy up, after a
    /// second at the latest. To be called before the node is stopped: afterwards nobody could take the callers' places out of the
    /// queues. Without a majority nobody can either: what is left then goes with its session.
    ///
    /// A waiting call with a request id ends with an unknown outcome and keeps its place, so that its caller
    /// can make it again on another node.
    pub async fn close(&self) {
        self.shared.closing.cancel();
        let all = u32::try_from(MAX_CALLS).expect("the limit of calls is small");
        // All places are free when all calls are over. An error means that somebody else has closed already.
        let over = tokio::time::timeout(CLOSE_TIMEOUT, self.shared.call_permits.acquire_many(all)).await;
        let unanswered = match over {
            Ok(_) => 0,
            Err(_) => MAX_CALLS - self.shared.call_permits.available_permits(),
        };
        let left = unanswered + self.shared.not_withdrawn.swap(0, Ordering::Relaxed);
        if left > 0 {
            tracing::warn!(
                calls = left,
                "this node stops before it could withdraw these calls: their places in queues end with their sessions"
            );
        }
    }

    /// Cancelled when [`Locks::close`] is called: what stays open by its nature has to end then.
    pub(crate) fn closing(&self) -> CancellationToken {
        self.shared.closing.clone()
    }
}

impl Shared {
    /// Takes a place for a call.
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

/// Returns whether a call enters the queue at all.
fn may_wait(wait: WaitFor) -> bool {
    match wait {
        WaitFor::Try => false,
        WaitFor::For(time) => !time.is_zero(),
        WaitFor::Forever => true,
    }
}

/// The grant of a call that was for one lock.
pub(crate) fn only(grants: Vec<Grant>) -> Result<Grant, LockError> {
    let mut grants = grants.into_iter();
    match (grants.next(), grants.next()) {
        (Some(grant), None) => Ok(grant),
        _ => Err(LockError::OutcomeUnknown(
            "the cluster answered to a call for one lock with several".to_owned(),
        )),
    }
}
