//! Feed of the latest events of all locks and sessions, for dashboards. Every node stores the same events at the same positions. A
//! subscriber that reads too seldom learns that events are missing.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::watch;
use znode_store::{
    AccessChange, Event, HolderId, LockName, SessionId, ZPath, ZnodeEventKind, Zxid, lock_of_contender,
};

use crate::session_events::{EventPosition, SessionEvent, translate};
use raft_log::sync::Mutex;

/// Maximum number of stored events. A page that opens shows the last hundred; the rest serves requests for few of many locks.
pub const MAX_FEED_EVENTS: usize = 8192;

/// Number of events of one command that are added before the oldest are removed. If a command has more, the buffer grows once.
const ROOM_FOR_ONE_COMMAND: usize = 64;

/// Maximum number of subscribers of a node: people with an open dashboard, some with several. Each is notified a few times a second at
/// most.
pub const MAX_FEED_SUBSCRIBERS: usize = 64;

/// Prefix of contenders' znodes.
const BELOW_LOCKS: &str = "/locks/";

/// Event of a lock or of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedEvent {
    /// Position of its command in the log, and its number within the command.
    pub at: EventPosition,
    /// Time in milliseconds since 1970, by the log.
    pub time_ms: u64,
    /// Kind, with what belongs to it.
    pub what: FeedEventKind,
}

/// Kind of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedEventKind {
    /// A contender waits for a lock.
    Queued {
        /// Znode of the contender; its last part is the holder id.
        contender: ZPath,
    },
    /// Event that the session's stream also has.
    ToSession {
        /// Session.
        session: SessionId,
        /// Event.
        event: SessionEvent,
    },
    /// A holder has answered a release request.
    RevokeAnswered {
        /// Session of the holder.
        session: SessionId,
        /// Lock.
        lock: LockName,
        /// Holder.
        holder: HolderId,
        /// Answer.
        answer: Arc<str>,
    },
    /// The session of a holder with a lock delay expired, so the lock is closed for a while.
    Closed {
        /// Lock.
        lock: LockName,
        /// Lock delay.
        delay_ms: u32,
    },
    /// The lock delay is over.
    Opened(LockName),
    /// A session was opened.
    SessionOpened(SessionId),
    /// Tokens, roles or certificates changed.
    AccessChanged(Arc<AccessChange>),
}

impl FeedEventKind {
    /// Returns the lock that the event concerns.
    pub fn lock(&self) -> Option<LockName> {
        match self {
            Self::Queued { contender } => lock_of_contender(contender),
            Self::ToSession { event, .. } => match event {
                SessionEvent::Granted(hold) | SessionEvent::Lost { hold, .. } => Some(hold.lock.clone()),
                SessionEvent::Downgraded(grant) => Some(grant.lock.clone()),
                SessionEvent::LeftQueue { lock, .. } | SessionEvent::RevokeRequested { lock, .. } => {
                    Some(lock.clone())
                }
                SessionEvent::Ended { .. } => None,
            },
            Self::RevokeAnswered { lock, .. } | Self::Closed { lock, .. } | Self::Opened(lock) => {
                Some(lock.clone())
            }
            Self::SessionOpened(_) | Self::AccessChanged(_) => None,
        }
    }
}

/// Page of the feed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeedPage {
    /// Latest events, in order.
    pub latest: Vec<FeedEvent>,
    /// Events since the last page are missing in this one.
    pub more: bool,
}

/// The node has the maximum number of subscribers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this node has {MAX_FEED_SUBSCRIBERS} subscribers of its event feed, the maximum")]
pub struct TooManyFeedSubscribers;

/// Ring of the latest events.
#[derive(Debug)]
pub struct EventFeed {
    ring: Mutex<Ring>,
    /// Number of changes. Subscribers wait for it.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct Ring {
    /// Everything that happened after this position is stored.
    complete_after: EventPosition,
    /// One piece of memory: an event is read again only when it is removed, long after it has left the processor's caches, and neighbours
    /// come back together.
    events: VecDeque<FeedEvent>,
}

impl EventFeed {
    pub(crate) fn new() -> Self {
        Self {
            ring: Mutex::new(Ring {
                complete_after: EventPosition::all_of(Zxid(0)),
                // A buffer that grows piece by piece would leave unused memory behind. Untouched, it takes no memory.
                events: VecDeque::with_capacity(MAX_FEED_EVENTS + ROOM_FOR_ONE_COMMAND),
            }),
            changes: watch::Sender::new(0),
        }
    }

    /// Stores the events of one command. Call it while the state is locked.
    pub fn add(&self, zxid: Zxid, time_ms: u64, events: &[Event]) {
        let mut numbers = 1..;
        let mut new = events.iter().enumerate().filter_map(|(place, event)| {
            let before = place.checked_sub(1).map(|before| &events[before]);
            let what = what(event, before, events)?;
            let at = EventPosition::of_event(zxid, numbers.next()?);
            Some(FeedEvent { at, time_ms, what })
        });
        let Some(first) = new.next() else {
            return;
        };
        let mut ring = self.ring.lock();
        ring.events.push_back(first);
        ring.events.extend(new);
        while ring.events.len() > MAX_FEED_EVENTS {
            let gone = ring.events.pop_front().expect("there are too many");
            ring.complete_after = gone.at;
        }
        drop(ring);
        self.changed();
    }

    /// Removes all events: the state was replaced by one at `zxid`, and what happened before it is unknown.
    pub(crate) fn state_replaced(&self, zxid: Zxid) {
        let mut ring = self.ring.lock();
        ring.complete_after = EventPosition::all_of(zxid);
        ring.events.clear();
        drop(ring);
        self.changed();
    }

    /// Wakes the subscribers.
    pub fn changed(&self) {
        // Most of the time there is no subscriber. A new one reads what is stored already.
        if self.changes.receiver_count() > 0 {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    /// Subscribes to the feed. The receiver changes when there may be new events.
    pub fn subscribe(&self) -> Result<watch::Receiver<u64>, TooManyFeedSubscribers> {
        match self.changes.receiver_count() < MAX_FEED_SUBSCRIBERS {
            true => Ok(self.changes.subscribe()),
            false => Err(TooManyFeedSubscribers),
        }
    }

    /// Returns the latest `count` events after `after` that match `is_meant`. Without `after`, of all that are stored.
    pub fn after(
        &self,
        after: Option<EventPosition>,
        count: usize,
        is_meant: impl Fn(&FeedEvent) -> bool,
    ) -> FeedPage {
        let ring = self.ring.lock();
        let first = after.map_or(0, |after| ring.events.partition_point(|event| event.at <= after));
        let mut meant = ring.events.range(first..).rev().filter(|event| is_meant(event));
        let mut latest: Vec<_> = meant.by_ref().take(count).cloned().collect();
        latest.reverse();
        let was_let_go = after.is_some_and(|after| after < ring.complete_after);
        FeedPage {
            more: was_let_go || meant.next().is_some(),
            latest,
        }
    }
}

/// Translates an event for the feed. Returns `None` if the feed does not show it, or shows it by another event.
fn what(event: &Event, before: Option<&Event>, all: &[Event]) -> Option<FeedEventKind> {
    match event {
        Event::Znode(changed)
            if changed.kind == ZnodeEventKind::Created && changed.path.as_str().starts_with(BELOW_LOCKS) =>
        {
            let holder = changed.path.name();
            // A contender that is granted at once has not waited.
            let holds = |event: &Event| matches!(event, Event::HoldBegan(hold) if *hold.holder == *holder);
            let waits = !all.iter().any(holds) && lock_of_contender(&changed.path).is_some();
            let contender = changed.path.clone();
            waits.then_some(FeedEventKind::Queued { contender })
        }
        Event::RevokeAnswered {
            session,
            lock,
            holder,
            answer,
        } => Some(FeedEventKind::RevokeAnswered {
            session: *session,
            lock: lock.clone(),
            holder: holder.clone(),
            answer: answer.clone(),
        }),
        Event::LockClosed { lock, delay_ms } => Some(FeedEventKind::Closed {
            lock: lock.clone(),
            delay_ms: *delay_ms,
        }),
        Event::LockOpened(lock) => Some(FeedEventKind::Opened(lock.clone())),
        Event::SessionOpened(session) => Some(FeedEventKind::SessionOpened(*session)),
        Event::AccessChanged(change) => Some(FeedEventKind::AccessChanged(change.clone())),
        other => translate(other, before).map(|(session, event)| FeedEventKind::ToSession { session, event }),
    }
}

#[cfg(test)]
mod tests;
