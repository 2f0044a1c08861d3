//! Latest events of sessions, stored by position for streams. Every node stores the same events at the same positions, so a client that
//! loses one node resumes at another.
//!
//! Streams have no queues of their own: each has a position in what is stored. A stream that is too slow learns that events were removed
//! before it read them.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;
use znode_store::{ContenderEnd, Event, Grant, Hold, HolderId, LockMode, LockName, SessionId, Zxid};

use crate::config::SessionEventsConfig;
use raft_log::sync::Mutex;

/// Size of an event without its texts: its record, the hold that it shares with the history, and its share of the tables.
const EVENT_BYTES: usize = 384;

/// First number of watches, which come after all other events of the same command.
const FIRST_WATCH: u32 = 1 << 31;

/// Position of an event: the position of its command, and a number within the command. It is the same on every node.
///
/// As a text it is `ZXID.N` for the N-th event of a command, `ZXID.wN` for the N-th watch of the request (from 0), and `ZXID` for all of
/// the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventPosition {
    zxid: Zxid,
    number: u32,
}

impl EventPosition {
    /// Returns the position after all events of the command at `zxid`.
    pub fn all_of(zxid: Zxid) -> Self {
        let number = u32::MAX;
        Self { zxid, number }
    }

    /// Returns the position of an event by its number, counted from 1, within the command at `zxid`.
    pub(crate) fn of_event(zxid: Zxid, number: u32) -> Self {
        Self { zxid, number }
    }

    /// Returns the position of a watch by its number, fired by the command at `zxid`.
    pub fn of_watch(zxid: Zxid, watch: u32) -> Self {
        let number = FIRST_WATCH.saturating_add(watch).min(u32::MAX - 1);
        Self { zxid, number }
    }

    /// Returns the position of the command.
    pub fn zxid(self) -> Zxid {
        self.zxid
    }
}

impl fmt::Display for EventPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zxid = self.zxid.0;
        match self.number {
            u32::MAX => write!(f, "{zxid}"),
            watch @ FIRST_WATCH.. => write!(f, "{zxid}.w{}", watch - FIRST_WATCH),
            number => write!(f, "{zxid}.{number}"),
        }
    }
}

/// Text that is not the position of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not the id of an event")]
pub struct NoPosition;

impl FromStr for EventPosition {
    type Err = NoPosition;

    fn from_str(text: &str) -> Result<Self, NoPosition> {
        // `parse` alone would accept a sign.
        fn number<T: FromStr>(text: &str) -> Result<T, NoPosition> {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| digits).ok_or(NoPosition)
        }
        let Some((zxid, place)) = text.split_once('.') else {
            return Ok(Self::all_of(Zxid(number(text)?)));
        };
        let zxid = Zxid(number(zxid)?);
        let is_watch = place.starts_with('w');
        let place: u32 = number(place.strip_prefix('w').unwrap_or(place))?;
        match (is_watch, place < FIRST_WATCH - 1) {
            (true, true) => Ok(Self::of_watch(zxid, place)),
            (false, true) => Ok(Self { zxid, number: place }),
            (_, false) => Err(NoPosition),
        }
    }
}

/// Event of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEvent {
    /// The session holds a lock, or holds it with a new token: an upgrade is another grant.
    Granted(Arc<Hold>),
    /// The session holds a lock with fewer rights.
    Downgraded(Grant),
    /// The session does not hold a lock any more.
    Lost {
        /// Former hold.
        hold: Arc<Hold>,
        /// Reason.
        how: ContenderEnd,
        /// Principal that broke it or deleted its znode, as far as it was authenticated.
        by: Option<Arc<str>>,
    },
    /// The session does not wait for a lock any more.
    LeftQueue {
        /// Lock.
        lock: LockName,
        /// Contender.
        holder: HolderId,
        /// Reason.
        how: ContenderEnd,
    },
    /// The holder has a release request.
    RevokeRequested {
        /// Lock.
        lock: LockName,
        /// Contender.
        holder: HolderId,
        /// Principal that requests the release.
        by: Arc<str>,
        /// Reason for the request.
        reason: Arc<str>,
    },
    /// The session has ended. Nothing follows.
    Ended {
        /// It expired; otherwise its owner closed it.
        expired: bool,
    },
}

impl SessionEvent {
    /// Returns the memory that the event takes.
    fn bytes(&self) -> usize {
        let texts = match self {
            Self::Granted(hold) => hold_bytes(hold),
            Self::Downgraded(grant) => grant.lock.as_str().len() + grant.holder.len(),
            Self::Lost { hold, how, by } => {
                let reason = match how {
                    ContenderEnd::Broken { by, reason } => by.len() + reason.len(),
                    _ => 0,
                };
                hold_bytes(hold) + reason + by.as_ref().map_or(0, |by| by.len())
            }
            Self::LeftQueue { lock, holder, .. } => lock.as_str().len() + holder.len(),
            Self::RevokeRequested {
                lock,
                holder,
                by,
                reason,
            } => lock.as_str().len() + holder.len() + by.len() + reason.len(),
            Self::Ended { .. } => 0,
        };
        EVENT_BYTES + texts
    }
}

fn hold_bytes(hold: &Hold) -> usize {
    hold.lock.as_str().len() + hold.holder.len() + hold.owner.len() + hold.note.len() + hold.address.len()
}

/// Event with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Position.
    pub at: EventPosition,
    /// Time in milliseconds since 1970, by the log.
    pub time_ms: u64,
    /// Event.
    pub event: SessionEvent,
}

/// Reason why a stream has ended. It can begin again, here or elsewhere, after the last event that it delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamLost {
    /// Events were removed before the stream read them.
    #[error("events were not taken for so long that some were let go")]
    TooSlow,
    /// This node caught up by a snapshot.
    #[error("this node caught up by a snapshot and cannot tell what has happened")]
    StateReplaced,
    /// The node stops.
    #[error("this node stops")]
    NodeStops,
}

/// A maximum number of streams is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooManyStreams {
    /// Of the session.
    #[error("the session has {limit} streams of events at this node, and may not have more")]
    OfSession {
        /// Maximum number.
        limit: usize,
    },
    /// Of the node.
    #[error("this node has {limit} streams of events, and may not have more")]
    OfNode {
        /// Maximum number.
        limit: usize,
    },
}

/// Numbers of streams and events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionEventCounts {
    /// Open streams.
    pub streams: usize,
    /// Stored events.
    pub kept: usize,
    /// Memory of the stored events, in bytes.
    pub kept_bytes: usize,
    /// Events that were delivered since the node started.
    pub told: u64,
    /// Streams that could not resume at their position.
    pub resets: u64,
}

/// Stored events, and the streams that read them.
#[derive(Debug)]
pub struct SessionEvents {
    config: SessionEventsConfig,
    state: Mutex<State>,
    told: AtomicU64,
    resets: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// Everything that happened after this position is stored.
    complete_after: EventPosition,
    kept: HashMap<SessionId, VecDeque<StoredEvent>>,
    /// Sessions of the stored events, the oldest first, and the memory of each event.
    order: VecDeque<(SessionId, usize)>,
    bytes: usize,
    followers: HashMap<SessionId, Vec<Follower>>,
    streams: usize,
    next_follower: u64,
    is_stopped: bool,
}

#[derive(Debug)]
struct Follower {
    number: u64,
    wake: Arc<Notify>,
    /// Position of the last delivered event.
    told: EventPosition,
    lost: Option<StreamLost>,
}

impl SessionEvents {
    pub(crate) fn new(config: SessionEventsConfig) -> Self {
        Self {
            config,
            state: Mutex::new(State {
                complete_after: EventPosition::all_of(Zxid(0)),
                kept: HashMap::new(),
                order: VecDeque::new(),
                bytes: 0,
                followers: HashMap::new(),
                streams: 0,
                next_follower: 0,
                is_stopped: false,
            }),
            told: AtomicU64::new(0),
            resets: AtomicU64::new(0),
        }
    }

    /// Stores the events of one command, and wakes the streams of the sessions. Call it while the state is locked.
    pub fn add(&self, zxid: Zxid, time_ms: u64, events: &[Event]) {
        // Most commands concern no session's locks.
        if !events.iter().any(concerns_a_session) {
            return;
        }
        let mut state = self.state.lock();
        let mut number = 0;
        for (place, event) in events.iter().enumerate() {
            let before = place.checked_sub(1).map(|before| &events[before]);
            let Some((session, event)) = translate(event, before) else {
                continue;
            };
            number += 1;
            let at = EventPosition { zxid, number };
            state.keep(session, StoredEvent { at, time_ms, event });
        }
        while state.order.len() > self.config.backlog || state.bytes > self.config.backlog_bytes {
            state.remove_oldest();
        }
    }

    /// Removes all events and ends all streams: the state was replaced by one at `zxid`, and what happened before it is unknown.
    pub(crate) fn state_replaced(&self, zxid: Zxid) {
        let mut state = self.state.lock();
        state.complete_after = EventPosition::all_of(zxid);
        state.kept = HashMap::new();
        state.order = VecDeque::new();
        state.bytes = 0;
        state.lose_all(StreamLost::StateReplaced);
    }

    /// Ends all streams, and those that begin later.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopped = true;
        state.lose_all(StreamLost::NodeStops);
    }

    /// Returns whether everything that happened after `position` is stored.
    pub fn knows_all_after(&self, position: EventPosition) -> bool {
        position >= self.state.lock().complete_after
    }

    /// Returns whether an event of the session after `position` is stored.
    pub fn has_any_after(&self, session: SessionId, position: EventPosition) -> bool {
        let state = self.state.lock();
        let last = state.kept.get(&session).and_then(VecDeque::back);
        last.is_some_and(|kept| kept.at > position)
    }

    /// Begins a stream of a session's events after `told`. Call it while the state is locked.
    pub fn follow(
        self: &Arc<Self>,
        session: SessionId,
        told: EventPosition,
    ) -> Result<SessionEventStream, TooManyStreams> {
        let mut state = self.state.lock();
        let limit = self.config.streams_per_node;
        if state.streams >= limit {
            return Err(TooManyStreams::OfNode { limit });
        }
        let (number, is_stopped) = (state.next_follower, state.is_stopped);
        let followers = state.followers.entry(session).or_default();
        let limit = self.config.streams_per_session;
        if followers.len() >= limit {
            return Err(TooManyStreams::OfSession { limit });
        }
        let wake = Arc::new(Notify::new());
        followers.push(Follower {
            number,
            wake: wake.clone(),
            told,
            lost: is_stopped.then_some(StreamLost::NodeStops),
        });
        state.next_follower += 1;
        state.streams += 1;
        // The stream first reads what is stored already.
        wake.notify_one();
        Ok(SessionEventStream {
            events: self.clone(),
            session,
            number,
            wake,
        })
    }

    /// Counts a stream that could not resume at its position.
    pub fn count_reset(&self) {
        self.resets.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether there is a stream.
    pub fn are_followed(&self) -> bool {
        self.state.lock().streams > 0
    }

    /// Returns the numbers of streams and events.
    pub fn counts(&self) -> SessionEventCounts {
        let state = self.state.lock();
        SessionEventCounts {
            streams: state.streams,
            kept: state.order.len(),
            kept_bytes: state.bytes,
            told: self.told.load(Ordering::Relaxed),
            resets: self.resets.load(Ordering::Relaxed),
        }
    }
}

impl State {
    fn keep(&mut self, session: SessionId, kept: StoredEvent) {
        let bytes = kept.event.bytes();
        self.kept.entry(session).or_default().push_back(kept);
        self.order.push_back((session, bytes));
        self.bytes += bytes;
        for follower in self.followers.get(&session).into_iter().flatten() {
            follower.wake.notify_one();
        }
    }

    /// Removes the oldest event.
    fn remove_oldest(&mut self) {
        let (session, bytes) = self.order.pop_front().expect("there is too much");
        let of_session = self.kept.get_mut(&session).expect("it is in the order");
        let gone = of_session.pop_front().expect("it is in the order");
        if of_session.is_empty() {
            self.kept.remove(&session);
        }
        self.bytes -= bytes;
        self.complete_after = gone.at;
        for follower in self.followers.get_mut(&session).into_iter().flatten() {
            if follower.told < gone.at {
                follower.lose(StreamLost::TooSlow);
            }
        }
    }

    fn lose_all(&mut self, why: StreamLost) {
        for follower in self.followers.values_mut().flatten() {
            follower.lose(why);
        }
    }
}

impl Follower {
    fn lose(&mut self, why: StreamLost) {
        self.lost.get_or_insert(why);
        self.wake.notify_one();
    }
}

/// Stream of a session's events. Dropping it ends the stream.
#[derive(Debug)]
pub struct SessionEventStream {
    events: Arc<SessionEvents>,
    session: SessionId,
    number: u64,
    wake: Arc<Notify>,
}

impl SessionEventStream {
    /// Returns the next events, at most `limit`, and whether there are more. `until` is the position of the state, which is locked: without
    /// more events the stream is at that position.
    pub fn take(&self, until: Zxid, limit: usize) -> Result<(Vec<StoredEvent>, bool), StreamLost> {
        let mut state = self.events.state.lock();
        let State { kept, followers, .. } = &mut *state;
        let followers = followers.get_mut(&self.session).into_iter().flatten();
        let mut mine = followers.filter(|follower| follower.number == self.number);
        let follower = mine.next().expect("it follows until it is dropped");
        if let Some(lost) = follower.lost {
            return Err(lost);
        }
        let (mut taken, mut more) = (Vec::new(), false);
        if let Some(kept) = kept.get(&self.session) {
            let first = kept.partition_point(|kept| kept.at <= follower.told);
            taken.extend(kept.range(first..).take(limit).cloned());
            more = kept.len() - first > taken.len();
        }
        follower.told = match (more, taken.last()) {
            (true, Some(last)) => last.at,
            _ => follower.told.max(EventPosition::all_of(until)),
        };
        if more {
            self.wake.notify_one();
        }
        self.events.told.fetch_add(taken.len() as u64, Ordering::Relaxed);
        Ok((taken, more))
    }

    /// Waits until there may be new events. A cancelled wait misses nothing.
    pub async fn changed(&self) {
        self.wake.notified().await;
    }
}

impl Drop for SessionEventStream {
    fn drop(&mut self) {
        let mut state = self.events.state.lock();
        if let Some(followers) = state.followers.get_mut(&self.session) {
            followers.retain(|follower| follower.number != self.number);
            if followers.is_empty() {
                state.followers.remove(&self.session);
            }
        }
        state.streams -= 1;
    }
}

fn concerns_a_session(event: &Event) -> bool {
    !matches!(event, Event::Znode(_))
}

/// Returns the session of an event, and the event of the session; `None` if it concerns no session, or another event tells the same.
pub(crate) fn translate(event: &Event, before: Option<&Event>) -> Option<(SessionId, SessionEvent)> {
    match event {
        Event::HoldBegan(hold) => Some((hold.session, SessionEvent::Granted(hold.clone()))),
        // The session still holds, with a new token, which the next event has.
        Event::HoldEnded {
            how: ContenderEnd::Upgraded,
            ..
        } => None,
        Event::HoldEnded { hold, how, by } => {
            let (hold, how, by) = (hold.clone(), how.clone(), by.clone());
            Some((hold.session, SessionEvent::Lost { hold, how, by }))
        }
        // The hold of this contender has ended, which the event before has.
        Event::ContenderEnded { holder, lock, .. }
            if matches!(before, Some(Event::HoldEnded { hold, .. })
                if *hold.holder == **holder && hold.lock == *lock) =>
        {
            None
        }
        Event::ContenderEnded {
            session,
            lock,
            holder,
            how,
        } => {
            let (lock, holder, how) = (lock.clone(), holder.clone(), how.clone());
            Some((*session, SessionEvent::LeftQueue { lock, holder, how }))
        }
        // An upgrade is a grant.
        Event::ModeChanged { grant, .. } if grant.mode == LockMode::Exclusive => None,
        Event::ModeChanged { session, grant } => Some((*session, SessionEvent::Downgraded(grant.clone()))),
        Event::RevokeRequested {
            session,
            lock,
            holder,
            by,
            reason,
        } => {
            let event = SessionEvent::RevokeRequested {
                lock: lock.clone(),
                holder: holder.clone(),
                by: by.clone(),
                reason: reason.clone(),
            };
            Some((*session, event))
        }
        Event::SessionEnded { session, expired } => {
            let expired = *expired;
            Some((*session, SessionEvent::Ended { expired }))
        }
        Event::Znode(_)
        // The beginning of the hold has the same, as for grants without a wait.
        | Event::Granted { .. }
        | Event::UpgradeWithdrawn { .. }
        | Event::SoftQuotaPassed { .. }
        | Event::RevokeAnswered { .. }
        | Event::LockClosed { .. }
        | Event::LockOpened(_)
        | Event::AccessChanged(_)
        | Event::SessionOpened(_)
        | Event::SessionReconnected { .. } => None,
    }
}

#[cfg(test)]
mod tests;
