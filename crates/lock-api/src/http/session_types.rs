//! The documents of the session routes.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use znode_store::{HolderId, LockName, RequestId, Revocation, SessionId, SessionView, Store};

use super::extract::Timestamp;
use super::openapi::words;

/// The longest name of a session in bytes: shown in lists, and kept as long as the session.
pub const MAX_SESSION_NAME_BYTES: usize = 256;

/// The body of `POST /v1/sessions`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenBody<'a> {
    /// The wished timeout.
    #[schema(value_type = Option<words::SessionTtlMs>)]
    pub ttl_ms: Option<u64>,
    /// Shown in lists of sessions.
    #[serde(borrow, default)]
    #[schema(value_type = words::SessionName)]
    pub name: Cow<'a, str>,
    /// For repeating it.
    #[schema(value_type = Option<words::RequestId>)]
    pub request_id: Option<RequestId>,
}

/// A body that can say nothing but its request id, which a heartbeat does not even need: to repeat one has the
/// effect of one.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BareBody {
    /// For repeating it.
    #[expect(
        dead_code,
        reason = "serde checks that it is a request id, and nothing more is to be done with it"
    )]
    #[schema(value_type = Option<words::RequestId>)]
    request_id: Option<RequestId>,
}

/// The answer of `POST /v1/sessions`.
#[derive(Serialize, ToSchema)]
pub struct OpenAnswer {
    /// The id.
    #[schema(value_type = words::SessionId)]
    pub session: String,
    /// The timeout after the server's bounds.
    pub ttl_ms: u64,
}

/// The answer of a heartbeat.
#[derive(Serialize, ToSchema)]
pub struct HeartbeatAnswer {
    /// Minimum lifetime of the session, counted from when the request was sent.
    pub ttl_ms: u64,
    /// There if it was asked for: whether the node that answers leads. A caller of the leader waits one round trip between nodes less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leads: Option<bool>,
    /// Pending release requests to its holders without an answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub revoke_requested: Vec<AskedAnswer>,
}

/// A holder that is asked to give its lock up.
#[derive(Serialize, ToSchema)]
pub struct AskedAnswer {
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

impl From<(LockName, HolderId, Revocation)> for AskedAnswer {
    fn from((lock, holder, revoke): (LockName, HolderId, Revocation)) -> Self {
        Self {
            lock: lock.to_string(),
            holder,
            by: revoke.by.to_string(),
            reason: revoke.reason.to_string(),
            requested_at: Timestamp(revoke.requested_ms),
        }
    }
}

/// A place in a lock, held or awaited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct StandingAnswer {
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
    /// Known to the leader only.
    #[schema(value_type = Option<words::Time>, required)]
    last_heartbeat_at: Option<Timestamp>,
    #[schema(value_type = words::Address)]
    address: String,
    /// Number of its ephemeral znodes.
    ephemerals: u32,
    /// The locks that it holds.
    held: Vec<StandingAnswer>,
    /// The locks in whose queues it stands.
    awaited: Vec<StandingAnswer>,
    /// There if `held` and `awaited` do not name all: `false`. They are the first in the order of arrival; the list of the session's
    /// ephemeral znodes has all.
    #[serde(skip_serializing_if = "Option::is_none")]
    complete: Option<bool>,
}

impl SessionAnswer {
    /// Gathers it from the state, with the locks among the first `most` ephemeral znodes; what is known beside the state is added by [`SessionAnswer::heard`].
    pub fn new(store: &Store, view: SessionView, now_ms: u64, most: usize) -> (SessionId, Self) {
        let (mut held, mut awaited) = (Vec::new(), Vec::new());
        let (contenders, is_all) = store.first_contenders_of(view.session, most);
        for (lock, holder, holds) in contenders {
            let standing = StandingAnswer {
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
            // The clocks of the leader, which stamped the opening, and of this node may differ a little.
            age_ms: now_ms.saturating_sub(view.opened_at_ms),
            opened_at: Timestamp(view.opened_at_ms),
            last_heartbeat_at: None,
            address: view.address.to_string(),
            ephemerals: view.ephemerals,
            held,
            awaited,
            complete: (!is_all).then_some(false),
        };
        (view.session, answer)
    }

    /// With the time of the last heartbeat, if this node knows it.
    pub fn heard(mut self, at_ms: Option<u64>) -> Self {
        self.last_heartbeat_at = at_ms.map(Timestamp);
        self
    }
}

/// The answer of `GET /v1/sessions/{session}/ephemerals`.
#[derive(Serialize, ToSchema)]
pub struct EphemeralsAnswer<'a> {
    /// Paths, in the order in which the znodes were created.
    pub ephemerals: Vec<&'a str>,
    /// Value of `after` for the next page; `null` on the last one.
    #[schema(required)]
    pub next_after: Option<&'a str>,
}

/// The answer of `GET /v1/sessions`.
#[derive(Serialize, ToSchema)]
pub struct SessionsAnswer {
    /// By id.
    pub sessions: Vec<SessionAnswer>,
    /// Value of `after` for the next page; `null` on the last one.
    #[schema(value_type = Option<words::SessionId>, required)]
    pub next_after: Option<String>,
}
