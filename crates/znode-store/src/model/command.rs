//! What can be asked of the state machine. A command carries all that the state does not determine:
//! ids, passwords, random names. The time comes with the log entry.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::apply::mirror::MirrorStep;
use crate::model::access::command::AccessCommand;
use crate::model::acl::{Acl, Identities};
use crate::model::ids::{Data, Password, RequestId, SessionId, Zxid};
use crate::model::limits::Limits;
use crate::model::op_encoding::WrittenOp;
use crate::model::path::{BadPath, CreatePath, LockName, PathBounds, ZPath};

/// One request of one client, as it stands in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// On whose behalf. Required by what only a session can do; a dead session's request is refused.
    pub session: Option<SessionId>,
    /// If given, the first outcome is remembered and returned again for a repeated request.
    pub request_id: Option<RequestId>,
    /// What the caller has proven to be, when the request was taken in.
    pub caller: Identities,
    /// What to do.
    pub command: Command,
}

impl Request {
    /// A request of somebody who has no session and has proven nothing.
    pub fn anonymous(command: Command) -> Self {
        Self {
            session: None,
            request_id: None,
            caller: Identities::none(),
            command,
        }
    }

    /// A request of the cluster itself: what its leader and its nodes have to do by themselves. No client may ever be
    /// given this.
    pub fn internal(command: Command) -> Self {
        Self {
            caller: Identities::internal(),
            ..Self::anonymous(command)
        }
    }
}

/// A change of the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Opens a session under an id that the proposing node has drawn.
    OpenSession {
        /// Refused if it was ever seen; the node then draws another.
        session: SessionId,
        /// For resuming it on another connection.
        password: Password,
        /// After so long without a heartbeat the leader ends the session.
        timeout_ms: u32,
        /// For people who look at a list of sessions.
        name: Arc<str>,
        /// Where the client called from, for the same people.
        address: Arc<str>,
    },
    /// Ends the session with all its ephemeral nodes, at its owner's wish.
    CloseSession {
        /// Which.
        session: SessionId,
    },
    /// Ends sessions that the leader has not heard of for their timeout. Valid only in the term of the
    /// leader that proposed it: a deposed leader must not end what its successor has renewed.
    ExpireSessions {
        /// Which; those that have ended meanwhile are passed over.
        sessions: Vec<SessionId>,
        /// The proposer's term.
        term: u64,
        /// What the leader had applied when it found them silent. A session that has asked for something at a later
        /// position is not silent, and passed over: its command was carried out, and answered.
        as_of: Zxid,
    },
    /// One change of the tree.
    Write(Op),
    /// Several changes of the tree, all or none, at one position. Later ones see earlier ones.
    Multi(Vec<Op>),
    /// Deletes containers that had children and have none any more, and TTL nodes without children whose time is over;
    /// others are passed over.
    Sweep(Vec<ZPath>),
    /// From now on other limits hold; what is beyond them already stays.
    SetLimits(Limits),
    /// A step of the lock protocol.
    Lock(LockCommand),
    /// A client that stays connected comes back on another connection, perhaps at another node. From now on the session's
    /// turns are counted anew, and what its earlier connections have sent and was not carried out yet is void.
    Reconnect {
        /// Which session: the request's own.
        session: SessionId,
        /// That of its opening.
        password: Password,
    },
    /// What a client that stays connected has sent without waiting for the answers of what it sent before. It is carried
    /// out in this turn or not at all.
    InTurn {
        /// When.
        turn: Turn,
        /// What.
        step: Step,
    },
    /// A change of who may do what.
    Access(AccessCommand),
    /// Steps towards the tree of another server, all or none, at one position: at most [`crate::MAX_MIRRORED`].
    Mirror(Vec<MirrorStep>),
    /// Puts on record for how long sessions have been silent, so that the next leader goes on counting from there. Valid only
    /// in the term of the leader that proposed it. From now on the leader confirms no heartbeat of these sessions before a
    /// [`Command::NoteHeartbeats`] takes them off the record.
    RecordSilence {
        /// Which, and for how many milliseconds; those that have ended meanwhile are passed over.
        sessions: Vec<(SessionId, u32)>,
        /// The proposer's term.
        term: u64,
        /// What the leader had applied when it looked. A session that has asked for something at a later position is not
        /// silent, and passed over.
        as_of: Zxid,
    },
    /// Takes sessions off the record of silence, because the leader has counted heartbeats of theirs. Valid only in its term.
    NoteHeartbeats {
        /// Which; those that have ended meanwhile are passed over.
        sessions: Vec<SessionId>,
        /// The proposer's term.
        term: u64,
    },
}

/// The silence of a session as it is on record. While it is there, no heartbeat of the session has been confirmed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// The position of the command that put it on record.
    pub at: Zxid,
    /// How long the session had been silent when the leader proposed that, in milliseconds.
    pub ms: u32,
}

/// A place in the order in which one connection of a session sends its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Which connection: the position at which the session was opened, or last reconnected.
    pub since: Zxid,
    /// How many turns of that connection were before.
    pub number: u64,
}

/// What can be done in turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// See [`Command::Write`].
    Write(Op),
    /// See [`Command::Multi`].
    Multi(Vec<Op>),
    /// See [`Command::CloseSession`].
    CloseSession,
}

/// One change of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "WrittenOp<'_>")]
pub enum Op {
    /// Creates a znode.
    Create {
        /// Where.
        path: CreatePath,
        /// With what in it.
        data: Data,
        /// Who may do what to it. Missing parents get the same list.
        acl: Acl,
        /// Of which kind. An ephemeral one is owned by the request's session.
        mode: CreateMode,
        /// Whether missing parents are created too, as empty container nodes.
        parents: bool,
    },
    /// Deletes a znode that has no children.
    Delete {
        /// Which.
        path: ZPath,
        /// The version it must have; −1 for any.
        version: i32,
    },
    /// Deletes a znode and all below it.
    DeleteRecursive {
        /// Which.
        path: ZPath,
    },
    /// Replaces the data.
    Set {
        /// Of which node.
        path: ZPath,
        /// By what.
        data: Data,
        /// The version it must have; −1 for any.
        version: i32,
    },
    /// Replaces the access control list.
    SetAcl {
        /// Of which node.
        path: ZPath,
        /// By which.
        acl: Acl,
        /// The `aversion` that it must have; −1 for any.
        aversion: i32,
    },
    /// Changes nothing, but refuses (and with it a multi) unless the node has the version.
    Check {
        /// Which node.
        path: ZPath,
        /// The version it must have; −1: it only has to exist.
        version: i32,
    },
    /// Changes nothing, but refuses (and with it a multi) unless the request's session holds the lock, by the
    /// contender with this token. So what follows is written only while the lock is held: a guarded write.
    Held {
        /// Which lock.
        lock: LockName,
        /// The token of the grant.
        fencing_token: Zxid,
    },
}

impl Op {
    /// Whether its path is short: see [`ZPath::is_short`].
    pub fn is_short(&self) -> bool {
        match self {
            Self::Create { path, mode, .. } => path.is_short(mode.is_sequential()),
            Self::Delete { path, .. }
            | Self::DeleteRecursive { path }
            | Self::Set { path, .. }
            | Self::SetAcl { path, .. }
            | Self::Check { path, .. } => path.is_short(),
            Self::Held { .. } => true,
        }
    }

    /// Refuses a creation at a path beyond the bounds.
    pub fn check_path(&self, bounds: &PathBounds) -> Result<(), BadPath> {
        match self {
            Self::Create { path, mode, .. } => bounds.check_creation(path, mode.is_sequential()),
            _ => Ok(()),
        }
    }
}

/// The longest TTL in milliseconds, some 34 years: it shares eight bytes with the kind of the node, as in ZooKeeper.
pub const MAX_TTL_MS: u64 = 0x00ff_ffff_ffff;

/// The kinds of znodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CreateMode {
    /// Lives until it is deleted.
    Persistent,
    /// Ends with its session; has no children.
    Ephemeral,
    /// The parent's counter of creations is appended to the name, in ten digits.
    PersistentSequential,
    /// Both.
    EphemeralSequential,
    /// Like persistent, but swept some time after its last child has gone.
    Container,
    /// Like persistent, but swept when it has no children and its data was not replaced for so long.
    Ttl {
        /// For how long in milliseconds: 1 to [`MAX_TTL_MS`].
        ttl_ms: u64,
    },
    /// Both: a number in its name, and swept.
    TtlSequential {
        /// For how long in milliseconds: 1 to [`MAX_TTL_MS`].
        ttl_ms: u64,
    },
}

impl CreateMode {
    /// Whether a number is appended to the name.
    pub fn is_sequential(self) -> bool {
        matches!(
            self,
            Self::PersistentSequential | Self::EphemeralSequential | Self::TtlSequential { .. }
        )
    }

    /// Whether the node ends with its session.
    pub fn is_ephemeral(self) -> bool {
        matches!(self, Self::Ephemeral | Self::EphemeralSequential)
    }
}

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
