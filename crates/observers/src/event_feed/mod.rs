//! Feed of the latest events of all locks and sessions, for dashboards. It reads the journal when a subscriber asks. A subscriber that reads
//! too seldom learns that events are missing.

use std::sync::Arc;

use tokio::sync::watch;
use znode_store::{AccessChange, Event, HolderId, LockName, SessionId, ZPath, lock_of_contender};

use crate::journal::{EventPosition, Journal, Reader, Record};
use crate::session_events::SessionEvent;

/// Maximum number of events of the journal that the feed shows. A page that opens shows the last hundred; the rest serves requests for few of
/// many locks.
pub const MAX_FEED_EVENTS: usize = 8192;

/// Maximum number of subscribers of a node: people with an open dashboard, some with several. Each is notified a few times a second at
/// most.
pub const MAX_FEED_SUBSCRIBERS: usize = 64;

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

impl FeedEvent {
    /// Translates a record. Returns `None` if the feed does not show it.
    fn of(record: &Record) -> Option<Self> {
        let what = match &record.event {
            Event::Znode(created) => FeedEventKind::Queued {
                contender: created.path.clone(),
            },
            Event::RevokeAnswered {
                session,
                lock,
                holder,
                answer,
            } => FeedEventKind::RevokeAnswered {
                session: *session,
                lock: lock.clone(),
                holder: holder.clone(),
                answer: answer.clone(),
            },
            Event::LockClosed { lock, delay_ms } => FeedEventKind::Closed {
                lock: lock.clone(),
                delay_ms: *delay_ms,
            },
            Event::LockOpened(lock) => FeedEventKind::Opened(lock.clone()),
            Event::SessionOpened(session) => FeedEventKind::SessionOpened(*session),
            Event::AccessChanged(change) => FeedEventKind::AccessChanged(change.clone()),
            other => FeedEventKind::ToSession {
                session: record.session?,
                event: SessionEvent::of(other)?,
            },
        };
        Some(Self {
            at: record.at(Reader::Feed),
            time_ms: record.time_ms,
            what,
        })
    }
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

/// Reader of the journal for dashboards.
#[derive(Debug)]
pub struct EventFeed {
    journal: Arc<Journal>,
    /// Number of changes. Subscribers wait for it.
    changes: watch::Sender<u64>,
}

impl EventFeed {
    pub(crate) fn new(journal: Arc<Journal>) -> Self {
        Self {
            journal,
            changes: watch::Sender::new(0),
        }
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
        let ring = self.journal.lock();
        let oldest = ring
            .end()
            .saturating_sub(MAX_FEED_EVENTS as u64)
            .max(ring.first());
        let first = after.map_or(0, |after| ring.first_after(Reader::Feed, after));
        let happened = ring.from(first.max(oldest)).rev();
        let mut meant = happened
            .filter_map(|(_, record)| FeedEvent::of(record))
            .filter(is_meant);
        let mut latest: Vec<_> = meant.by_ref().take(count).collect();
        latest.reverse();
        let was_let_go = after.is_some_and(|after| after < ring.complete_after(Reader::Feed, oldest));
        FeedPage {
            more: was_let_go || meant.next().is_some(),
            latest,
        }
    }
}

#[cfg(test)]
mod tests;
