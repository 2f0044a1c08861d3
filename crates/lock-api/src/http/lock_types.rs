//! The documents of the lock routes: what callers send, checked into what the lock service takes, and what they
//! get back.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use znode_store::{
    ContenderView, Downgraded, Grant, LockMode, LockName, LockSummary, LockView, LockWish, MAX_LOCK_DELAY_MS,
    MAX_NOTE_BYTES, MAX_OWNER_BYTES, PartyView, RequestId, Revocation, SessionId, WaitView,
};

use super::exchange::{At, session_id};
use super::problem::{Problem, mode_word};
use crate::locks::WaitFor;

/// The longest reason of a break or a request to give up, and the longest answer to that, in bytes.
pub const MAX_REASON_BYTES: usize = znode_store::MAX_REASON_BYTES;

/// The longest holder in bytes: generous for the name of a contender's znode, which other clients may choose.
pub const MAX_HOLDER_BYTES: usize = 512;

/// The largest limit of a semaphore: sums of permits stay far from the end of 32 bits.
pub const MAX_SEMAPHORE_LIMIT: u32 = 1_000_000;

/// The longest wait in milliseconds, seven days: who means "for ever" says `null`.
pub const MAX_WAIT_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// The mode as callers write it; a semaphore's limit stands beside it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModeWord {
    #[default]
    /// One holder.
    Exclusive,
    /// Any number of holders.
    Shared,
    /// With those who share, but one at a time.
    Upgradeable,
    /// Up to a limit.
    Semaphore,
}

/// `wait_ms`: absent and 0 try, a number waits so long, `null` waits until the lock is granted.
pub fn wait_for<'de, D: Deserializer<'de>>(deserializer: D) -> Result<WaitFor, D::Error> {
    match Option::<u64>::deserialize(deserializer)? {
        None => Ok(WaitFor::Forever),
        Some(0) => Ok(WaitFor::Try),
        Some(ms @ 1..=MAX_WAIT_MS) => Ok(WaitFor::For(Duration::from_millis(ms))),
        Some(_) => Err(serde::de::Error::custom(format_args!(
            "wait_ms is at most {MAX_WAIT_MS}, or null to wait until the lock is granted"
        ))),
    }
}

/// `wait_ms` where it is absent.
pub fn no_wait() -> WaitFor {
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
    #[serde(default)]
    lock_delay_ms: u32,
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
        let wanted = Wanted {
            mode: self.mode,
            limit: self.limit,
            permits: self.permits,
            owner: &self.owner,
            reentrant: self.reentrant,
            note: &self.note,
            lock_delay_ms: self.lock_delay_ms,
        };
        Ok(Acquire {
            session: session_id(&self.session)?,
            wish: wanted.check(lock, address)?,
            wait: self.wait_ms,
            request_id: self.request_id,
            retry: self.retry.unwrap_or_default(),
        })
    }
}

/// How a lock is wanted, as a caller wrote it.
pub struct Wanted<'a> {
    /// How.
    pub mode: ModeWord,
    /// Of a semaphore; absent: the one that is in force.
    pub limit: Option<u32>,
    /// Of a semaphore; absent: 1.
    pub permits: Option<u32>,
    /// The scope of re-entrancy within the session.
    pub owner: &'a str,
    /// Absent: yes, where that means something.
    pub reentrant: Option<bool>,
    /// Shown to people.
    pub note: &'a str,
    /// How long the lock stays closed after an unclean loss.
    pub lock_delay_ms: u32,
}

impl Wanted<'_> {
    /// What the lock service takes.
    pub fn check(self, lock: LockName, address: Arc<str>) -> Result<LockWish, Problem> {
        within("owner", self.owner, MAX_OWNER_BYTES)?;
        within("note", self.note, MAX_NOTE_BYTES)?;
        if self.lock_delay_ms > MAX_LOCK_DELAY_MS {
            return Err(Problem::bad_request(format!(
                "lock_delay_ms is at most {MAX_LOCK_DELAY_MS}"
            )));
        }
        let plain = |mode| (mode, 1, self.reentrant.unwrap_or(true));
        let (mode, permits, reentrant) = match (self.mode, self.limit, self.permits) {
            (ModeWord::Exclusive, None, None) => plain(LockMode::Exclusive),
            (ModeWord::Shared, None, None) => plain(LockMode::Shared),
            (ModeWord::Upgradeable, None, None) => plain(LockMode::Upgradeable),
            (ModeWord::Exclusive | ModeWord::Shared | ModeWord::Upgradeable, ..) => {
                return Err(Problem::bad_request(
                    "limit and permits belong to the mode semaphore",
                ));
            }
            (ModeWord::Semaphore, limit, permits) => {
                let permits = semaphore(limit, permits, self.reentrant)?;
                // Without a limit: the one that is in force, which the cluster knows.
                let limit = limit.unwrap_or(0);
                (LockMode::Semaphore { limit }, permits, false)
            }
        };
        Ok(LockWish {
            lock,
            mode,
            permits,
            owner: self.owner.into(),
            reentrant,
            note: self.note.into(),
            address,
            lock_delay_ms: self.lock_delay_ms,
        })
    }
}

/// Checks a limit.
pub fn check_limit(limit: u32) -> Result<(), Problem> {
    match limit {
        1..=MAX_SEMAPHORE_LIMIT => Ok(()),
        _ => Err(Problem::bad_request(format!(
            "limit goes from 1 to {MAX_SEMAPHORE_LIMIT}"
        ))),
    }
}

/// How many permits of a semaphore are wanted.
fn semaphore(limit: Option<u32>, permits: Option<u32>, reentrant: Option<bool>) -> Result<u32, Problem> {
    if let Some(limit) = limit {
        check_limit(limit)?;
    }
    if reentrant == Some(true) {
        return Err(Problem::bad_request(
            "a semaphore is never reentrant: each acquire takes its own permits",
        ));
    }
    match (permits.unwrap_or(1), limit) {
        (0, _) => Err(Problem::bad_request("permits is at least 1")),
        (more, Some(limit)) if more > limit => Err(Problem::bad_request(format!(
            "{more} permits will never be free where the limit is {limit}"
        ))),
        (permits, _) => Ok(permits),
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

/// The body of `downgrade`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DowngradeBody<'a> {
    /// On whose behalf.
    #[serde(borrow)]
    pub session: Cow<'a, str>,
    /// Which contender.
    #[serde(borrow)]
    pub holder: Cow<'a, str>,
    /// What it still needs.
    #[serde(default)]
    pub mode: DowngradedWord,
    /// For repeating it.
    pub request_id: Option<RequestId>,
}

/// What a holder can be downgraded to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DowngradedWord {
    /// One of those who share the lock.
    #[default]
    Shared,
    /// The one that may become exclusive again.
    Upgradeable,
}

impl From<DowngradedWord> for Downgraded {
    fn from(word: DowngradedWord) -> Self {
        match word {
            DowngradedWord::Shared => Self::Shared,
            DowngradedWord::Upgradeable => Self::Upgradeable,
        }
    }
}

/// The body of `upgrade`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpgradeBody<'a> {
    /// On whose behalf.
    #[serde(borrow)]
    pub session: Cow<'a, str>,
    /// Which contender.
    #[serde(borrow)]
    pub holder: Cow<'a, str>,
    /// How long to wait for the others to go.
    #[serde(default = "no_wait", deserialize_with = "wait_for")]
    pub wait_ms: WaitFor,
    /// For repeating it.
    pub request_id: Option<RequestId>,
    /// How often it was sent before.
    pub retry: Option<u16>,
}

/// The body of `revoke`: a request to give up (`reason`), or a holder's answer to it (`session`, `holder`, `answer`).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevokeBody<'a> {
    /// Why.
    #[serde(borrow)]
    pub reason: Option<Cow<'a, str>>,
    /// Whom to ask, or who answers.
    #[serde(borrow)]
    pub holder: Option<Cow<'a, str>>,
    /// On whose behalf the answer is.
    #[serde(borrow)]
    pub session: Option<Cow<'a, str>>,
    /// What the holder says.
    #[serde(borrow)]
    pub answer: Option<Cow<'a, str>>,
    /// For repeating it.
    pub request_id: Option<RequestId>,
}

/// The answer of a request to give up.
#[derive(Serialize)]
pub struct RevokeAnswer {
    /// How many holders were asked.
    pub asked: u32,
}

/// The body of `PUT /v1/locks/{name}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigureBody {
    /// Absent: stays as it is; `null`: again what its first user says.
    #[serde(default, deserialize_with = "present")]
    pub limit: Option<Option<u32>>,
    /// Absent: stays as it is.
    pub draining: Option<bool>,
    /// For repeating it.
    pub request_id: Option<RequestId>,
}

/// Tells `null` from what is absent.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// The answer of `acquire`, `downgrade` and `upgrade`.
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
    /// `null` unless the lock is in use as a semaphore, or a limit was set.
    limit: Option<u32>,
    draining: bool,
    /// `null` unless nobody is let in for a while, because the session of a holder expired.
    closed: Option<ClosedAnswer>,
    holders: Vec<ContenderAnswer<'a>>,
    queue: Vec<ContenderAnswer<'a>>,
}

#[derive(Serialize)]
struct ClosedAnswer {
    since_at: At,
    delay_ms: u32,
    /// At least; told by the leader each second.
    passed_ms: u32,
}

/// A request to give a lock up.
#[derive(Serialize)]
pub struct RevocationAnswer<'a> {
    by: &'a str,
    reason: &'a str,
    requested_at: At,
    /// What the holder said to it.
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
    lock_delay_ms: u32,
    /// Of a holder that waits to be the only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    upgrading_since_at: Option<At>,
    /// Of a holder that is asked to give the lock up.
    #[serde(skip_serializing_if = "Option::is_none")]
    revoke_requested: Option<RevocationAnswer<'a>>,
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

/// The answer of `GET /v1/locks/graph`.
#[derive(Serialize)]
pub struct GraphAnswer<'a> {
    /// Each of those who wait.
    pub waits: Vec<WaitAnswer<'a>>,
    /// Whether these are all.
    pub complete: bool,
}

/// Somebody who waits, and for whom.
#[derive(Serialize)]
pub struct WaitAnswer<'a> {
    lock: &'a str,
    waiter: PartyAnswer<'a>,
    waits_for: Vec<PartyAnswer<'a>>,
    /// Whether it waits for more than these.
    more: bool,
}

#[derive(Serialize)]
struct PartyAnswer<'a> {
    session: String,
    owner: &'a str,
    holder: &'a str,
    /// `holds` or `waits`.
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

#[cfg(test)]
mod tests;
