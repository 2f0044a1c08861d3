//! Subscriptions at this node: the events of one session, and the event feed.

use tokio::sync::watch;
use znode_store::{SessionFate, SessionId, Store};

use super::Node;
use crate::session_stream::{FollowError, SessionStream, StreamOpening};
use observers::event_feed::{FeedEvent, FeedPage, TooManyFeedSubscribers};
use observers::journal::EventPosition;
use observers::session_events::SessionEventCounts;

impl Node {
    /// Begins a stream of a session's events: from now on, or after the last event that this or another node delivered. `look` reads the state and
    /// arms watches at the position where the stream begins; the stream delivers all later events.
    ///
    /// A node that is behind that position, or has not applied the session's opening, catches up first.
    pub async fn follow_session<T, E: From<FollowError>>(
        &self,
        session: SessionId,
        after: Option<EventPosition>,
        look: impl FnOnce(&mut StreamOpening<'_>) -> Result<T, E>,
    ) -> Result<(T, SessionStream), E> {
        self.serving().map_err(FollowError::from)?;
        let is_behind = self.read(|store| {
            let is_ahead = after.is_some_and(|after| after.zxid() > store.zxid());
            is_ahead || store.session_fate(session) == SessionFate::Unknown
        });
        if is_behind {
            // Streams deliver committed events only, so a position that is unknown after this belongs to another cluster.
            self.read_barrier().await.map_err(FollowError::from)?;
        }
        SessionStream::begin(&self.inner.replica, session, after, look)
    }

    /// Subscribes to the events of all locks and sessions. The receiver changes when there may be new events; read them with
    /// [`Node::feed_events`].
    pub fn subscribe_feed(&self) -> Result<watch::Receiver<u64>, TooManyFeedSubscribers> {
        self.inner.replica.observers.feed.subscribe()
    }

    /// Returns the latest `count` events of the feed after `after` that match `is_meant`, with a read of the state at the same position.
    /// The caller checks which events its client may see.
    pub fn feed_events<T>(
        &self,
        after: Option<EventPosition>,
        count: usize,
        is_meant: impl Fn(&FeedEvent) -> bool,
        look: impl FnOnce(&Store, FeedPage) -> T,
    ) -> T {
        // The lock of the state excludes a command whose events are only partly in the feed.
        self.read(|store| {
            let page = self.inner.replica.observers.feed.after(after, count, is_meant);
            look(store, page)
        })
    }

    /// Returns the numbers of streams and of stored events.
    pub fn session_event_counts(&self) -> SessionEventCounts {
        self.inner.replica.observers.session_events.counts()
    }
}
