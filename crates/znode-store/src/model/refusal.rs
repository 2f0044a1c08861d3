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
use crate::model::namespace::{NamespaceName, NamespaceQuota};
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
    /// To a mode that is compatible with more modes.
    Downgraded,
}

/// Text of a cycle of waits.
struct Waiting<'c>(&'c LockName, &'c [Owner]);

impl core::fmt::Display for Waiting<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self(lock, cycle) = self;
        // All parties of a longer cycle may be hidden from the caller.
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
    /// Locks with settings.
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
    /// Namespaces with quotas.
    Namespaces,
}

/// Reason why a caller is not authenticated. A caller with a token learns what is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Unproven {
    /// The caller has no proven identity.
    #[error("this needs a token, or a certificate that has a role")]
    Nothing,
    /// The token does not exist, or was revoked.
    #[error("the token is not known, or was revoked")]
    Token,
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
    /// The caller's certificate has no role.
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
    /// The cluster is already secured, and cannot be secured twice.
    #[error("the cluster is secured already")]
    AlreadySecured,
    /// The cluster is not secured, so it has no tokens and no roles.
    #[error("the cluster is not secured")]
    NotSecured,
    /// Only the operator, on the node itself, secures a cluster.
    #[error("only the operator can secure a cluster")]
    OperatorOnly,
    /// There is no such token.
    #[error("there is no token {0}")]
    NoToken(TokenId),
    /// The random id is in use; the node tries another one.
    #[error("the token {0} exists already")]
    TokenExists(TokenId),
    /// There is no such role.
    #[error("there is no role {0}")]
    NoRole(RoleName),
    /// A token or a certificate has the role.
    #[error("the role {0} is in use")]
    RoleInUse(RoleName),
    /// The role `admin` cannot be changed.
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
    /// The znode has another version than the caller expected.
    #[error("the znode {path} has version {actual}, not {expected}")]
    BadVersion {
        /// The znode.
        path: ZPath,
        /// The version that the caller expected.
        expected: i32,
        /// The version that it has.
        actual: i32,
    },
    /// The znode has children, so it cannot be deleted.
    #[error("the znode {0} has children")]
    NotEmpty(ZPath),
    /// The parent is ephemeral, so it cannot have children.
    #[error("the znode {0} is ephemeral and cannot have children")]
    NoChildrenForEphemerals(ZPath),
    /// The root cannot be deleted, neither alone nor recursively.
    #[error("the znode {0} cannot be deleted")]
    Undeletable(ZPath),
    /// The path with the sequence number would be illegal.
    #[error("the path of the new znode would be illegal: {0}")]
    BadPath(String),
    /// All sequence numbers of ten digits are used up. The parent has to be deleted and created again.
    #[error("the sequence numbers below {0} are used up")]
    SequenceExhausted(ZPath),
    /// The access control list does not give the caller the right. For a creation or deletion the list of the parent counts.
    #[error("the caller may not do this at {0}")]
    NoAuth(ZPath),
    /// An access control list that is empty, or names an identity that no caller could prove.
    #[error("this is no access control list: {0}")]
    InvalidAcl(String),
    /// The TTL is not between 1 and [`crate::MAX_TTL_MS`] milliseconds.
    #[error("{0} ms are no time to live")]
    BadTtl(u64),
    /// The change would exceed a hard quota.
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
    /// The data is larger than [`crate::Limits::data_bytes`].
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
    /// The session does not exist, and did not exist recently.
    #[error("there is no session {0}")]
    NoSession(SessionId),
    /// The session has ended: it expired or was closed.
    #[error("the session {0} has ended")]
    SessionEnded(SessionId),
    /// The random id is in use, or is no legal session id; the node tries another one.
    #[error("the session id {0} is taken")]
    SessionIdTaken(SessionId),
    /// The leader that proposed this was no longer the leader.
    #[error("the proposing leader was deposed")]
    StaleLeader,
    /// One operation of a multi was refused, so the whole multi is.
    #[error("operation {index} of the transaction: {refusal}")]
    Multi {
        /// Index of the operation, from 0.
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
    /// The call would wait for its own owner, directly or through other owners.
    #[error("{}", Waiting(.lock, .cycle))]
    WouldDeadlock {
        /// The lock.
        lock: LockName,
        /// The cycle of waits: the caller first, then the owner that the caller would wait for. The last one waits for the caller.
        cycle: Vec<Owner>,
    },
    /// The lock has [`crate::MAX_CONTENDERS`] contenders.
    #[error("the queue of the lock {0} is full")]
    QueueFull(LockName),
    /// The owner has entered the lock [`crate::MAX_HOLDS`] times.
    #[error("the owner has entered the lock {0} too often")]
    TooManyHolds(LockName),
    /// The request is invalid, for example with more permits than the limit.
    #[error("{0}")]
    BadWish(Arc<str>),
    /// The lock is drained: it takes and grants no new contenders.
    #[error("the lock {0} is drained: it takes no new contenders")]
    Draining(LockName),
    /// The mode of the hold does not allow the step.
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
    /// The session has reconnected elsewhere, and further requests of this connection are void.
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
    /// The access policies do not give the caller the right.
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
    /// The znode belongs to a session or to the cluster, so it cannot become a copy of another server's znode.
    #[error("the znode {0} belongs to a session or to the cluster itself, and can be no copy of another")]
    NotMirrored(ZPath),
    /// The lease has expired, was released, lost its lock, or never was. Its secret may be wrong, too.
    #[error("the lease has expired, or its lock was released or lost")]
    LeaseExpired,
    /// The change would exceed a quota of the namespace.
    #[error("the quota of namespace {namespace} for {} is {limit}, and this would make it {would_be}", .quota.word())]
    NamespaceQuotaExceeded {
        /// Namespace.
        namespace: NamespaceName,
        /// The quantity.
        quota: NamespaceQuota,
        /// The limit.
        limit: u64,
        /// The amount that the change would lead to.
        would_be: u64,
    },
    /// The namespace has no quotas.
    #[error("the namespace {0} has no quotas")]
    NoNamespace(NamespaceName),
}

impl From<AccessRefusal> for Refusal {
    fn from(refusal: AccessRefusal) -> Self {
        Self::Access(refusal)
    }
}
