//! Errors as HTTP reports them: the only table of statuses and codes, and the only place that maps every
//! refusal and every failure to it.
//!
//! An error is an `application/problem+json` document (RFC 9457). Programs switch on its `code`, which never changes
//! its meaning. People read its `detail`. Both can use the facts beside it (`lock`, `holders`…) without a parser. These
//! kinds share neither a code nor a status: refusals (the cluster decided, nothing was changed), `unavailable` (nothing
//! was done, retry), `read_only` (nothing was done, and a retry does not help) and `outcome_unknown` (it may have been
//! done). Retry libraries and proxies repeat 503 on their own, so 503 always means that nothing was done.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use lock_node::{
    BackupRefused, HeartbeatError, HistoryError, MembershipError, MembershipRefusal, OpenSessionError,
    ProposeError, TooManyStreams, TooManyWatches, Unavailable,
};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use znode_store::{
    AccessRefusal, BadPath, BadRequestId, Limited, LockMode, LockName, NamespaceQuota, Owner, Refusal,
    SessionId,
};

use super::http_request_id::HttpRequestId;
use super::lenient_parsing::json_terms;
use crate::locks::{LockError, LockHistoryError};

/// Prefix of the `type` of every problem; the code follows. It is the address of a page that every node serves, relative
/// to the node that answers, so it can be read without internet access.
const TYPE_PREFIX: &str = "/docs#";

/// Default of `Retry-After`, which every 429 and 503 has.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Maximum number of characters of a caller's own text that an answer repeats.
const MAX_ECHO_CHARS: usize = 80;

macro_rules! table {
    ($($(#[doc = $doc:literal])* $name:ident = $status:ident $code:literal $title:literal;)*) => {
        /// Kinds of failures of a request.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code {
            $($(#[doc = $doc])* $name,)*
        }

        impl Code {
            /// All codes, in the order of the table.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// Returns the HTTP status of the code.
            pub fn status(self) -> StatusCode {
                match self { $(Code::$name => StatusCode::$status,)* }
            }

            /// Returns the stable word that programs switch on.
            pub fn word(self) -> &'static str {
                match self { $(Code::$name => $code,)* }
            }

            /// Returns what the code means, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self { $(Code::$name => concat!($($doc),*).trim_ascii(),)* }
            }

            /// Returns the title: the code in a few words for people.
            pub fn title(self) -> &'static str {
                match self { $(Code::$name => $title,)* }
            }
        }
    };
}

table! {
    /// The request is malformed or contradicts itself.
    BadRequest = BAD_REQUEST "bad_request" "Invalid request";
    /// The path of a znode breaks ZooKeeper's rules.
    BadPath = BAD_REQUEST "bad_path" "Invalid znode path";
    /// The name of a lock breaks the rules of names.
    BadLockName = BAD_REQUEST "bad_lock_name" "Invalid lock name";
    /// No route has this address.
    NoRoute = NOT_FOUND "no_route" "Unknown address";
    /// The access control list is malformed or contradicts itself.
    BadAcl = BAD_REQUEST "bad_acl" "Invalid access control list";
    /// The caller has no valid credentials, and not every caller may do this.
    Unauthenticated = UNAUTHORIZED "unauthenticated" "Authentication required";
    /// The caller lacks the required permission.
    Forbidden = FORBIDDEN "forbidden" "Permission denied";
    /// A page of another site sent the request from a user's browser.
    ForeignOrigin = FORBIDDEN "foreign_origin" "Cross-origin request rejected";
    /// The host in the request is not a name of this node.
    WrongHost = MISDIRECTED_REQUEST "wrong_host" "Unknown host name";
    /// The session does not exist and has not existed recently.
    NoSession = NOT_FOUND "no_session" "Unknown session";
    /// The lock does not exist.
    NoLock = NOT_FOUND "no_lock" "Unknown lock";
    /// The node keeps no history of locks.
    NoHistory = NOT_FOUND "no_history" "Lock history not available";
    /// The znode, or the parent of one to be created, does not exist.
    NoZnode = NOT_FOUND "no_znode" "Unknown znode";
    /// The address has a route, but not for this method.
    MethodNotAllowed = METHOD_NOT_ALLOWED "method_not_allowed" "Method not allowed";
    /// The caller stopped sending in the middle of a request.
    RequestTimeout = REQUEST_TIMEOUT "request_timeout" "Request timeout";
    /// The lock is held, and the caller did not want to wait.
    LockBusy = CONFLICT "lock_busy" "Lock is held";
    /// The wait for the lock timed out.
    LockTimeout = CONFLICT "lock_timeout" "Lock wait timeout";
    /// The name is in use with another mode or limit.
    ModeConflict = CONFLICT "mode_conflict" "Lock in use with another mode or limit";
    /// The session does not hold the lock with this holder.
    NotHolder = CONFLICT "not_holder" "Not the holder of the lock";
    /// The znode exists already.
    NodeExists = CONFLICT "node_exists" "Znode exists";
    /// The znode has another version.
    BadVersion = CONFLICT "bad_version" "Version mismatch";
    /// The znode has children.
    NotEmpty = CONFLICT "not_empty" "Znode has children";
    /// An ephemeral znode cannot have children.
    NoChildrenForEphemerals = CONFLICT "no_children_for_ephemerals" "Ephemeral znodes cannot have children";
    /// The caller would wait for itself.
    WouldDeadlock = CONFLICT "would_deadlock" "Deadlock detected";
    /// The lock is drained: it accepts no new contenders.
    Draining = CONFLICT "draining" "Lock is drained";
    /// The request id was used for another request.
    RequestIdReused = CONFLICT "request_id_reused" "Request id already used";
    /// All sequence numbers of ten digits are used.
    SequenceExhausted = CONFLICT "sequence_exhausted" "Sequence numbers exhausted";
    /// The change would exceed a hard quota.
    QuotaExceeded = CONFLICT "quota_exceeded" "Quota exceeded";
    /// The change would exceed a quota of its namespace.
    NamespaceQuotaExceeded = CONFLICT "namespace_quota_exceeded" "Namespace quota exceeded";
    /// The maximum number of items of this kind exists already.
    LimitReached = CONFLICT "limit_reached" "Limit reached";
    /// The namespace has no quotas.
    NoNamespace = NOT_FOUND "no_namespace" "Unknown namespace";
    /// The token does not exist.
    NoToken = NOT_FOUND "no_token" "Unknown token";
    /// The role does not exist.
    NoRole = NOT_FOUND "no_role" "Unknown role";
    /// No role is assigned to this certificate.
    NoCertificate = NOT_FOUND "no_certificate" "Unknown certificate";
    /// The role is assigned to a token or a certificate.
    RoleInUse = CONFLICT "role_in_use" "Role in use";
    /// The role `admin` cannot be changed.
    RoleBuiltIn = CONFLICT "role_built_in" "Built-in role cannot be changed";
    /// The change would leave the cluster without an administrator.
    LastAdministrator = CONFLICT "last_administrator" "Last administrator";
    /// The cluster is secured already.
    AlreadySecured = CONFLICT "already_secured" "Cluster is secured already";
    /// The cluster is not secured.
    NotSecured = CONFLICT "not_secured" "Cluster is not secured";
    /// The znode belongs to a session of this cluster, or to the cluster itself.
    NotMirrored = CONFLICT "not_mirrored" "Znode is not mirrored";
    /// No member of the cluster has this id.
    NoMember = NOT_FOUND "no_member" "Unknown member";
    /// Another member has this id or one of the addresses.
    MemberExists = CONFLICT "member_exists" "Member exists";
    /// A removed member had this id.
    NodeIdRetired = CONFLICT "node_id_retired" "Node id already used";
    /// Another membership change is in progress.
    MembershipChangeInProgress = CONFLICT "membership_change_in_progress" "Membership change in progress";
    /// A node to be added does not answer.
    NodeUnreachable = CONFLICT "node_unreachable" "Node unreachable";
    /// The log of a learner is too far behind for a vote.
    NotCaughtUp = CONFLICT "not_caught_up" "Learner not caught up";
    /// The change would leave the cluster without a majority.
    NoMajority = CONFLICT "no_majority" "Majority would be lost";
    /// Only a voter can lead.
    NotAVoter = CONFLICT "not_a_voter" "Not a voter";
    /// The session has ended.
    SessionExpired = GONE "session_expired" "Session has ended";
    /// The contender is gone: it was released, withdrawn or lost.
    HolderGone = GONE "holder_gone" "Contender is gone";
    /// The lease has expired, was released or lost its lock, or never was.
    LeaseExpired = GONE "lease_expired" "Lease expired";
    /// The body or the data exceeds the maximum size.
    TooLarge = PAYLOAD_TOO_LARGE "too_large" "Request too large";
    /// The maximum number of contenders, holds, watches or streams is reached.
    TooManyRequests = TOO_MANY_REQUESTS "too_many_requests" "Too many requests";
    /// A bug in the server.
    Internal = INTERNAL_SERVER_ERROR "internal" "Internal server error";
    /// Nothing was done; a later retry may succeed.
    Unavailable = SERVICE_UNAVAILABLE "unavailable" "Service unavailable";
    /// Nothing was done: disk space is low, and the request would have enlarged the state.
    ReadOnly = INSUFFICIENT_STORAGE "read_only" "Cluster is read-only: disk space low";
    /// The request may have been done, or may still be done.
    OutcomeUnknown = GATEWAY_TIMEOUT "outcome_unknown" "Outcome unknown";
}

impl Code {
    /// Returns whether a caller with many such answers gets them at a pace: its requests have no rights, come too soon, or are ones that no correct
    /// program sends.
    pub fn is_paced(self) -> bool {
        matches!(
            self.status(),
            StatusCode::BAD_REQUEST
                | StatusCode::UNAUTHORIZED
                | StatusCode::FORBIDDEN
                | StatusCode::METHOD_NOT_ALLOWED
                | StatusCode::PAYLOAD_TOO_LARGE
                | StatusCode::MISDIRECTED_REQUEST
                | StatusCode::TOO_MANY_REQUESTS
        ) || self == Self::NoRoute
    }
}

/// A failure, ready to be sent. Boxed, so that results stay small.
#[derive(Debug)]
pub struct Problem(Box<Contents>);

#[derive(Debug)]
struct Contents {
    code: Code,
    detail: String,
    facts: Map<String, Value>,
    retry_after: Option<Duration>,
    allow: Option<&'static str>,
}

impl Problem {
    /// Creates a problem with a sentence about this case.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self(Box::new(Contents {
            code,
            detail,
            facts: Map::new(),
            retry_after: None,
            allow: None,
        }))
    }

    /// Adds a fact for programs.
    pub(super) fn with(mut self, name: &str, value: impl Serialize) -> Self {
        // Facts are strings, numbers and lists of them, which serialize always.
        self.0.facts.insert(name.to_owned(), json!(value));
        self
    }

    /// Replaces the sentence about this case.
    pub fn because(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = detail.into();
        self
    }

    fn retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// Returns the code of the failure.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Returns the sentence about this case.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// Returns the problem of an overloaded node; nothing was done.
    pub fn busy(detail: impl Into<String>) -> Self {
        Self::from(Unavailable::new(detail))
    }

    /// Returns the problem of a malformed request.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(Code::BadRequest, detail)
    }

    /// Returns the problem of an invalid path of a znode.
    pub fn bad_path(reason: impl ToString) -> Self {
        Self::new(Code::BadPath, reason.to_string())
    }

    /// Returns the problem of an invalid name of a lock.
    pub fn bad_lock_name(reason: impl ToString) -> Self {
        Self::new(Code::BadLockName, reason.to_string())
    }

    /// Returns the problem of an address without a route.
    pub fn no_route(path: &str) -> Self {
        Self::new(Code::NoRoute, format!("unknown address {}", echo(path)))
    }

    /// Returns the problem of a method without a handler. `allow` has the methods with one, unless the router adds them
    /// itself.
    pub fn method_not_allowed(method: &str, allow: Option<&'static str>) -> Self {
        let mut problem = Self::new(
            Code::MethodNotAllowed,
            format!("{} is not allowed at this address", echo(method)),
        );
        problem.0.allow = allow;
        problem
    }

    /// Returns the problem of a text that is no id of a session.
    pub fn unknown_session(text: &str) -> Self {
        Self::new(Code::NoSession, format!("there is no session {}", echo(text))).with("session", echo(text))
    }

    /// Returns the problem of a text that is no id of a token.
    pub fn unknown_token(text: &str) -> Self {
        Self::new(Code::NoToken, format!("there is no token {}", echo(text))).with("token", echo(text))
    }

    /// Returns the problem of a body above the maximum size.
    pub fn body_too_large(limit: usize) -> Self {
        Self::new(
            Code::TooLarge,
            format!("the body has more than the {limit} bytes allowed"),
        )
        .with("limit", limit)
    }

    /// Returns the problem of a body that did not arrive in time.
    pub fn body_timeout(limit: Duration) -> Self {
        Self::new(
            Code::RequestTimeout,
            format!("the body did not arrive within {} s", limit.as_secs()),
        )
    }

    /// Returns the problem of a node that cannot serve now.
    pub fn not_ready(reason: impl Into<String>, leader: Option<u64>) -> Self {
        Self::from(Unavailable::new(reason)).with("leader", leader)
    }

    /// Returns the problem of a reply that never answers such a request, and logs it, because only the developers can
    /// fix it.
    pub fn internal(detail: impl Into<String>) -> Self {
        let problem = Self::new(Code::Internal, detail);
        tracing::error!(
            detail = problem.0.detail,
            http_request = HttpRequestId::current(),
            "http: request failed because of an internal error"
        );
        problem
    }
}

/// Returns the beginning of a caller's own text.
pub fn echo(text: &str) -> String {
    text.chars().take(MAX_ECHO_CHARS).collect()
}

impl Problem {
    fn of_access(refusal: AccessRefusal, detail: String) -> Self {
        let problem = |code| Self::new(code, detail.as_str());
        match refusal {
            AccessRefusal::AlreadySecured => problem(Code::AlreadySecured),
            AccessRefusal::NotSecured => problem(Code::NotSecured),
            AccessRefusal::OperatorOnly => problem(Code::Forbidden),
            AccessRefusal::NoToken(token) => problem(Code::NoToken).with("token", token.to_string()),
            // The leader draws the ids at random, so a retry gets another one.
            AccessRefusal::TokenExists(_) => problem(Code::Unavailable),
            AccessRefusal::NoRole(role) => problem(Code::NoRole).with("role", role.as_str()),
            AccessRefusal::RoleInUse(role) => problem(Code::RoleInUse).with("role", role.as_str()),
            AccessRefusal::BuiltIn => problem(Code::RoleBuiltIn),
            AccessRefusal::NoCertificate(certificate) => {
                problem(Code::NoCertificate).with("certificate", certificate)
            }
            AccessRefusal::LastAdministrator => problem(Code::LastAdministrator),
            AccessRefusal::BadText(_) => problem(Code::BadRequest),
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let detail = refusal.to_string();
        let problem = |code| Self::new(code, detail.as_str());
        match refusal {
            Refusal::NoNode(path) => problem(Code::NoZnode).with("path", path),
            Refusal::NodeExists(path) => problem(Code::NodeExists).with("path", path),
            Refusal::BadVersion {
                path,
                expected,
                actual,
            } => problem(Code::BadVersion)
                .with("path", path)
                .with("expected_version", expected)
                .with("actual_version", actual),
            Refusal::NotEmpty(path) => problem(Code::NotEmpty).with("path", path),
            Refusal::NoChildrenForEphemerals(path) => {
                problem(Code::NoChildrenForEphemerals).with("path", path)
            }
            // ZooKeeper calls these bad arguments: the path is legal, but never for a deletion.
            Refusal::Undeletable(path) => problem(Code::BadPath).with("path", path),
            Refusal::NotMirrored(path) => problem(Code::NotMirrored).with("path", path),
            Refusal::BadPath(_) => problem(Code::BadPath),
            Refusal::SequenceExhausted(path) => problem(Code::SequenceExhausted).with("path", path),
            Refusal::NoAuth(path) => problem(Code::Forbidden).with("path", path),
            Refusal::InvalidAcl(_) => problem(Code::BadAcl),
            Refusal::BadTtl(ttl_ms) => problem(Code::BadRequest).with("ttl_ms", ttl_ms),
            Refusal::QuotaExceeded {
                path,
                what,
                limit,
                would_be,
            } => problem(Code::QuotaExceeded)
                .with("path", path)
                .with("of", what.to_string())
                .with("limit", limit)
                .with("would_be", would_be),
            Refusal::NamespaceQuotaExceeded {
                namespace,
                quota: quota @ NamespaceQuota::RequestsPerSecond,
                limit,
                would_be: _,
            } => problem(Code::TooManyRequests)
                .with("namespace", namespace)
                .with("of", quota.word())
                .with("limit", limit),
            Refusal::NamespaceQuotaExceeded {
                namespace,
                quota,
                limit,
                would_be,
            } => problem(Code::NamespaceQuotaExceeded)
                .with("namespace", namespace)
                .with("of", quota.word())
                .with("limit", limit)
                .with("would_be", would_be),
            Refusal::NoNamespace(namespace) => problem(Code::NoNamespace).with("namespace", namespace),
            Refusal::LimitReached { what, limit } => {
                let problem = problem(Code::LimitReached).with("limit", limit);
                match what {
                    Limited::Children(path) => problem.with("of", "children").with("path", path),
                    Limited::Ephemerals(session) => problem
                        .with("of", "ephemerals")
                        .with("session", session.to_string()),
                    Limited::Sessions => problem.with("of", "sessions"),
                    Limited::ConfiguredLocks => problem.with("of", "configured_locks"),
                    Limited::Tokens => problem.with("of", "tokens"),
                    Limited::Roles => problem.with("of", "roles"),
                    Limited::Certificates => problem.with("of", "certificates"),
                    Limited::LongPaths(path) => problem.with("of", "long_paths").with("path", path),
                    Limited::Descendants(path) => problem.with("of", "descendants").with("path", path),
                    Limited::Operations => problem.with("of", "operations"),
                    Limited::Namespaces => problem.with("of", "namespaces"),
                }
            }
            Refusal::DataTooLarge { bytes, limit } => {
                problem(Code::TooLarge).with("bytes", bytes).with("limit", limit)
            }
            Refusal::SessionRequired => problem(Code::BadRequest),
            Refusal::NoSession(session) => problem(Code::NoSession).with("session", session.to_string()),
            Refusal::SessionEnded(session) => {
                problem(Code::SessionExpired).with("session", session.to_string())
            }
            Refusal::LeaseExpired => problem(Code::LeaseExpired),
            // Both are internal to the servers. Nothing was done, so a retry is right.
            Refusal::SessionIdTaken(_) | Refusal::StaleLeader => problem(Code::Unavailable),
            // Only connections that send commands in turns can get these; HTTP connections do not.
            Refusal::WrongPassword(_) | Refusal::SessionMoved(_) | Refusal::OutOfTurn { .. } => {
                Self::internal(detail)
            }
            // The transaction failed because one of its operations did, and has the same code.
            Refusal::Multi { index, refusal } => Self::from(*refusal).with("index", index).because(detail),
            Refusal::RequestIdReused => problem(Code::RequestIdReused),
            Refusal::NoLock(lock) => problem(Code::NoLock).with("lock", lock),
            Refusal::LockBusy { lock, holders } => problem(Code::LockBusy)
                .with("lock", lock)
                .with("holders", holders),
            Refusal::LockTimeout(lock) => problem(Code::LockTimeout).with("lock", lock),
            Refusal::ModeConflict { lock, in_use } => {
                let problem = problem(Code::ModeConflict)
                    .with("lock", lock)
                    .with("mode", mode_word(in_use));
                match in_use {
                    LockMode::Semaphore { limit } => problem.with("limit", limit),
                    LockMode::Exclusive | LockMode::Shared | LockMode::Upgradeable => problem,
                }
            }
            Refusal::NotHolder { lock, holder } => {
                problem(Code::NotHolder).with("lock", lock).with("holder", holder)
            }
            Refusal::NotHeld { lock, fencing_token } => problem(Code::NotHolder)
                .with("lock", lock)
                .with("fencing_token", fencing_token.0),
            Refusal::Broken {
                lock,
                holder,
                by,
                reason,
            } => problem(Code::NotHolder)
                .with("lock", lock)
                .with("holder", holder)
                .with("by", by)
                .with("reason", reason),
            Refusal::WouldDeadlock { lock, cycle } => problem(Code::WouldDeadlock)
                .with("lock", lock)
                .with("cycle", cycle.iter().map(party).collect::<Vec<_>>()),
            Refusal::Draining(lock) => problem(Code::Draining).with("lock", lock),
            // The holder's mode does not allow the requested change.
            Refusal::WrongMode {
                lock, holder, mode, ..
            } => problem(Code::ModeConflict)
                .with("lock", lock)
                .with("holder", holder)
                .with("mode", mode_word(mode)),
            Refusal::QueueFull(lock) | Refusal::TooManyHolds(lock) => {
                problem(Code::TooManyRequests).with("lock", lock)
            }
            Refusal::BadWish(_) => problem(Code::BadRequest),
            Refusal::Unauthenticated(_) => problem(Code::Unauthenticated),
            Refusal::Forbidden { right, path } => problem(Code::Forbidden)
                .with("right", right.name())
                .with("path", path),
            Refusal::NotYourSession(session) => problem(Code::Forbidden).with("session", session.to_string()),
            Refusal::Internal => problem(Code::Forbidden),
            Refusal::Access(refusal) => Self::of_access(refusal, detail),
        }
    }
}

/// Returns the word for a mode in requests and answers.
pub(crate) fn mode_word(mode: LockMode) -> &'static str {
    match mode {
        LockMode::Exclusive => "exclusive",
        LockMode::Shared => "shared",
        LockMode::Semaphore { .. } => "semaphore",
        LockMode::Upgradeable => "upgradeable",
    }
}

/// Describes a party of a deadlock.
fn party(party: &Owner) -> Value {
    let Owner {
        session,
        owner,
        has,
        awaits,
    } = party;
    json!({"session": session.to_string(), "owner": owner, "has": has, "awaits": awaits})
}

impl From<Unavailable> for Problem {
    fn from(unavailable: Unavailable) -> Self {
        match unavailable.read_only {
            true => Self::new(Code::ReadOnly, unavailable.reason),
            false => Self::new(Code::Unavailable, unavailable.reason).retry_after(unavailable.retry_after),
        }
    }
}

impl From<TooManyWatches> for Problem {
    fn from(refusal: TooManyWatches) -> Self {
        let (TooManyWatches::OfWatcher { limit } | TooManyWatches::OfNode { limit }) = refusal;
        Self::new(Code::TooManyRequests, refusal.to_string()).with("limit", limit)
    }
}

impl Problem {
    /// Returns the problem of a stream whose initial state exceeds its limit.
    pub fn too_large_to_follow(session: SessionId, limit: usize) -> Self {
        let detail = format!(
            "session {session} has more than {limit} ephemeral znodes, so a stream of its events cannot begin with all of its locks: open the \
             stream while it has fewer, or keep it alive by heartbeats"
        );
        Self::new(Code::TooManyRequests, detail).with("limit", limit)
    }
}

impl From<TooManyStreams> for Problem {
    fn from(refusal: TooManyStreams) -> Self {
        let (TooManyStreams::OfSession { limit } | TooManyStreams::OfNode { limit }) = refusal;
        Self::new(Code::TooManyRequests, refusal.to_string()).with("limit", limit)
    }
}

impl From<BackupRefused> for Problem {
    fn from(refusal: BackupRefused) -> Self {
        match refusal {
            BackupRefused::TooMany { limit } => {
                Self::new(Code::TooManyRequests, refusal.to_string()).with("limit", limit)
            }
            BackupRefused::Unavailable(unavailable) => unavailable.into(),
        }
    }
}

impl From<ProposeError> for Problem {
    fn from(error: ProposeError) -> Self {
        match error {
            ProposeError::Unavailable(unavailable) => unavailable.into(),
            ProposeError::OutcomeUnknown(reason) => Self::new(Code::OutcomeUnknown, reason),
        }
    }
}

impl From<MembershipRefusal> for Problem {
    fn from(refusal: MembershipRefusal) -> Self {
        let detail = refusal.to_string();
        let problem = |code| Self::new(code, detail.as_str());
        match refusal {
            MembershipRefusal::Nonsense(_) => problem(Code::BadRequest),
            MembershipRefusal::NoMember(id) => problem(Code::NoMember).with("node_id", id),
            MembershipRefusal::MemberExists { node_id, .. } => {
                problem(Code::MemberExists).with("node_id", node_id)
            }
            MembershipRefusal::AddressTaken { address, used_by } => problem(Code::MemberExists)
                .with("node_id", used_by)
                .with("address", address),
            MembershipRefusal::RetiredId { node_id, next_free } => problem(Code::NodeIdRetired)
                .with("node_id", node_id)
                .with("next_node_id", next_free),
            MembershipRefusal::TooManyMembers { limit } => problem(Code::LimitReached)
                .with("limit", limit)
                .with("of", "members"),
            MembershipRefusal::InProgress => {
                problem(Code::MembershipChangeInProgress).retry_after(DEFAULT_RETRY_AFTER)
            }
            MembershipRefusal::Unreachable { node_id, address, .. } => problem(Code::NodeUnreachable)
                .with("node_id", node_id)
                .with("address", address),
            MembershipRefusal::NotCaughtUp { node_id, lag, limit } => problem(Code::NotCaughtUp)
                .with("node_id", node_id)
                .with("lag", lag)
                .with("limit", limit)
                .retry_after(DEFAULT_RETRY_AFTER),
            MembershipRefusal::NoMajority { voters, reachable } => problem(Code::NoMajority)
                .with("voters", voters)
                .with("reachable", reachable),
            MembershipRefusal::LastVoter(id) => problem(Code::NoMajority)
                .with("node_id", id)
                .with("voters", 0)
                .with("reachable", 0),
            MembershipRefusal::NotAVoter(id) => problem(Code::NotAVoter).with("node_id", id),
            MembershipRefusal::NoSuccessor(_) => problem(Code::Unavailable),
        }
    }
}

impl From<MembershipError> for Problem {
    fn from(error: MembershipError) -> Self {
        match error {
            MembershipError::Refused(refusal) => refusal.into(),
            MembershipError::Unavailable(unavailable) => unavailable.into(),
            MembershipError::OutcomeUnknown(reason) => Self::new(Code::OutcomeUnknown, reason),
        }
    }
}

impl From<OpenSessionError> for Problem {
    fn from(error: OpenSessionError) -> Self {
        match error {
            OpenSessionError::Refused(refusal) => refusal.into(),
            OpenSessionError::Propose(error) => error.into(),
            OpenSessionError::TooMany { retry_after } => {
                Self::new(Code::TooManyRequests, error.to_string()).retry_after(retry_after)
            }
        }
    }
}

impl From<LockHistoryError> for Problem {
    fn from(error: LockHistoryError) -> Self {
        match error {
            LockHistoryError::Refused(refusal) => refusal.into(),
            LockHistoryError::History(HistoryError::Unavailable(unavailable)) => unavailable.into(),
            LockHistoryError::History(off @ HistoryError::Off) => Self::new(Code::NoHistory, off.to_string()),
        }
    }
}

impl From<LockError> for Problem {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Refused(refusal) => refusal.into(),
            LockError::Unavailable(unavailable) => unavailable.into(),
            LockError::OutcomeUnknown(reason) => Self::new(Code::OutcomeUnknown, reason),
        }
    }
}

impl Problem {
    /// Returns the answer to a question about a contender that is gone, with the cause if this node knows it.
    pub fn holder_gone(lock: &LockName, holder: &str, ended: Option<&str>) -> Self {
        let detail = format!("{holder} neither holds the lock {lock} nor waits for it");
        let problem = Self::new(Code::HolderGone, detail)
            .with("lock", lock.as_str())
            .with("holder", holder);
        match ended {
            Some(ended) => problem.with("ended", ended),
            None => problem,
        }
    }

    /// Returns the problem of a heartbeat of `session` that did not count.
    pub fn of_heartbeat(error: HeartbeatError, session: SessionId) -> Self {
        match error {
            HeartbeatError::SessionEnded => Refusal::SessionEnded(session).into(),
            HeartbeatError::NoSession => Refusal::NoSession(session).into(),
            HeartbeatError::Unavailable(unavailable) => unavailable.into(),
        }
    }
}

/// Problem of an invalid body.
impl From<serde_json::Error> for Problem {
    fn from(error: serde_json::Error) -> Self {
        Self::bad_request(format!("the body: {}", json_terms(&error)))
    }
}

impl From<axum::extract::rejection::QueryRejection> for Problem {
    fn from(rejection: axum::extract::rejection::QueryRejection) -> Self {
        Self::bad_request(format!("the query: {}", rejection.body_text()))
    }
}

impl From<BadRequestId> for Problem {
    fn from(error: BadRequestId) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<BadPath> for Problem {
    fn from(error: BadPath) -> Self {
        Self::bad_path(error)
    }
}

/// The document that is sent.
#[derive(Serialize)]
struct Document<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'a str,
    #[serde(flatten)]
    facts: &'a Map<String, Value>,
}

/// Serializes a problem as a part of another answer. Otherwise a problem is an answer of its own.
impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Contents {
            code, detail, facts, ..
        } = &*self.0;
        let document = Document {
            r#type: format!("{TYPE_PREFIX}{}", code.word()),
            title: code.title(),
            status: code.status().as_u16(),
            detail,
            code: code.word(),
            facts,
        };
        document.serialize(serializer)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Contents {
            code,
            retry_after,
            allow,
            ..
        } = *self.0;
        let bytes = serde_json::to_vec(&self).expect("strings, numbers and lists of them serialise");
        let mut response = Response::new(Body::from(bytes));
        *response.status_mut() = code.status();
        // Used by the metrics that count answers by code, and by the pace of refusals.
        response.extensions_mut().insert(code);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        let tells_when = matches!(
            code.status(),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        );
        if let Some(after) = retry_after.or(tells_when.then_some(DEFAULT_RETRY_AFTER)) {
            // The header has whole seconds only, and 0 would make all clients retry at once.
            let seconds = after.as_millis().div_ceil(1000).clamp(1, u128::from(u32::MAX));
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds as u32));
        }
        if code == Code::Unauthenticated {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(methods) = allow {
            headers.insert(ALLOW, HeaderValue::from_static(methods));
        }
        response
    }
}

#[cfg(test)]
mod tests;
