//! Registry of watches and pending lock grants on this node; the apply loop notifies it. It gets the events of each applied command, in
//! order and while the state is locked. So a reader that arms a watch in one go misses nothing and gets nothing twice, and a notice is
//! queued before anybody can read the change.
//!
//! [`znode_watch`] decides which watchers a change concerns; this module delivers the notices. Watches are not replicated. They end with
//! the node that the client is connected to.

mod armed;
mod notification_queue;
mod connections;
mod grants;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::sync::watch;
use znode_store::{
    ContenderEnd, Event, HolderId, Identities, LockName, SessionId, Store, Visibility, ZPath, Zxid,
};
use znode_watch::{
    NoWatch, Notice, TooManyWatches, WatchCounts, WatchKind, WatchLists, WatcherId, WatcherType, Watches,
};

pub use self::armed::ArmedWatches;
use self::connections::SessionConnections;
pub use self::grants::{GrantWait, WaitOutcome};
use self::grants::{Grants, Until};
pub use self::notification_queue::{NotificationQueue, WatchesLost};
use crate::config::WatchConfig;
use raft_log::sync::Mutex;

/// A watch that was armed for one notice. Dropping it disarms it.
#[derive(Debug)]
pub struct Watcher {
    told: oneshot::Receiver<Notice>,
    _registration: Registration,
}

impl Watcher {
    /// Waits for the notice. `None`: the node stops, or caught up by a snapshot and cannot know the events.
    pub async fn fired(mut self) -> Option<Notice> {
        (&mut self.told).await.ok()
    }

    /// Polls for the notice. It must not be polled again after it was ready.
    pub fn poll_fired(&mut self, cx: &mut Context<'_>) -> Poll<Option<Notice>> {
        Pin::new(&mut self.told).poll(cx).map(Result::ok)
    }

    /// Checks for the notice at this moment, also in a task whose budget of the runtime is used up.
    pub fn try_fired(&mut self) -> Poll<Option<Notice>> {
        match self.told.try_recv() {
            Ok(notice) => Poll::Ready(Some(notice)),
            Err(TryRecvError::Closed) => Poll::Ready(None),
            Err(TryRecvError::Empty) => Poll::Pending,
        }
    }
}

/// Registration of a watcher. Dropping it removes the watcher.
#[derive(Debug)]
pub struct Registration {
    notifier: Arc<Notifier>,
    watcher: WatcherId,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut tables = self.notifier.tables.lock();
        tables.subscribers.remove(&self.watcher);
        tables.connections.forget(self.watcher);
        tables.watches.disconnect(self.watcher);
    }
}

/// Reason why a watch was not armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotArmed {
    /// The node or the client has too many watches.
    #[error(transparent)]
    TooMany(#[from] TooManyWatches),
    /// The watches of the connection are lost.
    #[error(transparent)]
    Lost(#[from] WatchesLost),
}

/// Receiver of a watcher's notices.
#[derive(Debug)]
enum Subscriber {
    /// Call that waits for one notice.
    Once(oneshot::Sender<Notice>),
    /// Connected client.
    Connection(Arc<NotificationQueue>),
}

#[derive(Debug)]
struct Tables {
    watches: Watches,
    /// Receivers of the watchers that are connected to `watches`, and no others.
    subscribers: HashMap<WatcherId, Subscriber>,
    /// Watchers that got their last notice just now.
    over: Vec<WatcherId>,
    grants: Grants,
    /// Connections of sessions, which end with their session.
    connections: SessionConnections,
    is_stopped: bool,
}

/// Registry of all watches and waits of this node.
#[derive(Debug)]
pub struct Notifier {
    tables: Mutex<Tables>,
    /// Maximum length of a notification queue.
    queue_bound: usize,
    /// Number of changes of access rights, or of states in which they may have changed.
    access: watch::Sender<u64>,
}

impl Notifier {
    /// Returns a notifier without watches and waits. The seed must be random.
    pub fn new(config: &WatchConfig, hash_seed: u64) -> Self {
        Self {
            tables: Mutex::new(Tables {
                watches: Watches::new(config.limits, hash_seed),
                subscribers: HashMap::new(),
                over: Vec::new(),
                grants: Grants::default(),
                connections: SessionConnections::default(),
                is_stopped: false,
            }),
            queue_bound: config.backlog,
            access: watch::Sender::new(0),
        }
    }

    /// Arms a watch for one notice. Call it while the state is locked, so that the watch fits what was read.
    pub fn watch(
        self: &Arc<Self>,
        path: &ZPath,
        kind: WatchKind,
        caller: Identities,
    ) -> Result<Watcher, TooManyWatches> {
        let (tell, told) = oneshot::channel();
        let mut tables = self.tables.lock();
        let watcher = tables.watches.connect(caller);
        if let Err(refusal) = tables.watches.arm(watcher, kind, path) {
            tables.watches.disconnect(watcher);
            return Err(refusal);
        }
        if tables.is_stopped {
            tables.watches.disconnect(watcher);
        } else {
            tables.subscribers.insert(watcher, Subscriber::Once(tell));
        }
        let notifier = self.clone();
        Ok(Watcher {
            told,
            _registration: Registration { notifier, watcher },
        })
    }

    /// Connects a client, without watches.
    pub fn connect(self: &Arc<Self>, caller: Identities) -> NotifierConnection {
        let queue = Arc::<NotificationQueue>::default();
        let mut tables = self.tables.lock();
        let watcher = tables.watches.connect(caller);
        if tables.is_stopped {
            tables.watches.disconnect(watcher);
            queue.lose(WatchesLost::NodeStops);
        } else {
            tables
                .subscribers
                .insert(watcher, Subscriber::Connection(queue.clone()));
        }
        let notifier = self.clone();
        NotifierConnection {
            queue,
            registration: Registration { notifier, watcher },
        }
    }

    /// Connects a client of a session, which was opened, or last reconnected, at `since`. The connection ends when the session ends or
    /// reconnects elsewhere. Call it while the state is locked.
    pub fn connect_session(
        self: &Arc<Self>,
        store: &Store,
        session: SessionId,
        since: Zxid,
        caller: Identities,
    ) -> Result<NotifierConnection, WatchesLost> {
        connections::still_there(store, session, since)?;
        let connection = self.connect(caller);
        let mut tables = self.tables.lock();
        let before = tables
            .connections
            .add(session, since, connection.registration.watcher);
        // The same client has connected twice. It can use only the later connection.
        if let Some(before) = before {
            tables.end(before, WatchesLost::SessionMoved);
        }
        drop(tables);
        Ok(connection)
    }

    /// Waits for the grant of a queued contender. Call it while the state is locked.
    pub fn wait_for_grant(self: &Arc<Self>, lock: &LockName, holder: &HolderId) -> GrantWait {
        self.wait_for(lock, holder, Until::Granted)
    }

    /// Waits for the end of a contender that waits or holds. Call it while the state is locked.
    pub fn wait_for_end(self: &Arc<Self>, lock: &LockName, holder: &HolderId) -> GrantWait {
        self.wait_for(lock, holder, Until::Ended)
    }

    fn wait_for(self: &Arc<Self>, lock: &LockName, holder: &HolderId, until: Until) -> GrantWait {
        let mut tables = self.tables.lock();
        if tables.is_stopped {
            return GrantWait::decided(WaitOutcome::Lost);
        }
        tables.grants.wait(self, lock, holder, until)
    }

    /// Returns a receiver that changes when access rights do.
    pub fn access_changes(&self) -> watch::Receiver<u64> {
        self.access.subscribe()
    }

    /// Returns whether a local client waits for events, or is connected and may read at any time. Subscribers of the feed do not count:
    /// they get events a moment later.
    pub fn is_awaited(&self) -> bool {
        let tables = self.tables.lock();
        !tables.subscribers.is_empty() || !tables.grants.is_empty()
    }

    /// Returns the numbers of watches.
    pub fn watch_counts(&self) -> WatchCounts {
        self.tables.lock().watches.counts()
    }

    /// Notifies the watchers and waiters that the events of one command concern, if `visibility` lets them see the event. The state is
    /// locked meanwhile, so the work is proportional to the waiters concerned and to the depth of the paths.
    pub fn dispatch(&self, zxid: Zxid, events: &[Event], visibility: Visibility<'_>) {
        let mut tables = self.tables.lock();
        let tables = &mut *tables;
        for event in events {
            match event {
                Event::Znode(event) => {
                    let (subscribers, over) = (&mut tables.subscribers, &mut tables.over);
                    tables.watches.fire(zxid, event, visibility, |watcher, notice| {
                        deliver(subscribers, over, self.queue_bound, watcher, notice);
                    });
                    tables.end_those_that_are_over();
                }
                Event::Granted { grant, .. } => {
                    let outcome = WaitOutcome::Granted(grant.clone());
                    tables.grants.decide(&grant.lock, &grant.holder, &outcome);
                }
                Event::ContenderEnded {
                    lock, holder, how, ..
                } => tables.grants.end(lock, holder, how),
                Event::ModeChanged { grant, .. } => {
                    let outcome = WaitOutcome::Granted(grant.clone());
                    tables.grants.decide(&grant.lock, &grant.holder, &outcome);
                }
                // A waiter may wait under a request that was sent again and withdrawn at another node.
                Event::UpgradeWithdrawn { lock, holder, .. } => {
                    let outcome = WaitOutcome::Ended(ContenderEnd::Withdrawn);
                    tables.grants.decide(lock, holder, &outcome);
                }
                Event::SessionEnded { session, .. } => {
                    if let Some(watcher) = tables.connections.ended(*session) {
                        tables.end(watcher, WatchesLost::SessionEnded);
                    }
                }
                Event::SessionReconnected { session, since } => {
                    if let Some(watcher) = tables.connections.moved(*session, *since) {
                        tables.end(watcher, WatchesLost::SessionMoved);
                    }
                }
                Event::HoldBegan(_)
                | Event::HoldEnded { .. }
                | Event::SoftQuotaPassed { .. }
                | Event::RevokeRequested { .. }
                | Event::RevokeAnswered { .. }
                | Event::LockClosed { .. }
                | Event::LockOpened(_)
                | Event::SessionOpened(_) => {}
                // Each notice is checked against the rights at its time. Connected callers are authorized again.
                Event::AccessChanged(_) => self.access.send_modify(|changes| *changes += 1),
            }
        }
    }

    /// Handles a state that was replaced by a snapshot's. Watches fire if a comparison shows that they would have, and stay if it shows
    /// that they would not; those that need to know every event are lost. Waits for grants end without an answer: the waiter reads the
    /// state again. Streams of session events end.
    ///
    /// Call it while the state is locked. It looks at each watch once.
    pub fn state_replaced(&self, before: &Store, now: &Store) {
        // The snapshot may bring other rights.
        self.access.send_modify(|changes| *changes += 1);
        let mut tables = self.tables.lock();
        let tables = &mut *tables;
        tables.grants.lose_all();
        let (subscribers, over) = (&mut tables.subscribers, &mut tables.over);
        let lost = tables.watches.catch_up(before, now, |watcher, notice| {
            deliver(subscribers, over, self.queue_bound, watcher, notice);
        });
        for watcher in lost {
            tables.lose(watcher, WatchesLost::StateReplaced);
        }
        for (watcher, why) in tables.connections.gone_from(now) {
            tables.end(watcher, why);
        }
        tables.end_those_that_are_over();
    }

    /// The bug [`LostWatches`](znode_store::planted::Bug::LostWatches): all watches are removed, and no client learns of it.
    #[cfg(feature = "planted")]
    pub fn forget_watches(&self) {
        let mut tables = self.tables.lock();
        let Tables {
            watches, subscribers, ..
        } = &mut *tables;
        for watcher in subscribers.keys() {
            let armed: Vec<ZPath> = watches.armed(*watcher).map(|(path, _)| path.clone()).collect();
            for path in armed {
                // One path may be watched in two ways, and the first removal takes both.
                let _ = watches.remove(*watcher, &path, WatcherType::Any);
            }
        }
    }

    /// Ends all waits without an answer, and those that begin later: the node stops.
    pub fn stop(&self) {
        let mut tables = self.tables.lock();
        tables.is_stopped = true;
        tables.grants.lose_all();
        let watchers: Vec<_> = tables.subscribers.keys().copied().collect();
        for watcher in watchers {
            tables.lose(watcher, WatchesLost::NodeStops);
        }
    }
}

impl Tables {
    fn end_those_that_are_over(&mut self) {
        for watcher in self.over.drain(..) {
            self.watches.disconnect(watcher);
        }
    }

    /// Ends a watcher after the notices that it has.
    fn end(&mut self, watcher: WatcherId, why: WatchesLost) {
        if let Some(Subscriber::Connection(queue)) = self.subscribers.remove(&watcher) {
            queue.end(why);
        }
        self.watches.disconnect(watcher);
    }

    fn lose(&mut self, watcher: WatcherId, why: WatchesLost) {
        match self.subscribers.remove(&watcher) {
            // The receiver sees that its sender is gone.
            Some(Subscriber::Once(_)) | None => {}
            Some(Subscriber::Connection(queue)) => queue.lose(why),
        }
        self.watches.disconnect(watcher);
    }
}

fn deliver(
    subscribers: &mut HashMap<WatcherId, Subscriber>,
    over: &mut Vec<WatcherId>,
    bound: usize,
    watcher: WatcherId,
    notice: Notice,
) {
    if let Some(Subscriber::Connection(queue)) = subscribers.get(&watcher) {
        if let Err(lost) = queue.push(notice, bound) {
            tracing::info!(bound, "a client does not read its notices and loses its watches");
            queue.lose(lost);
            subscribers.remove(&watcher);
            over.push(watcher);
        }
    } else if let Some(Subscriber::Once(tell)) = subscribers.remove(&watcher) {
        // A watcher that was dropped just now needs no notice.
        let _ = tell.send(notice);
        over.push(watcher);
    }
}

/// Connection of a client at the notifier.
pub struct NotifierConnection {
    /// Notices that wait for the client.
    pub queue: Arc<NotificationQueue>,
    registration: Registration,
}

impl NotifierConnection {
    /// Arms a watch. Call it while the state is locked.
    pub fn arm(&self, kind: WatchKind, path: &ZPath) -> Result<(), NotArmed> {
        let mut tables = self.tables();
        self.still_there(&tables)?;
        Ok(tables.watches.arm(self.registration.watcher, kind, path)?)
    }

    /// Arms the watches that a client had at another connection. Call it while the state is locked.
    pub fn rearm(&self, store: &Store, since: Zxid, lists: &WatchLists) -> Result<(), WatchesLost> {
        let mut tables = self.tables();
        self.still_there(&tables)?;
        let watcher = self.registration.watcher;
        let rearmed = tables.watches.rearm(watcher, store, since, lists, |notice| {
            // The client has asked for all of these notices at once, so the bound does not apply.
            let pushed = self.queue.push(notice, usize::MAX);
            pushed.expect("memory is exhausted before");
        });
        rearmed.map_err(|refusal| {
            let lost = WatchesLost::NotRearmed(refusal);
            tables.lose(watcher, lost);
            lost
        })
    }

    /// Sets the identities of the client.
    pub fn set_identities(&self, caller: Identities) {
        let mut tables = self.tables();
        if self.still_there(&tables).is_ok() {
            tables.watches.set_identities(self.registration.watcher, caller);
        }
    }

    /// Removes watches on a path.
    pub fn remove(&self, path: &ZPath, which: WatcherType) -> Result<(), NoWatch> {
        let mut tables = self.tables();
        match self.still_there(&tables) {
            Ok(()) => tables.watches.remove(self.registration.watcher, path, which),
            Err(_) => Err(NoWatch(path.clone())),
        }
    }

    /// Returns whether the client has a watch on a path.
    pub fn is_armed(&self, path: &ZPath, which: WatcherType) -> bool {
        let tables = self.tables();
        self.still_there(&tables).is_ok() && tables.watches.is_armed(self.registration.watcher, path, which)
    }

    fn tables(&self) -> raft_log::sync::MutexGuard<'_, Tables> {
        self.registration.notifier.tables.lock()
    }

    /// Returns an error if the watcher is gone. That changes only while the tables are locked.
    fn still_there(&self, _locked: &Tables) -> Result<(), WatchesLost> {
        self.queue.lost().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;
