//! Operations on keys: reads behind a read barrier, and commands of the state machine.
//!
//! A key exists while its lock is in use. A change names the lease that a read has found, so it is refused if the key has changed
//! meanwhile; the operation then begins again with another read. So each operation is atomic.

use std::time::Duration;

use bytes::Bytes;
use lock_node::{HeartbeatError, Node, ProposeError, Unavailable};
use tokio::time::Instant;
use tracing::info;
use znode_store::{
    AttemptId, Command, ContenderNames, HoldBounds, HoldingLease, Identities, LeaseChange, LeaseKey,
    LockCommand, LockMode, LockName, LockUse, LockWish, MAX_NOTE_BYTES, NEVER_ENDS_MS, NewLease, Password,
    Refusal, Reply, Request, RequestId, Right, SessionId, View,
};

use crate::answers::Answers;
use crate::name;
use crate::reentrant::Holds;
use crate::scripts::ScriptCache;

/// Maximum number of attempts of an operation. Each failed one was overtaken by another client, so some client makes progress.
const MAX_ATTEMPTS: usize = 32;

/// Maximum time to wait for a leader: more than an election takes, and less than a client of Redlock gives a server.
const LEADER_TIMEOUT: Duration = Duration::from_secs(1);

/// Time between two attempts to reach the leader.
const LEADER_POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Error for a client that cannot get a free lock.
pub(crate) const NOT_GRANTED: &str =
    "BUSY the lock is free, but drained or closed for a time: it is granted to nobody";

/// Reason for which a command has no ordinary reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Nothing was done; the client gets this error.
    Error(String),
    /// The command may have been executed. The connection ends, as with a lost Redis.
    Unknown(String),
}

impl Failure {
    pub fn error(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }
}

impl From<Unavailable> for Failure {
    fn from(unavailable: Unavailable) -> Self {
        Self::Error(format!("CLUSTERDOWN {}", unavailable.reason))
    }
}

impl From<ProposeError> for Failure {
    fn from(error: ProposeError) -> Self {
        match error {
            ProposeError::Unavailable(unavailable) => unavailable.into(),
            ProposeError::OutcomeUnknown(reason) => Self::Unknown(reason),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let code = match &refusal {
            Refusal::Unauthenticated(_) => return Self::error("NOAUTH Authentication required."),
            Refusal::Forbidden { .. } | Refusal::NotYourSession(_) | Refusal::NoAuth(_) => "NOPERM",
            Refusal::LockBusy { .. } => {
                return Self::error(
                    "BUSY the lock is held by a session or others wait for it, so no Redis client replaces its holder",
                );
            }
            _ => "ERR",
        };
        Self::Error(format!("{code} {refusal}"))
    }
}

/// Expiry of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    Never,
    In(Ttl),
}

/// Time to live in milliseconds: at least 1, and less than [`NEVER_ENDS_MS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ttl(u32);

impl Ttl {
    /// Checks a time to live; `None` if it is over, or too long.
    pub fn from_ms(ms: i64) -> Option<Self> {
        let ms = u32::try_from(ms).ok()?;
        (ms > 0 && ms < NEVER_ENDS_MS).then_some(Self(ms))
    }

    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0.into())
    }
}

impl Expiry {
    /// Returns the whole time of a lease.
    pub fn of_lease(lease: &HoldingLease) -> Self {
        Ttl::from_ms(lease.timeout_ms.into()).map_or(Self::Never, Self::In)
    }

    /// Returns the timeout of a lease.
    pub fn timeout_ms(self) -> u32 {
        match self {
            Self::Never => NEVER_ENDS_MS,
            Self::In(Ttl(ms)) => ms,
        }
    }
}

/// Text of a value, within the bounds of a lease's note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Value<'v>(&'v str);

impl<'v> Value<'v> {
    pub fn parse(bytes: &'v [u8]) -> Result<Self, Failure> {
        if bytes.len() > MAX_NOTE_BYTES {
            let text = format!(
                "ERR the value of a lock has at most {MAX_NOTE_BYTES} bytes, and this one {}",
                bytes.len()
            );
            return Err(Failure::Error(text));
        }
        let text = std::str::from_utf8(bytes);
        text.map(Self)
            .map_err(|_| Failure::error("ERR the value of a lock is UTF-8, and this one is not"))
    }
}

/// A key in use, as a read has found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Its lock is held by a lease.
    Lease(HoldingLease),
    /// Its lock is used otherwise: by a session or a ZooKeeper client, in another mode, or it only has waiters.
    Other,
}

impl Entry {
    /// Returns the value. A holder that is no lease has none.
    pub fn value(&self) -> Bytes {
        match self {
            Self::Lease(lease) => Bytes::copy_from_slice(lease.note.as_bytes()),
            Self::Other => Bytes::new(),
        }
    }

    /// Returns the holder and the number of its holds, if a client of Redisson holds the lock.
    pub fn holds(&self) -> Option<Holds<'_>> {
        match self {
            Self::Lease(lease) => Holds::parse(&lease.note),
            Self::Other => None,
        }
    }

    /// Returns the lease if it has this value.
    pub fn lease_with(&self, value: &[u8]) -> Option<&HoldingLease> {
        match self {
            Self::Lease(lease) if lease.note.as_bytes() == value => Some(lease),
            _ => None,
        }
    }

    /// Returns the lease, or an error for a client that would change another holder.
    pub fn lease(&self) -> Result<&HoldingLease, Failure> {
        match self {
            Self::Lease(lease) => Ok(lease),
            Self::Other => Err(Failure::error(
                "BUSY the lock is used by a client of another protocol; it can be broken over HTTP",
            )),
        }
    }
}

/// Keys of a node, as one caller uses them.
pub(crate) struct Keys<'a> {
    pub node: &'a Node,
    pub caller: &'a Identities,
    pub address: &'a str,
    pub prefix: &'a str,
    pub answers: &'a Answers,
    pub scripts: &'a ScriptCache,
}

impl Keys<'_> {
    /// Returns the lock of a key.
    pub fn lock(&self, key: &[u8]) -> Result<LockName, Failure> {
        name::lock_of(self.prefix, key).ok_or_else(|| {
            Failure::error("ERR the key is too long for a lock's name, which has at most 512 bytes")
        })
    }

    /// Reads a key. The read is linearizable: it shows everything that was acknowledged before, by any node.
    pub async fn read(&self, key: &[u8]) -> Result<Option<Entry>, Failure> {
        self.barrier().await?;
        self.read_here(key)
    }

    /// Reads a key in this node's state, which can be behind that of the others.
    pub fn read_here(&self, key: &[u8]) -> Result<Option<Entry>, Failure> {
        let lock = self.lock(key)?;
        self.look(&lock, |view| {
            view.may(Right::Lock, lock.znode())
                .or_else(|_| view.may(Right::Read, lock.znode()))
        })
    }

    /// Waits until this node has applied everything that was acknowledged before, by any node. While there is no leader it tries again for a
    /// moment: lock libraries take an error for a lock that they did not get, and nothing was done yet.
    pub async fn barrier(&self) -> Result<(), Failure> {
        let until = Instant::now() + LEADER_TIMEOUT;
        loop {
            match self.node.read_barrier().await {
                Ok(()) => return Ok(()),
                Err(unavailable) if Instant::now() >= until => return Err(unavailable.into()),
                Err(_) => tokio::time::sleep(LEADER_POLL_INTERVAL).await,
            }
        }
    }

    fn look(
        &self,
        lock: &LockName,
        allowed: impl FnOnce(View<'_>) -> Result<(), Refusal>,
    ) -> Result<Option<Entry>, Failure> {
        let entry = self.node.read(|store| {
            allowed(store.seen_by(self.caller))?;
            Ok::<_, Refusal>(match store.lock_use(lock) {
                LockUse::Free => None,
                LockUse::Leased(lease) => Some(Entry::Lease(lease)),
                LockUse::Other => Some(Entry::Other),
            })
        });
        Ok(entry?)
    }

    /// Writes a line of the audit log for an action on what others hold.
    pub fn audit(&self, action: &str, what: &str) {
        let (by, _) = self
            .node
            .read_facts(|store| store.seen_by(self.caller).principal());
        info!(target: "lockgate::audit", %by, from = self.address, action, what = ?what, outcome = "done");
    }

    /// Begins a change of a key.
    pub fn change(&self, key: &[u8]) -> Result<Change<'_>, Failure> {
        Ok(Change {
            keys: self,
            lock: self.lock(key)?,
            attempts_left: MAX_ATTEMPTS,
        })
    }

    async fn propose(&self, command: Command) -> Result<Result<Reply, Refusal>, Failure> {
        self.propose_once(command, None).await
    }

    /// Proposes a command. With an id, a repetition of the command gets the outcome of the first one.
    async fn propose_once(
        &self,
        command: Command,
        request_id: Option<RequestId>,
    ) -> Result<Result<Reply, Refusal>, Failure> {
        let request = Request {
            session: None,
            request_id,
            caller: self.caller.clone(),
            command,
        };
        Ok(self.node.propose(request).await?.outcome)
    }

    /// Returns the remaining time of a lease; `None` if it never ends. The leader knows when it was last renewed. Another node counts from the
    /// last renewal that went through it, so that a holder does not take its lease for a longer one than it has. For a lease that it has neither
    /// granted nor renewed it returns the whole time.
    pub fn remaining(&self, lease: &HoldingLease) -> Option<Duration> {
        if lease.timeout_ms == NEVER_ENDS_MS {
            return None;
        }
        let timeout = Duration::from_millis(lease.timeout_ms.into());
        let silence = self
            .node
            .silence(lease.session)
            .or_else(|| self.answers.silence(lease.session));
        Some(timeout.saturating_sub(silence.unwrap_or_default()))
    }
}

/// Change of a key: a read, and a command that is valid only if the key is as the read has found it. Where a step returns `false` another
/// client came between, and the change begins again with another read.
pub(crate) struct Change<'k> {
    keys: &'k Keys<'k>,
    lock: LockName,
    attempts_left: usize,
}

impl Change<'_> {
    /// Reads the key, as [`Keys::read`] does. Needs the right to lock.
    pub async fn read(&mut self) -> Result<Option<Entry>, Failure> {
        self.read_or_guess(|_| false).await
    }

    /// Reads the key for a change that the state machine checks. The first attempt needs no read barrier if this node's state, which can be
    /// behind, `suffices`: the change that follows is refused if the key is not so any more, and then the next attempt reads behind a barrier.
    /// An answer that changes nothing must not come from such a read.
    pub async fn read_or_guess(
        &mut self,
        suffices: impl Fn(Option<&Entry>) -> bool,
    ) -> Result<Option<Entry>, Failure> {
        let is_first = self.attempts_left == MAX_ATTEMPTS;
        self.attempts_left = match self.attempts_left.checked_sub(1) {
            Some(left) => left,
            None => {
                return Err(Failure::error(
                    "TRYAGAIN other clients change the key all the time",
                ));
            }
        };
        if is_first
            && let Ok(entry) = self.look()
            && suffices(entry.as_ref())
        {
            return Ok(entry);
        }
        self.keys.barrier().await?;
        self.look()
    }

    fn look(&self) -> Result<Option<Entry>, Failure> {
        let lock = &self.lock;
        self.keys.look(lock, |view| view.may(Right::Lock, lock.znode()))
    }

    /// Acquires a free lock. Returns the lease; `None` if another client was faster, or the lock is drained or closed.
    pub async fn acquire(&self, value: &Value<'_>, expiry: Expiry) -> Result<Option<SessionId>, Failure> {
        let Drawn { new, guid, attempt } = Drawn::draw(self.keys.node, expiry);
        let session = new.key.session;
        let wish = LockWish {
            lock: self.lock.clone(),
            mode: LockMode::Exclusive,
            permits: 1,
            owner: "".into(),
            reentrant: false,
            note: value.0.into(),
            address: self.keys.address.into(),
            lock_delay_ms: 0,
            names: ContenderNames::default(),
        };
        let command = LockCommand::AcquireBounded {
            wish,
            guid,
            attempt,
            wait: false,
            bounds: HoldBounds::default(),
            lease: Some(new),
        };
        let is_granted = match self.grant(session, value, command).await? {
            Ok(_) => true,
            Err(Refusal::LockBusy { .. } | Refusal::Draining(_) | Refusal::ModeConflict { .. }) => false,
            Err(refusal) => return Err(refusal.into()),
        };
        Ok(is_granted.then_some(session))
    }

    /// Proposes a command that gives the lock to a new lease.
    async fn grant(
        &self,
        session: SessionId,
        value: &Value<'_>,
        command: LockCommand,
    ) -> Result<Result<Reply, Refusal>, Failure> {
        let answers = self.keys.answers;
        answers.granting(self.keys.node, &self.lock, value.0, session);
        let outcome = self.keys.propose(Command::Lock(command)).await;
        if !matches!(outcome, Ok(Ok(_))) {
            answers.forget(session);
        }
        outcome
    }

    /// Returns whether the lease belongs to another principal, so that only the right to break the lock permits a change.
    fn is_of_others(&self, lease: SessionId) -> bool {
        let keys = self.keys;
        keys.node
            .read_facts(|store| store.seen_by(keys.caller).may_use(lease).is_err())
    }

    /// Ends the lease that holds a lock and gives the lock to a new one.
    pub async fn replace(
        &self,
        lease: &HoldingLease,
        value: &Value<'_>,
        expiry: Expiry,
    ) -> Result<bool, Failure> {
        let Drawn { new, guid, attempt } = Drawn::draw(self.keys.node, expiry);
        let session = new.key.session;
        let replace = LeaseChange::Replace {
            note: value.0.into(),
            address: self.keys.address.into(),
            guid,
            attempt,
            new,
        };
        let is_of_others = self.is_of_others(lease.session);
        let command = self.change_of(lease.session, replace);
        let is_replaced = is_changed(self.grant(session, value, command).await?)?;
        if is_replaced && is_of_others {
            self.audit_break();
        }
        Ok(is_replaced)
    }

    /// Releases a lock that a lease holds, also for a client that does not hold it.
    pub async fn release(&self, lease: &HoldingLease) -> Result<bool, Failure> {
        let is_of_others = self.is_of_others(lease.session);
        let is_released = self.change_lease(lease.session, LeaseChange::Release).await?;
        if is_released && is_of_others {
            self.audit_break();
        }
        if is_released {
            self.keys.answers.forget(lease.session);
        }
        Ok(is_released)
    }

    /// Releases a lock for a client that has named the value of its lease.
    pub async fn release_own(&self, session: SessionId) -> Result<bool, Failure> {
        let is_released = self.change_lease(session, LeaseChange::ReleaseOwn).await?;
        if is_released {
            self.keys.answers.forget(session);
        }
        Ok(is_released)
    }

    /// Returns whether this node has granted or confirmed a lease with this value, and another node has released it for a client that named its
    /// value. An independent Redis would still have the key and delete it. So this is true once.
    pub fn was_released_elsewhere(&self, value: &[u8]) -> bool {
        let lease = self.keys.answers.take(&self.lock, value);
        lease.is_some_and(|lease| self.keys.node.read_facts(|store| store.lease_was_released(lease)))
    }

    /// Confirms a lease to a client of Redlock that took this node for an independent server: gives it its time, as [`Change::renew`] does.
    /// Returns `None` if the lease is not confirmed, because this node has already granted or confirmed it.
    pub async fn confirm(&self, lease: &HoldingLease, expiry: Expiry) -> Result<Option<bool>, Failure> {
        if !self.keys.answers.confirm(self.keys.node, &self.lock, lease) {
            return Ok(None);
        }
        let renewed = self.renew(lease, expiry).await;
        if !matches!(renewed, Ok(true)) {
            self.keys.answers.forget(lease.session);
        }
        renewed.map(Some)
    }

    /// Gives a lease its whole time again, or another one. The same time again needs no log entry.
    pub async fn renew(&self, lease: &HoldingLease, expiry: Expiry) -> Result<bool, Failure> {
        let (timeout_ms, sent) = (expiry.timeout_ms(), Instant::now());
        let is_renewed = match timeout_ms == lease.timeout_ms {
            true => self.heartbeat(lease.session).await?,
            false => {
                let renew = LeaseChange::Renew { timeout_ms };
                self.change_lease(lease.session, renew).await?
            }
        };
        if is_renewed {
            self.keys.answers.renewed(lease.session, sent);
        }
        Ok(is_renewed)
    }

    async fn heartbeat(&self, session: SessionId) -> Result<bool, Failure> {
        self.keys.node.read(|store| {
            let view = store.seen_by(self.keys.caller);
            view.may_use(session)
                .or_else(|_| view.may(Right::Break, self.lock.znode()))
        })?;
        match self.keys.node.heartbeat(session).await {
            Ok(_) => Ok(true),
            Err(HeartbeatError::SessionEnded | HeartbeatError::NoSession) => Ok(false),
            Err(HeartbeatError::Unavailable(unavailable)) => Err(unavailable.into()),
        }
    }

    fn audit_break(&self) {
        self.keys
            .audit("break", &format!("the lease in the lock {}", self.lock));
    }

    fn change_of(&self, lease: SessionId, change: LeaseChange) -> LockCommand {
        LockCommand::ChangeLease {
            lock: self.lock.clone(),
            lease,
            change,
        }
    }

    async fn change_lease(&self, lease: SessionId, change: LeaseChange) -> Result<bool, Failure> {
        let command = self.change_of(lease, change);
        is_changed(self.keys.propose(Command::Lock(command)).await?)
    }

    /// Changes a lease once: the state remembers the id, so that a repetition does not change it again.
    pub async fn change_once(
        &self,
        lease: SessionId,
        change: LeaseChange,
        id: Option<RequestId>,
    ) -> Result<Changed, Failure> {
        let command = Command::Lock(self.change_of(lease, change));
        match self.keys.propose_once(command, id).await? {
            Ok(_) => Ok(Changed::Now),
            Err(Refusal::RequestIdReused) => Ok(Changed::Before),
            Err(Refusal::LeaseExpired) => Ok(Changed::Gone),
            Err(refusal) => Err(refusal.into()),
        }
    }
}

/// Outcome of a change that is done once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changed {
    /// The lease was changed, perhaps by an earlier call of the same change.
    Now,
    /// An earlier call with this id has made another change.
    Before,
    /// The lease does not hold the lock.
    Gone,
}

fn is_changed(outcome: Result<Reply, Refusal>) -> Result<bool, Failure> {
    match outcome {
        Ok(_) => Ok(true),
        Err(Refusal::LeaseExpired) => Ok(false),
        Err(refusal) => Err(refusal.into()),
    }
}

/// Random parts of a grant to a new lease.
struct Drawn {
    new: NewLease,
    guid: u128,
    attempt: AttemptId,
}

impl Drawn {
    fn draw(node: &Node, expiry: Expiry) -> Self {
        Self {
            new: NewLease {
                key: LeaseKey {
                    session: SessionId::from_random(u64::from_le_bytes(node.random_bytes())),
                    password: Password(node.random_bytes()),
                },
                timeout_ms: expiry.timeout_ms(),
            },
            guid: u128::from_le_bytes(node.random_bytes()),
            attempt: AttemptId::of_retry(0, u64::from_le_bytes(node.random_bytes())),
        }
    }
}
