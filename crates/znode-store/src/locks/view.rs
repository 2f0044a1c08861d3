//! Views of locks and contenders for front ends and operators.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::model::address::CallerAddress;
use crate::model::ids::{SessionId, Zxid};
use crate::model::lock::{HoldBounds, HolderId, LockMode, Revocation};
use crate::model::path::LockName;
use crate::model::reply::{Grant, Place};

/// A lock with its holders and waiters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockView {
    /// Its name.
    pub lock: LockName,
    /// Mode in use; `None` while it has no contenders.
    pub mode: Option<LockMode>,
    /// The semaphore's limit that an operator has set; it stays while the lock is not in use.
    pub limit: Option<u32>,
    /// True if it takes and grants no new contenders.
    pub draining: bool,
    /// The lock-delay, while it is closed.
    pub closed: Option<ClosedView>,
    /// Its holders, in order of arrival.
    pub holders: Vec<ContenderView>,
    /// Its waiters, in order of arrival.
    pub queue: Vec<ContenderView>,
    /// Children of its znode that have names of contenders but are none, because they belong to no session. The lock ignores them, but recipes of
    /// ZooKeeper clients wait for them. Only the first children are searched for these.
    pub blocking_znodes: Vec<Arc<str>>,
}

/// Time for which a lock grants nothing, because the session of a holder expired, or because of a hold's minimum time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosedView {
    /// Beginning in milliseconds since 1970.
    pub since_ms: u64,
    /// Duration in milliseconds.
    pub delay_ms: u32,
    /// Minimum of the part that has passed, as leaders report it each second.
    pub passed_ms: u32,
}

/// Holder or waiter of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContenderView {
    /// The name of its znode.
    pub holder: HolderId,
    /// Its session.
    pub session: SessionId,
    /// The scope of re-entrancy within the session.
    pub owner: Arc<str>,
    /// Note of its client.
    pub note: Arc<str>,
    /// Address that its client called from; empty for ZooKeeper clients.
    pub address: CallerAddress,
    /// Mode of the request or hold.
    pub mode: LockMode,
    /// Permits of a semaphore, else 1.
    pub permits: u32,
    /// Number of entries of its owner (or, in the queue, of calls).
    pub holds: u32,
    /// Fencing token that it has, or will have unless a holder is upgraded meanwhile.
    pub fencing_token: Zxid,
    /// Beginning of the hold or wait in milliseconds since 1970. The grant of a ZooKeeper client's contender is not recorded; for those it
    /// is the time of their creation.
    pub since_ms: u64,
    /// Time for which the lock grants nothing if the session expires during the hold.
    pub lock_delay_ms: u32,
    /// Bounds of the hold in time.
    pub bounds: HoldBounds,
    /// Time since which it waits to be the only holder, in milliseconds since 1970.
    pub upgrading_since_ms: Option<u64>,
    /// The last release request.
    pub revoke: Option<Revocation>,
}

/// Summary of a lock, for lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockSummary {
    /// Its name.
    pub lock: LockName,
    /// Mode in use.
    pub mode: Option<LockMode>,
    /// Number of holders.
    pub holders: u32,
    /// Number of waiters.
    pub waiters: u32,
}

/// Numbers of locks, holders and waiters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LockCounts {
    /// Locks that have contenders.
    pub locks: usize,
    /// Contenders that hold a lock.
    pub holders: usize,
    /// Contenders that wait.
    pub waiters: usize,
}

/// State of a contender: holder, waiter, or upgrading holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContenderState {
    /// The contender holds the lock.
    Holds(Grant),
    /// The contender waits in the queue.
    Waits(Place),
    /// The contender holds the lock, and waits to be the only holder.
    Upgrades(Grant),
}

/// A live lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseView {
    /// Its timeout.
    pub timeout_ms: u32,
    /// The lock.
    pub lock: LockName,
    /// State of its contender.
    pub contender: ContenderState,
    /// Note of its client.
    pub note: Arc<str>,
}

/// Use of a lock, for a caller that takes it only if it is free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockUse {
    /// Nobody holds it, and nobody waits.
    Free,
    /// A lease holds it alone, in exclusive mode.
    Leased(HoldingLease),
    /// It has other contenders, as a holder in a session.
    Other,
}

/// The lease that holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldingLease {
    /// Its session, which identifies it.
    pub session: SessionId,
    /// Its timeout.
    pub timeout_ms: u32,
    /// Note of its client.
    pub note: Arc<str>,
    /// Fencing token of its hold.
    pub fencing_token: Zxid,
}

/// A hold with bounds in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundedHold {
    /// The lock.
    pub lock: LockName,
    /// The contender.
    pub holder: HolderId,
    /// Time of the grant in milliseconds since 1970.
    pub granted_ms: u64,
    /// The bounds.
    pub bounds: HoldBounds,
}

/// Lock that is closed for a lock-delay, because its holder was lost uncleanly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedLock {
    /// The lock.
    pub lock: LockName,
    /// Position at which the holder was lost.
    pub at: Zxid,
    /// Lock-delay in milliseconds.
    pub delay_ms: u32,
    /// Minimum of the part that has passed, as leaders have counted.
    pub passed_ms: u32,
}

/// Wait of a contender, with the contenders that it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitView {
    /// The lock.
    pub lock: LockName,
    /// Waiter: a contender in the queue, or a holder that waits to be the only one.
    pub waiter: OwnerView,
    /// First [`MAX_NAMED_BLOCKERS`](crate::MAX_NAMED_BLOCKERS) blockers ahead of it. Empty if the lock is drained or closed.
    pub waits_for: Vec<OwnerView>,
    /// True if there are, or may be, more blockers: contenders far ahead are not visited.
    pub more: bool,
}

/// Contender in a wait: the waiter or a blocker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerView {
    /// Its session.
    pub session: SessionId,
    /// Its scope within the session; empty for clients that speak ZooKeeper.
    pub owner: Arc<str>,
    /// Name of its znode.
    pub holder: Arc<str>,
    /// True if it is in the queue; otherwise it holds the lock.
    pub waits: bool,
}
