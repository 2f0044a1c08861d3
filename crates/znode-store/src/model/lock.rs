//! Vocabulary of locks: modes, requests, and the commands of the lock protocol.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::model::address::CallerAddress;
use crate::model::ids::{LeaseKey, SessionId, Zxid};
use crate::model::path::LockName;

/// Mode of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockMode {
    /// One holder.
    Exclusive,
    /// Any number of holders, none of them exclusive.
    Shared,
    /// Holders whose permits add up to at most the limit.
    Semaphore {
        /// Total number of permits. It is the same in every request while the lock has contenders. In a request 0 means the limit in force.
        limit: u32,
    },
    /// Like shared, but with at most one such holder at a time. Only this holder may become exclusive without a release.
    Upgradeable,
}

/// Request for a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockWish {
    /// The lock.
    pub lock: LockName,
    /// The mode.
    pub mode: LockMode,
    /// Permits of a semaphore; 1 in the other modes.
    pub permits: u32,
    /// The scope of re-entrancy within the session: a thread, a task, or nothing.
    #[serde(deserialize_with = "crate::model::text::shared")]
    pub owner: Arc<str>,
    /// True if the same owner may enter again (exclusive and shared only).
    pub reentrant: bool,
    /// Note for views of the lock.
    #[serde(deserialize_with = "crate::model::text::shared")]
    pub note: Arc<str>,
    /// Address that the client called from.
    pub address: CallerAddress,
    /// Time for which the lock grants nothing if the session expires while it holds: requests of the lost holder may still be in transit.
    /// At most [`crate::MAX_LOCK_DELAY_MS`]; 0 for none.
    pub lock_delay_ms: u32,
    /// Recipe of ZooKeeper clients that has to recognise this contender; those clients see only the names in a queue.
    pub names: ContenderNames,
}

/// Naming schemes of ZooKeeper clients for contenders. Each recipe sees contenders with its own kind of name and ignores all others, so two
/// recipes at one lock ignore each other. Lockgate's decisions do not depend on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ContenderNames {
    /// Exclusive contenders are named as by Curator's `InterProcessMutex`, and shared ones as by its `InterProcessReadWriteLock`.
    #[default]
    Mutex,
    /// All contenders are named as by Curator's `InterProcessReadWriteLock`.
    ReadWrite,
    /// Contenders are named as by kazoo's `Lock`, `ReadLock` and `WriteLock`.
    Kazoo,
}

/// Name of a contender's znode below its lock, which the API calls the `holder`.
pub type HolderId = String;

/// Id of one call of `acquire`: a random number. A call that is withdrawn ends exactly itself, never a later one in the same contender.
///
/// The upper sixteen bits count earlier sendings of its request, see [`AttemptId::of_retry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AttemptId(pub u64);

impl AttemptId {
    /// The bits of the random number.
    const RANDOM_BITS: u32 = 48;

    /// Returns the id of a call whose request was sent `retry` times before, with random bits.
    ///
    /// A copy of a request can be late, when a node stalled with it in its buffers while another node answered the client. It must not replace the
    /// later call. The client does not wait for its answer any more, so its node would release the lock that the client believes to hold.
    pub fn of_retry(retry: u16, random: u64) -> Self {
        Self(u64::from(retry) << Self::RANDOM_BITS | random & ((1 << Self::RANDOM_BITS) - 1))
    }

    /// Returns how often the request was sent before.
    pub fn retry(self) -> u64 {
        self.0 >> Self::RANDOM_BITS
    }
}

/// The steps of the lock protocol. All but `Break`, `Configure`, `Revoke`, `CountDelays` and `ChangeLease` act for the request's session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockCommand {
    /// Enters the queue, or enters again. Without `wait` it leaves no contender behind if it is not granted.
    Acquire {
        /// The request.
        wish: LockWish,
        /// 128 random bits that make the contender's name unique.
        guid: u128,
        /// This call.
        attempt: AttemptId,
        /// True if the call waits when the lock is not free.
        wait: bool,
    },
    /// Releases one hold.
    Release {
        /// The lock.
        lock: LockName,
        /// The contender.
        holder: HolderId,
    },
    /// Ends a call of `acquire` that waits.
    Withdraw {
        /// The lock.
        lock: LockName,
        /// The contender.
        holder: HolderId,
        /// The call.
        attempt: AttemptId,
        /// Reason.
        cause: WithdrawCause,
    },
    /// Ends a hold or a wait by force.
    Break {
        /// The lock.
        lock: LockName,
        /// The contender.
        holder: HolderId,
        /// Operator, as shown to the owner of the contender.
        by: Arc<str>,
        /// Reason, as shown to the owner of the contender.
        reason: Arc<str>,
    },
    /// Changes a hold to a weaker mode. Waiters that are compatible with it are granted the lock at once.
    Downgrade {
        /// The lock.
        lock: LockName,
        /// The contender.
        holder: HolderId,
        /// The mode that it still needs.
        to: Downgraded,
    },
    /// Requests exclusive mode for an upgradeable holder. Until the other holders are gone, no waiter is granted the lock.
    Upgrade {
        /// The lock.
        lock: LockName,
        /// The contender.
        holder: HolderId,
        /// This call.
        attempt: AttemptId,
        /// True if the call waits while others share the lock.
        wait: bool,
    },
    /// Enters several queues at one position, or none.
    AcquireMany {
        /// The requests: each lock once, at most [`crate::MAX_LOCKS_AT_ONCE`].
        wishes: Vec<LockWish>,
        /// 128 random bits that make the contenders' names unique.
        guid: u128,
        /// This call.
        attempt: AttemptId,
        /// True if the call waits when not all locks are free.
        wait: bool,
    },
    /// Releases one hold of each contender.
    ReleaseMany {
        /// Locks and contenders, at most [`crate::MAX_LOCKS_AT_ONCE`].
        holders: Vec<(LockName, HolderId)>,
    },
    /// Ends a whole call of [`LockCommand::AcquireMany`], unless it has timed out and all its locks were granted.
    WithdrawMany {
        /// The contenders of the call.
        holders: Vec<(LockName, HolderId)>,
        /// The call.
        attempt: AttemptId,
        /// Reason.
        cause: WithdrawCause,
    },
    /// Changes the settings of a lock, which apply to all its holders.
    Configure {
        /// The lock.
        lock: LockName,
        /// Limit of a semaphore. `Some(None)` removes the setting, so the first user's request decides again.
        limit: Option<Option<u32>>,
        /// True if the lock takes and grants no new contenders.
        draining: Option<bool>,
    },
    /// Asks holders to release the lock.
    Revoke {
        /// The lock.
        lock: LockName,
        /// The holder; all holders if none is named.
        holder: Option<HolderId>,
        /// Requester, as shown to the holders.
        by: Arc<str>,
        /// Reason, as shown to the holders.
        reason: Arc<str>,
    },
    /// Answers a release request.
    AnswerRevoke {
        /// The lock.
        lock: LockName,
        /// The contender.
        holder: HolderId,
        /// Answer, as shown to operators.
        answer: Arc<str>,
    },
    /// Reports the part of the lock-delay of closed locks that has passed, and opens locks with no delay left. Valid only in the term of
    /// the leader that proposed it: it counts by its own clock, from what its predecessors have reported.
    CountDelays {
        /// The locks, each with the position at which it was closed and the milliseconds that have passed at least. A lock that was closed
        /// again meanwhile is skipped.
        locks: Vec<(LockName, Zxid, u32)>,
        /// The proposer's term.
        term: u64,
    },
    /// Acquires as [`LockCommand::Acquire`] does, with bounds of the hold. With `lease` it opens a session of its own for the lock, which
    /// ends with the contender; a refusal leaves no session behind.
    AcquireBounded {
        /// The request.
        wish: LockWish,
        /// 128 random bits that make the contender's name its own.
        guid: u128,
        /// This call.
        attempt: AttemptId,
        /// True if the call waits when the lock is not free.
        wait: bool,
        /// Bounds of the hold.
        bounds: HoldBounds,
        /// The lease to open. `None`: the request's session acquires the lock.
        lease: Option<NewLease>,
    },
    /// Ends holds whose [`HoldBounds::max_ms`] have passed since the grant. Valid only in the term of the leader that proposed it: it counts
    /// by its own clock. A contender that does not hold, or has no such bound, is skipped.
    EndHolds {
        /// Of which locks, by which contenders.
        holders: Vec<(LockName, HolderId)>,
        /// The proposer's term.
        term: u64,
    },
    /// Changes the lease that holds a lock. Refused unless exactly this lease holds it, so a change that was decided by what the lease was
    /// never affects a later one. It is for clients that have no secret of a lease, but the right to its lock.
    ChangeLease {
        /// The lock.
        lock: LockName,
        /// Session of the lease that holds the lock.
        lease: SessionId,
        /// The change.
        change: LeaseChange,
    },
}

/// Change of the lease that holds a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseChange {
    /// Releases the lock, which ends the lease.
    Release,
    /// Gives the lease another timeout, counted from here.
    Renew {
        /// The timeout.
        timeout_ms: u32,
    },
    /// Ends the lease and gives the lock to a new one, which holds it with a token of its own. Refused while others wait for the lock.
    Replace {
        /// Note of the new lease.
        #[serde(deserialize_with = "crate::model::text::shared")]
        note: Arc<str>,
        /// Address that the client called from.
        address: CallerAddress,
        /// 128 random bits that make the contender's name its own.
        guid: u128,
        /// This call.
        attempt: AttemptId,
        /// The new lease.
        new: NewLease,
    },
    /// Releases the lock for the client that holds it, as it has named the note of the lease. The state remembers this, as it does a release
    /// by the lease's key.
    ReleaseOwn,
    /// Gives the lease another note and another timeout, counted from here. It holds the lock with the same token.
    Rewrite {
        /// The note.
        #[serde(deserialize_with = "crate::model::text::shared")]
        note: Arc<str>,
        /// The timeout.
        timeout_ms: u32,
    },
}

/// Bounds of a hold in time, counted from its grant by the leader. Zero: none. A contender has those of its first call: a later call of the
/// same owner does not change them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldBounds {
    /// After an earlier end of the hold the lock grants nothing before this time has passed. Exclusive mode only.
    pub min_ms: u32,
    /// The hold ends when this time has passed, whether its session lives or not.
    pub max_ms: u32,
}

impl HoldBounds {
    /// Returns whether there is a bound.
    pub fn is_some(self) -> bool {
        self != Self::default()
    }
}

/// Lease to be opened: a session of its own for one lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewLease {
    /// Id and password that the proposing node has drawn. Refused if the id was ever seen; the node then draws another.
    pub key: LeaseKey,
    /// Time without a renewal after which the leader ends the lease, or [`NEVER_ENDS_MS`].
    pub timeout_ms: u32,
}

/// Timeout of a lease that no leader ends: it lives until its lock is released or broken. A lock that a Redis client takes without an expiry
/// has such a lease.
pub const NEVER_ENDS_MS: u32 = u32::MAX;

/// Mode after a downgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Downgraded {
    /// Shared.
    Shared,
    /// Upgradeable: it may become exclusive again.
    Upgradeable,
}

/// Cause of the withdrawal of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WithdrawCause {
    /// Its wait has timed out. If the lock was granted meanwhile the grant is valid.
    TimedOut,
    /// The caller disconnected. It would not learn of a grant, so a grant is released, too.
    Abandoned,
}

impl core::fmt::Display for LockMode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Semaphore { limit: 0 } => f.write_str("a semaphore"),
            Self::Semaphore { limit } => write!(f, "a semaphore of {limit}"),
            Self::Upgradeable => f.write_str("upgradeable"),
        }
    }
}

/// Mode and permits of a request, which are the input of the lock rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRequest {
    /// The mode.
    pub mode: LockMode,
    /// Permits of a semaphore, between 1 and its limit; else 1.
    pub permits: u32,
}

/// Release request: an operator asks a holder to release the lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// The requester.
    pub by: Arc<str>,
    /// Reason.
    pub reason: Arc<str>,
    /// Time of the request in milliseconds since 1970.
    pub requested_ms: u64,
    /// Answer of the holder.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub answer: Option<Arc<str>>,
}

/// Returns the owner of a call, if the owner is distinct. A call that is not reentrant and names no owner may belong to any thread of its
/// client, so its wait says nothing about other calls.
pub(crate) fn distinct_owner(owner: &Arc<str>, reentrant: bool) -> Option<&Arc<str>> {
    (reentrant || !owner.is_empty()).then_some(owner)
}

impl LockWish {
    /// Returns the owner as a party of deadlock detection, if it is distinct.
    pub(crate) fn distinct_owner(&self) -> Option<&Arc<str>> {
        distinct_owner(&self.owner, self.may_reenter())
    }

    /// Returns whether a call may join a contender of the same owner. A semaphore's may not, because every lease is a contender of its own.
    pub(crate) fn may_reenter(&self) -> bool {
        self.reentrant && !matches!(self.mode, LockMode::Semaphore { .. })
    }
}

/// Maximum of each bound of a hold: seven days.
pub const MAX_HOLD_BOUND_MS: u32 = 7 * 24 * 60 * 60 * 1000;

/// Maximum number of contenders that Lockgate makes at one lock: ten thousand waiters, and as many holders. Each is a znode in memory, and
/// every view of the queue shows them all.
pub const MAX_CONTENDERS: usize = 20_000;

/// Maximum number of entries of one owner to a lock. Each entry is some twenty bytes in the contender's data, which each entry rewrites.
pub const MAX_HOLDS: usize = 1_000;

/// Maximum length of an owner in bytes: it is a scope (a thread, a task), not a text.
pub const MAX_OWNER_BYTES: usize = 256;

/// Maximum length of a note in bytes: a line or two for people.
pub const MAX_NOTE_BYTES: usize = 1024;

/// Maximum length of an address in bytes: a host's name and a port, and the trace context of a traced request.
pub const MAX_ADDRESS_BYTES: usize = 300;

/// Maximum length of the reason of a break or a release request, and of the answer, in bytes: a line or two for people.
pub const MAX_REASON_BYTES: usize = 1024;

/// Maximum number of holders that a refusal names. A shared lock may have thousands, and the request cache would store them for each
/// refused attempt.
pub const MAX_NAMED_HOLDERS: usize = 16;

/// Maximum number of locks of one call. All of them change in one command, which blocks the apply loop.
pub const MAX_LOCKS_AT_ONCE: usize = 64;
