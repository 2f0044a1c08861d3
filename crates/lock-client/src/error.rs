//! Why a call has no result. Refused, unavailable and unknown never share a variant: whoever gets one has to do
//! something else about each.

use serde::Deserialize;
use serde_json::{Map, Value};

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cluster has decided, and changed nothing. To ask again is in vain unless something changes.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// Nothing was done, for as long as the client had patience. To ask again later may help.
    #[error("no server could serve the request: {0}")]
    Unavailable(String),
    /// It may have been done, or may yet be.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// The session is lost, and all its locks with it; or this lock is.
    #[error(transparent)]
    Lost(Loss),
    /// The client was shut down ([`LockClient::shut_down`](crate::LockClient::shut_down)), or the node was stopped that lives in this
    /// program. It does not come back. A call that was under way may have been done.
    #[error("the client was shut down")]
    Stopped,
}

/// Why a session, or a lock of it, is not (or not surely) held any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// No heartbeat was confirmed for so long that the cluster may have ended the session by now.
    #[error("the session is lost: no heartbeat was confirmed in time")]
    NoHeartbeat,
    /// The cluster has ended the session.
    #[error("the session is lost: the cluster has ended it")]
    Expired,
    /// This program has closed the session.
    #[error("the session was closed")]
    Closed,
    /// This program has shut the client down, or stopped its node.
    #[error("the session was closed, because its client was shut down")]
    Stopped,
    /// The session lives, but somebody broke the lock.
    #[error("the lock was broken{}{}", of_whom(by), because(reason))]
    Broken {
        /// Who that was, as far as it has proven who it is: `ip:10.0.0.7`.
        by: Option<String>,
        /// What it gave as the reason.
        reason: String,
    },
    /// The session lives, but the znode of its contender was deleted.
    #[error("the lock's znode was deleted{}", of_whom(by))]
    Deleted {
        /// Who that was, as far as it has proven who it is.
        by: Option<String>,
    },
    /// The session lives, but the lock was given back in its name by somebody else than this guard.
    #[error("the lock was released elsewhere")]
    Released,
    /// The session lives, but the lock was taken away from it, and nobody could tell how.
    #[error("the lock was taken away: broken, deleted, or released elsewhere")]
    TakenAway,
}

impl Loss {
    /// Whether this program has wanted it.
    pub(crate) fn is_own_will(&self) -> bool {
        matches!(self, Self::Closed | Self::Stopped)
    }

    /// Whether the cluster may still have the session and the lock: nobody knows, for want of a heartbeat.
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

/// What the cluster says when it refuses.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{detail}")]
pub struct Refusal {
    /// The reason as a word.
    pub code: Code,
    /// The HTTP status.
    pub status: u16,
    /// The reason as a sentence.
    pub detail: String,
    /// What else was said: `lock`, `holders`, `path`…
    pub facts: Map<String, Value>,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal;)*) => {
        /// The stable words for reasons; docs/http-api.md says what each means.
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[$doc])* $name,)*
            /// A word that this version of the client does not know.
            Other(String),
        }

        impl Code {
            /// The code that a word stands for.
            pub fn of(word: &str) -> Self {
                match word { $($word => Self::$name,)* other => Self::Other(other.to_owned()) }
            }

            /// The word.
            pub fn word(&self) -> &str {
                match self { $(Self::$name => $word,)* Self::Other(word) => word }
            }
        }
    };
}

codes! {
    /// The request makes no sense.
    BadRequest = "bad_request";
    /// Not a path of a znode.
    BadPath = "bad_path";
    /// Not a name of a lock.
    BadLockName = "bad_lock_name";
    /// Not an access control list.
    BadAcl = "bad_acl";
    /// Who calls has not said who it is.
    Unauthenticated = "unauthenticated";
    /// The caller has no right to it.
    Forbidden = "forbidden";
    /// There is no such session.
    NoSession = "no_session";
    /// There is no such lock.
    NoLock = "no_lock";
    /// There is no such znode.
    NoNode = "no_node";
    /// The server does not know the request: it may be older than the client.
    NoRoute = "no_route";
    /// The lock is held, and the caller did not want to wait.
    LockBusy = "lock_busy";
    /// The lock did not become free in time.
    LockTimeout = "lock_timeout";
    /// The lock is in use in another mode, or with another limit.
    ModeConflict = "mode_conflict";
    /// The session does not hold what it names.
    NotHolder = "not_holder";
    /// The znode exists.
    NodeExists = "node_exists";
    /// The znode has another version.
    BadVersion = "bad_version";
    /// The znode has children.
    NotEmpty = "not_empty";
    /// An ephemeral znode has no children.
    NoChildrenForEphemerals = "no_children_for_ephemerals";
    /// The caller would wait for itself.
    WouldDeadlock = "would_deadlock";
    /// The lock is drained: it takes no new contenders.
    Draining = "draining";
    /// The request id was used for something else.
    RequestIdReused = "request_id_reused";
    /// No sequence number is left.
    SequenceExhausted = "sequence_exhausted";
    /// A quota is used up.
    QuotaExceeded = "quota_exceeded";
    /// There are as many as may be.
    LimitReached = "limit_reached";
    /// There is no such token.
    NoToken = "no_token";
    /// There is no such role.
    NoRole = "no_role";
    /// The certificate has no role.
    NoCertificate = "no_certificate";
    /// Somebody has the role.
    RoleInUse = "role_in_use";
    /// The role cannot be changed.
    RoleBuiltIn = "role_built_in";
    /// Nobody else is an administrator.
    LastAdministrator = "last_administrator";
    /// The cluster is secured already.
    AlreadySecured = "already_secured";
    /// The cluster is not secured.
    NotSecured = "not_secured";
    /// The session has ended.
    SessionExpired = "session_expired";
    /// Too large.
    TooLarge = "too_large";
    /// Too many at once.
    TooManyRequests = "too_many_requests";
}

impl Error {
    /// The reason of a refusal as a word; `None` if it was none.
    pub fn code(&self) -> Option<&Code> {
        match self {
            Self::Refused(refusal) => Some(&refusal.code),
            Self::Unavailable(_) | Self::Unknown(_) | Self::Lost(_) | Self::Stopped => None,
        }
    }

    /// Whether it was refused for this reason.
    pub fn is(&self, code: Code) -> bool {
        self.code() == Some(&code)
    }

    /// Whether nothing was done and the same call may succeed later: no server could serve it, there was too much to do, or the lock was
    /// not free. A loop that asks again and again needs a pause of its own and an end.
    ///
    /// What may have been done ([`Error::Unknown`]) is not retryable without a look at what came of it, and a lost session does not come
    /// back.
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

    /// Whether the lock was not free: at all for a try, or not in time.
    pub fn is_not_free(&self) -> bool {
        matches!(self.code(), Some(Code::LockBusy | Code::LockTimeout))
    }
}

/// The body of an error.
#[derive(Deserialize)]
struct Problem {
    #[serde(default)]
    detail: String,
    code: String,
    #[serde(flatten)]
    facts: Map<String, Value>,
}

impl Refusal {
    /// Reads an answer of `status`, which is an error; `None` if it is not one of a Lockgate server.
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

    /// Whether it is about who calls: nobody who counts, or somebody without the right.
    pub(crate) fn is_of_the_caller(&self) -> bool {
        matches!(self.code, Code::Unauthenticated | Code::Forbidden)
    }

    /// Whether the session that asked has ended.
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
