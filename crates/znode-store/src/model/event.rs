//! Events: changes of the state in apply order, for watches and waiting callers. The state does not record who watches.

use alloc::sync::Arc;

use crate::model::access::command::AccessChange;
use crate::model::acl::Acl;
use crate::model::ids::{SessionId, Zxid};
use crate::model::lock::{HolderId, LockMode};
use crate::model::path::{LockName, ZPath};
use crate::model::refusal::QuotaKind;
use crate::model::reply::Grant;

/// One thing that a command changed.
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
    /// A contender, holding or waiting, is gone.
    ContenderEnded {
        /// The session of the contender.
        session: SessionId,
        /// Of which lock.
        lock: LockName,
        /// The contender.
        holder: HolderId,
        /// The cause of the end.
        how: ContenderEnd,
    },
    /// A contender holds its lock from now on: at once, or after it had waited.
    HoldBegan(Arc<Hold>),
    /// A contender that held its lock is gone.
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
        /// Of which lock.
        lock: LockName,
        /// The contender.
        holder: HolderId,
    },
    /// An operator asks a holder to release the lock.
    RevokeRequested {
        /// The session of the contender.
        session: SessionId,
        /// Of which lock.
        lock: LockName,
        /// The contender.
        holder: HolderId,
        /// The requester.
        by: Arc<str>,
        /// Why.
        reason: Arc<str>,
    },
    /// A holder said something to that.
    RevokeAnswered {
        /// The session of the contender.
        session: SessionId,
        /// Of which lock.
        lock: LockName,
        /// The contender.
        holder: HolderId,
        /// The answer.
        answer: Arc<str>,
    },
    /// The session of a holder expired; the lock grants nothing for a while.
    LockClosed {
        /// The lock.
        lock: LockName,
        /// For how long.
        delay_ms: u32,
    },
    /// The lock grants again.
    LockOpened(LockName),
    /// A soft quota was passed, which refuses nothing. (Told once, when it happens.)
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
        /// The position of this event, which its new connection is known by.
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

/// Description of a hold, for histories. It is complete at the beginning and at the end, so a reader that has missed the one can use the
/// other.
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
    pub address: Arc<str>,
    /// Time of the grant in milliseconds since 1970. `None` at the end of a hold of a ZooKeeper client: the state does not record it, and
    /// only the beginning reports it.
    pub since_ms: Option<u64>,
}

/// Event that a watch can report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZnodeEvent {
    /// Kind of the change.
    pub kind: ZnodeEventKind,
    /// To which znode.
    pub path: ZPath,
    /// List of the znode as it is (or was, if it is gone) when the event happens. It decides which watchers are notified.
    pub acl: Acl,
}

/// ZooKeeper's four kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ZnodeEventKind {
    /// The znode was created.
    Created,
    /// The znode is gone.
    Deleted,
    /// Its data was replaced (perhaps by the same).
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
        /// Why.
        reason: Arc<str>,
    },
    /// It waited for more permits than the semaphore has now.
    NeverGrantable {
        /// The new limit.
        limit: u32,
    },
    /// Waited, and the owner of its session has no right to lock there any more.
    Forbidden,
    /// Its znode was deleted by means of the tree, as ZooKeeper clients release their locks.
    Deleted,
    /// Of a hold only: it continues as another hold, exclusive and with a new token.
    Upgraded,
}
