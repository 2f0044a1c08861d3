//! Who waits for what on this node: one-shot watches on znodes, and waits for a lock's grant. Fed with the
//! events of every applied command, in order, while the state is locked: whoever reads and arms in one go
//! misses nothing and is told nothing twice.
//!
//! Watches are not replicated. They end with the node that the client is connected to.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use znode_store::{
    Acl, ContenderEnd, Event, Grant, HolderId, LockName, ZPath, ZnodeEvent, ZnodeEventKind, Zxid,
};

/// What a one-shot watch waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WatchKind {
    /// The node is created, deleted, or its data changes. (ZooKeeper's `getData` and `exists` watches.)
    Data,
    /// A child comes or goes, or the node is deleted. (ZooKeeper's `getChildren` watch.)
    Children,
    /// The node or anything below it is created, deleted, or changes its data.
    Recursive,
}

/// What fired a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchEvent {
    /// What happened.
    pub kind: WatchEventKind,
    /// To which node.
    pub path: ZPath,
    /// At which position.
    pub zxid: Zxid,
}

/// ZooKeeper's four kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchEventKind {
    /// The node came to be.
    Created,
    /// The node is gone.
    Deleted,
    /// Its data was replaced.
    DataChanged,
    /// A child came or went.
    ChildrenChanged,
}

/// How a wait in a lock's queue ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The contender holds the lock.
    Granted(Grant),
    /// The contender is gone.
    Ended(ContenderEnd),
    /// This node cannot tell any more what became of the contender: it caught up by a snapshot, or stops.
    /// Look at the state again.
    Lost,
}

/// A one-shot watch that is armed. Dropping it disarms it.
#[derive(Debug)]
pub struct Watcher {
    fired: oneshot::Receiver<WatchEvent>,
    _registration: Registration,
}

impl Watcher {
    /// Waits for the event. `None`: the node stops, or caught up by a snapshot and cannot tell what happened.
    pub async fn fired(mut self) -> Option<WatchEvent> {
        (&mut self.fired).await.ok()
    }
}

/// A wait for one contender's grant. Dropping it ends the wait, not the contender.
#[derive(Debug)]
pub struct GrantWait {
    verdict: oneshot::Receiver<Verdict>,
    _registration: Option<Registration>,
}

impl GrantWait {
    /// A wait that is over before it begins.
    pub(crate) fn decided(verdict: Verdict) -> Self {
        let (tx, rx) = oneshot::channel();
        tx.send(verdict).expect("the receiver is in this function");
        Self {
            verdict: rx,
            _registration: None,
        }
    }

    /// Waits until the contender holds its lock or is gone. Given up, it can be called again.
    pub async fn verdict(&mut self) -> Verdict {
        (&mut self.verdict).await.unwrap_or(Verdict::Lost)
    }
}

/// Takes a waiter off the hub when it is dropped.
#[derive(Debug)]
struct Registration {
    hub: Arc<Hub>,
    key: Key,
    id: u64,
}

#[derive(Debug, Clone)]
enum Key {
    Watch(WatchKind, ZPath),
    Grant(LockName, HolderId),
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut tables = self.hub.tables.lock();
        match &self.key {
            Key::Watch(kind, path) => {
                let table = tables.watches_of(*kind);
                if let Some(watchers) = table.get_mut(path) {
                    watchers.remove(&self.id);
                    if watchers.is_empty() {
                        table.remove(path);
                    }
                }
            }
            Key::Grant(lock, holder) => {
                // Lookups borrow the pair; only the clean-up at the end owns one.
                let key = (lock.clone(), holder.clone());
                if let Some(waiters) = tables.grants.get_mut(&key) {
                    waiters.remove(&self.id);
                    if waiters.is_empty() {
                        tables.grants.remove(&key);
                    }
                }
            }
        }
    }
}

type WatchTable = HashMap<ZPath, BTreeMap<u64, oneshot::Sender<WatchEvent>>>;

#[derive(Debug, Default)]
struct Tables {
    next_id: u64,
    data: WatchTable,
    children: WatchTable,
    recursive: WatchTable,
    grants: HashMap<(LockName, HolderId), BTreeMap<u64, oneshot::Sender<Verdict>>>,
}

impl Tables {
    fn watches_of(&mut self, kind: WatchKind) -> &mut WatchTable {
        match kind {
            WatchKind::Data => &mut self.data,
            WatchKind::Children => &mut self.children,
            WatchKind::Recursive => &mut self.recursive,
        }
    }
}

/// All waiters of this node.
#[derive(Debug, Default)]
pub struct Hub {
    tables: Mutex<Tables>,
}

impl Hub {
    /// Arms a watch. Call it while the state is locked, so that what was read and what is watched fit.
    pub fn watch(self: &Arc<Self>, path: &ZPath, kind: WatchKind) -> Watcher {
        let (tx, fired) = oneshot::channel();
        let mut tables = self.tables.lock();
        let id = tables.next_id;
        tables.next_id += 1;
        tables
            .watches_of(kind)
            .entry(path.clone())
            .or_default()
            .insert(id, tx);
        let key = Key::Watch(kind, path.clone());
        Watcher {
            fired,
            _registration: Registration {
                hub: self.clone(),
                key,
                id,
            },
        }
    }

    /// Waits for a contender that is queued. Call it while the state is locked.
    pub fn wait_for_grant(self: &Arc<Self>, lock: &LockName, holder: &HolderId) -> GrantWait {
        let (tx, verdict) = oneshot::channel();
        let mut tables = self.tables.lock();
        let id = tables.next_id;
        tables.next_id += 1;
        let key = (lock.clone(), holder.clone());
        tables.grants.entry(key).or_default().insert(id, tx);
        let key = Key::Grant(lock.clone(), holder.clone());
        GrantWait {
            verdict,
            _registration: Some(Registration {
                hub: self.clone(),
                key,
                id,
            }),
        }
    }

    /// Tells those whom the events of one command concern. The state is locked meanwhile, so the work is
    /// proportional to the waiters concerned and the depth of the paths.
    pub fn dispatch(&self, zxid: Zxid, events: &[Event]) {
        if events.is_empty() {
            return;
        }
        let mut tables = self.tables.lock();
        for event in events {
            match event {
                Event::Znode(ZnodeEvent { kind, path, acl: _ }) => match kind {
                    ZnodeEventKind::Created => {
                        fire(&mut tables.data, path, WatchEventKind::Created, path, zxid);
                        fire_ancestors(&mut tables.recursive, WatchEventKind::Created, path, zxid);
                    }
                    ZnodeEventKind::Deleted => {
                        fire(&mut tables.data, path, WatchEventKind::Deleted, path, zxid);
                        fire(&mut tables.children, path, WatchEventKind::Deleted, path, zxid);
                        fire_ancestors(&mut tables.recursive, WatchEventKind::Deleted, path, zxid);
                    }
                    ZnodeEventKind::DataChanged => {
                        fire(&mut tables.data, path, WatchEventKind::DataChanged, path, zxid);
                        fire_ancestors(&mut tables.recursive, WatchEventKind::DataChanged, path, zxid);
                    }
                    ZnodeEventKind::ChildrenChanged => {
                        let kind = WatchEventKind::ChildrenChanged;
                        fire(&mut tables.children, path, kind, path, zxid);
                    }
                },
                Event::Granted { grant, .. } => {
                    decide(
                        &mut tables,
                        &grant.lock,
                        &grant.holder,
                        Verdict::Granted(grant.clone()),
                    );
                }
                Event::ContenderEnded {
                    lock, holder, how, ..
                } => {
                    decide(&mut tables, lock, holder, Verdict::Ended(how.clone()));
                }
                Event::SoftQuotaPassed { .. } | Event::SessionOpened(_) | Event::SessionEnded { .. } => {}
            }
        }
    }

    /// Lets every waiter go without an answer: the state was replaced by a snapshot, or the node stops.
    pub fn lose_all(&self) {
        let mut tables = self.tables.lock();
        let next_id = tables.next_id;
        *tables = Tables {
            next_id,
            ..Tables::default()
        };
    }
}

fn fire(table: &mut WatchTable, watched: &ZPath, kind: WatchEventKind, path: &ZPath, zxid: Zxid) {
    if table.is_empty() {
        return;
    }
    for sender in table.remove(watched).into_iter().flat_map(BTreeMap::into_values) {
        // A watcher that was dropped just now needs no event.
        let _ = sender.send(WatchEvent {
            kind,
            path: path.clone(),
            zxid,
        });
    }
}

fn fire_ancestors(table: &mut WatchTable, kind: WatchEventKind, path: &ZPath, zxid: Zxid) {
    if table.is_empty() {
        return;
    }
    let mut watched = Some(path.clone());
    while let Some(at) = watched {
        fire(table, &at, kind, path, zxid);
        watched = at.parent();
    }
}

fn decide(tables: &mut Tables, lock: &LockName, holder: &HolderId, verdict: Verdict) {
    if tables.grants.is_empty() {
        return;
    }
    let waiters = tables.grants.remove(&(lock.clone(), holder.clone()));
    for sender in waiters.into_iter().flat_map(BTreeMap::into_values) {
        // Likewise.
        let _ = sender.send(verdict.clone());
    }
}

#[cfg(test)]
mod tests {
    use znode_store::Acl;

    use super::*;

    fn path(text: &str) -> ZPath {
        ZPath::parse(text).unwrap()
    }

    fn change(kind: ZnodeEventKind, at: &str) -> Event {
        let (path, acl) = (path(at), Acl::open());
        Event::Znode(ZnodeEvent { kind, path, acl })
    }

    fn event(kind: WatchEventKind, at: &str, zxid: u64) -> WatchEvent {
        WatchEvent {
            kind,
            path: path(at),
            zxid: Zxid(zxid),
        }
    }

    #[tokio::test]
    async fn a_watch_fires_once_and_only_for_its_path() {
        let hub = Arc::new(Hub::default());
        let watcher = hub.watch(&path("/a"), WatchKind::Data);
        hub.dispatch(
            Zxid(1),
            &[
                change(ZnodeEventKind::DataChanged, "/b"),
                change(ZnodeEventKind::ChildrenChanged, "/a"),
            ],
        );
        hub.dispatch(Zxid(2), &[change(ZnodeEventKind::DataChanged, "/a")]);
        hub.dispatch(Zxid(3), &[change(ZnodeEventKind::Deleted, "/a")]);
        assert_eq!(
            watcher.fired().await,
            Some(event(WatchEventKind::DataChanged, "/a", 2))
        );
    }

    #[tokio::test]
    async fn a_recursive_watch_sees_what_is_below() {
        let hub = Arc::new(Hub::default());
        let watcher = hub.watch(&path("/a"), WatchKind::Recursive);
        hub.dispatch(
            Zxid(1),
            &[
                change(ZnodeEventKind::Created, "/ab"),
                change(ZnodeEventKind::ChildrenChanged, "/a"),
            ],
        );
        hub.dispatch(Zxid(2), &[change(ZnodeEventKind::Created, "/a/b/c")]);
        assert_eq!(
            watcher.fired().await,
            Some(event(WatchEventKind::Created, "/a/b/c", 2))
        );
    }

    #[tokio::test]
    async fn a_child_watch_tells_of_the_nodes_own_end() {
        let hub = Arc::new(Hub::default());
        let watcher = hub.watch(&path("/a"), WatchKind::Children);
        hub.dispatch(Zxid(5), &[change(ZnodeEventKind::Deleted, "/a")]);
        assert_eq!(
            watcher.fired().await,
            Some(event(WatchEventKind::Deleted, "/a", 5))
        );
    }

    #[tokio::test]
    async fn a_dropped_waiter_leaves_no_trace() {
        let hub = Arc::new(Hub::default());
        let lock = LockName::parse("l").unwrap();
        drop(hub.watch(&path("/a"), WatchKind::Data));
        drop(hub.wait_for_grant(&lock, &"h".to_owned()));
        let tables = hub.tables.lock();
        assert!(tables.data.is_empty() && tables.grants.is_empty());
    }

    #[tokio::test]
    async fn those_who_wait_when_the_state_is_replaced_are_told_so() {
        let hub = Arc::new(Hub::default());
        let lock = LockName::parse("l").unwrap();
        let mut wait = hub.wait_for_grant(&lock, &"h".to_owned());
        let watcher = hub.watch(&path("/a"), WatchKind::Data);
        hub.lose_all();
        assert_eq!(wait.verdict().await, Verdict::Lost);
        assert_eq!(watcher.fired().await, None);
    }
}
