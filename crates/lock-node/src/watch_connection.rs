//! Watches of one client that stays connected. They are armed together with a read, and their notices are delivered in order. The front end sends
//! the notices to the client.

use std::sync::Arc;

use znode_store::{Identities, SessionId, Store, ZPath, Zxid};
use znode_watch::{NoWatch, Notice, WatchKind, WatchLists, WatcherType};

use crate::replica::Replica;
use observers::notifier::{NotArmed, NotifierConnection, WatchesLost};
use raft_log::sync::RwLockReadGuard;

/// Watches of one client that stays connected. Dropping it disarms them.
///
/// ZooKeeper guarantees that a client receives the notice of a change before it sees the change. For this a front end takes all queued notices
/// ([`WatchConnection::try_next`]) after it has read the state for an answer, and before it sends the answer. Once the watches are lost, it sends no
/// answer any more and closes the connection. The queued notices are lost with the watches, and a client that had seen a later position would not
/// request them when it reconnects.
pub struct WatchConnection {
    replica: Arc<Replica>,
    notifier: NotifierConnection,
}

impl WatchConnection {
    pub(crate) fn new(replica: Arc<Replica>, caller: Identities) -> Self {
        let notifier = replica.observers.notifier.connect(caller);
        Self { replica, notifier }
    }

    /// Connects a client of a session. The connection ends when the session ends or reconnects elsewhere, after it has delivered its queued notices.
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

    /// Locks the state, to read it and arm watches with no command applied in between. Hold the lock only briefly, and take no second one meanwhile:
    /// if the apply loop waits for the lock in between, both would deadlock.
    pub fn read(&self) -> WatchedRead<'_> {
        WatchedRead {
            store: self.replica.read(),
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

    /// Returns the next queued notice, if there is one. The notices of everything that was applied before the last read of the state here are queued.
    pub fn try_next(&self) -> Result<Option<Notice>, WatchesLost> {
        self.notifier.queue.try_next()
    }

    /// Waits for the next notice. Only one task may wait at a time. Cancelling the wait loses no notice.
    pub fn next(&self) -> impl Future<Output = Result<Notice, WatchesLost>> + Send {
        self.notifier.queue.next()
    }
}

/// State that is locked for reading, with the connection on which watches can be armed.
pub struct WatchedRead<'a> {
    store: RwLockReadGuard<'a, Store>,
    notifier: &'a NotifierConnection,
}

impl WatchedRead<'_> {
    /// Returns the state.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Arms a watch. A watch that is already armed stays as it is.
    pub fn arm(&self, kind: WatchKind, path: &ZPath) -> Result<(), NotArmed> {
        self.notifier.arm(kind, path)
    }

    /// Arms the watches that the client had on another connection. `since` is the position that the client saw last; the notices of later changes are
    /// queued on return. If there are too many watches, all of them are lost.
    pub fn rearm(&self, since: Zxid, lists: &WatchLists) -> Result<(), WatchesLost> {
        self.notifier.rearm(&self.store, since, lists)
    }
}
