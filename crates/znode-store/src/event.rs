//! What happened, in the order in which it happened. Watches and waiting callers feed on it; who watches
//! is no part of the state.

use alloc::sync::Arc;

use crate::command::HolderId;
use crate::ids::SessionId;
use crate::path::{LockName, ZPath};
use crate::reply::Grant;

/// One thing that a command changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The znode came to be.
    Created(ZPath),
    /// The znode is gone.
    Deleted(ZPath),
    /// Its data was replaced (perhaps by the same).
    DataChanged(ZPath),
    /// A child came or went.
    ChildrenChanged(ZPath),
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
