//! View of a lock: its holders and its queue.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;
use znode_store::{ContenderView, LockMode, LockSummary, LockView, Revocation, SessionId, Store, WaitView};

use super::{ModeWord, trace_id};
use crate::http::extract::Timestamp;
use crate::http::openapi::words;
use crate::http::problem::mode_word;

/// Answer of `check`.
#[derive(Serialize, ToSchema)]
pub struct CheckAnswer {
    /// `true` if a current holder has the token.
    pub held: bool,
}

/// Answer of `GET /v1/locks/{name}`.
#[derive(Serialize, ToSchema)]
pub struct LockAnswer<'a> {
    #[schema(value_type = words::LockName)]
    lock: &'a str,
    /// `null` while the lock has no contenders.
    #[schema(value_type = Option<ModeWord>, required)]
    mode: Option<&'static str>,
    /// `null` unless the lock is in use as a semaphore, or a limit was set.
    #[schema(value_type = Option<words::Limit>, required)]
    limit: Option<u32>,
    /// `true` if nothing is granted.
    draining: bool,
    /// `null` unless the lock grants nothing for a while, because the session of a holder expired (`lock_delay_ms`) or a hold
    /// has a minimum time (`min_hold_ms`).
    #[schema(required)]
    closed: Option<ClosedAnswer>,
    /// Holders.
    holders: Vec<ContenderAnswer<'a>>,
    /// Waiters, in order.
    queue: Vec<ContenderAnswer<'a>>,
    /// Total number of holders, if `limit` was given or not all are shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u32)]
    holding: Option<u32>,
    /// Total number of waiters, if `limit` was given or not all are shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u32)]
    waiting: Option<u32>,
    /// `false` if not all are shown, else absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = bool)]
    complete: Option<bool>,
    /// Names of znodes below the lock's that are named like contenders and belong to no session. The lock ignores them,
    /// but recipes of ZooKeeper clients wait for them. Absent if there are none; at most 100, among the first 2,000
    /// znodes below the lock's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    blocking_znodes: Vec<&'a str>,
}

impl LockAnswer<'_> {
    /// Adds the total numbers of holders and waiters.
    pub fn of(mut self, all: &LockSummary) -> Self {
        (self.holding, self.waiting) = (Some(all.holders), Some(all.waiters));
        self
    }

    /// Marks a view in which holders or waiters are missing.
    pub fn incomplete(mut self) -> Self {
        self.complete = Some(false);
        self
    }
}

#[derive(Serialize, ToSchema)]
pub struct ClosedAnswer {
    /// Begin of the time without grants.
    #[schema(value_type = words::Time)]
    since_at: Timestamp,
    /// Whole time without grants, counted from `since_at`.
    delay_ms: u32,
    /// Minimum time that has passed of it, as the leader reports each second.
    passed_ms: u32,
}

/// A release request.
#[derive(Serialize, ToSchema)]
pub struct PendingReleaseRequest<'a> {
    #[schema(value_type = words::Address)]
    by: &'a str,
    #[schema(value_type = words::Reason)]
    reason: &'a str,
    #[schema(value_type = words::Time)]
    requested_at: Timestamp,
    /// Reply of the holder.
    #[schema(value_type = Option<words::Reason>, required)]
    answer: Option<&'a str>,
}

impl<'a> From<&'a Revocation> for PendingReleaseRequest<'a> {
    fn from(request: &'a Revocation) -> Self {
        Self {
            by: &request.by,
            reason: &request.reason,
            requested_at: Timestamp(request.requested_ms),
            answer: request.answer.as_deref(),
        }
    }
}

#[derive(Serialize, ToSchema)]
pub struct ContenderAnswer<'a> {
    #[schema(value_type = words::Holder)]
    holder: &'a str,
    #[schema(value_type = words::SessionId)]
    session: String,
    #[schema(value_type = words::SessionName)]
    session_name: &'a str,
    #[schema(value_type = words::Owner)]
    owner: &'a str,
    #[schema(value_type = words::Note)]
    note: &'a str,
    #[schema(value_type = ModeWord)]
    mode: &'static str,
    #[schema(value_type = words::Permits)]
    permits: u32,
    /// Number of times its owner has acquired it.
    holds: u32,
    #[schema(value_type = words::FencingToken)]
    fencing_token: u64,
    /// Begin of the hold or of the wait. Of a holder that is a ZooKeeper client, begin of its wait.
    #[schema(value_type = words::Time)]
    since_at: Timestamp,
    #[schema(value_type = words::Address)]
    address: &'a str,
    /// Trace of its acquire, if that was traced.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::TraceId)]
    trace_id: Option<String>,
    #[schema(value_type = words::LockDelayMs)]
    lock_delay_ms: u32,
    /// Time after the grant within which the lock is not granted again, if there is such a bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::HoldBoundMs)]
    min_hold_ms: Option<u32>,
    /// Time after the grant at which the hold ends, if there is such a bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::HoldBoundMs)]
    max_hold_ms: Option<u32>,
    /// Begin of the wait of a holder to become the only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::Time)]
    upgrading_since_at: Option<Timestamp>,
    /// Pending release request to this holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = PendingReleaseRequest<'a>)]
    release_requested: Option<PendingReleaseRequest<'a>>,
    /// Position in the queue, counted from 1. Only for waiters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = usize)]
    position: Option<usize>,
}

impl<'a> ContenderAnswer<'a> {
    fn new(contender: &'a ContenderView, names: &'a SessionNames, position: Option<usize>) -> Self {
        Self {
            holder: &contender.holder,
            session: contender.session.to_string(),
            session_name: names.name(contender.session),
            owner: &contender.owner,
            note: &contender.note,
            mode: mode_word(contender.mode),
            permits: contender.permits,
            holds: contender.holds,
            fencing_token: contender.fencing_token.0,
            since_at: Timestamp(contender.since_ms),
            address: contender.address.host(),
            trace_id: trace_id(&contender.address),
            lock_delay_ms: contender.lock_delay_ms,
            min_hold_ms: (contender.bounds.min_ms > 0).then_some(contender.bounds.min_ms),
            max_hold_ms: (contender.bounds.max_ms > 0).then_some(contender.bounds.max_ms),
            upgrading_since_at: contender.upgrading_since_ms.map(Timestamp),
            release_requested: contender.revoke.as_ref().map(PendingReleaseRequest::from),
            position,
        }
    }
}

fn limit_of(mode: Option<LockMode>) -> Option<u32> {
    match mode {
        Some(LockMode::Semaphore { limit }) => Some(limit),
        Some(LockMode::Exclusive | LockMode::Shared | LockMode::Upgradeable) | None => None,
    }
}

impl<'a> LockAnswer<'a> {
    /// Describes a lock, with the names of its sessions.
    pub fn new(view: &'a LockView, names: &'a SessionNames) -> Self {
        let (holders, queue) = (view.holders.iter(), view.queue.iter().zip(1..));
        Self {
            lock: view.lock.as_str(),
            mode: view.mode.map(mode_word),
            limit: limit_of(view.mode).or(view.limit),
            draining: view.draining,
            closed: view.closed.map(|closed| ClosedAnswer {
                since_at: Timestamp(closed.since_ms),
                delay_ms: closed.delay_ms,
                passed_ms: closed.passed_ms,
            }),
            holders: holders
                .map(|holder| ContenderAnswer::new(holder, names, None))
                .collect(),
            queue: queue
                .map(|(waiter, position)| ContenderAnswer::new(waiter, names, Some(position)))
                .collect(),
            holding: None,
            waiting: None,
            complete: None,
            blocking_znodes: view.blocking_znodes.iter().map(|name| &**name).collect(),
        }
    }
}

/// Names of live sessions, as their clients set them.
#[derive(Default)]
pub struct SessionNames(HashMap<SessionId, Arc<str>>);

impl SessionNames {
    /// Collects the names of the given sessions.
    pub fn of(store: &Store, sessions: impl Iterator<Item = SessionId>) -> Self {
        let mut names = HashMap::new();
        for session in sessions {
            names
                .entry(session)
                .or_insert_with(|| store.session(session).map_or("".into(), |view| view.name));
        }
        Self(names)
    }

    /// Collects the names of the sessions of a lock's holders and waiters.
    pub fn of_lock(store: &Store, view: &LockView) -> Self {
        let contenders = view.holders.iter().chain(&view.queue);
        Self::of(store, contenders.map(|contender| contender.session))
    }

    /// Collects the names of the sessions of waits, on both sides.
    pub fn of_waits(store: &Store, waits: &[WaitView]) -> Self {
        let parties = waits
            .iter()
            .flat_map(|wait| [&wait.waiter].into_iter().chain(&wait.waits_for));
        Self::of(store, parties.map(|party| party.session))
    }

    /// Returns the name of a session; empty if it has none, or has ended.
    pub fn name(&self, session: SessionId) -> &str {
        self.0.get(&session).map_or("", |name| name)
    }
}
