//! The documents of the lock routes: what callers send, checked into what the lock service takes, and what they
//! get back.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use znode_store::{
    ContenderView, Grant, LockMode, LockName, LockSummary, LockView, LockWish, MAX_NOTE_BYTES,
    MAX_OWNER_BYTES, RequestId, SessionId,
};

use super::exchange::{At, session_id};
use super::problem::{Problem, mode_word};
use crate::locks::WaitFor;

/// The longest reason of a break in bytes: a line for people, too.
pub const MAX_REASON_BYTES: usize = 1024;

/// The longest holder in bytes: generous for the name of a contender's znode, which other clients may choose.
pub const MAX_HOLDER_BYTES: usize = 512;

/// The largest limit of a semaphore: sums of permits stay far from the end of 32 bits.
pub const MAX_SEMAPHORE_LIMIT: u32 = 1_000_000;

/// The longest wait in milliseconds, seven days: who means "for ever" says `null`.
pub const MAX_WAIT_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// The mode as callers write it; a semaphore's limit stands beside it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ModeWord {
    #[default]
    Exclusive,
    Shared,
    Semaphore,
}

/// `wait_ms`: absent and 0 try, a number waits so long, `null` waits until the lock is granted.
fn wait_for<'de, D: Deserializer<'de>>(deserializer: D) -> Result<WaitFor, D::Error> {
    match Option::<u64>::deserialize(deserializer)? {
        None => Ok(WaitFor::Forever),
        Some(0) => Ok(WaitFor::Try),
        Some(ms @ 1..=MAX_WAIT_MS) => Ok(WaitFor::For(Duration::from_millis(ms))),
        Some(_) => Err(serde::de::Error::custom(format_args!(
            "wait_ms is at most {MAX_WAIT_MS}, or null to wait until the lock is granted"
        ))),
    }
}

fn no_wait() -> WaitFor {
    WaitFor::Try
}

/// The body of `acquire`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcquireBody<'a> {
    #[serde(borrow)]
    session: Cow<'a, str>,
    #[serde(default)]
    mode: ModeWord,
    limit: Option<u32>,
    permits: Option<u32>,
    #[serde(default = "no_wait", deserialize_with = "wait_for")]
    wait_ms: WaitFor,
    #[serde(borrow, default)]
    owner: Cow<'a, str>,
    reentrant: Option<bool>,
    #[serde(borrow, default)]
    note: Cow<'a, str>,
    request_id: Option<RequestId>,
    retry: Option<u16>,
}

/// What the lock service takes.
pub struct Acquire {
    /// On whose behalf.
    pub session: SessionId,
    /// What is wanted.
    pub wish: LockWish,
    /// How long the caller waits.
    pub wait: WaitFor,
    /// For repeating it.
    pub request_id: Option<RequestId>,
    /// How often it was sent before.
    pub retry: u16,
}

impl AcquireBody<'_> {
    /// Checks what serde cannot.
    pub fn check(self, lock: LockName, address: Arc<str>) -> Result<Acquire, Problem> {
        within("owner", &self.owner, MAX_OWNER_BYTES)?;
        within("note", &self.note, MAX_NOTE_BYTES)?;
        let (mode, permits, reentrant) = match (self.mode, self.limit, self.permits) {
            (ModeWord::Exclusive, None, None) => (LockMode::Exclusive, 1, self.reentrant.unwrap_or(true)),
            (ModeWord::Shared, None, None) => (LockMode::Shared, 1, self.reentrant.unwrap_or(true)),
            (ModeWord::Exclusive | ModeWord::Shared, ..) => {
                return Err(Problem::bad_request(
                    "limit and permits belong to the mode semaphore",
                ));
            }
            (ModeWord::Semaphore, None, _) => {
                return Err(Problem::bad_request("a semaphore needs a limit"));
            }
            (ModeWord::Semaphore, Some(limit), permits) => (
                LockMode::Semaphore { limit },
                semaphore(limit, permits, self.reentrant)?,
                false,
            ),
        };
        Ok(Acquire {
            session: session_id(&self.session)?,
            wish: LockWish {
                lock,
                mode,
                permits,
                owner: self.owner.into(),
                reentrant,
                note: self.note.into(),
                address,
                lock_delay_ms: 0,
            },
            wait: self.wait_ms,
            request_id: self.request_id,
            retry: self.retry.unwrap_or_default(),
        })
    }
}

/// How many permits of a semaphore are wanted.
fn semaphore(limit: u32, permits: Option<u32>, reentrant: Option<bool>) -> Result<u32, Problem> {
    if !(1..=MAX_SEMAPHORE_LIMIT).contains(&limit) {
        return Err(Problem::bad_request(format!(
            "limit goes from 1 to {MAX_SEMAPHORE_LIMIT}"
        )));
    }
    if reentrant == Some(true) {
        return Err(Problem::bad_request(
            "a semaphore is never reentrant: each acquire takes its own permits",
        ));
    }
    match permits.unwrap_or(1) {
        0 => Err(Problem::bad_request("permits is at least 1")),
        more if more > limit => Err(Problem::bad_request(format!(
            "{more} permits will never be free where the limit is {limit}"
        ))),
        permits => Ok(permits),
    }
}

/// Checks the length of a text.
pub fn within(field: &str, text: &str, limit: usize) -> Result<(), Problem> {
    match text.len() {
        length if length > limit => Err(Problem::bad_request(format!(
            "{field} has {length} bytes, more than the {limit} allowed"
        ))),
        _ => Ok(()),
    }
}

/// The body of `release`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseBody<'a> {
    /// On whose behalf.
    #[serde(borrow)]
    pub session: Cow<'a, str>,
    /// Which contender.
    #[serde(borrow)]
    pub holder: Cow<'a, str>,
    /// For repeating it.
    pub request_id: Option<RequestId>,
}

/// The body of `break`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BreakBody<'a> {
    /// Which contender.
    #[serde(borrow)]
    pub holder: Cow<'a, str>,
    /// Told to whoever asks what became of it.
    #[serde(borrow)]
    pub reason: Cow<'a, str>,
    /// For repeating it.
    pub request_id: Option<RequestId>,
}

/// The answer of `acquire`.
#[derive(Serialize)]
pub struct GrantAnswer<'a> {
    lock: &'a str,
    mode: &'static str,
    holder: &'a str,
    fencing_token: u64,
    holds: u32,
    permits: u32,
}

impl<'a> From<&'a Grant> for GrantAnswer<'a> {
    fn from(grant: &'a Grant) -> Self {
        Self {
            lock: grant.lock.as_str(),
            mode: mode_word(grant.mode),
            holder: &grant.holder,
            fencing_token: grant.fencing_token.0,
            holds: grant.holds,
            permits: grant.permits,
        }
    }
}

/// The answer of `release`.
#[derive(Serialize)]
pub struct ReleaseAnswer {
    /// How many re-entries are left.
    pub holds: u32,
}

/// The answer of `check`.
#[derive(Serialize)]
pub struct CheckAnswer {
    /// Whether a current holder has the token.
    pub held: bool,
}

/// The answer of `GET /v1/locks/{name}`.
#[derive(Serialize)]
pub struct LockAnswer<'a> {
    lock: &'a str,
    /// `null` while the lock has no contenders.
    mode: Option<&'static str>,
    /// `null` unless the lock is in use as a semaphore.
    limit: Option<u32>,
    holders: Vec<ContenderAnswer<'a>>,
    queue: Vec<ContenderAnswer<'a>>,
}

#[derive(Serialize)]
struct ContenderAnswer<'a> {
    holder: &'a str,
    session: String,
    owner: &'a str,
    note: &'a str,
    mode: &'static str,
    permits: u32,
    holds: u32,
    fencing_token: u64,
    since_at: At,
    address: &'a str,
    /// In the queue only, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
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
            limit: limit_of(view.mode),
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
#[derive(Serialize)]
pub struct LocksAnswer<'a> {
    /// By name.
    pub locks: Vec<SummaryAnswer<'a>>,
    /// What to give as `after` for the next page; `null` on the last one.
    pub next_after: Option<&'a str>,
}

/// One lock in a list.
#[derive(Serialize)]
pub struct SummaryAnswer<'a> {
    lock: &'a str,
    mode: Option<&'static str>,
    holders: u32,
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

#[cfg(test)]
mod tests;
