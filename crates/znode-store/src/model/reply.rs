//! Replies: successful outcomes of commands, the same on every replica.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::model::access::token::TokenId;
use crate::model::ids::{LeaseKey, SessionId, Zxid};
use crate::model::lock::{HolderId, LockMode};
use crate::model::path::{LockName, ZPath};
use crate::model::refusal::Refusal;
use crate::model::stat::Stat;

/// Outcome of a command, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Zxid of the command. Refused commands have one, too.
    pub zxid: Zxid,
    /// The outcome.
    pub outcome: Outcome,
}

/// Outcome of a command.
pub type Outcome = Result<Reply, Refusal>;

/// Reply to a command that was executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The session is open.
    SessionOpened {
        /// Session id. A repeated request gets that of the first one.
        session: SessionId,
        /// Its timeout.
        timeout_ms: u32,
    },
    /// The session has ended.
    SessionClosed,
    /// Number of sessions that were ended.
    SessionsExpired(u32),
    /// The znode was created.
    Created {
        /// Its path, with the sequence number if it has one.
        path: ZPath,
        /// Stat right after the creation.
        stat: Stat,
    },
    /// The znode was deleted.
    Deleted,
    /// The data was replaced.
    Set(Stat),
    /// The access control list was replaced.
    AclSet(Stat),
    /// The check succeeded.
    Checked,
    /// The session holds the lock.
    Held,
    /// The replies of a multi, in order.
    Multi(#[serde(deserialize_with = "crate::model::non_recursive_reply::list")] Vec<Reply>),
    /// Number of containers and TTL nodes that were swept.
    Swept(u32),
    /// The limits, or the quotas of a namespace, were replaced.
    LimitsSet,
    /// The caller holds the lock.
    Granted(Grant),
    /// The caller waits in the queue.
    Queued(Place),
    /// A hold was released.
    Released {
        /// Number of remaining holds. With 0 the contender is removed.
        holds: u32,
    },
    /// The call was withdrawn.
    Withdrawn,
    /// The contender was removed by an operator.
    Broken,
    /// One hold of each contender was released. The values are the numbers of remaining holds, in the order of the request, or `None` for a contender
    /// that is no holder of the session.
    ReleasedMany(Vec<Option<u32>>),
    /// The settings of the lock were changed.
    Configured,
    /// Number of holders that were asked to release the lock.
    RevokeRequested(u32),
    /// The answer of the holder was recorded.
    RevokeAnswered,
    /// Number of locks that were opened.
    Opened(u32),
    /// The session was resumed on this connection, which counts its turns from the position of this command.
    Reconnected {
        /// Its timeout.
        timeout_ms: u32,
    },
    /// The state is secured: access policies apply.
    Secured,
    /// The token was made.
    TokenCreated(TokenId),
    /// The token was revoked.
    TokenRevoked,
    /// A role or its assignment was changed.
    PolicyChanged,
    /// Number of executed mirror steps.
    Mirrored(u32),
    /// Number of sessions whose silence was recorded.
    SilenceRecorded(u32),
    /// Number of sessions that are live, and off the record of silence.
    HeartbeatsNoted(u32),
    /// The lease is open.
    Leased {
        /// The lease: the first request's, if this one repeats it.
        lease: LeaseKey,
        /// Its timeout.
        timeout_ms: u32,
        /// State of its contender.
        contender: LeaseContender,
    },
    /// The lease has this timeout from here on.
    LeaseRenewed {
        /// The session of the lease.
        session: SessionId,
        /// The timeout.
        timeout_ms: u32,
    },
    /// Number of holds that were ended.
    HoldsEnded(u32),
}

/// State of the contender of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseContender {
    /// It holds the lock.
    Holds(Grant),
    /// It waits in the queue.
    Waits(Place),
}

/// Proof that a contender holds a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The lock.
    pub lock: LockName,
    /// Contender.
    pub holder: HolderId,
    /// The mode.
    pub mode: LockMode,
    /// Position at which the contender was created, or a later one if an upgrade made that necessary. Of two conflicting grants of one lock the later
    /// one always has the larger token.
    pub fencing_token: Zxid,
    /// Number of times that the owner has entered.
    pub holds: u32,
    /// Permits of a semaphore, else 1.
    pub permits: u32,
}

/// Place of a waiter in the queue of a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The lock.
    pub lock: LockName,
    /// Contender that waits.
    pub holder: HolderId,
    /// Number of waiters ahead of it.
    pub ahead: u32,
}
