//! Requests and answers of acquires, of one lock or several.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use znode_store::{
    ContenderNames, Grant, HoldBounds, LockMode, LockName, LockWish, MAX_HOLD_BOUND_MS, MAX_LOCK_DELAY_MS,
    MAX_NOTE_BYTES, MAX_OWNER_BYTES, Place, RequestId, SessionId,
};

use super::{MAX_SEMAPHORE_LIMIT, ModeWord, no_wait, wait_for, within};
use crate::http::extract::session_id;
use crate::http::openapi::words;
use crate::http::problem::{Problem, mode_word};
use crate::locks::WaitFor;

/// Body of `acquire`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AcquireBody<'a> {
    /// Session that acquires the lock. Without it the lock is acquired in a lease of its own.
    #[serde(borrow)]
    #[schema(value_type = Option<words::SessionId>)]
    session: Option<Cow<'a, str>>,
    /// Time to live of the lease. Required without a session, and invalid with one.
    #[schema(value_type = Option<words::LeaseTtlMs>)]
    ttl_ms: Option<u64>,
    #[serde(default)]
    mode: ModeWord,
    #[schema(value_type = Option<words::Limit>)]
    limit: Option<u32>,
    #[schema(value_type = Option<words::Permits>)]
    permits: Option<u32>,
    #[serde(default = "no_wait", deserialize_with = "wait_for")]
    #[schema(value_type = words::WaitMs)]
    wait_ms: WaitFor,
    /// `queue`: the answer follows at once, with the grant or with the place in the queue, which stays as long as the session or
    /// the lease. Instead of `wait_ms`.
    wait: Option<WaitWord>,
    #[serde(borrow, default)]
    #[schema(value_type = words::Owner)]
    owner: Cow<'a, str>,
    /// Allow the owner to acquire again what it holds. Default: `true`, except for semaphores.
    reentrant: Option<bool>,
    #[serde(borrow, default)]
    #[schema(value_type = words::Note)]
    note: Cow<'a, str>,
    #[serde(default)]
    #[schema(value_type = words::LockDelayMs)]
    lock_delay_ms: u32,
    /// Time after the grant within which the lock is not granted again, even if it is released. Mode `exclusive` only.
    #[serde(default)]
    #[schema(value_type = words::HoldBoundMs)]
    min_hold_ms: u32,
    /// Time after the grant at which the hold ends, even if its session or lease lives on.
    #[serde(default)]
    #[schema(value_type = words::HoldBoundMs)]
    max_hold_ms: u32,
    #[serde(default)]
    names: NamesWord,
    #[schema(value_type = Option<words::RequestId>)]
    request_id: Option<RequestId>,
    #[schema(value_type = Option<words::Retry>)]
    retry: Option<u16>,
}

/// Arguments for the lock service.
pub struct Acquire {
    /// Session of the contender, or the lease to open.
    pub requester: Requester,
    /// Lock and mode.
    pub wish: LockWish,
    /// Bounds of the hold.
    pub bounds: HoldBounds,
    /// Maximum wait.
    pub wait: WaitFor,
    /// `true` if the caller gets its place in the queue at once and does not wait on its connection.
    pub is_queued: bool,
    /// Id of the request, for repetitions.
    pub request_id: Option<RequestId>,
    /// Number of earlier attempts.
    pub retry: u16,
}

/// Wait that outlives the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = WaitKind)]
pub enum WaitWord {
    /// In the queue, without an open request.
    Queue,
}

/// Session of a contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requester {
    /// An open session.
    Session(SessionId),
    /// A lease that the acquire opens, with this time to live.
    Lease(Duration),
}

impl AcquireBody<'_> {
    /// Checks the constraints that serde cannot express.
    pub fn check(self, lock: LockName, address: Arc<str>) -> Result<Acquire, Problem> {
        let wanted = Wanted {
            mode: self.mode,
            limit: self.limit,
            permits: self.permits,
            owner: &self.owner,
            reentrant: self.reentrant,
            note: &self.note,
            lock_delay_ms: self.lock_delay_ms,
            names: self.names,
        };
        let requester = match (&self.session, self.ttl_ms) {
            (Some(session), None) => Requester::Session(session_id(session)?),
            (None, Some(ttl_ms)) if self.owner.is_empty() && self.reentrant != Some(true) => {
                Requester::Lease(Duration::from_millis(ttl_ms))
            }
            (None, Some(_)) => {
                return Err(Problem::bad_request(
                    "a lease has one holder: owner and reentrant belong to a session",
                ));
            }
            (Some(_), Some(_)) => {
                return Err(Problem::bad_request("ttl_ms is for a lease, without session"));
            }
            (None, None) => {
                return Err(Problem::bad_request("either session or ttl_ms is required"));
            }
        };
        let wait = match (self.wait, self.wait_ms) {
            (None, wait) => wait,
            (Some(WaitWord::Queue), WaitFor::Try) => WaitFor::Forever,
            (Some(WaitWord::Queue), _) => {
                return Err(Problem::bad_request("either wait or wait_ms can be given"));
            }
        };
        let bounds = HoldBounds {
            min_ms: self.min_hold_ms,
            max_ms: self.max_hold_ms,
        };
        if bounds.min_ms.max(bounds.max_ms) > MAX_HOLD_BOUND_MS {
            return Err(Problem::bad_request(format!(
                "min_hold_ms and max_hold_ms are at most {MAX_HOLD_BOUND_MS}"
            )));
        }
        if bounds.min_ms > 0 && self.mode != ModeWord::Exclusive {
            return Err(Problem::bad_request("min_hold_ms belongs to the mode exclusive"));
        }
        let mut wish = wanted.check(lock, address)?;
        // Each lease is a session of its own, so nobody enters again.
        wish.reentrant &= matches!(requester, Requester::Session(_));
        Ok(Acquire {
            requester,
            wish,
            bounds,
            wait,
            is_queued: self.wait.is_some(),
            request_id: self.request_id,
            retry: self.retry.unwrap_or_default(),
        })
    }
}

/// Lock request as the caller wrote it.
pub struct Wanted<'a> {
    /// Mode of the lock.
    pub mode: ModeWord,
    /// Limit of a semaphore; absent: the current one.
    pub limit: Option<u32>,
    /// Permits of a semaphore; absent: 1.
    pub permits: Option<u32>,
    /// Scope of re-entrancy within the session.
    pub owner: &'a str,
    /// Re-entrancy; absent: `true`, except for semaphores.
    pub reentrant: Option<bool>,
    /// Note for people.
    pub note: &'a str,
    /// Time for which the lock stays closed after an unclean loss.
    pub lock_delay_ms: u32,
    /// ZooKeeper clients that must respect the contender.
    pub names: NamesWord,
}

/// ZooKeeper recipe whose clients are in the same queue. The contender's znode is named as these clients would name it,
/// because each recipe ignores the znodes of all others. A lock cannot have two of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ContenderNames)]
pub enum NamesWord {
    /// Curator's `InterProcessMutex`.
    #[default]
    Mutex,
    /// Curator's `InterProcessReadWriteLock`.
    ReadWrite,
    /// kazoo's `Lock`, `ReadLock` and `WriteLock`.
    Kazoo,
}

impl From<NamesWord> for ContenderNames {
    fn from(word: NamesWord) -> Self {
        match word {
            NamesWord::Mutex => Self::Mutex,
            NamesWord::ReadWrite => Self::ReadWrite,
            NamesWord::Kazoo => Self::Kazoo,
        }
    }
}

impl Wanted<'_> {
    /// Converts the request into the arguments of the lock service.
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
                // Without a limit the cluster uses the current one, which only it knows.
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
            address: address.into(),
            lock_delay_ms: self.lock_delay_ms,
            names: self.names.into(),
        })
    }
}

/// Checks a limit.
pub fn check_limit(limit: u32) -> Result<(), Problem> {
    match limit {
        1..=MAX_SEMAPHORE_LIMIT => Ok(()),
        _ => Err(Problem::bad_request(format!(
            "limit is from 1 to {MAX_SEMAPHORE_LIMIT}"
        ))),
    }
}

/// Returns the permits of a semaphore request.
fn semaphore(limit: Option<u32>, permits: Option<u32>, reentrant: Option<bool>) -> Result<u32, Problem> {
    if let Some(limit) = limit {
        check_limit(limit)?;
    }
    if reentrant == Some(true) {
        return Err(Problem::bad_request(
            "a semaphore is never reentrant: each acquire needs its own permits",
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

/// Answer of `acquire`, `downgrade` and `upgrade`.
#[derive(Serialize, ToSchema)]
pub struct GrantAnswer<'a> {
    #[schema(value_type = words::LockName)]
    lock: &'a str,
    #[schema(value_type = ModeWord)]
    mode: &'static str,
    #[schema(value_type = words::Holder)]
    holder: &'a str,
    #[schema(value_type = words::FencingToken)]
    fencing_token: u64,
    /// Number of times its owner has acquired it.
    holds: u32,
    #[schema(value_type = words::Permits)]
    permits: u32,
    /// Of an acquire without a session: the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::LeaseText>)]
    lease: Option<String>,
    /// Time until the lease ends unless it is renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in_ms: Option<u64>,
}

impl GrantAnswer<'_> {
    /// Adds the lease of the grant.
    pub fn with_lease(self, lease: String, expires_in: Duration) -> Self {
        Self {
            lease: Some(lease),
            expires_in_ms: Some(expires_in.as_millis() as u64),
            ..self
        }
    }
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
            lease: None,
            expires_in_ms: None,
        }
    }
}

/// Answer of `acquire` with `"wait": "queue"` if the lock is not free.
#[derive(Serialize, ToSchema)]
pub struct QueuedAnswer<'a> {
    #[schema(value_type = words::LockName)]
    lock: &'a str,
    #[schema(value_type = words::Holder)]
    holder: &'a str,
    /// Position in the queue, counted from 1.
    position: u64,
    /// Of an acquire without a session: the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::LeaseText>)]
    lease: Option<String>,
    /// Time until the lease ends unless it is renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in_ms: Option<u64>,
}

impl<'a> QueuedAnswer<'a> {
    /// Describes a place in the queue.
    pub fn new(place: &'a Place, lease: Option<(String, Duration)>) -> Self {
        let (lease, expires_in) = lease.unzip();
        Self {
            lock: place.lock.as_str(),
            holder: &place.holder,
            position: u64::from(place.ahead) + 1,
            lease,
            expires_in_ms: expires_in.map(|time| time.as_millis() as u64),
        }
    }
}
