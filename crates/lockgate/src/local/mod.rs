//! Locks for the program that the server runs in, without HTTP: a session that is kept alive in the background,
//! and guards that give their lock back. What a lock means is `lock_api`'s business.

mod write;

use std::sync::Arc;
use std::time::Duration;

use lock_api::locks::{LockError, Locks, WaitFor};
use raft_node::{HeartbeatError, Node, OpenSessionError, ProposeError};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use znode_store::{
    BadPath, Command, Grant, Identities, Identity, LockMode, LockName, LockWish, Refusal, Request, RequestId,
    SessionId, Zxid,
};

/// Between two tries while the cluster has no leader: well below an election, and too rare to matter.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// A session is renewed this many times within its timeout, so that one lost heartbeat does not end it.
const HEARTBEATS_PER_TIMEOUT: u32 = 3;

/// Shown to whoever looks at the locks, in the place of a caller's address.
const LOCAL_ADDRESS: &str = "in process";

/// How a lock is wanted. A second acquire of the same session waits for the first one's end like anybody
/// else's, unless both name the same [`AcquireOptions::reentrant`] scope.
#[derive(Debug, Clone)]
pub struct AcquireOptions {
    mode: LockMode,
    permits: u32,
    wait: WaitFor,
    owner: Arc<str>,
    reentrant: bool,
    note: Arc<str>,
}

impl AcquireOptions {
    /// One holder.
    pub fn exclusive() -> Self {
        Self::in_mode(LockMode::Exclusive)
    }

    /// Any number of holders, none of them exclusive.
    pub fn shared() -> Self {
        Self::in_mode(LockMode::Shared)
    }

    /// One of `limit` permits.
    pub fn semaphore(limit: u32) -> Self {
        Self::in_mode(LockMode::Semaphore { limit })
    }

    fn in_mode(mode: LockMode) -> Self {
        let nothing: Arc<str> = "".into();
        Self {
            mode,
            permits: 1,
            wait: WaitFor::Forever,
            owner: nothing.clone(),
            reentrant: false,
            note: nothing,
        }
    }

    /// So many permits of a semaphore at once.
    pub fn permits(mut self, permits: u32) -> Self {
        self.permits = permits;
        self
    }

    /// Gives up at once if the lock is not free.
    pub fn try_only(mut self) -> Self {
        self.wait = WaitFor::Try;
        self
    }

    /// Gives up after so long.
    pub fn wait_at_most(mut self, time: Duration) -> Self {
        self.wait = WaitFor::For(time);
        self
    }

    /// Enters again at once where the same session holds the lock in the scope `owner` already.
    pub fn reentrant(mut self, owner: &str) -> Self {
        self.owner = owner.into();
        self.reentrant = true;
        self
    }

    /// A text for whoever looks at the lock.
    pub fn note(mut self, note: &str) -> Self {
        self.note = note.into();
        self
    }
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum LocalLockError {
    /// The name is not one of a lock.
    #[error("not a name of a lock: {0}")]
    BadName(#[from] BadPath),
    /// The cluster decided against it; nothing was changed.
    #[error(transparent)]
    Refused(Refusal),
    /// Nothing was done; trying again later may help.
    #[error("not available now: {0}")]
    Unavailable(String),
    /// It may have been done, or may yet be.
    #[error("the outcome is unknown: {0}")]
    OutcomeUnknown(String),
    /// The session is lost, and all its locks with it.
    #[error("the session is lost")]
    SessionLost,
}

impl From<LockError> for LocalLockError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Refused(Refusal::SessionEnded(_) | Refusal::NoSession(_)) => Self::SessionLost,
            LockError::Refused(refusal) => Self::Refused(refusal),
            LockError::Unavailable(unavailable) => Self::Unavailable(unavailable.to_string()),
            LockError::OutcomeUnknown(reason) => Self::OutcomeUnknown(reason),
        }
    }
}

impl From<OpenSessionError> for LocalLockError {
    fn from(error: OpenSessionError) -> Self {
        match error {
            OpenSessionError::Refused(refusal) => Self::Refused(refusal),
            OpenSessionError::Propose(error) => error.into(),
            too_many @ OpenSessionError::TooMany { .. } => Self::Unavailable(too_many.to_string()),
        }
    }
}

impl From<ProposeError> for LocalLockError {
    fn from(error: ProposeError) -> Self {
        match error {
            ProposeError::Unavailable(unavailable) => Self::Unavailable(unavailable.to_string()),
            ProposeError::OutcomeUnknown(reason) => Self::OutcomeUnknown(reason),
        }
    }
}

/// A session of this program, renewed in the background for as long as this or a guard of it lives; then it is
/// closed, in the background too. Its locks end with it.
#[derive(Debug)]
pub struct LocalSession {
    shared: Arc<Shared>,
}

struct Shared {
    node: Node,
    locks: Locks,
    session: SessionId,
    timeout: Duration,
    /// Set once, when it cannot be renewed or is closed.
    lost: watch::Sender<bool>,
    heartbeats: AbortOnDropHandle<()>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("session", &self.session)
            .field("lost", &*self.lost.borrow())
            .finish()
    }
}

impl Shared {
    async fn lost(&self) {
        let mut lost = self.lost.subscribe();
        lost.wait_for(|lost| *lost)
            .await
            .expect("the sender lives as long as this");
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if *self.lost.borrow() {
            return;
        }
        // Without a runtime its time runs out, for want of heartbeats.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (node, session, timeout) = (self.node.clone(), self.session, self.timeout);
            runtime.spawn(async move {
                if let Err(error) = close(&node, session, timeout).await {
                    tracing::warn!(%session, %error, "a dropped session was not closed");
                }
            });
        }
    }
}

impl LocalSession {
    pub(crate) async fn open(
        node: Node,
        locks: Locks,
        timeout: Option<Duration>,
        name: &str,
    ) -> Result<Self, LocalLockError> {
        let before = Instant::now();
        // If its outcome is unknown, a session that nobody knows of ends by itself: there is nothing to repeat.
        let opened = node
            .open_session_of(operator(), timeout, name, LOCAL_ADDRESS, Some(fresh_request_id()))
            .await?;
        let lost = watch::Sender::new(false);
        let heartbeats = tokio::spawn(keep_alive(
            node.clone(),
            opened.session,
            opened.timeout,
            before + opened.timeout,
            lost.clone(),
        ));
        let shared = Shared {
            node,
            locks: locks.on_behalf_of(operator()),
            session: opened.session,
            timeout: opened.timeout,
            lost,
            heartbeats: AbortOnDropHandle::new(heartbeats),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Its id.
    pub fn id(&self) -> SessionId {
        self.shared.session
    }

    /// Whether the session is lost: it has ended, or could not be renewed for its whole timeout, so that others
    /// may hold its locks by now. It does not come back.
    pub fn is_lost(&self) -> bool {
        *self.shared.lost.borrow()
    }

    /// Waits until the session is lost.
    pub async fn lost(&self) {
        self.shared.lost().await;
    }

    /// Acquires a lock. A call that is dropped before it ends leaves the queue.
    pub async fn acquire(&self, lock: &str, options: AcquireOptions) -> Result<LocalGuard, LocalLockError> {
        let lock = LockName::parse(lock)?;
        let wish = LockWish {
            lock,
            mode: options.mode,
            permits: options.permits,
            owner: options.owner,
            reentrant: options.reentrant,
            note: options.note,
            address: LOCAL_ADDRESS.into(),
            lock_delay_ms: 0,
            names: Default::default(),
        };
        let id = fresh_request_id();
        let shared = &self.shared;
        let granted = async {
            let mut retry = 0;
            loop {
                let (wish, id) = (wish.clone(), Some(id.clone()));
                let call = shared
                    .locks
                    .acquire_again(shared.session, wish, options.wait, id, retry);
                match call.await {
                    // The same request again: if the lost one was carried out, this finds its place.
                    Err(LockError::OutcomeUnknown(_)) => tokio::time::sleep(RETRY_PAUSE).await,
                    other => return other,
                }
                retry = retry.saturating_add(1);
            }
        };
        tokio::select! {
            granted = granted => {
                Ok(LocalGuard { shared: shared.clone(), grant: granted?, given_back: false })
            }
            () = shared.lost() => Err(LocalLockError::SessionLost),
        }
    }

    /// Ends the session, and with it all its locks and places in queues.
    pub async fn close(self) -> Result<(), LocalLockError> {
        close(&self.shared.node, self.shared.session, self.shared.timeout).await?;
        self.shared.heartbeats.abort();
        self.shared.lost.send_replace(true);
        Ok(())
    }
}

/// Who a program is that has a node within it: it can read all that the node keeps, so it is the node's operator, whom neither
/// roles nor access control lists stop.
fn operator() -> Identities {
    Identities::new([Identity::Super])
}

/// Closes a session, and tries for as long as it could live.
async fn close(node: &Node, session: SessionId, timeout: Duration) -> Result<(), LocalLockError> {
    let deadline = Instant::now() + timeout;
    let request = Request {
        session: None,
        request_id: None,
        caller: operator(),
        command: Command::CloseSession { session },
    };
    loop {
        match node.propose(request.clone()).await {
            Ok(applied) => match applied.outcome {
                Ok(_) | Err(Refusal::SessionEnded(_) | Refusal::NoSession(_)) => return Ok(()),
                Err(refusal) => return Err(LocalLockError::Refused(refusal)),
            },
            // Closing twice is closing once.
            Err(ProposeError::OutcomeUnknown(_)) if Instant::now() < deadline => {
                tokio::time::sleep(RETRY_PAUSE).await
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Renews the session until it is lost, and tells that it is.
async fn keep_alive(
    node: Node,
    session: SessionId,
    timeout: Duration,
    mut deadline: Instant,
    lost: watch::Sender<bool>,
) {
    let mut next = Instant::now() + timeout / HEARTBEATS_PER_TIMEOUT;
    loop {
        tokio::time::sleep_until(next).await;
        // Counted from before it was sent: that is all that the leader promises.
        let sent = Instant::now();
        next = match tokio::time::timeout_at(deadline, node.heartbeat(session)).await {
            Ok(Ok(renewed_for)) => {
                deadline = sent + renewed_for;
                sent + timeout / HEARTBEATS_PER_TIMEOUT
            }
            Ok(Err(HeartbeatError::Unavailable(_))) if Instant::now() < deadline => {
                (Instant::now() + RETRY_PAUSE).min(deadline)
            }
            Ok(Err(_)) | Err(_) => {
                tracing::warn!(%session, "the session is lost");
                lost.send_replace(true);
                return;
            }
        };
    }
}

/// A lock that is held. [`LocalGuard::release`] gives it back and says when that is done; dropping the guard
/// gives it back in the background.
#[derive(Debug)]
pub struct LocalGuard {
    shared: Arc<Shared>,
    grant: Grant,
    given_back: bool,
}

impl LocalGuard {
    /// The lock.
    pub fn lock(&self) -> &LockName {
        &self.grant.lock
    }

    /// Proof of the grant: of two conflicting grants the later one has the larger token. A store that is
    /// written to under the lock should refuse smaller tokens than it has seen.
    pub fn fencing_token(&self) -> Zxid {
        self.grant.fencing_token
    }

    /// The contender that holds the lock, as it is shown to others.
    pub fn holder(&self) -> &str {
        &self.grant.holder
    }

    /// Whether the session was lost meanwhile, so that somebody else may hold the lock by now.
    pub fn is_lost(&self) -> bool {
        *self.shared.lost.borrow()
    }

    /// Waits until the session is lost.
    pub async fn lost(&self) {
        self.shared.lost().await;
    }

    /// Gives the lock back. Returns when the next one in the queue has it.
    pub async fn release(mut self) -> Result<(), LocalLockError> {
        self.given_back = true;
        give_back(&self.shared, &self.grant).await
    }
}

impl Drop for LocalGuard {
    fn drop(&mut self) {
        if self.given_back {
            return;
        }
        let (shared, grant) = (self.shared.clone(), self.grant.clone());
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(async move {
                    if let Err(error) = give_back(&shared, &grant).await {
                        tracing::warn!(lock = %grant.lock, %error, "a dropped guard's lock was not given back");
                    }
                });
            }
            Err(_) => {
                tracing::warn!(lock = %grant.lock, "a guard dropped outside of the runtime keeps its lock")
            }
        }
    }
}

/// Gives a lock back, and tries for as long as the session lives.
async fn give_back(shared: &Shared, grant: &Grant) -> Result<(), LocalLockError> {
    let id = fresh_request_id();
    let released = async {
        loop {
            let (lock, holder) = (grant.lock.clone(), grant.holder.clone());
            match shared
                .locks
                .release(shared.session, lock, holder, Some(id.clone()))
                .await
            {
                Err(LockError::OutcomeUnknown(_) | LockError::Unavailable(_)) => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                other => return other,
            }
        }
    };
    tokio::select! {
        released = released => Ok(released.map(drop)?),
        () = shared.lost() => Err(LocalLockError::SessionLost),
    }
}

fn fresh_request_id() -> RequestId {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).expect("the operating system has random numbers");
    RequestId::parse(&format!("{:032x}", u128::from_le_bytes(bits))).expect("32 bytes are within the limit")
}
