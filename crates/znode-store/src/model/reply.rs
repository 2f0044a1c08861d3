//! Replies: successful outcomes of commands, the same on every replica.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::model::access::token::TokenId;
use crate::model::ids::{SessionId, Zxid};
use crate::model::lock::{HolderId, LockMode};
use crate::model::path::{LockName, ZPath};
use crate::model::refusal::Refusal;
use crate::model::stat::Stat;

/// The outcome of a command, and the position that it took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The command's own zxid; every command has one, also a refused one.
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
        /// Its id: the first request's, if this one repeats it.
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
        /// As it is right after.
        stat: Stat,
    },
    /// The znode was deleted.
    Deleted,
    /// The data was replaced.
    Set(Stat),
    /// The access control list was replaced.
    AclSet(Stat),
    /// The check held.
    Checked,
    /// The session holds the lock.
    Held,
    /// The replies of a multi, in order.
    Multi(#[serde(deserialize_with = "crate::model::non_recursive_reply::list")] Vec<Reply>),
    /// Number of containers and TTL nodes that were swept.
    Swept(u32),
    /// The limits were replaced.
    LimitsSet,
    /// The caller holds the lock.
    Granted(Grant),
    /// The caller waits in the queue.
    Queued(Place),
    /// A hold was released.
    Released {
        /// Number of holds that are left; 0: the contender is gone.
        holds: u32,
    },
    /// The call waits no more.
    Withdrawn,
    /// The contender was removed by an operator.
    Broken,
    /// One hold of each contender was released. The value is the number of holds that are left, in the order
    /// of the request; `None` for a contender that the session does not hold.
    ReleasedMany(Vec<Option<u32>>),
    /// The lock has other terms now.
    Configured,
    /// Number of holders that were asked to release the lock.
    RevokeRequested(u32),
    /// The holder's answer is noted.
    RevokeAnswered,
    /// Number of locks that were opened.
    Opened(u32),
    /// The session is resumed on this connection. It counts turns from the position of this command.
    Reconnected {
        /// Its timeout.
        timeout_ms: u32,
    },
    /// The state is secured: access policies apply.
    Secured,
    /// The token was made.
    TokenCreated(TokenId),
    /// The token counts no more.
    TokenRevoked,
    /// A role, or who has it, was changed.
    PolicyChanged,
    /// Number of steps towards another tree that were taken.
    Mirrored(u32),
    /// Of how many sessions the silence is on record now.
    SilenceRecorded(u32),
    /// Number of sessions that are live, and off the record of silence.
    HeartbeatsNoted(u32),
}

/// Proof that a contender holds a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The lock.
    pub lock: LockName,
    /// By which contender.
    pub holder: HolderId,
    /// The mode.
    pub mode: LockMode,
    /// The position at which the contender was created, or a later one if an upgrade made that necessary. Of two
    /// conflicting grants of one lock the later one has the larger token, always.
    pub fencing_token: Zxid,
    /// Number of times that the owner has entered.
    pub holds: u32,
    /// Permits of a semaphore, else 1.
    pub permits: u32,
}

/// A place in a lock's queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The lock.
    pub lock: LockName,
    /// The contender that waits there.
    pub holder: HolderId,
    /// Number of waiters ahead of it.
    pub ahead: u32,
}
