//! What happened, in the order in which it happened. Watches and waiting callers feed on it; who watches
//! is no part of the state.

use alloc::sync::Arc;

use crate::acl::Acl;
use crate::command::HolderId;
use crate::ids::SessionId;
use crate::path::{LockName, ZPath};
use crate::reply::{Grant, QuotaKind};

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
    /// A session has ended.
    SessionEnded {
        /// Which.
        session: SessionId,
        /// Whether for want of heartbeats; else at its owner's wish.
        expired: bool,
    },
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
    Broken(Arc<str>),
    /// Its znode was deleted by means of the tree, as ZooKeeper clients release their locks.
    Deleted,
}
