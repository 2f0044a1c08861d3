//! Who watches what, for people who ask. It costs a copy of every watch, so nobody should ask often.

use znode_store::{SessionId, ZPath};
use znode_watch::{WatchKind, WatcherId};

use super::Hub;

/// What one watcher waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArmedWatches {
    /// The session that it is for; none if it is for a call that waits for one notice.
    pub session: Option<SessionId>,
    /// Its watches, in the order in which it came to their paths.
    pub watches: Vec<(ZPath, WatchKind)>,
}

impl Hub {
    /// How many watchers have a watch.
    pub fn watching(&self) -> usize {
        let tables = self.tables.lock();
        let has_some = |watcher: &&WatcherId| tables.watches.armed(**watcher).next().is_some();
        tables.outlets.keys().filter(has_some).count()
    }

    /// What each watcher waits for that waits for anything. The tables are locked anew for each of them, so that no event
    /// has to wait until all of a large node's watches are copied. What fires meanwhile may be there or not.
    pub fn armed(&self) -> Vec<ArmedWatches> {
        let watchers: Vec<WatcherId> = self.tables.lock().outlets.keys().copied().collect();
        let armed = watchers.into_iter().filter_map(|watcher| self.armed_by(watcher));
        armed.collect()
    }

    fn armed_by(&self, watcher: WatcherId) -> Option<ArmedWatches> {
        let tables = self.tables.lock();
        if !tables.watches.is_connected(watcher) {
            return None;
        }
        let watches = tables.watches.armed(watcher);
        let watches: Vec<_> = watches.map(|(path, kind)| (path.clone(), kind)).collect();
        (!watches.is_empty()).then(|| ArmedWatches {
            session: tables.connections.session_of(watcher),
            watches,
        })
    }
}
