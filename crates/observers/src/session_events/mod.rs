//! Streams of the events of sessions, for clients that stay connected or resume after a position, here or at another node.
//!
//! Streams have no queues of their own: each has a position in the journal. A stream that is too slow learns that events were removed
//! before it read them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;
use znode_store::{ContenderEnd, Event, Grant, Hold, HolderId, LockName, SessionId};

use crate::config::SessionEventsConfig;
use crate::journal::{EventPosition, Journal, Reader, Record, Ring};
use raft_log::sync::Mutex;

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
    /// Translates an event that the streams of a session deliver; `None` for others.
    pub(crate) fn of(event: &Event) -> Option<Self> {
        Some(match event {
            Event::HoldBegan(hold) => Self::Granted(hold.clone()),
            Event::HoldEnded { hold, how, by } => Self::Lost {
                hold: hold.clone(),
                how: how.clone(),
                by: by.clone(),
            },
            Event::ContenderEnded {
                lock, holder, how, ..
            } => Self::LeftQueue {
                lock: lock.clone(),
                holder: holder.clone(),
                how: how.clone(),
            },
            Event::ModeChanged { grant, .. } => Self::Downgraded(grant.clone()),
            Event::RevokeRequested {
                lock,
                holder,
                by,
                reason,
                ..
            } => Self::RevokeRequested {
                lock: lock.clone(),
                holder: holder.clone(),
                by: by.clone(),
                reason: reason.clone(),
            },
            Event::SessionEnded { expired, .. } => Self::Ended { expired: *expired },
            _ => return None,
        })
    }
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

/// Streams of the events of sessions, which read the journal.
#[derive(Debug)]
pub struct SessionEvents {
    config: SessionEventsConfig,
    journal: Arc<Journal>,
    streams: Mutex<Streams>,
    /// Number of open streams.
    open: AtomicUsize,
    told: AtomicU64,
    resets: AtomicU64,
}

/// Open streams. Lock the journal before them.
#[derive(Debug, Default)]
struct Streams {
    followers: HashMap<SessionId, Vec<Follower>>,
    next_follower: u64,
    is_stopped: bool,
}

#[derive(Debug)]
struct Follower {
    number: u64,
    wake: Arc<Notify>,
    /// Number of the first record of the session that the stream has not delivered.
    unread: Option<u64>,
    lost: Option<StreamLost>,
}

impl SessionEvents {
    pub(crate) fn new(config: SessionEventsConfig, journal: Arc<Journal>) -> Self {
        Self {
            config,
            journal,
            streams: Mutex::default(),
            open: AtomicUsize::new(0),
            told: AtomicU64::new(0),
            resets: AtomicU64::new(0),
        }
    }

    /// Wakes the streams of a session, of which a record was written. The journal is locked.
    pub(crate) fn written(&self, session: SessionId, number: u64) {
        if !self.are_followed() {
            return;
        }
        let mut streams = self.streams.lock();
        for follower in streams.followers.get_mut(&session).into_iter().flatten() {
            follower.unread.get_or_insert(number);
            follower.wake.notify_one();
        }
    }

    /// Ends all streams: the state was replaced by a snapshot's.
    pub(crate) fn state_replaced(&self) {
        self.streams.lock().lose_all(StreamLost::StateReplaced);
    }

    /// Ends all streams, and those that begin later.
    pub(crate) fn stop(&self) {
        let mut streams = self.streams.lock();
        streams.is_stopped = true;
        streams.lose_all(StreamLost::NodeStops);
    }

    /// Returns whether everything that happened after `position` is stored.
    pub fn knows_all_after(&self, position: EventPosition) -> bool {
        let ring = self.journal.lock();
        position >= ring.complete_after(Reader::Sessions, ring.first())
    }

    /// Returns whether an event of the session after `position` is stored.
    pub fn has_any_after(&self, session: SessionId, position: EventPosition) -> bool {
        first_unread(&self.journal.lock(), session, position).is_some()
    }

    /// Begins a stream of a session's events after `told`. Call it while the state is locked.
    pub fn follow(
        self: &Arc<Self>,
        session: SessionId,
        told: EventPosition,
    ) -> Result<SessionEventStream, TooManyStreams> {
        let unread = first_unread(&self.journal.lock(), session, told);
        let mut streams = self.streams.lock();
        let limit = self.config.streams_per_node;
        if self.open.load(Ordering::Relaxed) >= limit {
            return Err(TooManyStreams::OfNode { limit });
        }
        let (number, is_stopped) = (streams.next_follower, streams.is_stopped);
        let followers = streams.followers.entry(session).or_default();
        let limit = self.config.streams_per_session;
        if followers.len() >= limit {
            return Err(TooManyStreams::OfSession { limit });
        }
        let wake = Arc::new(Notify::new());
        followers.push(Follower {
            number,
            wake: wake.clone(),
            unread,
            lost: is_stopped.then_some(StreamLost::NodeStops),
        });
        streams.next_follower += 1;
        self.open.fetch_add(1, Ordering::Relaxed);
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
        self.open.load(Ordering::Relaxed) > 0
    }

    /// Returns the numbers of streams and events.
    pub fn counts(&self) -> SessionEventCounts {
        let ring = self.journal.lock();
        SessionEventCounts {
            streams: self.open.load(Ordering::Relaxed),
            kept: ring.len(),
            kept_bytes: ring.bytes(),
            told: self.told.load(Ordering::Relaxed),
            resets: self.resets.load(Ordering::Relaxed),
        }
    }
}

/// Returns the number of the first record of a session after a position.
fn first_unread(ring: &Ring, session: SessionId, after: EventPosition) -> Option<u64> {
    let first = ring.first_after(Reader::Sessions, after);
    Some(ring.of_session(session, first).next()?.0)
}

impl Streams {
    fn lose_all(&mut self, why: StreamLost) {
        for follower in self.followers.values_mut().flatten() {
            follower.lost.get_or_insert(why);
            follower.wake.notify_one();
        }
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
    /// Returns the next events, at most `limit`, and whether there are more. Call it while the state is locked: without more events the
    /// stream is at the position of the state.
    pub fn take(&self, limit: usize) -> Result<(Vec<StoredEvent>, bool), StreamLost> {
        let ring = self.events.journal.lock();
        let mut streams = self.events.streams.lock();
        let followers = streams.followers.get_mut(&self.session).into_iter().flatten();
        let mut mine = followers.filter(|follower| follower.number == self.number);
        let follower = mine.next().expect("it follows until it is dropped");
        if follower.unread.is_some_and(|unread| unread < ring.first()) {
            follower.lost.get_or_insert(StreamLost::TooSlow);
        }
        if let Some(lost) = follower.lost {
            return Err(lost);
        }
        let first = follower.unread.unwrap_or(ring.end());
        let mut unread = ring.of_session(self.session, first);
        let stored = |(_, record): (_, &Record)| {
            Some(StoredEvent {
                at: record.at(Reader::Sessions),
                time_ms: record.time_ms,
                event: SessionEvent::of(&record.event)?,
            })
        };
        let taken: Vec<_> = unread.by_ref().take(limit).filter_map(stored).collect();
        follower.unread = unread.next().map(|(number, _)| number);
        let more = follower.unread.is_some();
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
        let mut streams = self.events.streams.lock();
        if let Some(followers) = streams.followers.get_mut(&self.session) {
            followers.retain(|follower| follower.number != self.number);
            if followers.is_empty() {
                streams.followers.remove(&self.session);
            }
        }
        self.events.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
