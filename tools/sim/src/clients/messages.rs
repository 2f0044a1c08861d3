//! Requests of clients, the nodes' responses, and the clients' timers.

use lock_api::Leased;
use znode_store::{
    Applied, Downgraded, Grant, HoldBounds, HolderId, LeaseChange, LeaseKey, LockName, LockWish, Op, Refusal,
    RequestId, SessionId, ZPath, Zxid,
};

use crate::time::Micros;

/// Id of a client.
pub type ClientId = u64;

/// Id of one attempt of a client's request.
pub type OpId = u64;

/// Request of a client to a node.
#[derive(Debug, Clone)]
pub enum ClientRequest {
    /// Opens a session.
    Open {
        /// The session's timeout.
        timeout_ms: u64,
        /// Request id.
        request_id: RequestId,
    },
    /// Renews a session.
    Heartbeat(SessionId),
    /// Closes a session.
    Close {
        /// The session.
        session: SessionId,
        /// Request id.
        request_id: RequestId,
    },
    /// Acquires locks, all or none.
    Acquire {
        /// The session.
        session: SessionId,
        /// The locks with their modes.
        wishes: Vec<LockWish>,
        /// Maximum wait; `None` for a try.
        wait_ms: Option<u64>,
        /// Request id.
        request_id: RequestId,
        /// Number of earlier attempts.
        retry: u16,
    },
    /// Acquires a lock by a lease.
    AcquireLease {
        /// The lock with its mode.
        wish: LockWish,
        /// Bounds of the hold.
        bounds: HoldBounds,
        /// Time to live.
        ttl_ms: u64,
        /// Wait for the lock.
        wait: LeaseWait,
        /// Request id.
        request_id: RequestId,
        /// Number of earlier attempts.
        retry: u16,
    },
    /// Waits for the grant of a contender in the queue.
    AwaitGrant {
        /// The lock and the contender.
        contender: (LockName, HolderId),
        /// Maximum wait.
        wait_ms: u64,
    },
    /// Renews a lease.
    RenewLease {
        /// The lease.
        lease: LeaseKey,
        /// The new time to live; `None` for the old one.
        ttl_ms: Option<u64>,
        /// Request id.
        request_id: RequestId,
    },
    /// Changes the lease that holds a lock, without its key: as clients of Redis do.
    ChangeLease {
        /// The lock.
        lock: LockName,
        /// The lease.
        lease: SessionId,
        /// The change.
        change: LeaseChange,
        /// Request id.
        request_id: RequestId,
    },
    /// Releases a lease.
    ReleaseLease {
        /// The lease.
        lease: LeaseKey,
        /// Request id.
        request_id: RequestId,
    },
    /// Releases locks.
    Release {
        /// The session.
        session: SessionId,
        /// The locks and their holders.
        holders: Vec<(LockName, HolderId)>,
        /// Request id.
        request_id: RequestId,
    },
    /// Upgrades an upgradeable lock to exclusive.
    Upgrade {
        /// The session.
        session: SessionId,
        /// The lock and its holder.
        held: (LockName, HolderId),
        /// Maximum wait.
        wait_ms: u64,
        /// Request id.
        request_id: RequestId,
        /// Number of earlier attempts.
        retry: u16,
    },
    /// Downgrades a lock to a weaker mode.
    Downgrade {
        /// The session.
        session: SessionId,
        /// The lock and its holder.
        held: (LockName, HolderId),
        /// The new mode.
        to: Downgraded,
        /// Request id.
        request_id: RequestId,
    },
    /// Makes changes, all or none.
    Write {
        /// The session, if any.
        session: Option<SessionId>,
        /// The changes.
        ops: Vec<Op>,
        /// Request id.
        request_id: RequestId,
    },
    /// Reads a znode linearizably.
    Read(ZPath),
    /// Waits for the next change of a znode.
    Watch {
        /// The znode.
        path: ZPath,
        /// Maximum wait.
        wait_ms: u64,
    },
}

/// Wait of an acquire by a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseWait {
    /// None.
    Try,
    /// On the connection, for so many milliseconds.
    For(u64),
    /// In the queue, without a connection.
    Queue,
}

/// Response of a node.
#[derive(Debug, Clone)]
pub enum ClientResponse {
    /// The session is open: session, time at which the node sent the request on, timeout.
    Opened(SessionId, Micros, Micros),
    /// The heartbeat counted: session, time at which it was sent to the leader, timeout.
    Refreshed(SessionId, Micros, Micros),
    /// The session has ended.
    Ended(SessionId),
    /// The lease is open, and has its lock or a place in the queue. The time is that from which on it lives for its whole timeout, if known.
    Leased(Leased, Option<Micros>),
    /// The renewal of a lease counted: session, time at which the node began it, minimum time to live.
    LeaseRenewed(SessionId, Micros, Micros),
    /// The contender still waits.
    StillWaits,
    /// The contender is gone.
    Gone,
    /// The locks are held.
    Granted(Vec<Grant>),
    /// The locks are released.
    Released,
    /// The write was applied or rejected.
    Applied(Applied),
    /// The znode was read at this position.
    ReadAt(Zxid),
    /// A watch that was set at the first position has fired for a change at the second one.
    Notified(Zxid, Zxid),
    /// A watch that was set at the first position has not fired up to the second one.
    NotNotified(Zxid, Zxid),
    /// The cluster has rejected the request.
    Refused(Refusal),
    /// Nothing was done.
    Unavailable,
    /// The outcome is unknown.
    Unknown,
}

/// Purpose of a client's timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientTimer {
    /// Begin the next task.
    Next,
    /// Send a heartbeat of this session.
    Heartbeat(SessionId),
    /// Stop waiting for a response to this attempt.
    GiveUp(OpId),
}
