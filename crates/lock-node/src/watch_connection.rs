//! The watches of one client that stays connected: armed while reading, told in order. How notices travel to the client
//! is the front end's matter.

use std::sync::Arc;

use znode_store::{Identities, SessionId, Store, ZPath, Zxid};
use znode_watch::{NoWatch, Notice, WatchKind, WatchLists, WatcherType};

use crate::replica::Replica;
use observers::notifier::{NotArmed, NotifierConnection, WatchesLost};
use raft_log::sync::RwLockReadGuard;

/// The watches of one client that stays connected. They end when it is dropped.
///
/// A front end that keeps ZooKeeper's promise, that a client hears of a change before it sees it, takes all notices that
/// wait ([`WatchConnection::try_next`]) after it has read what it answers and before it sends the answer. Once the
/// watches are lost it sends no answer any more and closes the connection: what waited has gone with them, and a client
/// that had seen a later position would not ask for it when it comes back.
pub struct WatchConnection {
    replica: Arc<Replica>,
    notifier: NotifierConnection,
}

impl WatchConnection {
    pub(crate) fn new(replica: Arc<Replica>, caller: Identities) -> Self {
        let notifier = replica.observers.notifier.connect(caller);
        Self { replica, notifier }
    }

    /// Connects a client of a session. The connection ends when the session ends or reconnects elsewhere, after the notices that it has.
    pub(crate) fn of_session(
        replica: Arc<Replica>,
        session: SessionId,
        since: Zxid,
        caller: Identities,
    ) -> Result<Self, WatchesLost> {
        let store = replica.store.read();
        let notifier = replica
            .observers
            .notifier
            .connect_session(&store, session, since, caller)?;
        drop(store);
        Ok(Self { replica, notifier })
    }

    /// Locks the state, to read and arm with nothing applied in between. Keep it short, and take no second one meanwhile:
    /// with somebody waiting to apply in between, neither would get on.
    pub fn look(&self) -> WatchingLook<'_> {
        WatchingLook {
            store: self.replica.look(),
            notifier: &self.notifier,
        }
    }

    /// Sets the identities of the client. Notices are checked against them from now on.
    pub fn set_identities(&self, caller: Identities) {
        self.notifier.set_identities(caller);
    }

    /// Removes watches on a path.
    pub fn remove(&self, path: &ZPath, which: WatcherType) -> Result<(), NoWatch> {
        self.notifier.remove(path, which)
    }

    /// Returns whether there is such a watch on exactly this path.
    pub fn is_armed(&self, path: &ZPath, which: WatcherType) -> bool {
        self.notifier.is_armed(path, which)
    }

    /// The next notice, if one waits: all of what was applied before the state was last read here does.
    pub fn try_next(&self) -> Result<Option<Notice>, WatchesLost> {
        self.notifier.queue.try_next()
    }

    /// Waits for the next notice. One task at a time may wait; given up, it can be called again and has taken nothing.
    pub fn next(&self) -> impl Future<Output = Result<Notice, WatchesLost>> + Send {
        self.notifier.queue.next()
    }
}

/// The state, locked for reading, and a client that may leave watches.
pub struct WatchingLook<'a> {
    store: RwLockReadGuard<'a, Store>,
    notifier: &'a NotifierConnection,
}

impl WatchingLook<'_> {
    /// The state.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Arms a watch. One that is armed already stays as it is.
    pub fn arm(&self, kind: WatchKind, path: &ZPath) -> Result<(), NotArmed> {
        self.notifier.arm(kind, path)
    }

    /// Arms the watches that the client had on another connection. What it has missed after `since`, the position that
    /// it saw last, is among the notices when this returns. If there are too many watches they are all lost.
    pub fn rearm(&self, since: Zxid, lists: &WatchLists) -> Result<(), WatchesLost> {
        self.notifier.rearm(&self.store, since, lists)
    }
}
