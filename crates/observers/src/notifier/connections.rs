//! Which connection of this node is for which session. It has the connections that are there, and none that has ended.

use std::collections::HashMap;

use znode_store::{SessionId, Store, Zxid};
use znode_watch::WatcherId;

use super::WatchesLost;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct SessionConnections {
    by_session: HashMap<SessionId, Connection>,
    sessions: HashMap<WatcherId, SessionId>,
}

#[derive(Debug, Clone, Copy)]
struct Connection {
    watcher: WatcherId,
    since: Zxid,
}

/// Whether a session lives, and its newest connection is that since `since`.
pub(super) fn still_there(store: &Store, session: SessionId, since: Zxid) -> Result<(), WatchesLost> {
    match store.session(session) {
        None => Err(WatchesLost::SessionEnded),
        Some(view) if view.connected_at != since => Err(WatchesLost::SessionMoved),
        Some(_) => Ok(()),
    }
}

impl SessionConnections {
    /// Adds the connection of a session. Returns the one that the session had here before.
    pub(super) fn add(&mut self, session: SessionId, since: Zxid, watcher: WatcherId) -> Option<WatcherId> {
        let before = self.take(session);
        self.by_session.insert(session, Connection { watcher, since });
        self.sessions.insert(watcher, session);
        before
    }

    /// A connection is gone.
    pub(super) fn forget(&mut self, watcher: WatcherId) {
        if let Some(session) = self.sessions.remove(&watcher) {
            self.by_session.remove(&session);
        }
    }

    /// The session that a connection is for, if it is for one.
    pub(super) fn session_of(&self, watcher: WatcherId) -> Option<SessionId> {
        self.sessions.get(&watcher).copied()
    }

    /// A session has ended. Returns its connection.
    pub(super) fn ended(&mut self, session: SessionId) -> Option<WatcherId> {
        self.take(session)
    }

    /// A session goes on on a connection since `since`. Returns the one that it had here, if it is another.
    pub(super) fn moved(&mut self, session: SessionId, since: Zxid) -> Option<WatcherId> {
        let connection = self.by_session.get(&session)?;
        if connection.since == since {
            return None;
        }
        self.take(session)
    }

    /// The state was replaced: the connections that are not for a session of it any more, and why.
    pub(super) fn gone_from(&mut self, store: &Store) -> Vec<(WatcherId, WatchesLost)> {
        let mut gone = Vec::new();
        self.by_session.retain(|&session, connection| {
            let there = still_there(store, session, connection.since);
            if let Err(why) = there {
                gone.push((connection.watcher, why));
            }
            there.is_ok()
        });
        for (watcher, _) in &gone {
            self.sessions.remove(watcher);
        }
        gone
    }

    fn take(&mut self, session: SessionId) -> Option<WatcherId> {
        let connection = self.by_session.remove(&session)?;
        self.sessions.remove(&connection.watcher);
        Some(connection.watcher)
    }
}
