//! Clients: they open sessions and let some of them fall silent, queue for locks, write, read and watch, by way of any
//! node, and ask again under the same request id when no answer comes. What they do is drawn from the seed; what they are told goes
//! to the invariants.

mod call;
mod life;
mod tasks;

use znode_store::{
    Applied, Downgraded, Grant, HolderId, LockName, LockWish, Op, Refusal, RequestId, SessionId, ZPath, Zxid,
};

pub use self::call::{answer, perform, send};
pub use self::life::{Client, Surroundings};
pub use self::tasks::{REGISTERS, UNIQUE, locks};
use crate::agenda::Micros;

/// A client.
pub type ClientId = u64;

/// One attempt of a client to have something done.
pub type OpId = u64;

/// What a client asks of a node.
#[derive(Debug, Clone)]
pub enum Ask {
    /// A session.
    Open {
        /// Its timeout.
        timeout_ms: u64,
        /// By which a repetition is known.
        request_id: RequestId,
    },
    /// To be counted as alive.
    Heartbeat(SessionId),
    /// To end its session.
    Close {
        /// Which.
        session: SessionId,
        /// By which a repetition is known.
        request_id: RequestId,
    },
    /// Locks, all or none.
    Acquire {
        /// For which session.
        session: SessionId,
        /// Which, and how.
        wishes: Vec<LockWish>,
        /// For how long it waits; not at all if `None`.
        wait_ms: Option<u64>,
        /// By which a repetition is known.
        request_id: RequestId,
        /// How often it was sent before.
        retry: u16,
    },
    /// To give locks back.
    Release {
        /// Of which session.
        session: SessionId,
        /// Which.
        holders: Vec<(LockName, HolderId)>,
        /// By which a repetition is known.
        request_id: RequestId,
    },
    /// To hold an upgradeable lock alone.
    Upgrade {
        /// Of which session.
        session: SessionId,
        /// Which, and by which holder.
        held: (LockName, HolderId),
        /// For how long it waits.
        wait_ms: u64,
        /// By which a repetition is known.
        request_id: RequestId,
        /// How often it was sent before.
        retry: u16,
    },
    /// To hold a lock with fewer rights.
    Downgrade {
        /// Of which session.
        session: SessionId,
        /// Which, and by which holder.
        held: (LockName, HolderId),
        /// What is left.
        to: Downgraded,
        /// By which a repetition is known.
        request_id: RequestId,
    },
    /// Changes, all or none.
    Write {
        /// On behalf of which session.
        session: Option<SessionId>,
        /// Which.
        ops: Vec<Op>,
        /// By which a repetition is known.
        request_id: RequestId,
    },
    /// To see a znode, as it is now.
    Read(ZPath),
    /// To be told of the next change of a znode.
    Watch {
        /// Which.
        path: ZPath,
        /// For how long it waits.
        wait_ms: u64,
    },
}

/// What a node answers.
#[derive(Debug, Clone)]
pub enum Answer {
    /// The session is open. It was asked for at that time.
    Opened(SessionId, Micros, Micros),
    /// The heartbeat counted: it was sent to the leader at that time, and the timeout is this.
    Heard(SessionId, Micros, Micros),
    /// The session has ended.
    Ended(SessionId),
    /// The locks are held.
    Granted(Vec<Grant>),
    /// They are not any more.
    Released,
    /// The write was carried out, or refused.
    Applied(Applied),
    /// The znode was looked at when this was the position.
    Saw(Zxid),
    /// A watch that was left at the first position has told of a change at the second one.
    Told(Zxid, Zxid),
    /// A watch that was left at the first position has told nothing until the second one.
    Silent(Zxid, Zxid),
    /// The cluster has decided against it.
    Refused(Refusal),
    /// Nothing was done.
    Unavailable,
    /// Nobody knows.
    Unknown,
}
