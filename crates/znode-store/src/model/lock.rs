//! Vocabulary of locks: modes, requests, and the commands of the lock protocol.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::model::ids::Zxid;
use crate::model::path::LockName;

/// How a lock is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockMode {
    /// One holder.
    Exclusive,
    /// Any number of holders, none of them exclusive.
    Shared,
    /// Holders whose permits add up to at most the limit.
    Semaphore {
        /// Permits in all: the same in every request for as long as the lock has contenders. In a wish 0 stands for the
        /// limit that is in force already.
        limit: u32,
    },
    /// With those who share the lock, but at most one at a time: it alone may become exclusive without letting go.
    Upgradeable,
}

/// What a client wants of a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockWish {
    /// Which lock.
    pub lock: LockName,
    /// How.
    pub mode: LockMode,
    /// Permits of a semaphore; 1 in the other modes.
    pub permits: u32,
    /// The scope of re-entrancy within the session: a thread, a task, or nothing.
    #[serde(deserialize_with = "crate::model::text::shared")]
    pub owner: Arc<str>,
    /// Whether the same owner may enter again (exclusive and shared only).
    pub reentrant: bool,
    /// Shown to whoever looks at the lock.
    #[serde(deserialize_with = "crate::model::text::shared")]
    pub note: Arc<str>,
    /// Where the client called from, for the same people.
    #[serde(deserialize_with = "crate::model::text::shared")]
    pub address: Arc<str>,
    /// If the session expires while it holds the lock, nobody else is let in for so long: what it has sent may still be
    /// on its way. At most [`crate::MAX_LOCK_DELAY_MS`]; 0 for none.
    pub lock_delay_ms: u32,
    /// Which clients of ZooKeeper, who see only the names in a queue, have to find this contender in their way.
    pub names: ContenderNames,
}

/// The ways in which clients of ZooKeeper name those who want a lock. Each of their recipes sees those that it would have
/// named so itself, and passes over all others; so do not two of them at one lock. What Lockgate decides does not depend on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ContenderNames {
    /// As Curator's `InterProcessMutex` names who is alone, and its `InterProcessReadWriteLock` who is not.
    #[default]
    Mutex,
    /// As Curator's `InterProcessReadWriteLock` names both.
    ReadWrite,
    /// As kazoo's `Lock`, `ReadLock` and `WriteLock` do.
    Kazoo,
}

/// The name of a contender's znode below its lock: what clients call the `holder`.
pub type HolderId = String;

/// One call of `acquire`, told from the others by a random number. A call that is given up takes back
/// exactly itself, never a later one that stands in the same place.
///
/// The upper sixteen bits say how often its request was sent before, see [`AttemptId::of_retry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AttemptId(pub u64);

impl AttemptId {
    /// The bits of the random number.
    const RANDOM_BITS: u32 = 48;

    /// A call whose request was sent `retry` times before, with random bits to tell it from others.
    ///
    /// A copy of a request can be late: it lay in the buffers of a node that stood still while the client, long
    /// since, was answered by another one. It must not take the later call's place, for nobody waits for its answer,
    /// and so its node would give the lock back that the client believes to hold.
    pub fn of_retry(retry: u16, random: u64) -> Self {
        Self(u64::from(retry) << Self::RANDOM_BITS | random & ((1 << Self::RANDOM_BITS) - 1))
    }

    /// How often the request was sent before.
    pub fn retry(self) -> u64 {
        self.0 >> Self::RANDOM_BITS
    }
}

/// The steps of the lock protocol. All but `Break`, `Configure`, `Revoke` and `CountDelays` act for the request's session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockCommand {
    /// Stands in the queue, or enters again, or (without `wait`) leaves nothing behind if not granted.
    Acquire {
        /// What is wanted.
        wish: LockWish,
        /// 128 random bits that make the contender's name its own.
        guid: u128,
        /// This call.
        attempt: AttemptId,
        /// Whether to stand in the queue if the lock is not free.
        wait: bool,
    },
    /// Gives one hold back.
    Release {
        /// Which lock.
        lock: LockName,
        /// Which contender.
        holder: HolderId,
    },
    /// Ends a call of `acquire` that waits.
    Withdraw {
        /// Which lock.
        lock: LockName,
        /// Which contender.
        holder: HolderId,
        /// Which call.
        attempt: AttemptId,
        /// Why.
        cause: WithdrawCause,
    },
    /// Takes the lock (or the place in the queue) from whoever has it.
    Break {
        /// Which lock.
        lock: LockName,
        /// Which contender.
        holder: HolderId,
        /// Who takes it: shown to those who ask what became of it.
        by: Arc<str>,
        /// Told to the same.
        reason: Arc<str>,
    },
    /// Holds on with fewer rights, and lets those in at once who get along with that.
    Downgrade {
        /// Which lock.
        lock: LockName,
        /// Which contender.
        holder: HolderId,
        /// What it still needs.
        to: Downgraded,
    },
    /// An upgradeable holder wants the lock alone. Until those who share it are gone nobody else is let in.
    Upgrade {
        /// Which lock.
        lock: LockName,
        /// Which contender.
        holder: HolderId,
        /// This call.
        attempt: AttemptId,
        /// Whether to wait if others share the lock.
        wait: bool,
    },
    /// Stands in several queues at one position, or leaves nothing behind.
    AcquireMany {
        /// What is wanted: each lock once, at most [`crate::MAX_LOCKS_AT_ONCE`].
        wishes: Vec<LockWish>,
        /// 128 random bits that make the contenders' names their own.
        guid: u128,
        /// This call.
        attempt: AttemptId,
        /// Whether to stand in the queues if not all locks are free.
        wait: bool,
    },
    /// Gives one hold of each back.
    ReleaseMany {
        /// Of which locks, by which contenders: at most [`crate::MAX_LOCKS_AT_ONCE`].
        holders: Vec<(LockName, HolderId)>,
    },
    /// Ends a call of [`LockCommand::AcquireMany`]: all of it, unless the time is over and all is granted.
    WithdrawMany {
        /// Where it stands.
        holders: Vec<(LockName, HolderId)>,
        /// Which call.
        attempt: AttemptId,
        /// Why.
        cause: WithdrawCause,
    },
    /// Changes what holds for a lock whoever holds it.
    Configure {
        /// Which lock.
        lock: LockName,
        /// Of a semaphore: from now on so many permits, or (`Some(None)`) again as many as its first user says.
        limit: Option<Option<u32>>,
        /// Whether nobody is let in, nor into the queue.
        draining: Option<bool>,
    },
    /// Asks holders to give the lock up.
    Revoke {
        /// Which lock.
        lock: LockName,
        /// Which one; all of them if none is named.
        holder: Option<HolderId>,
        /// Who asks: shown to the holders.
        by: Arc<str>,
        /// Why: shown to the holders.
        reason: Arc<str>,
    },
    /// What a holder says to that.
    AnswerRevoke {
        /// Which lock.
        lock: LockName,
        /// Which contender.
        holder: HolderId,
        /// Shown to operators.
        answer: Arc<str>,
    },
    /// Tells how much of the time has passed for which locks are closed after an unclean loss, and opens those whose time is
    /// over. Valid only in the term of the leader that proposed it: it counts by its own clock, from what its predecessors
    /// have told.
    CountDelays {
        /// Which locks, each with the position at which it was closed, and how many milliseconds have passed since then at
        /// least; one that was closed anew meanwhile stays as it is.
        locks: Vec<(LockName, Zxid, u32)>,
        /// The proposer's term.
        term: u64,
    },
}

/// What is left after a downgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Downgraded {
    /// One of those who share the lock.
    Shared,
    /// The one of those who may become exclusive again.
    Upgradeable,
}

/// Why a call of `acquire` ends without its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WithdrawCause {
    /// Its time to wait is over. If the lock was granted meanwhile the grant stands.
    TimedOut,
    /// The caller went away, so that nobody would learn of a grant: it is taken back too.
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

/// What a contender wants: all that the rule has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// How.
    pub mode: LockMode,
    /// Permits of a semaphore, between 1 and its limit; else 1.
    pub permits: u32,
}

/// A request to give a lock up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// Who asks.
    pub by: Arc<str>,
    /// Why.
    pub reason: Arc<str>,
    /// When it was asked, in milliseconds since 1970.
    pub requested_ms: u64,
    /// What the holder said to it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub answer: Option<Arc<str>>,
}

/// The scope of a call within its session, if it can be told from others. Whoever neither enters again nor names an owner
/// may be any thread of its client, and one that waits says nothing about the others.
pub(crate) fn told_apart(owner: &Arc<str>, reentrant: bool) -> Option<&Arc<str>> {
    (reentrant || !owner.is_empty()).then_some(owner)
}

impl LockWish {
    /// The scope that waits for others and is waited for.
    pub(crate) fn party(&self) -> Option<&Arc<str>> {
        told_apart(&self.owner, self.may_reenter())
    }

    /// Permits are not a place that one could be in twice: every lease is a contender of its own.
    pub(crate) fn may_reenter(&self) -> bool {
        self.reentrant && !matches!(self.mode, LockMode::Semaphore { .. })
    }
}

/// How many contenders of its own making one lock may have: ten thousand that wait, and as many that hold. Each is a
/// znode in memory, and every look at the queue shows them all.
pub const MAX_CONTENDERS: usize = 20_000;

/// How often one owner may enter a lock. Each entry is some twenty bytes in the contender's data, which is written
/// anew each time.
pub const MAX_HOLDS: usize = 1_000;

/// The longest owner in bytes: it is a scope (a thread, a task), not a text.
pub const MAX_OWNER_BYTES: usize = 256;

/// The longest note in bytes: a line or two for people.
pub const MAX_NOTE_BYTES: usize = 1024;

/// The longest address in bytes: a host's name and a port.
pub const MAX_ADDRESS_BYTES: usize = 300;

/// The longest reason of a break or a request to give up, and the longest answer to that: a line or two for people.
pub const MAX_REASON_BYTES: usize = 1024;

/// How many holders a refusal names. A shared lock may have thousands, and each refused try would carry them all
/// into the memory of requests.
pub const MAX_NAMED_HOLDERS: usize = 16;

/// How many locks one call may name: all of them change in one go, which everybody waits for.
pub const MAX_LOCKS_AT_ONCE: usize = 64;
