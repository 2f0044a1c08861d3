//! Watches as ZooKeeper 3.9 has them in its `DataTree` and `WatchManager`: two tables of paths, in which each watcher
//! has its modes, and a walk over the whole of the path for every event. Slow, and easily compared with the original.

use std::collections::{BTreeMap, BTreeSet};

use znode_store::{Acl, Identities, Perms, Store, ZPath, ZnodeEvent, ZnodeEventKind};
use znode_watch::{WatchKind, WatchLists, WatcherType};

/// Watchers are numbers here.
pub type Who = usize;

/// What a watcher is told. (Positions are the tested ones' own matter: ZooKeeper 3.8 sends none.)
pub type Told = (ZnodeEventKind, String);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    Standard,
    Persistent,
    Recursive,
}

#[derive(Default)]
struct WatchManager {
    watch_table: BTreeMap<String, BTreeMap<Who, BTreeSet<Mode>>>,
}

impl WatchManager {
    fn add_watch(&mut self, path: &str, who: Who, mode: Mode) {
        let watchers = self.watch_table.entry(path.to_owned()).or_default();
        watchers.entry(who).or_default().insert(mode);
    }

    fn remove_watcher(&mut self, path: &str, who: Who, mode: Option<Mode>) -> bool {
        let Some(modes) = self
            .watch_table
            .get_mut(path)
            .and_then(|watchers| watchers.get_mut(&who))
        else {
            return false;
        };
        let before = modes.len();
        modes.retain(|other| mode.is_some_and(|mode| mode != *other));
        modes.len() != before
    }

    fn contains_watcher(&self, path: &str, who: Who, mode: Option<Mode>) -> bool {
        let modes = self.watch_table.get(path).and_then(|watchers| watchers.get(&who));
        modes.is_some_and(|modes| match mode {
            Some(mode) => modes.contains(&mode),
            None => !modes.is_empty(),
        })
    }

    /// Who is concerned, without those to be suppressed; and their standard watches have ended.
    fn trigger_watch(&mut self, path: &str, kind: ZnodeEventKind, suppress: &BTreeSet<Who>) -> BTreeSet<Who> {
        let mut concerned = BTreeSet::new();
        let mut local = Some(ZPath::parse(path).unwrap());
        while let Some(at) = local {
            for (&who, modes) in self.watch_table.get_mut(at.as_str()).into_iter().flatten() {
                if modes.contains(&Mode::Recursive) && kind != ZnodeEventKind::ChildrenChanged {
                    concerned.insert(who);
                }
                if at.as_str() == path {
                    let standard = modes.remove(&Mode::Standard);
                    if standard || modes.contains(&Mode::Persistent) {
                        concerned.insert(who);
                    }
                }
            }
            local = at.parent();
        }
        concerned.difference(suppress).copied().collect()
    }

    fn forget(&mut self, who: Who) {
        for watchers in self.watch_table.values_mut() {
            watchers.remove(&who);
        }
    }
}

#[derive(Default)]
pub struct Model {
    data_watches: WatchManager,
    child_watches: WatchManager,
    identities: BTreeMap<Who, Identities>,
}

impl Model {
    pub fn connect(&mut self, who: Who, identities: Identities) {
        self.identities.insert(who, identities);
    }

    pub fn disconnect(&mut self, who: Who) {
        self.identities.remove(&who);
        self.data_watches.forget(who);
        self.child_watches.forget(who);
    }

    pub fn arm(&mut self, who: Who, kind: WatchKind, path: &str) {
        match kind {
            WatchKind::Data => self.data_watches.add_watch(path, who, Mode::Standard),
            WatchKind::Children => self.child_watches.add_watch(path, who, Mode::Standard),
            WatchKind::Persistent => {
                self.data_watches.add_watch(path, who, Mode::Persistent);
                self.child_watches.add_watch(path, who, Mode::Persistent);
            }
            WatchKind::PersistentRecursive => self.data_watches.add_watch(path, who, Mode::Recursive),
        }
    }

    pub fn remove(&mut self, who: Who, path: &str, which: WatcherType) -> bool {
        let Self {
            data_watches: data,
            child_watches: child,
            ..
        } = self;
        match which {
            WatcherType::Children => child.remove_watcher(path, who, Some(Mode::Standard)),
            WatcherType::Data => data.remove_watcher(path, who, Some(Mode::Standard)),
            WatcherType::Persistent => {
                child.remove_watcher(path, who, Some(Mode::Persistent))
                    | data.remove_watcher(path, who, Some(Mode::Persistent))
            }
            WatcherType::PersistentRecursive => data.remove_watcher(path, who, Some(Mode::Recursive)),
            WatcherType::Any => child.remove_watcher(path, who, None) | data.remove_watcher(path, who, None),
        }
    }

    pub fn contains(&self, who: Who, path: &str, which: WatcherType) -> bool {
        let (data, child) = (&self.data_watches, &self.child_watches);
        match which {
            WatcherType::Children => child.contains_watcher(path, who, Some(Mode::Standard)),
            WatcherType::Data => data.contains_watcher(path, who, Some(Mode::Standard)),
            WatcherType::Persistent => data.contains_watcher(path, who, Some(Mode::Persistent)),
            WatcherType::PersistentRecursive => data.contains_watcher(path, who, Some(Mode::Recursive)),
            WatcherType::Any => {
                child.contains_watcher(path, who, None) || data.contains_watcher(path, who, None)
            }
        }
    }

    pub fn fire(&mut self, event: &ZnodeEvent, told: &mut Vec<(Who, Told)>) {
        let path = event.path.as_str();
        let none = BTreeSet::new();
        match event.kind {
            ZnodeEventKind::Created | ZnodeEventKind::DataChanged => {
                let concerned = self.data_watches.trigger_watch(path, event.kind, &none);
                self.process(concerned, event.kind, path, &event.acl, told);
            }
            ZnodeEventKind::Deleted => {
                let processed = self.data_watches.trigger_watch(path, event.kind, &none);
                self.process(processed.clone(), event.kind, path, &event.acl, told);
                let others = self.child_watches.trigger_watch(path, event.kind, &processed);
                self.process(others, event.kind, path, &event.acl, told);
            }
            ZnodeEventKind::ChildrenChanged => {
                let concerned = self.child_watches.trigger_watch(path, event.kind, &none);
                self.process(concerned, event.kind, path, &event.acl, told);
            }
        }
    }

    fn process(
        &self,
        concerned: BTreeSet<Who>,
        kind: ZnodeEventKind,
        path: &str,
        acl: &Acl,
        told: &mut Vec<(Who, Told)>,
    ) {
        let may_read = |who: &Who| acl.allows(Perms::READ, &self.identities[who]);
        let concerned = concerned.into_iter().filter(may_read);
        told.extend(concerned.map(|who| (who, (kind, path.to_owned()))));
    }

    pub fn set_watches(
        &mut self,
        who: Who,
        store: &Store,
        relative_zxid: u64,
        lists: &WatchLists,
    ) -> Vec<Told> {
        let mut told = Vec::new();
        for path in &lists.data {
            let event = match store.stat(path) {
                None => ZnodeEventKind::Deleted,
                Some(stat) if stat.mzxid.0 > relative_zxid => ZnodeEventKind::DataChanged,
                Some(_) => {
                    self.arm(who, WatchKind::Data, path.as_str());
                    continue;
                }
            };
            told.push((event, path.as_str().to_owned()));
        }
        for path in &lists.exists {
            match store.stat(path) {
                Some(_) => told.push((ZnodeEventKind::Created, path.as_str().to_owned())),
                None => self.arm(who, WatchKind::Data, path.as_str()),
            }
        }
        for path in &lists.children {
            let event = match store.stat(path) {
                None => ZnodeEventKind::Deleted,
                Some(stat) if stat.pzxid.0 > relative_zxid => ZnodeEventKind::ChildrenChanged,
                Some(_) => {
                    self.arm(who, WatchKind::Children, path.as_str());
                    continue;
                }
            };
            told.push((event, path.as_str().to_owned()));
        }
        for path in &lists.persistent {
            self.arm(who, WatchKind::Persistent, path.as_str());
        }
        for path in &lists.recursive {
            self.arm(who, WatchKind::PersistentRecursive, path.as_str());
        }
        told
    }
}
