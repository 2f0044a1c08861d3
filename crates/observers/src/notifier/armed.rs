//! List of all watches, for administrators. It costs a copy of every watch, so it is for rare requests.

use znode_store::{SessionId, ZPath};
use znode_watch::{WatchKind, WatcherId};

use super::Notifier;

/// Watches of one watcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArmedWatches {
    /// Session of the connection; `None` for a call that waits for one notice.
    pub session: Option<SessionId>,
    /// Watches, in the order in which they were armed.
    pub watches: Vec<(ZPath, WatchKind)>,
}

impl Notifier {
    /// Returns the number of watchers that have a watch.
    pub fn watching(&self) -> usize {
        let tables = self.tables.lock();
        let has_some = |watcher: &&WatcherId| tables.watches.armed(**watcher).next().is_some();
        tables.subscribers.keys().filter(has_some).count()
    }

    /// Returns the watches of each watcher that has some. The tables are locked again for each watcher, so that no event waits until all
    /// watches of a large node are copied. Watches that fire meanwhile may be in the list or not.
    pub fn armed(&self) -> Vec<ArmedWatches> {
        let watchers: Vec<WatcherId> = self.tables.lock().subscribers.keys().copied().collect();
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
