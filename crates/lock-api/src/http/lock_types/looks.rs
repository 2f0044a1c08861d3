//! What is answered to those who look at locks: holders, queues, lists, who waits for whom.

use serde::Serialize;
use utoipa::ToSchema;
use znode_store::{ContenderView, LockMode, LockSummary, LockView, PartyView, Revocation, WaitView};

use super::ModeWord;
use crate::http::exchange::At;
use crate::http::openapi::words;
use crate::http::problem::mode_word;

/// The answer of `check`.
#[derive(Serialize, ToSchema)]
pub struct CheckAnswer {
    /// Whether a current holder has the token.
    pub held: bool,
}

/// The answer of `GET /v1/locks/{name}`.
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
    /// Whether nobody is let in.
    draining: bool,
    /// `null` unless nobody is let in for a while, because the session of a holder expired.
    #[schema(required)]
    closed: Option<ClosedAnswer>,
    /// Who holds it.
    holders: Vec<ContenderAnswer<'a>>,
    /// Who waits, in order.
    queue: Vec<ContenderAnswer<'a>>,
}

#[derive(Serialize, ToSchema)]
pub struct ClosedAnswer {
    #[schema(value_type = words::Time)]
    since_at: At,
    /// For how long nobody is let in.
    delay_ms: u32,
    /// At least; told by the leader each second.
    passed_ms: u32,
}

/// A request to give a lock up.
#[derive(Serialize, ToSchema)]
pub struct RevocationAnswer<'a> {
    #[schema(value_type = words::Address)]
    by: &'a str,
    #[schema(value_type = words::Reason)]
    reason: &'a str,
    #[schema(value_type = words::Time)]
    requested_at: At,
    /// What the holder said to it.
    #[schema(value_type = Option<words::Reason>, required)]
    answer: Option<&'a str>,
}

impl<'a> From<&'a Revocation> for RevocationAnswer<'a> {
    fn from(revoke: &'a Revocation) -> Self {
        Self {
            by: &revoke.by,
            reason: &revoke.reason,
            requested_at: At(revoke.requested_ms),
            answer: revoke.answer.as_deref(),
        }
    }
}

#[derive(Serialize, ToSchema)]
pub struct ContenderAnswer<'a> {
    #[schema(value_type = words::Holder)]
    holder: &'a str,
    #[schema(value_type = words::SessionId)]
    session: String,
    #[schema(value_type = words::Owner)]
    owner: &'a str,
    #[schema(value_type = words::Note)]
    note: &'a str,
    #[schema(value_type = ModeWord)]
    mode: &'static str,
    #[schema(value_type = words::Permits)]
    permits: u32,
    /// How often its owner has entered.
    holds: u32,
    #[schema(value_type = words::FencingToken)]
    fencing_token: u64,
    #[schema(value_type = words::Time)]
    since_at: At,
    #[schema(value_type = words::Address)]
    address: &'a str,
    #[schema(value_type = words::LockDelayMs)]
    lock_delay_ms: u32,
    /// Of a holder that waits to be the only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::Time)]
    upgrading_since_at: Option<At>,
    /// Of a holder that is asked to give the lock up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = RevocationAnswer<'a>)]
    revoke_requested: Option<RevocationAnswer<'a>>,
    /// In the queue only, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = usize)]
    position: Option<usize>,
}

impl<'a> ContenderAnswer<'a> {
    fn new(contender: &'a ContenderView, position: Option<usize>) -> Self {
        Self {
            holder: &contender.holder,
            session: contender.session.to_string(),
            owner: &contender.owner,
            note: &contender.note,
            mode: mode_word(contender.mode),
            permits: contender.permits,
            holds: contender.holds,
            fencing_token: contender.fencing_token.0,
            since_at: At(contender.since_ms),
            address: &contender.address,
            lock_delay_ms: contender.lock_delay_ms,
            upgrading_since_at: contender.upgrading_since_ms.map(At),
            revoke_requested: contender.revoke.as_ref().map(RevocationAnswer::from),
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

impl<'a> From<&'a LockView> for LockAnswer<'a> {
    fn from(view: &'a LockView) -> Self {
        let queue = view.queue.iter().zip(1..);
        Self {
            lock: view.lock.as_str(),
            mode: view.mode.map(mode_word),
            limit: limit_of(view.mode).or(view.limit),
            draining: view.draining,
            closed: view.closed.map(|closed| ClosedAnswer {
                since_at: At(closed.since_ms),
                delay_ms: closed.delay_ms,
                passed_ms: closed.passed_ms,
            }),
            holders: view
                .holders
                .iter()
                .map(|holder| ContenderAnswer::new(holder, None))
                .collect(),
            queue: queue
                .map(|(waiter, position)| ContenderAnswer::new(waiter, Some(position)))
                .collect(),
        }
    }
}

/// The answer of `GET /v1/locks`.
#[derive(Serialize, ToSchema)]
pub struct LocksAnswer<'a> {
    /// By name.
    pub locks: Vec<SummaryAnswer<'a>>,
    /// What to give as `after` for the next page; `null` on the last one.
    #[schema(value_type = Option<words::LockName>, required)]
    pub next_after: Option<&'a str>,
}

/// One lock in a list.
#[derive(Serialize, ToSchema)]
pub struct SummaryAnswer<'a> {
    #[schema(value_type = words::LockName)]
    lock: &'a str,
    #[schema(value_type = Option<ModeWord>, required)]
    mode: Option<&'static str>,
    /// How many hold it.
    holders: u32,
    /// How many wait.
    waiters: u32,
}

impl<'a> From<&'a LockSummary> for SummaryAnswer<'a> {
    fn from(summary: &'a LockSummary) -> Self {
        Self {
            lock: summary.lock.as_str(),
            mode: summary.mode.map(mode_word),
            holders: summary.holders,
            waiters: summary.waiters,
        }
    }
}

/// The answer of `GET /v1/locks/graph`.
#[derive(Serialize, ToSchema)]
pub struct GraphAnswer<'a> {
    /// Each of those who wait.
    pub waits: Vec<WaitAnswer<'a>>,
    /// Whether these are all.
    pub complete: bool,
}

/// Somebody who waits, and for whom.
#[derive(Serialize, ToSchema)]
pub struct WaitAnswer<'a> {
    #[schema(value_type = words::LockName)]
    lock: &'a str,
    /// Who waits.
    waiter: PartyAnswer<'a>,
    /// Some of those it waits for; nobody where a lock is drained or closed.
    waits_for: Vec<PartyAnswer<'a>>,
    /// Whether it waits for more than these.
    more: bool,
}

#[derive(Serialize, ToSchema)]
pub struct PartyAnswer<'a> {
    #[schema(value_type = words::SessionId)]
    session: String,
    #[schema(value_type = words::Owner)]
    owner: &'a str,
    #[schema(value_type = words::Holder)]
    holder: &'a str,
    /// `holds` or `waits`.
    #[schema(value_type = words::Standing)]
    standing: &'static str,
}

impl<'a> From<&'a PartyView> for PartyAnswer<'a> {
    fn from(party: &'a PartyView) -> Self {
        Self {
            session: party.session.to_string(),
            owner: &party.owner,
            holder: &party.holder,
            standing: if party.waits { "waits" } else { "holds" },
        }
    }
}

impl<'a> From<&'a WaitView> for WaitAnswer<'a> {
    fn from(wait: &'a WaitView) -> Self {
        Self {
            lock: wait.lock.as_str(),
            waiter: PartyAnswer::from(&wait.waiter),
            waits_for: wait.waits_for.iter().map(PartyAnswer::from).collect(),
            more: wait.more,
        }
    }
}
