//! Commands: requests to the state machine. A command contains everything that the state does not determine: ids, passwords, random names. The
//! time is in the log entry.

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::model::access::command::AccessCommand;
use crate::model::acl::Acl;
use crate::model::data::Data;
use crate::model::identity::Identities;
use crate::model::ids::{LeaseKey, Password, RequestId, SessionId, Zxid};
use crate::model::limits::Limits;
use crate::model::lock::LockCommand;
use crate::model::mirrored::MirrorStep;
use crate::model::namespace::{NamespaceName, Quotas};
use crate::model::path::{BadPath, CreatePath, LockName, PathBounds, ZPath};
use crate::model::session::Turn;

/// Request of a client, as it is in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Session of the request. Commands that only a session can use require it. A request of an ended session is refused.
    pub session: Option<SessionId>,
    /// Request id. If there is one, the first outcome is recorded, and a repeated request gets it again.
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
    /// Opens a session with a random id from the proposing node.
    OpenSession {
        /// Session id. The command is refused if it was ever used; the node then tries another.
        session: SessionId,
        /// Password for resuming the session on another connection.
        password: Password,
        /// Time without a heartbeat after which the leader ends the session.
        timeout_ms: u32,
        /// Name for lists of sessions.
        name: Arc<str>,
        /// Address that the client called from.
        address: Arc<str>,
    },
    /// Ends the session with all its ephemeral znodes, as its owner requests.
    CloseSession {
        /// The session.
        session: SessionId,
    },
    /// Ends sessions from which the leader has received no heartbeat for their timeout. Valid only in the term of the leader that proposed it: a
    /// deposed leader must not end a session that its successor has renewed.
    ExpireSessions {
        /// The sessions; those that have ended meanwhile are skipped.
        sessions: Vec<SessionId>,
        /// The proposer's term.
        term: u64,
        /// Position up to which the leader had applied the log when it found the sessions silent. A session with a later request is skipped, because
        /// that request was executed and answered.
        as_of: Zxid,
    },
    /// One change of the tree.
    Write(Op),
    /// Several changes of the tree, all or none, at one position. Later ones see earlier ones.
    Multi(Vec<Op>),
    /// Deletes containers that had children and have none any more, and expired TTL znodes without children. Other znodes are skipped.
    Sweep(Vec<ZPath>),
    /// Replaces the limits. What already exceeds them stays.
    SetLimits(Limits),
    /// A step of the lock protocol.
    Lock(LockCommand),
    /// Resumes a session on another connection, perhaps at another node. The session's turns are counted from here again. Requests of its
    /// earlier connections that were not executed yet are void.
    Reconnect {
        /// Session, which is that of the request.
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
    /// Records for how long sessions have been silent, so that the next leader continues the count. Valid only in the term of the leader that
    /// proposed it. The leader then confirms no heartbeat of these sessions before a [`Command::NoteHeartbeats`] takes them off the record.
    RecordSilence {
        /// The sessions, each with its silence in milliseconds; those that have ended meanwhile are skipped.
        sessions: Vec<(SessionId, u32)>,
        /// The proposer's term.
        term: u64,
        /// Position up to which the leader had applied the log when it measured the silences. A session with a later request is skipped.
        as_of: Zxid,
    },
    /// Takes sessions off the record of silence, because the leader has counted their heartbeats. Valid only in its term.
    NoteHeartbeats {
        /// The sessions; those that have ended meanwhile are skipped.
        sessions: Vec<SessionId>,
        /// The proposer's term.
        term: u64,
    },
    /// Gives a lease another timeout, counted from here. (A renewal with the same one is a heartbeat.)
    RenewLease {
        /// The lease.
        lease: LeaseKey,
        /// The new timeout.
        timeout_ms: u32,
    },
    /// Releases the lock of a lease, or leaves its queue, and ends the lease.
    ReleaseLease {
        /// The lease.
        lease: LeaseKey,
    },
    /// Sets the quotas of a namespace, or removes them. Usage above them stays.
    SetQuotas {
        /// Namespace.
        namespace: NamespaceName,
        /// All its quotas, or `None` to remove them.
        quotas: Option<Quotas>,
    },
}

/// Step that a connected client may send in turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Changes the tree as [`Command::Write`] does.
    Write(Op),
    /// Changes the tree as [`Command::Multi`] does.
    Multi(Vec<Op>),
    /// Ends the session as [`Command::CloseSession`] does.
    CloseSession,
}

/// One change of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Creates a znode.
    Create {
        /// The path.
        path: CreatePath,
        /// Data of the znode.
        data: Data,
        /// The access control list. Missing parents get the same list.
        acl: Acl,
        /// Kind of the znode. The session of the request owns an ephemeral one.
        mode: CreateMode,
        /// True if missing parents are created too, as empty containers.
        parents: bool,
    },
    /// Deletes a znode that has no children.
    Delete {
        /// The znode.
        path: ZPath,
        /// Version that it must have; −1 for any.
        version: i32,
    },
    /// Deletes a znode and all below it.
    DeleteRecursive {
        /// The znode.
        path: ZPath,
    },
    /// Replaces the data.
    Set {
        /// Znode.
        path: ZPath,
        /// The new data.
        data: Data,
        /// Version that it must have; −1 for any.
        version: i32,
    },
    /// Replaces the access control list.
    SetAcl {
        /// Znode.
        path: ZPath,
        /// New list.
        acl: Acl,
        /// The `aversion` that it must have; −1 for any.
        aversion: i32,
    },
    /// Changes nothing, but refuses the command (and with it a multi) unless the znode has the version.
    Check {
        /// The znode.
        path: ZPath,
        /// Version that it must have; −1 if it only has to exist.
        version: i32,
    },
    /// Changes nothing, but refuses the command (and with it a multi) unless the session of the request holds the lock with this token. With it a
    /// transaction writes only while the lock is held: a guarded write.
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

/// Kind of a znode to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CreateMode {
    /// Stays until it is deleted.
    Persistent,
    /// Ends with its session; has no children.
    Ephemeral,
    /// The parent's counter of creations is appended to the name, in ten digits.
    PersistentSequential,
    /// Ephemeral, with a number in its name.
    EphemeralSequential,
    /// Like persistent, but swept some time after the end of its last child.
    Container,
    /// Like persistent, but swept when it has no children and its data was not replaced for a time.
    Ttl {
        /// TTL in milliseconds: 1 to [`MAX_TTL_MS`](crate::MAX_TTL_MS).
        ttl_ms: u64,
    },
    /// TTL znode with a number in its name.
    TtlSequential {
        /// TTL in milliseconds: 1 to [`MAX_TTL_MS`](crate::MAX_TTL_MS).
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
