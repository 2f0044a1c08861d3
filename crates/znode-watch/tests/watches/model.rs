//! Model of the watches, written as ZooKeeper 3.9's `DataTree` and `WatchManager`: two tables of
//! paths, in which each watcher has its modes, and a walk over the whole path for every event.
//! Slow, and easy to compare with the original.

use std::collections::{BTreeMap, BTreeSet};

use znode_store::{Acl, Identities, Perms, Store, ZPath, ZnodeEvent, ZnodeEventKind};
use znode_watch::{WatchKind, WatchLists, WatcherType};

/// Index of a client of the test.
pub type ClientIndex = usize;

/// Notification of a watcher, without the position: ZooKeeper 3.8 sends none.
pub type Notification = (ZnodeEventKind, String);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    Standard,
    Persistent,
    Recursive,
}

#[derive(Default)]
struct WatchManager {
    watch_table: BTreeMap<String, BTreeMap<ClientIndex, BTreeSet<Mode>>>,
}

impl WatchManager {
    fn add_watch(&mut self, path: &str, client: ClientIndex, mode: Mode) {
        let watchers = self.watch_table.entry(path.to_owned()).or_default();
        watchers.entry(client).or_default().insert(mode);
    }

    fn remove_watcher(&mut self, path: &str, client: ClientIndex, mode: Option<Mode>) -> bool {
        let Some(modes) = self
            .watch_table
            .get_mut(path)
            .and_then(|watchers| watchers.get_mut(&client))
        else {
            return false;
        };
        let before = modes.len();
        modes.retain(|other| mode.is_some_and(|mode| mode != *other));
        modes.len() != before
    }

    fn contains_watcher(&self, path: &str, client: ClientIndex, mode: Option<Mode>) -> bool {
        let modes = self
            .watch_table
            .get(path)
            .and_then(|watchers| watchers.get(&client));
        modes.is_some_and(|modes| match mode {
            Some(mode) => modes.contains(&mode),
            None => !modes.is_empty(),
        })
    }

    /// Removes the triggered standard watches, and returns the triggered clients except those in
    /// `suppress`.
    fn trigger_watch(
        &mut self,
        path: &str,
        kind: ZnodeEventKind,
        suppress: &BTreeSet<ClientIndex>,
    ) -> BTreeSet<ClientIndex> {
        let mut triggered = BTreeSet::new();
        let mut local = Some(ZPath::parse(path).unwrap());
        while let Some(at) = local {
            for (&client, modes) in self.watch_table.get_mut(at.as_str()).into_iter().flatten() {
                if modes.contains(&Mode::Recursive) && kind != ZnodeEventKind::ChildrenChanged {
                    triggered.insert(client);
                }
                if at.as_str() == path {
                    let standard = modes.remove(&Mode::Standard);
                    if standard || modes.contains(&Mode::Persistent) {
                        triggered.insert(client);
                    }
                }
            }
            local = at.parent();
        }
        triggered.difference(suppress).copied().collect()
    }

    fn remove_client(&mut self, client: ClientIndex) {
        for watchers in self.watch_table.values_mut() {
            watchers.remove(&client);
        }
    }
}

#[derive(Default)]
pub struct Model {
    data_watches: WatchManager,
    child_watches: WatchManager,
    identities: BTreeMap<ClientIndex, Identities>,
}

impl Model {
    pub fn connect(&mut self, client: ClientIndex, identities: Identities) {
        self.identities.insert(client, identities);
    }

    pub fn disconnect(&mut self, client: ClientIndex) {
        self.identities.remove(&client);
        self.data_watches.remove_client(client);
        self.child_watches.remove_client(client);
    }

    pub fn arm(&mut self, client: ClientIndex, kind: WatchKind, path: &str) {
        match kind {
            WatchKind::Data => self.data_watches.add_watch(path, client, Mode::Standard),
            WatchKind::Children => self.child_watches.add_watch(path, client, Mode::Standard),
            WatchKind::Persistent => {
                self.data_watches.add_watch(path, client, Mode::Persistent);
                self.child_watches.add_watch(path, client, Mode::Persistent);
            }
            WatchKind::PersistentRecursive => self.data_watches.add_watch(path, client, Mode::Recursive),
        }
    }

    pub fn remove(&mut self, client: ClientIndex, path: &str, which: WatcherType) -> bool {
        let Self {
            data_watches: data,
            child_watches: child,
            ..
        } = self;
        match which {
            WatcherType::Children => child.remove_watcher(path, client, Some(Mode::Standard)),
            WatcherType::Data => data.remove_watcher(path, client, Some(Mode::Standard)),
            WatcherType::Persistent => {
                child.remove_watcher(path, client, Some(Mode::Persistent))
                    | data.remove_watcher(path, client, Some(Mode::Persistent))
            }
            WatcherType::PersistentRecursive => data.remove_watcher(path, client, Some(Mode::Recursive)),
            WatcherType::Any => {
                child.remove_watcher(path, client, None) | data.remove_watcher(path, client, None)
            }
        }
    }

    pub fn contains(&self, client: ClientIndex, path: &str, which: WatcherType) -> bool {
        let (data, child) = (&self.data_watches, &self.child_watches);
        match which {
            WatcherType::Children => child.contains_watcher(path, client, Some(Mode::Standard)),
            WatcherType::Data => data.contains_watcher(path, client, Some(Mode::Standard)),
            WatcherType::Persistent => data.contains_watcher(path, client, Some(Mode::Persistent)),
            WatcherType::PersistentRecursive => data.contains_watcher(path, client, Some(Mode::Recursive)),
            WatcherType::Any => {
                child.contains_watcher(path, client, None) || data.contains_watcher(path, client, None)
            }
        }
    }

    pub fn fire(&mut self, event: &ZnodeEvent, notified: &mut Vec<(ClientIndex, Notification)>) {
        let path = event.path.as_str();
        let none = BTreeSet::new();
        match event.kind {
            ZnodeEventKind::Created | ZnodeEventKind::DataChanged => {
                let triggered = self.data_watches.trigger_watch(path, event.kind, &none);
                self.process(triggered, event.kind, path, &event.acl, notified);
            }
            ZnodeEventKind::Deleted => {
                let processed = self.data_watches.trigger_watch(path, event.kind, &none);
                self.process(processed.clone(), event.kind, path, &event.acl, notified);
                let others = self.child_watches.trigger_watch(path, event.kind, &processed);
                self.process(others, event.kind, path, &event.acl, notified);
            }
            ZnodeEventKind::ChildrenChanged => {
                let triggered = self.child_watches.trigger_watch(path, event.kind, &none);
                self.process(triggered, event.kind, path, &event.acl, notified);
            }
        }
    }

    fn process(
        &self,
        triggered: BTreeSet<ClientIndex>,
        kind: ZnodeEventKind,
        path: &str,
        acl: &Acl,
        notified: &mut Vec<(ClientIndex, Notification)>,
    ) {
        let may_read = |client: &ClientIndex| acl.allows(Perms::READ, &self.identities[client]);
        let triggered = triggered.into_iter().filter(may_read);
        notified.extend(triggered.map(|client| (client, (kind, path.to_owned()))));
    }

    pub fn set_watches(
        &mut self,
        client: ClientIndex,
        store: &Store,
        relative_zxid: u64,
        lists: &WatchLists,
    ) -> Vec<Notification> {
        let mut notified = Vec::new();
        for path in &lists.data {
            let event = match store.stat(path) {
                None => ZnodeEventKind::Deleted,
                Some(stat) if stat.mzxid.0 > relative_zxid => ZnodeEventKind::DataChanged,
                Some(_) => {
                    self.arm(client, WatchKind::Data, path.as_str());
                    continue;
                }
            };
            notified.push((event, path.as_str().to_owned()));
        }
        for path in &lists.exists {
            match store.stat(path) {
                Some(_) => notified.push((ZnodeEventKind::Created, path.as_str().to_owned())),
                None => self.arm(client, WatchKind::Data, path.as_str()),
            }
        }
        for path in &lists.children {
            let event = match store.stat(path) {
                None => ZnodeEventKind::Deleted,
                Some(stat) if stat.pzxid.0 > relative_zxid => ZnodeEventKind::ChildrenChanged,
                Some(_) => {
                    self.arm(client, WatchKind::Children, path.as_str());
                    continue;
                }
            };
            notified.push((event, path.as_str().to_owned()));
        }
        for path in &lists.persistent {
            self.arm(client, WatchKind::Persistent, path.as_str());
        }
        for path in &lists.recursive {
            self.arm(client, WatchKind::PersistentRecursive, path.as_str());
        }
        notified
    }
}
