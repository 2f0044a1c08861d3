//! Who waits for what on this node: watches on znodes, and waits for a lock's grant. Fed with the events of every
//! applied command, in order, while the state is locked: whoever reads and arms in one go misses nothing and is told
//! nothing twice, and nobody sees a change before those who watch it have been told.
//!
//! Who is told of what is decided by [`znode_watch`]; here it is brought to them. Watches are not replicated. They end
//! with the node that the client is connected to.

mod armed;
mod backlog;
mod connections;
mod grants;
pub mod happenings;
pub mod session_events;

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
pub use self::backlog::Backlog;
pub use self::backlog::WatchesLost;
use self::connections::SessionConnections;
pub use self::grants::{GrantWait, Verdict};
use self::grants::{Grants, Until};
use self::happenings::Recent;
use self::session_events::SessionEvents;
use crate::config::{SessionEventsConfig, WatchConfig};
use raft_log::sync::Mutex;

/// A watch that was armed for one notice. Dropping it disarms it.
#[derive(Debug)]
pub struct Watcher {
    told: oneshot::Receiver<Notice>,
    _registration: Registration,
}

impl Watcher {
    /// Waits for the notice. `None`: the node stops, or caught up by a snapshot and cannot tell what happened.
    pub async fn fired(mut self) -> Option<Notice> {
        (&mut self.told).await.ok()
    }

    /// Likewise, for those who wait for many things. It must not be asked again after it was ready.
    pub fn poll_fired(&mut self, cx: &mut Context<'_>) -> Poll<Option<Notice>> {
        Pin::new(&mut self.told).poll(cx).map(Result::ok)
    }

    /// Likewise, as of this moment, also for a task that has had its share of the runtime and is told `Pending` by others.
    pub fn try_fired(&mut self) -> Poll<Option<Notice>> {
        match self.told.try_recv() {
            Ok(notice) => Poll::Ready(Some(notice)),
            Err(TryRecvError::Closed) => Poll::Ready(None),
            Err(TryRecvError::Empty) => Poll::Pending,
        }
    }
}

/// Takes a watcher off the hub when it is dropped.
#[derive(Debug)]
pub struct Registration {
    hub: Arc<Hub>,
    watcher: WatcherId,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut tables = self.hub.tables.lock();
        tables.outlets.remove(&self.watcher);
        tables.connections.forget(self.watcher);
        tables.watches.disconnect(self.watcher);
    }
}

/// A watch was not armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotArmed {
    /// There are too many.
    #[error(transparent)]
    TooMany(#[from] TooManyWatches),
    /// The connection has no watches any more.
    #[error(transparent)]
    Lost(#[from] WatchesLost),
}

/// Where the notices of a watcher go.
#[derive(Debug)]
enum Outlet {
    /// To somebody who waits for one.
    Once(oneshot::Sender<Notice>),
    /// To a client that is connected.
    Connection(Arc<Backlog>),
}

#[derive(Debug)]
struct Tables {
    watches: Watches,
    /// The watchers that are connected to `watches`, and no others.
    outlets: HashMap<WatcherId, Outlet>,
    /// Those whose outlet took its last notice just now.
    over: Vec<WatcherId>,
    grants: Grants,
    /// Which of them are for a session, and end with it.
    connections: SessionConnections,
    is_stopped: bool,
}

/// All waiters of this node.
#[derive(Debug)]
pub struct Hub {
    tables: Mutex<Tables>,
    backlog: usize,
    /// How often who may do what has changed, or may have.
    access: watch::Sender<u64>,
    /// What has happened to sessions, and who follows them.
    pub sessions: Arc<SessionEvents>,
    /// What has happened to all of them, and to locks.
    pub recent: Recent,
}

impl Hub {
    /// A hub where nobody waits. The seed is to be drawn at random.
    pub fn new(config: &WatchConfig, events: &SessionEventsConfig, hash_seed: u64) -> Self {
        Self {
            tables: Mutex::new(Tables {
                watches: Watches::new(config.limits, hash_seed),
                outlets: HashMap::new(),
                over: Vec::new(),
                grants: Grants::default(),
                connections: SessionConnections::default(),
                is_stopped: false,
            }),
            backlog: config.backlog,
            access: watch::Sender::new(0),
            sessions: Arc::new(SessionEvents::new(events.clone())),
            recent: Recent::new(),
        }
    }

    /// Arms a watch for one notice. Call it while the state is locked, so that what was read and what is watched fit.
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
            tables.outlets.insert(watcher, Outlet::Once(tell));
        }
        let hub = self.clone();
        Ok(Watcher {
            told,
            _registration: Registration { hub, watcher },
        })
    }

    /// A client has connected. It has no watches yet.
    pub fn connect(self: &Arc<Self>, caller: Identities) -> HubConnection {
        let backlog = Arc::<Backlog>::default();
        let mut tables = self.tables.lock();
        let watcher = tables.watches.connect(caller);
        if tables.is_stopped {
            tables.watches.disconnect(watcher);
            backlog.lose(WatchesLost::NodeStops);
        } else {
            tables
                .outlets
                .insert(watcher, Outlet::Connection(backlog.clone()));
        }
        let hub = self.clone();
        HubConnection {
            backlog,
            registration: Registration { hub, watcher },
        }
    }

    /// The connection is for a session from now on, which was opened, or last reconnected, at `since`: it ends when the
    /// session does, or goes on elsewhere. Call it while the state is locked.
    pub fn connect_session(
        self: &Arc<Self>,
        store: &Store,
        session: SessionId,
        since: Zxid,
        caller: Identities,
    ) -> Result<HubConnection, WatchesLost> {
        connections::still_there(store, session, since)?;
        let connection = self.connect(caller);
        let mut tables = self.tables.lock();
        let before = tables
            .connections
            .add(session, since, connection.registration.watcher);
        // The same client has come twice in one place. Only the later connection can be the one that it uses.
        if let Some(before) = before {
            tables.end(before, WatchesLost::SessionMoved);
        }
        drop(tables);
        Ok(connection)
    }

    /// Waits for a contender that is queued. Call it while the state is locked.
    pub fn wait_for_grant(self: &Arc<Self>, lock: &LockName, holder: &HolderId) -> GrantWait {
        self.wait_for(lock, holder, Until::Granted)
    }

    /// Waits for the end of a contender that is queued or holds. Call it while the state is locked.
    pub fn wait_for_end(self: &Arc<Self>, lock: &LockName, holder: &HolderId) -> GrantWait {
        self.wait_for(lock, holder, Until::Ended)
    }

    fn wait_for(self: &Arc<Self>, lock: &LockName, holder: &HolderId, until: Until) -> GrantWait {
        let mut tables = self.tables.lock();
        if tables.is_stopped {
            return GrantWait::decided(Verdict::Lost);
        }
        tables.grants.wait(self, lock, holder, until)
    }

    /// Changes whenever who may do what does.
    pub fn access_changes(&self) -> watch::Receiver<u64> {
        self.access.subscribe()
    }

    /// Whether anybody waits for anything that events tell of, or is connected and may look at any time. People who look on do not wait:
    /// they see it a moment later.
    pub fn is_awaited(&self) -> bool {
        let by_watcher_or_wait = {
            let tables = self.tables.lock();
            !tables.outlets.is_empty() || !tables.grants.is_empty()
        };
        by_watcher_or_wait || self.sessions.are_followed()
    }

    /// How much there is of what.
    pub fn watch_counts(&self) -> WatchCounts {
        self.tables.lock().watches.counts()
    }

    /// Tells those whom the events of one command concern, and who may see them by what `visibility` says. The state is locked meanwhile, so the work is
    /// proportional to the waiters concerned and the depth of the paths.
    pub fn dispatch(&self, zxid: Zxid, events: &[Event], visibility: Visibility<'_>) {
        if events.is_empty() {
            return;
        }
        let mut tables = self.tables.lock();
        let tables = &mut *tables;
        for event in events {
            match event {
                Event::Znode(event) => {
                    let (outlets, over) = (&mut tables.outlets, &mut tables.over);
                    tables.watches.fire(zxid, event, visibility, |watcher, notice| {
                        deliver(outlets, over, self.backlog, watcher, notice);
                    });
                    tables.end_those_that_are_over();
                }
                Event::Granted { grant, .. } => {
                    let verdict = Verdict::Granted(grant.clone());
                    tables.grants.decide(&grant.lock, &grant.holder, &verdict);
                }
                Event::ContenderEnded {
                    lock, holder, how, ..
                } => tables.grants.end(lock, holder, how),
                Event::ModeChanged { grant, .. } => {
                    let verdict = Verdict::Granted(grant.clone());
                    tables.grants.decide(&grant.lock, &grant.holder, &verdict);
                }
                // Whoever waits for it under a request that was sent again elsewhere, and withdrawn there.
                Event::UpgradeWithdrawn { lock, holder, .. } => {
                    let verdict = Verdict::Ended(ContenderEnd::Withdrawn);
                    tables.grants.decide(lock, holder, &verdict);
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
                // Each notice is judged by what is allowed when it is told. Who stays connected is judged anew.
                Event::AccessChanged(_) => self.access.send_modify(|changes| *changes += 1),
            }
        }
    }

    /// The state was replaced by a snapshot's. Watches fire if a comparison shows that they would have, and stay if it
    /// shows that they would not; those that need to know all that happened are lost. Waits for grants are let go
    /// without an answer: whoever waits looks at the state again. So are those who follow sessions.
    ///
    /// Call it while the state is locked. It looks at each watch once.
    pub fn state_replaced(&self, before: &Store, now: &Store) {
        self.sessions.state_replaced(now.zxid());
        self.recent.state_replaced(now.zxid());
        // What the snapshot brings may be allowed to others.
        self.access.send_modify(|changes| *changes += 1);
        let mut tables = self.tables.lock();
        let tables = &mut *tables;
        tables.grants.lose_all();
        let (outlets, over) = (&mut tables.outlets, &mut tables.over);
        let lost = tables.watches.catch_up(before, now, |watcher, notice| {
            deliver(outlets, over, self.backlog, watcher, notice);
        });
        for watcher in lost {
            tables.lose(watcher, WatchesLost::StateReplaced);
        }
        for (watcher, why) in tables.connections.gone_from(now) {
            tables.end(watcher, why);
        }
        tables.end_those_that_are_over();
    }

    /// The bug [`LostWatches`](znode_store::planted::Bug::LostWatches): nobody watches anything any more, and nobody is told.
    #[cfg(feature = "planted")]
    pub fn forget_watches(&self) {
        let mut tables = self.tables.lock();
        let Tables { watches, outlets, .. } = &mut *tables;
        for watcher in outlets.keys() {
            let armed: Vec<ZPath> = watches.armed(*watcher).map(|(path, _)| path.clone()).collect();
            for path in armed {
                // One path may be watched in two ways, and the first removal takes both.
                let _ = watches.remove(*watcher, &path, WatcherType::Any);
            }
        }
    }

    /// Lets every waiter go without an answer, and those who come later: the node stops.
    pub fn stop(&self) {
        self.sessions.stop();
        let mut tables = self.tables.lock();
        tables.is_stopped = true;
        tables.grants.lose_all();
        let watchers: Vec<_> = tables.outlets.keys().copied().collect();
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

    /// What was told before is still told.
    fn end(&mut self, watcher: WatcherId, why: WatchesLost) {
        if let Some(Outlet::Connection(backlog)) = self.outlets.remove(&watcher) {
            backlog.end(why);
        }
        self.watches.disconnect(watcher);
    }

    fn lose(&mut self, watcher: WatcherId, why: WatchesLost) {
        match self.outlets.remove(&watcher) {
            // Its receiver sees that nobody will tell it anything.
            Some(Outlet::Once(_)) | None => {}
            Some(Outlet::Connection(backlog)) => backlog.lose(why),
        }
        self.watches.disconnect(watcher);
    }
}

fn deliver(
    outlets: &mut HashMap<WatcherId, Outlet>,
    over: &mut Vec<WatcherId>,
    bound: usize,
    watcher: WatcherId,
    notice: Notice,
) {
    if let Some(Outlet::Connection(backlog)) = outlets.get(&watcher) {
        if let Err(lost) = backlog.push(notice, bound) {
            tracing::info!(bound, "a client does not read its notices and loses its watches");
            backlog.lose(lost);
            outlets.remove(&watcher);
            over.push(watcher);
        }
    } else if let Some(Outlet::Once(tell)) = outlets.remove(&watcher) {
        // A watcher that was dropped just now needs no notice.
        let _ = tell.send(notice);
        over.push(watcher);
    }
}

/// The hub's part of a client's connection. `lock_node::WatchConnection` has the rest.
pub struct HubConnection {
    /// Notices that wait for the client.
    pub backlog: Arc<Backlog>,
    registration: Registration,
}

impl HubConnection {
    /// Call it while the state is locked.
    pub fn arm(&self, kind: WatchKind, path: &ZPath) -> Result<(), NotArmed> {
        let mut tables = self.tables();
        self.still_there(&tables)?;
        Ok(tables.watches.arm(self.registration.watcher, kind, path)?)
    }

    /// Call it while the state is locked.
    pub fn rearm(&self, store: &Store, since: Zxid, lists: &WatchLists) -> Result<(), WatchesLost> {
        let mut tables = self.tables();
        self.still_there(&tables)?;
        let watcher = self.registration.watcher;
        let rearmed = tables.watches.rearm(watcher, store, since, lists, |notice| {
            // As many as the client has asked for itself, and all at once: they are not for the bound to judge.
            let pushed = self.backlog.push(notice, usize::MAX);
            pushed.expect("memory ends before so many notices");
        });
        rearmed.map_err(|refusal| {
            let lost = WatchesLost::NotRearmed(refusal);
            tables.lose(watcher, lost);
            lost
        })
    }

    /// Sets what the client has proven to be.
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
        self.registration.hub.tables.lock()
    }

    /// Whether the hub still has the watcher. That changes only while the tables are locked.
    fn still_there(&self, _locked: &Tables) -> Result<(), WatchesLost> {
        self.backlog.lost().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;
