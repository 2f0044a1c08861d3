//! Connections of this node that belong to a session. Only connections that have not ended are in it.

use std::collections::HashMap;

use znode_store::{SessionId, Store, Zxid};
use znode_watch::WatcherId;

use super::WatchesLost;

/// Present connections of sessions.
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

/// Returns an error if a session has ended, or has a newer connection than that since `since`.
pub(super) fn still_there(store: &Store, session: SessionId, since: Zxid) -> Result<(), WatchesLost> {
    match store.session(session) {
        None => Err(WatchesLost::SessionEnded),
        Some(view) if view.connected_at != since => Err(WatchesLost::SessionMoved),
        Some(_) => Ok(()),
    }
}

impl SessionConnections {
    /// Adds the connection of a session. Returns the former one.
    pub(super) fn add(&mut self, session: SessionId, since: Zxid, watcher: WatcherId) -> Option<WatcherId> {
        let before = self.take(session);
        self.by_session.insert(session, Connection { watcher, since });
        self.sessions.insert(watcher, session);
        before
    }

    /// Removes a connection.
    pub(super) fn forget(&mut self, watcher: WatcherId) {
        if let Some(session) = self.sessions.remove(&watcher) {
            self.by_session.remove(&session);
        }
    }

    /// Returns the session that a connection belongs to.
    pub(super) fn session_of(&self, watcher: WatcherId) -> Option<SessionId> {
        self.sessions.get(&watcher).copied()
    }

    /// Removes the connection of a session that has ended. Returns it.
    pub(super) fn ended(&mut self, session: SessionId) -> Option<WatcherId> {
        self.take(session)
    }

    /// Handles a session that reconnected at `since`. Returns its former connection here.
    pub(super) fn moved(&mut self, session: SessionId, since: Zxid) -> Option<WatcherId> {
        let connection = self.by_session.get(&session)?;
        if connection.since == since {
            return None;
        }
        self.take(session)
    }

    /// Removes the connections whose session does not exist in the new state, or has moved. Returns them with the reason.
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
