//! What has happened to sessions lately: kept for a while, by position, for those who follow one. Every node keeps the same
//! events at the same positions, so who loses one node goes on at another.
//!
//! Those who follow a session have no queues of their own: each has a place in what is kept. Whoever is so slow that something
//! was let go before it came to it is told that it has missed something.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;
use znode_store::{ContenderEnd, Event, Grant, Hold, HolderId, LockMode, LockName, SessionId, Zxid};

use crate::config::SessionEventsConfig;
use raft_log::sync::Mutex;

/// What an event takes beside its texts: its own place, the hold that it shares with the history, and its share of the tables.
const EVENT_BYTES: usize = 384;

/// Numbers from here on are those of watches, which are told after all that the same command did to the session.
const FIRST_WATCH: u32 = 1 << 31;

/// Where an event stands: the position of its command, and its place among what that has done. The same on every node.
///
/// As a text it is `ZXID.N` for the N-th event of a command, `ZXID.wN` for the N-th watch of whoever asks (from 0), and `ZXID`
/// for all of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventPosition {
    zxid: Zxid,
    number: u32,
}

impl EventPosition {
    /// After all that was told of the command at `zxid`.
    pub fn all_of(zxid: Zxid) -> Self {
        let number = u32::MAX;
        Self { zxid, number }
    }

    /// The event of this number, counted from 1, among what the command at `zxid` has done.
    pub(super) fn of_event(zxid: Zxid, number: u32) -> Self {
        Self { zxid, number }
    }

    /// The watch of this number, fired by the command at `zxid`.
    pub fn of_watch(zxid: Zxid, watch: u32) -> Self {
        let number = FIRST_WATCH.saturating_add(watch).min(u32::MAX - 1);
        Self { zxid, number }
    }

    /// The command's position.
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

/// A text is no position of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not the id of an event")]
pub struct NoPosition;

impl FromStr for EventPosition {
    type Err = NoPosition;

    fn from_str(text: &str) -> Result<Self, NoPosition> {
        // `parse` alone would take a sign.
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

/// Something that happened to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEvent {
    /// It holds a lock from now on, or holds it with a new token: an upgrade is another grant.
    Granted(Arc<Hold>),
    /// It holds a lock on, with fewer rights.
    Downgraded(Grant),
    /// It does not hold a lock any more.
    Lost {
        /// What it held.
        hold: Arc<Hold>,
        /// How that ended.
        how: ContenderEnd,
        /// Who broke it or deleted its znode, as far as the caller had proven who it is.
        by: Option<Arc<str>>,
    },
    /// It waited for a lock, and does not any more.
    LeftQueue {
        /// Which lock.
        lock: LockName,
        /// Its contender.
        holder: HolderId,
        /// How that ended.
        how: ContenderEnd,
    },
    /// It is asked to give a lock up.
    RevokeRequested {
        /// Which lock.
        lock: LockName,
        /// Its contender.
        holder: HolderId,
        /// Who asks.
        by: Arc<str>,
        /// Why.
        reason: Arc<str>,
    },
    /// It is over. Nothing follows.
    Ended {
        /// Whether for want of heartbeats; else at its owner's wish.
        expired: bool,
    },
}

impl SessionEvent {
    /// What it takes to keep it.
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

/// An event with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Where it stands.
    pub at: EventPosition,
    /// When it happened, in milliseconds since 1970, by the log.
    pub time_ms: u64,
    /// What happened.
    pub event: SessionEvent,
}

/// Why nobody can be told of a session's events any more where it follows them. It may begin again, here or elsewhere, after
/// what it was told last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamLost {
    /// Something was let go before it was taken.
    #[error("events were not taken for so long that some were let go")]
    TooSlow,
    /// This node caught up by a snapshot.
    #[error("this node caught up by a snapshot and cannot tell what has happened")]
    StateReplaced,
    /// The node stops.
    #[error("this node stops")]
    NodeStops,
}

/// Too many follow sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooManyStreams {
    /// This one.
    #[error("the session has {limit} streams of events at this node, and may not have more")]
    OfSession {
        /// How many there may be.
        limit: usize,
    },
    /// All of this node.
    #[error("this node has {limit} streams of events, and may not have more")]
    OfNode {
        /// How many there may be.
        limit: usize,
    },
}

/// How much there is of what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionEventCounts {
    /// Those who follow sessions now.
    pub streams: usize,
    /// Events that are kept now.
    pub kept: usize,
    /// What they take.
    pub kept_bytes: usize,
    /// Events that were told since this node has started.
    pub told: u64,
    /// How often somebody came back after something that is not known here any more.
    pub resets: u64,
}

/// What is kept, and who follows.
#[derive(Debug)]
pub struct SessionEvents {
    config: SessionEventsConfig,
    state: Mutex<State>,
    told: AtomicU64,
    resets: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// Of what happened after this, everything is kept.
    complete_after: EventPosition,
    kept: HashMap<SessionId, VecDeque<Kept>>,
    /// Whose the kept ones are, the oldest first, and what each takes.
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
    /// What was told last.
    told: EventPosition,
    lost: Option<StreamLost>,
}

impl SessionEvents {
    pub(super) fn new(config: SessionEventsConfig) -> Self {
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

    /// Keeps what one command did to sessions, and wakes those who follow them. Call it while the state is locked.
    pub fn happened(&self, zxid: Zxid, time_ms: u64, events: &[Event]) {
        // Most commands of most users have to do with no session's locks.
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
            state.keep(session, Kept { at, time_ms, event });
        }
        while state.order.len() > self.config.backlog || state.bytes > self.config.backlog_bytes {
            state.let_one_go();
        }
    }

    /// The state was replaced by one that stands at `zxid`: what happened before is not known.
    pub(super) fn state_replaced(&self, zxid: Zxid) {
        let mut state = self.state.lock();
        state.complete_after = EventPosition::all_of(zxid);
        state.kept = HashMap::new();
        state.order = VecDeque::new();
        state.bytes = 0;
        state.lose_all(StreamLost::StateReplaced);
    }

    /// Lets everybody go, and those who come later.
    pub(super) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopped = true;
        state.lose_all(StreamLost::NodeStops);
    }

    /// Whether all that happened after `position` is kept.
    pub fn knows_all_after(&self, position: EventPosition) -> bool {
        position >= self.state.lock().complete_after
    }

    /// Whether something is kept that happened to the session after `position`.
    pub fn has_any_after(&self, session: SessionId, position: EventPosition) -> bool {
        let state = self.state.lock();
        let last = state.kept.get(&session).and_then(VecDeque::back);
        last.is_some_and(|kept| kept.at > position)
    }

    /// Follows a session from after `told` on. Call it while the state is locked.
    pub fn follow(
        self: &Arc<Self>,
        session: SessionId,
        told: EventPosition,
    ) -> Result<Following, TooManyStreams> {
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
        // What is there already is looked at first.
        wake.notify_one();
        Ok(Following {
            events: self.clone(),
            session,
            number,
            wake,
        })
    }

    /// Somebody came back after something that is not known here any more.
    pub fn count_reset(&self) {
        self.resets.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether anybody follows a session.
    pub fn are_followed(&self) -> bool {
        self.state.lock().streams > 0
    }

    /// How much there is of what.
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
    fn keep(&mut self, session: SessionId, kept: Kept) {
        let bytes = kept.event.bytes();
        self.kept.entry(session).or_default().push_back(kept);
        self.order.push_back((session, bytes));
        self.bytes += bytes;
        for follower in self.followers.get(&session).into_iter().flatten() {
            follower.wake.notify_one();
        }
    }

    /// Lets the oldest go.
    fn let_one_go(&mut self) {
        let (session, bytes) = self.order.pop_front().expect("there is too much");
        let of_session = self.kept.get_mut(&session).expect("it stands in the order");
        let gone = of_session.pop_front().expect("it stands in the order");
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

/// One who follows a session. Dropped, it does not any more.
#[derive(Debug)]
pub struct Following {
    events: Arc<SessionEvents>,
    session: SessionId,
    number: u64,
    wake: Arc<Notify>,
}

impl Following {
    /// What has happened since it was asked last, at most `limit` of it, and whether there is more. `until` is where the state
    /// stands, which is locked: if there is no more, that is what is told by then.
    pub fn take(&self, until: Zxid, limit: usize) -> Result<(Vec<Kept>, bool), StreamLost> {
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

    /// Waits until there may be something new. Given up, it misses nothing.
    pub async fn changed(&self) {
        self.wake.notified().await;
    }
}

impl Drop for Following {
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

/// Whose event it is and what it says to its session; `None`: nothing, or nothing that another one does not say.
pub(super) fn translate(event: &Event, before: Option<&Event>) -> Option<(SessionId, SessionEvent)> {
    match event {
        Event::HoldBegan(hold) => Some((hold.session, SessionEvent::Granted(hold.clone()))),
        // It goes on with a new token, which is told next.
        Event::HoldEnded {
            how: ContenderEnd::Upgraded,
            ..
        } => None,
        Event::HoldEnded { hold, how, by } => {
            let (hold, how, by) = (hold.clone(), how.clone(), by.clone());
            Some((hold.session, SessionEvent::Lost { hold, how, by }))
        }
        // The end of a holder, which was just told.
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
        // An upgrade, which is a grant.
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
        // Told by the beginning of the hold, as grants without a wait are.
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
