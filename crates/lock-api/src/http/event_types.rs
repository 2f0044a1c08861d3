//! Documents of a session's event stream, and their encoding as server-sent events of the HTML standard.

use std::fmt::Write;

use lock_node::{EventPosition, SessionEvent};
use serde::Serialize;
use utoipa::ToSchema;
use znode_store::{ContenderEnd, ContenderState, Grant, Hold, LockMode, SessionId, Store, ZPath};

use super::extract::Timestamp;
use super::openapi::words;
use super::problem::{Problem, mode_word};
use super::session_types::ReleaseRequestAnswer;
use super::watch::KindWord;

/// Writes one event. `data` is compact JSON, which has no line breaks.
pub fn event(text: &mut String, at: Option<EventPosition>, word: &str, data: &impl Serialize) {
    let data = serde_json::to_string(data).expect("events are made of strings, numbers, lists and structs");
    if let Some(at) = at {
        push(text, format_args!("id: {at}\n"));
    }
    push(text, format_args!("event: {word}\ndata: {data}\n\n"));
}

/// Writes a comment, and an id without an event, while nothing happens. A client that follows the standard then
/// reconnects from this id and does not receive earlier events again.
pub fn keep_alive(text: &mut String, at: EventPosition) {
    push(text, format_args!(": alive\nid: {at}\n\n"));
}

/// Adds the time after which a client reconnects when the stream has ended, in milliseconds.
pub fn retry(text: &mut String, ms: u64) {
    push(text, format_args!("retry: {ms}\n\n"));
}

fn push(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("a string takes everything");
}

/// `reset`
#[derive(Serialize, ToSchema)]
pub struct ResetEvent {
    /// Last event that the caller received, as it reported.
    #[schema(value_type = words::EventId)]
    pub zxid: String,
}

/// `state`
#[derive(Serialize, ToSchema)]
pub struct StateEvent {
    #[schema(value_type = words::Zxid)]
    zxid: u64,
    /// Time to live of the session without a heartbeat.
    ttl_ms: u32,
    /// Locks that the session holds.
    held: Vec<HeldEntry>,
    /// Locks that the session waits for.
    awaited: Vec<AwaitedEntry>,
    release_requested: Vec<ReleaseRequestAnswer>,
}

/// A lock that the session holds.
#[derive(Serialize, ToSchema)]
pub struct HeldEntry {
    #[schema(value_type = words::LockName)]
    lock: String,
    #[schema(value_type = super::lock_types::ModeWord)]
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::Limit)]
    limit: Option<u32>,
    #[schema(value_type = words::Permits)]
    permits: u32,
    #[schema(value_type = words::Holder)]
    holder: String,
    #[schema(value_type = words::FencingToken)]
    fencing_token: u64,
    /// Number of times its owner has acquired it.
    holds: u32,
}

/// A lock that the session waits for.
#[derive(Serialize, ToSchema)]
pub struct AwaitedEntry {
    #[schema(value_type = words::LockName)]
    lock: String,
    #[schema(value_type = words::Holder)]
    holder: String,
    position: u32,
}

impl StateEvent {
    /// Describes the state of a live session.
    pub fn new(store: &Store, session: SessionId) -> Self {
        let (mut held, mut awaited) = (Vec::new(), Vec::new());
        for (lock, holder, _) in store.contenders_of(session) {
            match store.contender_state(&lock, &holder) {
                Some(ContenderState::Holds(grant) | ContenderState::Upgrades(grant)) => {
                    held.push(HeldEntry::new(grant))
                }
                Some(ContenderState::Waits(place)) => awaited.push(AwaitedEntry {
                    lock: place.lock.to_string(),
                    holder: place.holder,
                    position: place.ahead + 1,
                }),
                None => {}
            }
        }
        Self {
            zxid: store.zxid().0,
            ttl_ms: store.session(session).map_or(0, |view| view.timeout_ms),
            held,
            awaited,
            release_requested: store
                .revocations(session)
                .into_iter()
                .map(ReleaseRequestAnswer::from)
                .collect(),
        }
    }
}

impl HeldEntry {
    fn new(grant: Grant) -> Self {
        Self {
            lock: grant.lock.to_string(),
            mode: mode_word(grant.mode),
            limit: limit_of(grant.mode),
            permits: grant.permits,
            holder: grant.holder,
            fencing_token: grant.fencing_token.0,
            holds: grant.holds,
        }
    }
}

/// A hold, as `granted` and `lost` contain it.
#[derive(Serialize, ToSchema)]
pub struct HoldEvent<'a> {
    #[schema(value_type = words::LockName)]
    lock: &'a str,
    #[schema(value_type = super::lock_types::ModeWord)]
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = words::Limit)]
    limit: Option<u32>,
    #[schema(value_type = words::Permits)]
    permits: u32,
    #[schema(value_type = words::Holder)]
    holder: &'a str,
    #[schema(value_type = words::FencingToken)]
    fencing_token: u64,
    #[schema(value_type = words::Owner)]
    owner: &'a str,
    #[schema(value_type = words::Note)]
    note: &'a str,
}

impl<'a> HoldEvent<'a> {
    fn new(hold: &'a Hold) -> Self {
        Self {
            lock: hold.lock.as_str(),
            mode: mode_word(hold.mode),
            limit: limit_of(hold.mode),
            permits: hold.permits,
            holder: &hold.holder,
            fencing_token: hold.fencing_token.0,
            owner: &hold.owner,
            note: &hold.note,
        }
    }
}

/// `granted`
#[derive(Serialize, ToSchema)]
pub struct GrantedEvent<'a> {
    #[serde(flatten)]
    hold: HoldEvent<'a>,
    /// Time of the grant.
    #[schema(value_type = words::Time)]
    since_at: Timestamp,
}

/// `downgraded`
#[derive(Serialize, ToSchema)]
pub struct DowngradedEvent<'a> {
    #[schema(value_type = words::LockName)]
    lock: &'a str,
    #[schema(value_type = super::lock_types::ModeWord)]
    mode: &'static str,
    #[schema(value_type = words::Holder)]
    holder: &'a str,
    #[schema(value_type = words::FencingToken)]
    fencing_token: u64,
    /// Time of the downgrade.
    #[schema(value_type = words::Time)]
    since_at: Timestamp,
}

/// `lost`
#[derive(Serialize, ToSchema)]
pub struct LostEvent<'a> {
    #[serde(flatten)]
    hold: HoldEvent<'a>,
    #[schema(value_type = words::EndOfHold)]
    ended: &'static str,
    #[schema(value_type = Option<words::Address>, required)]
    by: Option<&'a str>,
    #[schema(value_type = Option<words::Reason>, required)]
    reason: Option<&'a str>,
    #[schema(value_type = words::Time)]
    until_at: Timestamp,
}

/// `left_queue`
#[derive(Serialize, ToSchema)]
pub struct LeftQueueEvent<'a> {
    #[schema(value_type = words::LockName)]
    lock: &'a str,
    #[schema(value_type = words::Holder)]
    holder: &'a str,
    #[schema(value_type = words::EndOfWait)]
    ended: &'static str,
    #[schema(value_type = Option<words::Address>, required)]
    by: Option<&'a str>,
    #[schema(value_type = Option<words::Reason>, required)]
    reason: Option<&'a str>,
    #[schema(value_type = words::Time)]
    until_at: Timestamp,
}

/// `release_requested`
#[derive(Serialize, ToSchema)]
pub struct ReleaseRequestedEvent<'a> {
    #[schema(value_type = words::LockName)]
    lock: &'a str,
    #[schema(value_type = words::Holder)]
    holder: &'a str,
    #[schema(value_type = words::Address)]
    by: &'a str,
    #[schema(value_type = words::Reason)]
    reason: &'a str,
    #[schema(value_type = words::Time)]
    requested_at: Timestamp,
}

/// `session_ended`
#[derive(Serialize, ToSchema)]
pub struct SessionEndedEvent {
    #[schema(value_type = words::EndOfSession)]
    reason: &'static str,
    #[schema(value_type = words::Time)]
    ended_at: Timestamp,
}

/// Writes an event of a session. Returns `true` if the session has ended with it.
pub fn session_event(text: &mut String, at: EventPosition, time_ms: u64, what: &SessionEvent) -> bool {
    let (at, time) = (Some(at), Timestamp(time_ms));
    match what {
        SessionEvent::Granted(hold) => {
            let since_at = time;
            let hold = HoldEvent::new(hold);
            event(text, at, "granted", &GrantedEvent { hold, since_at });
        }
        SessionEvent::Downgraded(grant) => {
            let downgraded = DowngradedEvent {
                lock: grant.lock.as_str(),
                mode: mode_word(grant.mode),
                holder: &grant.holder,
                fencing_token: grant.fencing_token.0,
                since_at: time,
            };
            event(text, at, "downgraded", &downgraded);
        }
        SessionEvent::Lost { hold, how, by } => {
            let lost = LostEvent {
                hold: HoldEvent::new(hold),
                ended: match how {
                    // The caller did not wait for this grant, or abandoned it.
                    ContenderEnd::Withdrawn => "released",
                    other => other.word(),
                },
                by: by.as_deref(),
                reason: reason_of(how),
                until_at: time,
            };
            event(text, at, "lost", &lost);
        }
        SessionEvent::LeftQueue { lock, holder, how } => {
            let left = LeftQueueEvent {
                lock: lock.as_str(),
                holder,
                ended: how.word(),
                by: match how {
                    ContenderEnd::Broken { by, .. } => Some(by),
                    _ => None,
                },
                reason: reason_of(how),
                until_at: time,
            };
            event(text, at, "left_queue", &left);
        }
        SessionEvent::RevokeRequested {
            lock,
            holder,
            by,
            reason,
        } => {
            let asked = ReleaseRequestedEvent {
                lock: lock.as_str(),
                holder,
                by,
                reason,
                requested_at: time,
            };
            event(text, at, "release_requested", &asked);
        }
        SessionEvent::Ended { expired } => {
            let reason = if *expired { "expired" } else { "closed" };
            let ended_at = time;
            event(text, at, "session_ended", &SessionEndedEvent { reason, ended_at });
            return true;
        }
    }
    false
}

pub fn reason_of(how: &ContenderEnd) -> Option<&str> {
    match how {
        ContenderEnd::Broken { reason, .. } => Some(reason),
        _ => None,
    }
}

pub fn limit_of(mode: LockMode) -> Option<u32> {
    match mode {
        LockMode::Semaphore { limit } => Some(limit),
        LockMode::Exclusive | LockMode::Shared | LockMode::Upgradeable => None,
    }
}

/// `watch`
#[derive(Serialize, ToSchema)]
pub struct WatchEvent<'a> {
    /// Kind of the watch that fired.
    #[schema(value_type = KindWord)]
    pub kind: &'static str,
    /// Kind of the event.
    #[schema(value_type = words::ZnodeEvent)]
    pub event: &'static str,
    /// Path of the znode.
    #[schema(value_type = words::ZnodePath)]
    pub path: &'a str,
    /// Position of the change in the log.
    #[schema(value_type = words::Zxid)]
    pub zxid: u64,
}

/// `expiring`
#[derive(Serialize, ToSchema)]
pub struct ExpiringEvent {
    /// Minimum remaining lifetime of the session.
    pub left_ms: u64,
}

/// `renewed`
#[derive(Serialize, ToSchema)]
pub struct RenewedEvent {
    /// Minimum lifetime of the session from the time at which the node renewed it.
    pub ttl_ms: u64,
}

/// `stream_ended`
#[derive(Serialize, ToSchema)]
pub struct StreamEndedEvent {
    /// Reason, in a word.
    #[schema(value_type = words::EndOfStream)]
    pub reason: &'static str,
}

/// A requested watch, such as `data=/orders/42`.
#[derive(Debug)]
pub struct WatchWish {
    /// Kind of the watch: the name of the parameter.
    pub kind: KindWord,
    /// Path of the znode.
    pub path: ZPath,
}

/// Parses the last position that a caller received.
pub fn position(text: &str) -> Result<EventPosition, Problem> {
    text.parse()
        .map_err(|error| Problem::bad_request(format!("zxid or Last-Event-ID {text:?}: {error}")))
}
