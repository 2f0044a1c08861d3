//! Documents of the HTTP API: answers, events and problems.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use znode_store::{
    ContenderEnd, ContenderState, ContenderView, Data, Grant, Hold, LeaseKey, LockMode, LockView, Refusal,
    Reply, SessionView, Stat, Store,
};

/// Error of a request.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: u16,
    code: &'static str,
    detail: String,
    /// Number of the refused change of a transaction.
    index: Option<u32>,
}

impl Problem {
    pub(crate) fn new(status: u16, code: &'static str, detail: impl ToString) -> Self {
        Self {
            status,
            code,
            detail: detail.to_string(),
            index: None,
        }
    }

    pub(crate) fn bad_request(detail: impl ToString) -> Self {
        Self::new(400, "bad_request", detail)
    }

    pub(crate) fn document(self) -> Value {
        json!({ "status": self.status, "code": self.code, "detail": self.detail, "index": self.index })
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let (status, code) = match &refusal {
            Refusal::NoNode(_) => (404, "no_znode"),
            Refusal::NodeExists(_) => (409, "node_exists"),
            Refusal::BadVersion { .. } => (409, "bad_version"),
            Refusal::NotEmpty(_) => (409, "not_empty"),
            Refusal::NoChildrenForEphemerals(_) => (409, "no_children_for_ephemerals"),
            Refusal::BadPath(_) | Refusal::Undeletable(_) => (400, "bad_path"),
            Refusal::QuotaExceeded { .. } => (409, "quota_exceeded"),
            Refusal::NamespaceQuotaExceeded { .. } => (409, "namespace_quota_exceeded"),
            Refusal::LimitReached { .. } | Refusal::QueueFull(_) | Refusal::TooManyHolds(_) => {
                (409, "limit_reached")
            }
            Refusal::NoSession(_) => (404, "no_session"),
            Refusal::SessionEnded(_) => (410, "session_expired"),
            Refusal::LeaseExpired => (410, "lease_expired"),
            Refusal::RequestIdReused => (409, "request_id_reused"),
            Refusal::NoLock(_) => (404, "no_lock"),
            Refusal::LockBusy { .. } => (409, "lock_busy"),
            Refusal::LockTimeout(_) => (409, "lock_timeout"),
            Refusal::ModeConflict { .. } | Refusal::WrongMode { .. } => (409, "mode_conflict"),
            Refusal::NotHolder { .. } | Refusal::NotHeld { .. } | Refusal::Broken { .. } => {
                (409, "not_holder")
            }
            Refusal::WouldDeadlock { .. } => (409, "would_deadlock"),
            Refusal::Draining(_) => (409, "draining"),
            Refusal::Multi { index, refusal } => {
                return Self {
                    index: Some(*index),
                    ..Self::from((**refusal).clone())
                };
            }
            _ => (400, "bad_request"),
        };
        Self::new(status, code, refusal)
    }
}

/// Returns a time as RFC 3339.
pub(crate) fn time(ms: u64) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(ms)).to_string()
}

/// Returns the text of a lease.
pub(crate) fn lease_text(key: &LeaseKey) -> String {
    format!("ls_{}_{:032x}", key.session, u128::from_be_bytes(key.password.0))
}

fn mode(mode: LockMode) -> &'static str {
    match mode {
        LockMode::Exclusive => "exclusive",
        LockMode::Shared => "shared",
        LockMode::Upgradeable => "upgradeable",
        LockMode::Semaphore { .. } => "semaphore",
    }
}

pub(crate) fn grant(grant: &Grant) -> Value {
    json!({
        "lock": grant.lock.as_str(), "mode": mode(grant.mode), "holder": grant.holder, "fencing_token": grant.fencing_token.0,
        "holds": grant.holds, "permits": grant.permits,
    })
}

/// Event `lost`.
pub(crate) fn lost(hold: &Hold, how: &ContenderEnd, by: Option<Arc<str>>) -> Value {
    let (ended, reason) = match how {
        ContenderEnd::Broken { reason, .. } => ("broken", Some(&**reason)),
        ContenderEnd::SessionClosed => ("session_closed", None),
        ContenderEnd::SessionExpired => ("session_expired", None),
        ContenderEnd::Deleted => ("deleted", None),
        ContenderEnd::MaxHold => ("max_hold", None),
        _ => ("released", None),
    };
    json!({
        "lock": hold.lock.as_str(), "mode": mode(hold.mode), "permits": hold.permits, "holder": &*hold.holder,
        "fencing_token": hold.fencing_token.0, "owner": &*hold.owner, "note": &*hold.note, "ended": ended, "by": by.as_deref(), "reason": reason,
    })
}

pub(crate) fn session(store: &Store, view: &SessionView) -> Value {
    let of = |wanted: bool| {
        let contenders = store.contenders_of(view.session).into_iter();
        let some = contenders.filter(|(.., holds)| *holds == wanted);
        some.map(|(lock, holder, _)| json!({ "lock": lock.as_str(), "holder": holder }))
            .collect::<Vec<_>>()
    };
    let age_ms = store.time_ms().saturating_sub(view.opened_at_ms);
    json!({
        "session": view.session.to_string(), "name": &*view.name, "ttl_ms": view.timeout_ms, "age_ms": age_ms,
        "opened_at": time(view.opened_at_ms), "address": view.address.host(), "ephemerals": view.ephemerals, "held": of(true), "awaited": of(false),
        "release_requested": release_requests(store, view), "zxid": store.zxid().0,
    })
}

pub(crate) fn release_requests(store: &Store, view: &SessionView) -> Vec<Value> {
    let requests = store
        .revocations(view.session)
        .into_iter()
        .filter(|(.., asked)| asked.answer.is_none());
    let documents = requests.map(|(lock, holder, asked)| {
        json!({
            "lock": lock.as_str(), "holder": holder, "by": &*asked.by, "reason": &*asked.reason, "requested_at": time(asked.requested_ms),
        })
    });
    documents.collect()
}

fn contender(view: &ContenderView, position: Option<usize>) -> Value {
    let mut document = json!({
        "holder": view.holder, "session": view.session.to_string(), "owner": &*view.owner, "note": &*view.note, "mode": mode(view.mode),
        "permits": view.permits, "holds": view.holds, "fencing_token": view.fencing_token.0, "since_at": time(view.since_ms),
        "address": view.address.host(),
    });
    if let Some(position) = position {
        document["position"] = position.into();
    }
    document
}

pub(crate) fn lock(view: &LockView) -> Value {
    let limit = match view.mode {
        Some(LockMode::Semaphore { limit }) => Some(limit),
        _ => view.limit,
    };
    let holders: Vec<Value> = view
        .holders
        .iter()
        .map(|holder| contender(holder, None))
        .collect();
    let queue = view
        .queue
        .iter()
        .zip(1..)
        .map(|(waiter, position)| contender(waiter, Some(position)));
    json!({
        "lock": view.lock.as_str(), "mode": view.mode.map(mode), "limit": limit, "draining": view.draining, "holders": holders,
        "queue": queue.collect::<Vec<_>>(),
    })
}

/// Lease with its contender.
pub(crate) fn lease(view: &znode_store::LeaseView) -> Value {
    let (holder, held) = match &view.contender {
        ContenderState::Holds(grant) | ContenderState::Upgrades(grant) => (&grant.holder, Some(grant)),
        ContenderState::Waits(place) => (&place.holder, None),
    };
    json!({
        "lock": view.lock.as_str(), "holder": holder, "state": if held.is_some() { "holds" } else { "waits" },
        "mode": held.map(|grant| mode(grant.mode)), "fencing_token": held.map(|grant| grant.fencing_token.0), "note": &*view.note,
        "ttl_ms": view.timeout_ms, "expires_in_ms": view.timeout_ms,
    })
}

pub(crate) fn stat(stat: &Stat) -> Value {
    json!({
        "czxid": stat.czxid.0, "mzxid": stat.mzxid.0, "pzxid": stat.pzxid.0, "created_at": time(stat.ctime_ms),
        "modified_at": time(stat.mtime_ms), "version": stat.version, "cversion": stat.cversion, "aversion": stat.aversion,
        "ephemeral_owner": stat.ephemeral_owner.session().map(|session| session.to_string()), "container": stat.ephemeral_owner.is_container(),
        "ttl_ms": stat.ephemeral_owner.ttl_ms(), "data_length": stat.data_length, "num_children": stat.num_children,
    })
}

/// Znode with its data, as text if it is text.
pub(crate) fn znode(data: &Data, of: &Stat) -> Value {
    let (field, data) = match std::str::from_utf8(data.as_bytes()) {
        Ok(text) => ("data", text.to_owned()),
        Err(_) => ("data_base64", BASE64.encode(data.as_bytes())),
    };
    json!({ "stat": stat(of), field: data })
}

/// Answer to a command that was executed; null for an answer without a document.
pub(crate) fn reply(reply: &Reply) -> Value {
    match reply {
        Reply::SessionOpened { session, timeout_ms } => {
            json!({ "session": session.to_string(), "ttl_ms": timeout_ms })
        }
        Reply::Granted(granted) => grant(granted),
        Reply::Released { holds } => json!({ "holds": holds }),
        Reply::RevokeRequested(asked) => json!({ "asked": asked }),
        Reply::Created { path, stat: of } => json!({ "path": path.as_str(), "stat": stat(of) }),
        Reply::Set(of) => json!({ "stat": stat(of) }),
        _ => Value::Null,
    }
}

/// Result of one change of a transaction.
pub(crate) fn result(change: &Reply) -> Value {
    let word = match change {
        Reply::Created { .. } => "created",
        Reply::Set(_) => "set",
        Reply::Deleted => "deleted",
        Reply::Held => "held",
        _ => "checked",
    };
    json!({ word: reply(change) })
}
