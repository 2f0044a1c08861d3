//! Commands: requests to the state machine. A command carries all that the state does not determine: ids, passwords, random names. The time
//! is in the log entry.

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::model::access::command::AccessCommand;
use crate::model::acl::Acl;
use crate::model::data::Data;
use crate::model::identity::Identities;
use crate::model::ids::{Password, RequestId, SessionId, Zxid};
use crate::model::limits::Limits;
use crate::model::lock::LockCommand;
use crate::model::mirrored::MirrorStep;
use crate::model::path::{BadPath, CreatePath, LockName, PathBounds, ZPath};
use crate::model::session::Turn;

/// Request of a client, as it is in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// On whose behalf. Required by what only a session can do; a dead session's request is refused.
    pub session: Option<SessionId>,
    /// If given, the first outcome is remembered and returned again for a repeated request.
    pub request_id: Option<RequestId>,
    /// Identities that the caller had proven when the front end received the request.
    pub caller: Identities,
    /// The command.
    pub command: Command,
}

impl Request {
    /// Returns a request without a session and without proven identities.
    pub fn anonymous(command: Command) -> Self {
        Self {
            session: None,
            request_id: None,
            caller: Identities::none(),
            command,
        }
    }

    /// Returns a request of the cluster itself, for the leader's and the nodes' own work. No front end may give this identity to a client.
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
        /// Time without a heartbeat after which the leader ends the session.
        timeout_ms: u32,
        /// Name for lists of sessions.
        name: Arc<str>,
        /// Address that the client called from.
        address: Arc<str>,
    },
    /// Ends the session with all its ephemeral nodes, at its owner's wish.
    CloseSession {
        /// The session.
        session: SessionId,
    },
    /// Ends sessions that the leader has not heard of for their timeout. Valid only in the term of the
    /// leader that proposed it: a deposed leader must not end what its successor has renewed.
    ExpireSessions {
        /// The sessions; those that have ended meanwhile are skipped.
        sessions: Vec<SessionId>,
        /// The proposer's term.
        term: u64,
        /// Position up to which the leader had applied the log when it found the sessions silent. A session with a later request is not
        /// silent and is skipped: that request was executed and answered.
        as_of: Zxid,
    },
    /// One change of the tree.
    Write(Op),
    /// Several changes of the tree, all or none, at one position. Later ones see earlier ones.
    Multi(Vec<Op>),
    /// Deletes containers that had children and have none any more, and TTL nodes without children whose time is over;
    /// others are passed over.
    Sweep(Vec<ZPath>),
    /// Replaces the limits. Quantities beyond them already stay.
    SetLimits(Limits),
    /// A step of the lock protocol.
    Lock(LockCommand),
    /// Resumes a session on another connection, perhaps at another node. The session's turns are counted from here again. Requests of its
    /// earlier connections that were not executed yet are void.
    Reconnect {
        /// The session, which is the request's own.
        session: SessionId,
        /// The password of its opening.
        password: Password,
    },
    /// Step that a connected client has sent before its earlier steps were answered. It is executed in this turn or not at all.
    InTurn {
        /// The turn.
        turn: Turn,
        /// The step.
        step: Step,
    },
    /// A change of the access policies.
    Access(AccessCommand),
    /// Steps towards the tree of another server, all or none, at one position: at most [`crate::MAX_MIRRORED`].
    Mirror(Vec<MirrorStep>),
    /// Records for how long sessions have been silent, so that the next leader continues its count. Valid only
    /// in the term of the leader that proposed it. From here on the leader confirms no heartbeat of these sessions before a
    /// [`Command::NoteHeartbeats`] takes them off the record.
    RecordSilence {
        /// The sessions, each with its silence in milliseconds; those that have ended meanwhile are skipped.
        sessions: Vec<(SessionId, u32)>,
        /// The proposer's term.
        term: u64,
        /// Position up to which the leader had applied the log when it measured. A session with a later request is not silent and is
        /// skipped.
        as_of: Zxid,
    },
    /// Takes sessions off the record of silence, because the leader has counted heartbeats of theirs. Valid only in its term.
    NoteHeartbeats {
        /// The sessions; those that have ended meanwhile are skipped.
        sessions: Vec<SessionId>,
        /// The proposer's term.
        term: u64,
    },
}

/// Step that a connected client may send in turn.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Creates a znode.
    Create {
        /// The path.
        path: CreatePath,
        /// With what in it.
        data: Data,
        /// The access control list. Missing parents get the same list.
        acl: Acl,
        /// Of which kind. An ephemeral one is owned by the request's session.
        mode: CreateMode,
        /// True if missing parents are created too, as empty containers.
        parents: bool,
    },
    /// Deletes a znode that has no children.
    Delete {
        /// The znode.
        path: ZPath,
        /// The version it must have; −1 for any.
        version: i32,
    },
    /// Deletes a znode and all below it.
    DeleteRecursive {
        /// The znode.
        path: ZPath,
    },
    /// Replaces the data.
    Set {
        /// Of which node.
        path: ZPath,
        /// The new data.
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
        /// The znode.
        path: ZPath,
        /// The version it must have; −1: it only has to exist.
        version: i32,
    },
    /// Changes nothing, but refuses (and with it a multi) unless the request's session holds the lock, by the
    /// contender with this token. So what follows is written only while the lock is held: a guarded write.
    Held {
        /// The lock.
        lock: LockName,
        /// The token of the grant.
        fencing_token: Zxid,
    },
}

impl Op {
    /// Returns whether its path is short: see [`ZPath::is_short`].
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
    /// Like persistent, but swept some time after the end of its last child.
    Container,
    /// Like persistent, but swept when it has no children and its data was not replaced for a time.
    Ttl {
        /// For how long in milliseconds: 1 to [`MAX_TTL_MS`](crate::MAX_TTL_MS).
        ttl_ms: u64,
    },
    /// Both: a number in its name, and swept.
    TtlSequential {
        /// For how long in milliseconds: 1 to [`MAX_TTL_MS`](crate::MAX_TTL_MS).
        ttl_ms: u64,
    },
}

impl CreateMode {
    /// Returns whether a number is appended to the name.
    pub fn is_sequential(self) -> bool {
        matches!(
            self,
            Self::PersistentSequential | Self::EphemeralSequential | Self::TtlSequential { .. }
        )
    }

    /// Returns whether the node ends with its session.
    pub fn is_ephemeral(self) -> bool {
        matches!(self, Self::Ephemeral | Self::EphemeralSequential)
    }
}
