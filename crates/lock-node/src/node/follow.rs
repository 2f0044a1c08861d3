//! Following the events of a session at this node.

use tokio::sync::watch;
use znode_store::{SessionFate, SessionId, Store};

use super::Node;
use crate::session_stream::{FollowError, SessionStream, StreamLook};
use observers::hub::happenings::{Happening, Happenings, TooManyOnlookers};
use observers::hub::session_events::{EventPosition, SessionEventCounts};

impl Node {
    /// Follows a session: from now on, or from after what was told last, here or at another node. `look` reads the state and arms
    /// watches at the position where the stream begins; what happens later is told by the stream.
    ///
    /// A node that is behind the one where the position comes from, or the session was opened, waits until it is not.
    pub async fn follow_session<T, E: From<FollowError>>(
        &self,
        session: SessionId,
        after: Option<EventPosition>,
        look: impl FnOnce(&mut StreamLook<'_>) -> Result<T, E>,
    ) -> Result<(T, SessionStream), E> {
        self.serving().map_err(FollowError::from)?;
        let is_behind = self.read(|store| {
            let is_ahead = after.is_some_and(|after| after.zxid() > store.zxid());
            is_ahead || store.session_fate(session) == SessionFate::Unknown
        });
        if is_behind {
            // Only what is committed is ever told: a position that is not known after this is another cluster's.
            self.read_barrier().await.map_err(FollowError::from)?;
        }
        SessionStream::begin(&self.inner.replica, session, after, look)
    }

    /// Looks on what happens to all locks and sessions: it changes when something may have happened, to be looked at with
    /// [`Node::happenings`].
    pub fn look_on(&self) -> Result<watch::Receiver<u64>, TooManyOnlookers> {
        self.inner.replica.hub.recent.look_on()
    }

    /// The latest `count` of what happened after `after`, or of all that is kept, and `is_meant`, with a look at the state behind it.
    /// Who may hear of it is for the caller to judge.
    pub fn happenings<T>(
        &self,
        after: Option<EventPosition>,
        count: usize,
        is_meant: impl Fn(&Happening) -> bool,
        look: impl FnOnce(&Store, Happenings) -> T,
    ) -> T {
        // With the state locked no command is half told.
        self.read(|store| {
            let happenings = self.inner.replica.hub.recent.after(after, count, is_meant);
            look(store, happenings)
        })
    }

    /// How many follow sessions here, and how much is kept for them.
    pub fn session_event_counts(&self) -> SessionEventCounts {
        self.inner.replica.hub.sessions.counts()
    }
}
