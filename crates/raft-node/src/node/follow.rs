//! Following the events of a session at this node.

use znode_store::{SessionFate, SessionId};

use super::Node;
use crate::hub::session_events::{EventPosition, SessionEventCounts};
use crate::session_stream::{FollowError, SessionStream, StreamLook};

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
        self.working().map_err(FollowError::from)?;
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

    /// How many follow sessions here, and how much is kept for them.
    pub fn session_event_counts(&self) -> SessionEventCounts {
        self.inner.replica.hub.sessions.counts()
    }
}
