//! Events: changes of the state in apply order, for watches and waiting callers. The state does not record watches.

use alloc::sync::Arc;

use crate::model::access::command::AccessChange;
use crate::model::acl::Acl;
use crate::model::address::CallerAddress;
use crate::model::ids::{SessionId, Zxid};
use crate::model::lock::{HolderId, LockMode};
use crate::model::path::{LockName, ZPath};
use crate::model::refusal::QuotaKind;
use crate::model::reply::Grant;

/// One change by a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A znode changed.
    Znode(ZnodeEvent),
    /// A waiting contender was granted its lock. (If the grant is immediate, the reply reports it.)
    Granted {
        /// The session of the contender.
        session: SessionId,
        /// The grant.
        grant: Grant,
    },
    /// A holder or waiter was removed.
    ContenderEnded {
        /// The session of the contender.
        session: SessionId,
        /// Lock.
        lock: LockName,
        /// The contender.
        holder: HolderId,
        /// The cause of the end.
        how: ContenderEnd,
    },
    /// A contender was granted its lock, at once or after a wait.
    HoldBegan(Arc<Hold>),
    /// A holder was removed.
    HoldEnded {
        /// The hold that ended.
        hold: Arc<Hold>,
        /// The cause of the end.
        how: ContenderEnd,
        /// Identities of the caller that broke the hold or deleted its znode, as far as proven: `ip:10.0.0.7`.
        by: Option<Arc<str>>,
    },
    /// A holder holds the lock in another mode: it was downgraded, or its upgrade was granted.
    ModeChanged {
        /// The session of the contender.
        session: SessionId,
        /// The grant as it is now.
        grant: Grant,
    },
    /// An upgrade was withdrawn; the contender holds the lock as before.
    UpgradeWithdrawn {
        /// The session of the contender.
        session: SessionId,
        /// Lock.
        lock: LockName,
        /// The contender.
        holder: HolderId,
    },
    /// An operator asks a holder to release the lock.
    RevokeRequested {
        /// The session of the contender.
        session: SessionId,
        /// Lock.
        lock: LockName,
        /// The contender.
        holder: HolderId,
        /// The requester.
        by: Arc<str>,
        /// Reason.
        reason: Arc<str>,
    },
    /// A holder answered a release request.
    RevokeAnswered {
        /// The session of the contender.
        session: SessionId,
        /// Lock.
        lock: LockName,
        /// The contender.
        holder: HolderId,
        /// The answer.
        answer: Arc<str>,
    },
    /// The session of a holder expired, or a hold with a minimum time began; the lock grants nothing for a while.
    LockClosed {
        /// The lock.
        lock: LockName,
        /// Lock-delay in milliseconds.
        delay_ms: u32,
    },
    /// The lock grants again.
    LockOpened(LockName),
    /// A change exceeded a soft quota, which refuses nothing. Reported once, when it happens.
    SoftQuotaPassed {
        /// Path of the subtree with the quota.
        path: ZPath,
        /// The quantity.
        what: QuotaKind,
        /// The soft limit.
        limit: u64,
        /// The amount in use.
        used: u64,
    },
    /// A session was opened.
    SessionOpened(SessionId),
    /// A session was resumed on another connection.
    SessionReconnected {
        /// The session.
        session: SessionId,
        /// Position of this event, which identifies the new connection.
        since: Zxid,
    },
    /// A session has ended.
    SessionEnded {
        /// The session.
        session: SessionId,
        /// True if heartbeats were missing; otherwise the owner closed the session.
        expired: bool,
    },
    /// The access policies changed.
    AccessChanged(Arc<AccessChange>),
}

/// Description of a hold, for histories. The events of the beginning and of the end both contain all of it, so a reader that has missed one can use
/// the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// The lock.
    pub lock: LockName,
    /// The name of the contender's znode.
    pub holder: Arc<str>,
    /// The session.
    pub session: SessionId,
    /// Name that its client gave the session.
    pub session_name: Arc<str>,
    /// The mode.
    pub mode: LockMode,
    /// Permits of a semaphore, else 1.
    pub permits: u32,
    /// The fencing token: the position at which the contender was created, or a later one.
    pub fencing_token: Zxid,
    /// The scope of re-entrancy within the session; empty for clients that speak ZooKeeper.
    pub owner: Arc<str>,
    /// Note of its client; empty for ZooKeeper clients.
    pub note: Arc<str>,
    /// Address that its client called from; empty for ZooKeeper clients.
    pub address: CallerAddress,
    /// Time of the grant in milliseconds since 1970. `None` at the end of a hold of a ZooKeeper client: the state does not record it, and
    /// only the beginning reports it.
    pub since_ms: Option<u64>,
}

/// Event that a watch can report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZnodeEvent {
    /// Kind of the change.
    pub kind: ZnodeEventKind,
    /// Changed znode.
    pub path: ZPath,
    /// Access control list of the znode at the event, or before its deletion. It decides which watchers are notified.
    pub acl: Acl,
}

/// ZooKeeper's four kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ZnodeEventKind {
    /// The znode was created.
    Created,
    /// The znode was deleted.
    Deleted,
    /// The data was replaced, perhaps by equal data.
    DataChanged,
    /// A child was created or deleted.
    ChildrenChanged,
}

/// Cause of the end of a contender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContenderEnd {
    /// Released by its owner.
    Released,
    /// Its last waiting call was withdrawn.
    Withdrawn,
    /// Its session was closed.
    SessionClosed,
    /// Its session expired.
    SessionExpired,
    /// Broken by an operator.
    Broken {
        /// The operator.
        by: Arc<str>,
        /// Reason.
        reason: Arc<str>,
    },
    /// It requested more permits than the semaphore has now.
    NeverGrantable {
        /// The new limit.
        limit: u32,
    },
    /// It waited, and the owner of its session lost the right to the lock.
    Forbidden,
    /// Its znode was deleted by an operation on the tree, as ZooKeeper clients release their locks.
    Deleted,
    /// The hold reached its maximum time.
    MaxHold,
    /// The hold was upgraded: it continues as another hold, exclusive and with a new token.
    Upgraded,
}

impl ContenderEnd {
    /// Returns its word, in histories and events.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Withdrawn => "withdrawn",
            Self::NeverGrantable { .. } => "never_grantable",
            Self::Upgraded => "upgraded",
            Self::SessionClosed => "session_closed",
            Self::SessionExpired => "session_expired",
            Self::Broken { .. } => "broken",
            Self::Forbidden => "forbidden",
            Self::Deleted => "deleted",
            Self::MaxHold => "max_hold",
        }
    }
}
