//! What happened, in the order in which it happened. Watches and waiting callers feed on it; who watches
//! is no part of the state.

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
    /// A contender that waited holds the lock now. (One that is granted at once is told by its reply.)
    Granted {
        /// Whose it is.
        session: SessionId,
        /// What it holds.
        grant: Grant,
    },
    /// A contender, holding or waiting, is gone.
    ContenderEnded {
        /// Whose it was.
        session: SessionId,
        /// Of which lock.
        lock: LockName,
        /// Which one.
        holder: HolderId,
        /// How it ended.
        how: ContenderEnd,
    },
    /// A contender holds its lock from now on: at once, or after it had waited.
    HoldBegan(Arc<Hold>),
    /// A contender that held its lock is gone.
    HoldEnded {
        /// What it held.
        hold: Arc<Hold>,
        /// How that ended.
        how: ContenderEnd,
        /// Who broke it or deleted its znode, as far as the caller had proven who it is: `ip:10.0.0.7`.
        by: Option<Arc<str>>,
    },
    /// A holder holds the lock in another mode: it was downgraded, or its upgrade was granted.
    ModeChanged {
        /// Whose it is.
        session: SessionId,
        /// What it holds now.
        grant: Grant,
    },
    /// An upgrade was given up; the contender holds the lock as before.
    UpgradeWithdrawn {
        /// Whose it is.
        session: SessionId,
        /// Of which lock.
        lock: LockName,
        /// Which one.
        holder: HolderId,
    },
    /// A holder is asked to give the lock up.
    RevokeRequested {
        /// Whose it is.
        session: SessionId,
        /// Of which lock.
        lock: LockName,
        /// Which one.
        holder: HolderId,
        /// Who asks.
        by: Arc<str>,
        /// Why.
        reason: Arc<str>,
    },
    /// A holder said something to that.
    RevokeAnswered {
        /// Whose it is.
        session: SessionId,
        /// Of which lock.
        lock: LockName,
        /// Which one.
        holder: HolderId,
        /// What it said.
        answer: Arc<str>,
    },
    /// A holder's session expired, and nobody is let in for a while.
    LockClosed {
        /// Which lock.
        lock: LockName,
        /// For how long.
        delay_ms: u32,
    },
    /// That time is over.
    LockOpened(LockName),
    /// A soft quota was passed, which refuses nothing. (Told once, when it happens.)
    SoftQuotaPassed {
        /// Whose quota.
        path: ZPath,
        /// Of what.
        what: QuotaKind,
        /// How much there should be at most.
        limit: u64,
        /// How much there is.
        used: u64,
    },
    /// A session was opened.
    SessionOpened(SessionId),
    /// A session goes on on another connection.
    SessionReconnected {
        /// Which.
        session: SessionId,
        /// The position of this event, which its new connection is known by.
        since: Zxid,
    },
    /// A session has ended.
    SessionEnded {
        /// Which.
        session: SessionId,
        /// Whether for want of heartbeats; else at its owner's wish.
        expired: bool,
    },
    /// Who may do what was changed.
    AccessChanged(Arc<AccessChange>),
}

/// All that there is to say about a contender that holds a lock, for those who keep a history. It is told whole at the
/// beginning and at the end, so that whoever has missed the one can do with the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Which lock.
    pub lock: LockName,
    /// The name of the contender's znode.
    pub holder: Arc<str>,
    /// Whose it is.
    pub session: SessionId,
    /// What its client called the session.
    pub session_name: Arc<str>,
    /// How it is held.
    pub mode: LockMode,
    /// Permits of a semaphore, else 1.
    pub permits: u32,
    /// The fencing token: the position at which the contender was created, or a later one.
    pub fencing_token: Zxid,
    /// The scope of re-entrancy within the session; empty for clients that speak ZooKeeper.
    pub owner: Arc<str>,
    /// What its client wrote for people; empty for clients that speak ZooKeeper.
    pub note: Arc<str>,
    /// Where its client called from; empty for clients that speak ZooKeeper.
    pub address: Arc<str>,
    /// When it was let in, in milliseconds since 1970. `None` at the end of a hold by a client that speaks ZooKeeper: the
    /// state does not keep it, only the beginning tells it.
    pub since_ms: Option<u64>,
}

/// What a watch can tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZnodeEvent {
    /// What happened.
    pub kind: ZnodeEventKind,
    /// To which znode.
    pub path: ZPath,
    /// Who may hear of it: those who may read the znode as it is (or, if it is gone, was) when it happens.
    pub acl: Acl,
}

/// ZooKeeper's four kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ZnodeEventKind {
    /// The znode came to be.
    Created,
    /// The znode is gone.
    Deleted,
    /// Its data was replaced (perhaps by the same).
    DataChanged,
    /// A child came or went.
    ChildrenChanged,
}

/// How a contender ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContenderEnd {
    /// Given back by its owner.
    Released,
    /// Its last waiting call was withdrawn.
    Withdrawn,
    /// Its session was closed.
    SessionClosed,
    /// Its session expired.
    SessionExpired,
    /// Taken away by an operator.
    Broken {
        /// Who that was.
        by: Arc<str>,
        /// Why.
        reason: Arc<str>,
    },
    /// It waited for more permits than the semaphore has now.
    NeverGrantable {
        /// How many there are.
        limit: u32,
    },
    /// Waited, and the owner of its session has no right to lock there any more.
    Forbidden,
    /// Its znode was deleted by means of the tree, as ZooKeeper clients release their locks.
    Deleted,
    /// Of a hold only: it goes on as another one, exclusive and with a new token.
    Upgraded,
}
