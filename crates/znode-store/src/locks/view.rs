//! Views of locks and contenders for front ends and people.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::model::ids::{SessionId, Zxid};
use crate::model::lock::{HolderId, LockMode, Revocation};
use crate::model::path::LockName;
use crate::model::reply::{Grant, Place};

/// A lock and everybody who has to do with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockView {
    /// Its name.
    pub lock: LockName,
    /// How it is in use; `None` while it has no contenders.
    pub mode: Option<LockMode>,
    /// The semaphore's limit that an operator has set; it stays while the lock is not in use.
    pub limit: Option<u32>,
    /// Whether nobody is let in, nor into the queue.
    pub draining: bool,
    /// Whether, and since when, it is closed for a while.
    pub closed: Option<ClosedView>,
    /// Those who hold it, in order of arrival.
    pub holders: Vec<ContenderView>,
    /// Those who wait, in order of arrival.
    pub queue: Vec<ContenderView>,
}

/// A lock that lets nobody in, because the session of a holder expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosedView {
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// For how long.
    pub delay_ms: u32,
    /// How much of that has passed at least, as leaders tell each second.
    pub passed_ms: u32,
}

/// A holder, or somebody who waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContenderView {
    /// The name of its znode.
    pub holder: HolderId,
    /// Whose it is.
    pub session: SessionId,
    /// The scope of re-entrancy within the session.
    pub owner: Arc<str>,
    /// What its client wrote for people.
    pub note: Arc<str>,
    /// Where its client called from; empty for clients that speak ZooKeeper.
    pub address: Arc<str>,
    /// How it wants (or holds) the lock.
    pub mode: LockMode,
    /// Permits of a semaphore, else 1.
    pub permits: u32,
    /// How often its owner has entered (or, in the queue, would have).
    pub holds: u32,
    /// The fencing token that it has, or will have if nobody upgrades meanwhile.
    pub fencing_token: Zxid,
    /// Since when it holds, or waits, in milliseconds since 1970. When a contender of a ZooKeeper client was let in
    /// is not known; for those it is the time of their creation.
    pub since_ms: u64,
    /// How long the lock stays closed if its session expires while it holds.
    pub lock_delay_ms: u32,
    /// Since when it waits to be the only holder.
    pub upgrading_since_ms: Option<u64>,
    /// The last request to give the lock up.
    pub revoke: Option<Revocation>,
}

/// A lock in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockSummary {
    /// Its name.
    pub lock: LockName,
    /// How it is in use.
    pub mode: Option<LockMode>,
    /// How many hold it.
    pub holders: u32,
    /// How many wait.
    pub waiters: u32,
}

/// How many there are of what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LockCounts {
    /// Locks that have contenders.
    pub locks: usize,
    /// Contenders that hold one.
    pub holders: usize,
    /// Those that wait.
    pub waiters: usize,
}

/// Where a contender stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It holds the lock.
    Holds(Grant),
    /// It stands in the queue.
    Waits(Place),
    /// It holds the lock, and waits to be the only one.
    Upgrades(Grant),
}

/// A lock that is closed for a while after an unclean loss.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedLock {
    /// Which.
    pub lock: LockName,
    /// The position of the loss.
    pub at: Zxid,
    /// For how long, in milliseconds.
    pub delay_ms: u32,
    /// How much of that has passed at least, as leaders have counted.
    pub passed_ms: u32,
}

/// Somebody who waits, and for whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitView {
    /// In which lock.
    pub lock: LockName,
    /// Who waits: in the queue, or as a holder that wants to be the only one.
    pub waiter: PartyView,
    /// Those ahead that it cannot pass, the first [`MAX_NAMED_BLOCKERS`] of them. Nobody if the lock is drained or closed.
    pub waits_for: Vec<PartyView>,
    /// Whether there are more of them, or may be: those far ahead are not looked at.
    pub more: bool,
}

/// One who waits or is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartyView {
    /// Whose it is.
    pub session: SessionId,
    /// Its scope within the session; empty for clients that speak ZooKeeper.
    pub owner: Arc<str>,
    /// Its contender.
    pub holder: Arc<str>,
    /// Whether it stands in the queue; else it holds the lock.
    pub waits: bool,
}
