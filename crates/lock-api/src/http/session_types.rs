//! Documents of the session routes.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use znode_store::{HolderId, LockName, RequestId, Revocation, SessionId, SessionView, Store};

use super::extract::Timestamp;
use super::openapi::words;

/// Maximum length of a session's name in bytes. Lists show it, and it is kept as long as the session.
pub const MAX_SESSION_NAME_BYTES: usize = 256;

/// Body of `POST /v1/sessions`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenBody<'a> {
    /// Requested time to live.
    #[schema(value_type = Option<words::SessionTtlMs>)]
    pub ttl_ms: Option<u64>,
    /// Name for lists of sessions.
    #[serde(borrow, default)]
    #[schema(value_type = words::SessionName)]
    pub name: Cow<'a, str>,
    /// Id of the request, for repetitions.
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
}

/// Body with only a request id. A heartbeat does not even need that, because repeating it has the effect of one.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BareBody {
    /// Id of the request, for repetitions.
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
}

/// Answer of `POST /v1/sessions`.
#[derive(Serialize, ToSchema)]
pub struct OpenAnswer {
    /// Id of the session.
    #[schema(value_type = words::SessionId)]
    pub session: String,
    /// Time to live, within the server's limits.
    pub ttl_ms: u64,
}

/// Answer of a heartbeat.
#[derive(Serialize, ToSchema)]
pub struct HeartbeatAnswer {
    /// Minimum lifetime of the session, counted from the sending of the request.
    pub ttl_ms: u64,
    /// `true` if the answering node is the leader. Present if requested. A caller of the leader saves one round trip
    /// between nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leads: Option<bool>,
    /// Pending release requests to its holders without an answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub release_requested: Vec<ReleaseRequestAnswer>,
}

/// Release request to a holder.
#[derive(Serialize, ToSchema)]
#[schema(as = AskedAnswer)]
pub struct ReleaseRequestAnswer {
    #[schema(value_type = words::LockName)]
    lock: String,
    #[schema(value_type = words::Holder)]
    holder: String,
    #[schema(value_type = words::Address)]
    by: String,
    #[schema(value_type = words::Reason)]
    reason: String,
    #[schema(value_type = words::Time)]
    requested_at: Timestamp,
}

impl From<(LockName, HolderId, Revocation)> for ReleaseRequestAnswer {
    fn from((lock, holder, request): (LockName, HolderId, Revocation)) -> Self {
        Self {
            lock: lock.to_string(),
            holder,
            by: request.by.to_string(),
            reason: request.reason.to_string(),
            requested_at: Timestamp(request.requested_ms),
        }
    }
}

/// A lock that the session holds or waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = StandingAnswer)]
pub struct SessionLockAnswer {
    #[schema(value_type = words::LockName)]
    lock: String,
    #[schema(value_type = words::Holder)]
    holder: String,
}

/// Description of a session.
#[derive(Serialize, ToSchema)]
pub struct SessionAnswer {
    #[schema(value_type = words::SessionId)]
    session: String,
    #[schema(value_type = words::SessionName)]
    name: String,
    /// Time to live without a heartbeat.
    ttl_ms: u32,
    /// Time since it was opened.
    age_ms: u64,
    #[schema(value_type = words::Time)]
    opened_at: Timestamp,
    /// Time of the last heartbeat, which only the leader knows.
    #[schema(value_type = Option<words::Time>, required)]
    last_heartbeat_at: Option<Timestamp>,
    #[schema(value_type = words::Address)]
    address: String,
    /// Number of its ephemeral znodes.
    ephemerals: u32,
    /// `true` if it is a lease, otherwise absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = bool)]
    lease: Option<bool>,
    /// Locks that the session holds.
    held: Vec<SessionLockAnswer>,
    /// Locks that the session waits for.
    awaited: Vec<SessionLockAnswer>,
    /// `false` if `held` and `awaited` are not complete, otherwise absent. They have the first ones in the order of
    /// arrival; the list of the session's ephemeral znodes has all.
    #[serde(skip_serializing_if = "Option::is_none")]
    complete: Option<bool>,
}

impl SessionAnswer {
    /// Describes a session, with the locks among its first `most` ephemeral znodes. [`SessionAnswer::last_heartbeat`] adds the
    /// time of the last heartbeat, which is not part of the state.
    pub fn new(store: &Store, view: SessionView, now_ms: u64, most: usize) -> (SessionId, Self) {
        let (mut held, mut awaited) = (Vec::new(), Vec::new());
        let (contenders, is_all) = store.first_contenders_of(view.session, most);
        for (lock, holder, holds) in contenders {
            let standing = SessionLockAnswer {
                lock: lock.to_string(),
                holder,
            };
            if holds {
                held.push(standing)
            } else {
                awaited.push(standing)
            }
        }
        let answer = Self {
            session: view.session.to_string(),
            name: view.name.to_string(),
            ttl_ms: view.timeout_ms,
            // The opening has the time of the leader's clock, which may differ a little from this node's.
            age_ms: now_ms.saturating_sub(view.opened_at_ms),
            opened_at: Timestamp(view.opened_at_ms),
            last_heartbeat_at: None,
            address: view.address.to_string(),
            ephemerals: view.ephemerals,
            lease: view.is_lease.then_some(true),
            held,
            awaited,
            complete: (!is_all).then_some(false),
        };
        (view.session, answer)
    }

    /// Adds the time of the last heartbeat, if this node knows it.
    pub fn last_heartbeat(mut self, at_ms: Option<u64>) -> Self {
        self.last_heartbeat_at = at_ms.map(Timestamp);
        self
    }
}

/// Answer of `GET /v1/sessions/{session}/ephemerals`.
#[derive(Serialize, ToSchema)]
pub struct EphemeralsAnswer<'a> {
    /// Paths, in the order in which the znodes were created.
    pub ephemerals: Vec<&'a str>,
    /// Value of `cursor` for the next page; `null` on the last one.
    #[schema(required)]
    pub next_cursor: Option<&'a str>,
}

/// Answer of `GET /v1/sessions`.
#[derive(Serialize, ToSchema)]
pub struct SessionsAnswer {
    /// Sessions, by id.
    pub sessions: Vec<SessionAnswer>,
    /// Value of `cursor` for the next page; `null` on the last one.
    #[schema(value_type = Option<words::SessionId>, required)]
    pub next_cursor: Option<String>,
}
