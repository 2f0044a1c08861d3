//! The notices that wait for one client's connection, in order and bounded: a client that does not read loses its
//! connection, never a notice.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;
use znode_watch::{Notice, TooManyWatches};

/// How many places an empty queue may keep; what a burst needed beyond that is given back.
const KEPT_CAPACITY: usize = 64;

/// Why the watches of a connection are gone. The client has to connect again, arm them again by the position that it
/// has seen last, and read again what it watched persistently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WatchesLost {
    /// More notices wait for the client than may.
    #[error("more notices wait for the client than are kept for one")]
    TooSlow,
    /// This node caught up by a snapshot, and what a persistent watch would have told is not known.
    #[error("this node caught up by a snapshot and cannot tell what has happened")]
    StateReplaced,
    /// The client could not be given back all watches that it had.
    #[error(transparent)]
    NotRearmed(#[from] TooManyWatches),
    /// The node stops.
    #[error("this node stops")]
    NodeStops,
    /// The session that the connection is for has ended.
    #[error("the session has ended")]
    SessionEnded,
    /// The session that the connection is for goes on on another one.
    #[error("the session has moved to another connection")]
    SessionMoved,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    state: Mutex<State>,
    /// Something has come. One task waits.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    notices: VecDeque<Notice>,
    lost: Option<WatchesLost>,
    /// It is lost when what waits is taken.
    ends: Option<WatchesLost>,
}

impl Backlog {
    /// Adds a notice, unless so many wait already.
    pub(super) fn push(&self, notice: Notice, bound: usize) -> Result<(), WatchesLost> {
        let mut state = self.state.lock();
        if state.notices.len() >= bound {
            return Err(WatchesLost::TooSlow);
        }
        state.notices.push_back(notice);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Ends it. What still waits goes, too: the client asks for all of it when it comes back.
    pub(super) fn lose(&self, why: WatchesLost) {
        let mut state = self.state.lock();
        state.notices = VecDeque::new();
        state.lost.get_or_insert(why);
        drop(state);
        self.changed.notify_one();
    }

    /// Ends it after what still waits: nothing more will come.
    pub(super) fn end(&self, why: WatchesLost) {
        let mut state = self.state.lock();
        state.ends.get_or_insert(why);
        drop(state);
        self.changed.notify_one();
    }

    /// Why it has ended, if it has.
    pub(super) fn lost(&self) -> Option<WatchesLost> {
        let state = self.state.lock();
        state.lost.or(state.ends)
    }

    /// The next notice, if one waits.
    pub(crate) fn try_next(&self) -> Result<Option<Notice>, WatchesLost> {
        let mut state = self.state.lock();
        if let Some(lost) = state.lost {
            return Err(lost);
        }
        let next = state.notices.pop_front();
        if let (None, Some(ended)) = (&next, state.ends) {
            return Err(ended);
        }
        if state.notices.is_empty() {
            state.notices.shrink_to(KEPT_CAPACITY);
        }
        Ok(next)
    }

    /// Waits for the next notice. Given up, it has taken none.
    pub(crate) async fn next(&self) -> Result<Notice, WatchesLost> {
        loop {
            if let Some(notice) = self.try_next()? {
                return Ok(notice);
            }
            self.changed.notified().await;
        }
    }
}
