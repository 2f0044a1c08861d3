//! Refusals: the reasons why a command is not executed. A refused command changes nothing.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::model::access::right::Right;
use crate::model::access::role::RoleName;
use crate::model::access::token::TokenId;
use crate::model::ids::{SessionId, Zxid};
use crate::model::lock::{HolderId, LockMode};
use crate::model::path::{LockName, ZPath};

/// Owner in a cycle of waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Session of the owner.
    pub session: SessionId,
    /// Its scope within the session.
    pub owner: Arc<str>,
    /// The lock that it holds, or waits for ahead of its successor in the cycle.
    pub has: LockName,
    /// The lock that it waits for.
    pub awaits: LockName,
}

/// Change of a holder's mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModeStep {
    /// To exclusive.
    Upgraded,
    /// To something that gets along with more.
    Downgraded,
}

/// Text of a cycle of waits.
struct Waiting<'c>(&'c LockName, &'c [Owner]);

impl core::fmt::Display for Waiting<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self(lock, cycle) = self;
        // Of a longer one all may be concealed.
        if cycle.len() == 1 {
            return write!(
                f,
                "the owner has the lock {lock} in a mode with fewer rights and would wait for itself"
            );
        }
        write!(f, "to wait for the lock {lock} would be to wait for oneself")?;
        for (at, party) in cycle.iter().skip(1).enumerate() {
            let Owner {
                session,
                owner,
                has,
                awaits,
            } = party;
            f.write_str(if at == 0 { ": " } else { ", " })?;
            write!(f, "session {session}")?;
            if !owner.is_empty() {
                write!(f, " ({owner})")?;
            }
            write!(f, " has {has} and waits for {awaits}")?;
        }
        Ok(())
    }
}

/// Quantity that a quota limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuotaKind {
    /// Znodes.
    Count,
    /// Bytes of data.
    Bytes,
}

/// Quantity that a limit applies to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limited {
    /// Children of a znode.
    Children(ZPath),
    /// Ephemeral nodes of a session.
    Ephemerals(SessionId),
    /// Sessions.
    Sessions,
    /// Locks with terms of their own.
    ConfiguredLocks,
    /// Tokens.
    Tokens,
    /// Roles.
    Roles,
    /// Certificates that have a role.
    Certificates,
    /// Bytes of the long paths that one command creates or removes, at this znode and above or below it.
    LongPaths(ZPath),
    /// Znodes that one command removes below this one.
    Descendants(ZPath),
    /// Operations of a transaction.
    Operations,
}

/// Reason why a caller is not authenticated. A caller with a token learns what is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Unproven {
    /// It has proven nothing.
    #[error("this needs a token, or a certificate that has a role")]
    Nothing,
    /// There is no such token (any more).
    #[error("the token is not known, or was revoked")]
    Token,
    /// The token's time is over.
    #[error("the token has expired")]
    Expired,
    /// Its certificate has no role.
    #[error("the certificate has no role")]
    Certificate,
}

impl Refusal {
    /// Returns the refusal of a wait whose session's owner has no right to the lock any more.
    pub(crate) fn no_right_to_lock(lock: &LockName) -> Self {
        Self::Forbidden {
            right: Right::Lock,
            path: lock.znode().clone(),
        }
    }
}

impl From<Unproven> for Refusal {
    fn from(unproven: Unproven) -> Self {
        Self::Unauthenticated(unproven)
    }
}

/// Reason why a change of the access policies was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum AccessRefusal {
    /// It is secured once and for all.
    #[error("the cluster is secured already")]
    AlreadySecured,
    /// There are no tokens and no roles before.
    #[error("the cluster is not secured")]
    NotSecured,
    /// Only the operator, on the node itself, secures a cluster.
    #[error("only the operator can secure a cluster")]
    OperatorOnly,
    /// There is no such token.
    #[error("there is no token {0}")]
    NoToken(TokenId),
    /// The drawn id is taken; the node draws another one.
    #[error("the token {0} exists already")]
    TokenExists(TokenId),
    /// There is no such role.
    #[error("there is no role {0}")]
    NoRole(RoleName),
    /// A token or a certificate has the role.
    #[error("the role {0} is in use")]
    RoleInUse(RoleName),
    /// The role `admin` is what it is.
    #[error("the role admin cannot be changed")]
    BuiltIn,
    /// The certificate has no role.
    #[error("the certificate {0:?} has no role")]
    NoCertificate(Arc<str>),
    /// The change would leave the cluster without an administrator.
    #[error("nobody else has the role admin")]
    LastAdministrator,
    /// A text that is malformed or too long.
    #[error("{0}")]
    BadText(Arc<str>),
}

/// Reason why a command was refused. A refused command changes nothing, on any replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The znode (or the parent of one to be created) does not exist.
    #[error("the znode {0} does not exist")]
    NoNode(ZPath),
    /// The znode exists already.
    #[error("the znode {0} exists already")]
    NodeExists(ZPath),
    /// Another version was expected.
    #[error("the znode {path} has version {actual}, not {expected}")]
    BadVersion {
        /// The znode.
        path: ZPath,
        /// The version that the caller expected.
        expected: i32,
        /// The version that it has.
        actual: i32,
    },
    /// A node with children is not deleted.
    #[error("the znode {0} has children")]
    NotEmpty(ZPath),
    /// An ephemeral node has no children.
    #[error("the znode {0} is ephemeral and cannot have children")]
    NoChildrenForEphemerals(ZPath),
    /// The root cannot be deleted, and nothing can be deleted from within it recursively at once.
    #[error("the znode {0} cannot be deleted")]
    Undeletable(ZPath),
    /// The name, with its number, would be no legal path.
    #[error("the path of the new znode would be illegal: {0}")]
    BadPath(String),
    /// Ten digits are used up; the parent has to be created again.
    #[error("the sequence numbers below {0} are used up")]
    SequenceExhausted(ZPath),
    /// The caller has not the right that this needs. Creating and deleting are matters of the parent.
    #[error("the caller may not do this at {0}")]
    NoAuth(ZPath),
    /// An access control list that is empty, or names an identity that no caller could prove.
    #[error("this is no access control list: {0}")]
    InvalidAcl(String),
    /// A TTL is 1 to [`crate::MAX_TTL_MS`] milliseconds.
    #[error("{0} ms are no time to live")]
    BadTtl(u64),
    /// A hard quota would be passed.
    #[error("the quota of {path} allows {limit} {what}, and this would make it {would_be}")]
    QuotaExceeded {
        /// Path of the subtree with the quota.
        path: ZPath,
        /// The quantity.
        what: QuotaKind,
        /// The limit.
        limit: u64,
        /// The amount that the change would lead to.
        would_be: u64,
    },
    /// One of the [`crate::Limits`] is reached.
    #[error("{what}: {limit} are the most allowed")]
    LimitReached {
        /// The quantity.
        what: Limited,
        /// The limit.
        limit: u32,
    },
    /// More data than [`crate::Limits::data_bytes`].
    #[error("{bytes} bytes of data are more than the {limit} allowed")]
    DataTooLarge {
        /// Size of the given data.
        bytes: u64,
        /// Maximum size.
        limit: u64,
    },
    /// The request needs a session and named none.
    #[error("this needs a session")]
    SessionRequired,
    /// There is no such session, and there was none lately.
    #[error("there is no session {0}")]
    NoSession(SessionId),
    /// The session has ended: it expired or was closed.
    #[error("the session {0} has ended")]
    SessionEnded(SessionId),
    /// The drawn id is taken (or none that a session can have); the node draws another one.
    #[error("the session id {0} is taken")]
    SessionIdTaken(SessionId),
    /// The leader that proposed this was no longer the leader.
    #[error("the proposing leader was deposed")]
    StaleLeader,
    /// A multi failed at one of its operations, and so as a whole.
    #[error("operation {index} of the transaction: {refusal}")]
    Multi {
        /// Counted from 0.
        index: u32,
        /// The refusal of that operation.
        #[serde(deserialize_with = "crate::model::non_recursive_reply::boxed")]
        refusal: Box<Refusal>,
    },
    /// The repeated request id was used for something else before.
    #[error("the request_id was used for another request of this session")]
    RequestIdReused,
    /// There is no such lock.
    #[error("there is no lock {0}")]
    NoLock(LockName),
    /// The lock is not free, and the caller did not want to wait.
    #[error("the lock {lock} is {}", if .holders.is_empty() { "closed for a while" } else { "held" })]
    LockBusy {
        /// The lock.
        lock: LockName,
        /// The holders.
        holders: Vec<HolderId>,
    },
    /// The lock did not become free in time.
    #[error("the lock {0} did not become free in time")]
    LockTimeout(LockName),
    /// The lock is in use in another mode or with another limit.
    #[error("the lock {lock} is in use as {in_use}")]
    ModeConflict {
        /// The lock.
        lock: LockName,
        /// Its mode for as long as it has contenders.
        in_use: LockMode,
    },
    /// The session is not (or no longer) the holder that it names.
    #[error("the session does not hold the lock {lock} as {holder}")]
    NotHolder {
        /// The lock.
        lock: LockName,
        /// The contender that the caller named.
        holder: HolderId,
    },
    /// The session does not hold the lock by the contender with this token.
    #[error("the session does not hold the lock {lock} with the token {fencing_token}")]
    NotHeld {
        /// The lock.
        lock: LockName,
        /// The token that the caller named.
        fencing_token: Zxid,
    },
    /// To wait would be to wait for oneself, perhaps by way of others.
    #[error("{}", Waiting(.lock, .cycle))]
    WouldDeadlock {
        /// The lock.
        lock: LockName,
        /// The cycle of waits: the caller first, then the owner that the caller would wait for. The last one waits for the caller.
        cycle: Vec<Owner>,
    },
    /// More contenders than [`crate::MAX_CONTENDERS`].
    #[error("the queue of the lock {0} is full")]
    QueueFull(LockName),
    /// More entries by one owner than [`crate::MAX_HOLDS`].
    #[error("the owner has entered the lock {0} too often")]
    TooManyHolds(LockName),
    /// A wish that makes no sense, such as more permits than there are.
    #[error("{0}")]
    BadWish(Arc<str>),
    /// The lock is drained: it takes and grants no new contenders.
    #[error("the lock {0} is drained: it takes no new contenders")]
    Draining(LockName),
    /// A lock that is not held as the step requires.
    #[error("{holder} holds the lock {lock} as {mode}, which cannot be {what}")]
    WrongMode {
        /// The lock.
        lock: LockName,
        /// The contender.
        holder: HolderId,
        /// Mode of its hold.
        mode: LockMode,
        /// The requested change: "upgraded", "downgraded".
        what: ModeStep,
    },
    /// An operator broke the hold or the wait.
    #[error("{holder} was taken out of the lock {lock} by an operator ({by}): {reason}")]
    Broken {
        /// The lock.
        lock: LockName,
        /// The contender.
        holder: HolderId,
        /// The operator.
        by: Arc<str>,
        /// Reason that the operator gave.
        reason: Arc<str>,
    },
    /// A client that resumes a session must send the password of its opening.
    #[error("this is not the password of the session {0}")]
    WrongPassword(SessionId),
    /// The session has another connection by now, and what this one had still to say is void.
    #[error("the session {0} has moved to another connection")]
    SessionMoved(SessionId),
    /// An earlier request of this connection was not executed.
    #[error("the session {session} is at turn {expected} of its connection, not at turn {turn}")]
    OutOfTurn {
        /// Session of the connection.
        session: SessionId,
        /// The turn of the request.
        turn: u64,
        /// The next turn.
        expected: u64,
    },
    /// The caller is not authenticated.
    #[error("{0}")]
    Unauthenticated(Unproven),
    /// The policies do not allow it.
    #[error("this needs the right to {right} at {path}")]
    Forbidden {
        /// The missing right.
        right: Right,
        /// The path.
        path: ZPath,
    },
    /// Only the principal that opened a session may use it.
    #[error("the session {0} is somebody else's")]
    NotYourSession(SessionId),
    /// Only the cluster itself sends this command.
    #[error("only the cluster itself does this")]
    Internal,
    /// A change of the access policies was refused.
    #[error("{0}")]
    Access(AccessRefusal),
    /// A session's own, or the cluster's: what it is like is not said elsewhere.
    #[error("the znode {0} belongs to a session or to the cluster itself, and can be no copy of another")]
    NotMirrored(ZPath),
}

impl From<AccessRefusal> for Refusal {
    fn from(refusal: AccessRefusal) -> Self {
        Self::Access(refusal)
    }
}
