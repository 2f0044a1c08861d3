//! Errors of the client. Refused, unavailable and unknown never share a variant, because a caller reacts to each in another way.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::words::words;

/// Error of a call.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cluster decided against the request and changed nothing. A retry fails too, unless something changes.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// Nothing was done within the patience of the client. A later retry may succeed.
    #[error("no server could serve the request: {0}")]
    Unavailable(String),
    /// The request may have been executed, or may still be.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// The session is lost with all its locks, or this lock is.
    #[error(transparent)]
    Lost(Loss),
    /// The client was shut down ([`LockClient::shut_down`](crate::LockClient::shut_down)), or the node inside this program was stopped. A
    /// retry fails too. A pending request may have been executed.
    #[error("the client was shut down")]
    Stopped,
}

/// Reason why a session or a lock is lost, or may be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// No heartbeat was confirmed in time, so the cluster may have ended the session.
    #[error("the session is lost: no heartbeat was confirmed in time")]
    NoHeartbeat,
    /// The cluster has ended the session.
    #[error("the session is lost: the cluster has ended it")]
    Expired,
    /// This program has closed the session.
    #[error("the session was closed")]
    Closed,
    /// This program has shut down the client, or stopped its node.
    #[error("the session was closed, because its client was shut down")]
    Stopped,
    /// The session lives, but another caller broke the lock.
    #[error("the lock was broken{}{}", of_whom(by), because(reason))]
    Broken {
        /// Proven identity of that caller, such as `ip:10.0.0.7`.
        by: Option<String>,
        /// Reason that it gave.
        reason: String,
    },
    /// The session lives, but the contender's znode was deleted.
    #[error("the lock's znode was deleted{}", of_whom(by))]
    Deleted {
        /// Proven identity of the caller that deleted it.
        by: Option<String>,
    },
    /// The session lives, but the lock was released in its name elsewhere.
    #[error("the lock was released elsewhere")]
    Released,
    /// The session lives, but the hold has reached its maximum time ([`AcquireOptions::max_hold`](crate::AcquireOptions::max_hold)).
    #[error("the lock was held for its maximum time")]
    MaxHold,
    /// The lease is over, or may be: no renewal was confirmed in time, or it was released, broken, or held for its maximum time.
    #[error("the lease is over")]
    LeaseExpired,
    /// The session lives without the lock, and the reason is not known.
    #[error("the lock was taken away: broken, deleted, released elsewhere, or held for its maximum time")]
    TakenAway,
}

impl Loss {
    /// Returns the reason as a word: `no_heartbeat`, `expired`, `closed`, `broken`, `deleted`, `released`, `max_hold`, `lease_expired` or
    /// `taken_away`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::NoHeartbeat => "no_heartbeat",
            Self::Expired => "expired",
            Self::Closed | Self::Stopped => "closed",
            Self::Broken { .. } => "broken",
            Self::Deleted { .. } => "deleted",
            Self::Released => "released",
            Self::MaxHold => "max_hold",
            Self::LeaseExpired => "lease_expired",
            Self::TakenAway => "taken_away",
        }
    }

    /// Returns whether this program caused the loss.
    pub(crate) fn is_own_will(&self) -> bool {
        matches!(self, Self::Closed | Self::Stopped)
    }

    /// Returns whether the cluster may still have the session and the lock: without heartbeats the client cannot know.
    pub(crate) fn may_live(&self) -> bool {
        matches!(self, Self::NoHeartbeat)
    }
}

fn of_whom(by: &Option<String>) -> String {
    by.as_ref().map_or(String::new(), |by| format!(" by {by}"))
}

fn because(reason: &str) -> String {
    match reason {
        "" => String::new(),
        reason => format!(": {reason}"),
    }
}

/// Refusal of a request by the cluster.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{detail}")]
pub struct Refusal {
    /// Reason as a word.
    pub code: Code,
    /// HTTP status.
    pub status: u16,
    /// Reason as a sentence.
    pub detail: String,
    /// Other fields of the answer: `lock`, `holders`, `path`…
    pub facts: Map<String, Value>,
}

words! {
    /// Reason of a refusal. docs/reference/http-api.md says what each means.
    Code {
        /// The request is malformed.
        BadRequest = "bad_request";
        /// The path of a znode is malformed.
        BadPath = "bad_path";
        /// The name of a lock is malformed.
        BadLockName = "bad_lock_name";
        /// The access control list is malformed.
        BadAcl = "bad_acl";
        /// The caller has not proven who it is.
        Unauthenticated = "unauthenticated";
        /// The caller's role does not allow the request.
        Forbidden = "forbidden";
        /// The session does not exist.
        NoSession = "no_session";
        /// The lock does not exist.
        NoLock = "no_lock";
        /// The znode does not exist.
        NoZnode = "no_znode";
        /// The server does not know the route. It may be older than the client.
        NoRoute = "no_route";
        /// The lock is held, and the request does not wait.
        LockBusy = "lock_busy";
        /// The lock was not granted in time.
        LockTimeout = "lock_timeout";
        /// The lock is in use in another mode, or with another limit.
        ModeConflict = "mode_conflict";
        /// The session does not hold the lock.
        NotHolder = "not_holder";
        /// The znode exists.
        NodeExists = "node_exists";
        /// The znode has another version.
        BadVersion = "bad_version";
        /// The znode has children.
        NotEmpty = "not_empty";
        /// An ephemeral znode has no children.
        NoChildrenForEphemerals = "no_children_for_ephemerals";
        /// The request would wait for itself.
        WouldDeadlock = "would_deadlock";
        /// The lock is drained: it takes no new contenders.
        Draining = "draining";
        /// The request id was used for another request.
        RequestIdReused = "request_id_reused";
        /// The parent has no sequence numbers left.
        SequenceExhausted = "sequence_exhausted";
        /// A quota is exceeded.
        QuotaExceeded = "quota_exceeded";
        /// A quota of the namespace is exceeded.
        NamespaceQuotaExceeded = "namespace_quota_exceeded";
        /// A limit of the cluster is reached.
        LimitReached = "limit_reached";
        /// The namespace has no quotas.
        NoNamespace = "no_namespace";
        /// The token does not exist.
        NoToken = "no_token";
        /// The role does not exist.
        NoRole = "no_role";
        /// The certificate has no role.
        NoCertificate = "no_certificate";
        /// A token or a certificate has the role.
        RoleInUse = "role_in_use";
        /// The role is built in.
        RoleBuiltIn = "role_built_in";
        /// The last administrator cannot be removed.
        LastAdministrator = "last_administrator";
        /// The cluster is secured already.
        AlreadySecured = "already_secured";
        /// The cluster is not secured.
        NotSecured = "not_secured";
        /// The session has ended.
        SessionExpired = "session_expired";
        /// The contender neither holds the lock nor waits for it: its place in the queue is gone.
        HolderGone = "holder_gone";
        /// The lease has ended.
        LeaseExpired = "lease_expired";
        /// The request is too large.
        TooLarge = "too_large";
        /// The caller has too many requests or sessions.
        TooManyRequests = "too_many_requests";
    }
}

impl Error {
    /// Returns the reason of a refusal; `None` for other errors.
    pub fn code(&self) -> Option<&Code> {
        match self {
            Self::Refused(refusal) => Some(&refusal.code),
            Self::Unavailable(_) | Self::Unknown(_) | Self::Lost(_) | Self::Stopped => None,
        }
    }

    /// Returns whether the error is a refusal for this reason.
    pub fn is(&self, code: Code) -> bool {
        self.code() == Some(&code)
    }

    /// Returns whether nothing was done and the same call may succeed later: no server could serve it, the cluster was overloaded, or the
    /// lock was not free. A retry loop needs a pause and an end of its own.
    ///
    /// After [`Error::Unknown`] check first whether the change was made. A lost session does not return.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable(_) => true,
            Self::Refused(refusal) => matches!(
                refusal.code,
                Code::LockBusy | Code::LockTimeout | Code::TooManyRequests
            ),
            Self::Unknown(_) | Self::Lost(_) | Self::Stopped => false,
        }
    }

    /// Returns whether the lock was not free, either at once or in time.
    pub fn is_not_free(&self) -> bool {
        matches!(self.code(), Some(Code::LockBusy | Code::LockTimeout))
    }
}

/// Body of an error response.
#[derive(Deserialize)]
struct Problem {
    #[serde(default)]
    detail: String,
    code: String,
    #[serde(flatten)]
    facts: Map<String, Value>,
}

impl Refusal {
    /// Reads the error response with this status. Returns `None` if it is not from a Lockgate server.
    pub(crate) fn read(status: u16, body: &[u8]) -> Option<Self> {
        let mut problem: Problem = serde_json::from_slice(body).ok()?;
        for standard in ["type", "title", "status"] {
            problem.facts.remove(standard);
        }
        Some(Self {
            code: Code::of(&problem.code),
            status,
            detail: problem.detail,
            facts: problem.facts,
        })
    }

    /// Returns whether the refusal is about the caller's identity or role.
    pub(crate) fn is_of_the_caller(&self) -> bool {
        matches!(self.code, Code::Unauthenticated | Code::Forbidden)
    }

    /// Returns whether the refusal says that the session has ended.
    pub(crate) fn ends_session(&self) -> bool {
        matches!(self.code, Code::SessionExpired | Code::NoSession)
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_the_code_the_sentence_and_the_facts() {
        let body =
            br#"{"type": "urn:x", "title": "T", "status": 409, "detail": "it is held", "code": "lock_busy",
            "lock": "job", "holders": ["a"]}"#;
        let refusal = Refusal::read(409, body).unwrap();
        assert_eq!((refusal.code.clone(), refusal.status), (Code::LockBusy, 409));
        assert_eq!(refusal.to_string(), "it is held");
        assert_eq!(
            Value::Object(refusal.facts.clone()),
            serde_json::json!({ "lock": "job", "holders": ["a"] })
        );
        assert!(Error::from(refusal).is_not_free());
        let unknown = Refusal::read(409, br#"{"code": "brand_new"}"#).unwrap();
        assert_eq!(unknown.code, Code::Other("brand_new".to_owned()));
        assert_eq!(unknown.code.word(), "brand_new");
        assert_eq!(Refusal::read(502, b"<html>Bad gateway</html>"), None);
    }
}
