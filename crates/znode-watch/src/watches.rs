//! Table of all watches of a node: arming, removal and firing. `catch_up` handles missed events.

use alloc::vec::Vec;

use znode_store::{Identities, Visibility, ZPath, ZnodeEvent, ZnodeEventKind, Zxid};

use crate::kind::{Kinds, WatchKind, WatcherType};
use crate::limits::{TooManyWatches, WatchLimits, units};
use crate::notice::Notice;
use crate::table::Table;

/// Watcher: one connection of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatcherId {
    slot: u32,
    generation: u32,
}

/// Rejection of a removal: the watcher has no such watch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no such watch on {0}")]
pub struct NoWatch(
    /// Path of the removal.
    pub ZPath,
);

/// Numbers of watchers, paths and watches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WatchCounts {
    /// Connected watchers, with or without watches.
    pub watchers: u32,
    /// Paths with at least one watch.
    pub paths: u32,
    /// Watches of all kinds.
    pub watches: u32,
    /// Recursive watches among them.
    pub recursive: u32,
}

/// All watches of a node. The crate's documentation states the rules.
#[derive(Debug)]
pub struct Watches {
    pub(crate) table: Table,
    limits: WatchLimits,
    watches: u32,
    recursive: u32,
    /// Sum of the units of all watches, which the limits count.
    units: u32,
    /// Number of recursive watches on paths of each depth, up to the greatest depth with any. A depth without any needs no
    /// lookup.
    recursive_at: Vec<u32>,
    /// Number of fired events. A watcher that was considered for the current event is not
    /// considered again.
    events: u64,
    generations: u32,
}

impl Watches {
    /// Creates an empty table. The seed should be random: a client that knows it can choose paths
    /// that make the hash tables slow.
    pub fn new(limits: WatchLimits, hash_seed: u64) -> Self {
        Self {
            table: Table::new(hash_seed),
            limits,
            watches: 0,
            recursive: 0,
            units: 0,
            recursive_at: Vec::new(),
            events: 0,
            generations: 0,
        }
    }

    /// Adds a watcher for a new connection with these proven identities.
    pub fn connect(&mut self, identities: Identities) -> WatcherId {
        self.generations = self.generations.wrapping_add(1);
        WatcherId {
            slot: self.table.add_watcher(self.generations, identities),
            generation: self.generations,
        }
    }

    /// Replaces a watcher's identities, which decide about its later notices.
    pub fn set_identities(&mut self, watcher: WatcherId, identities: Identities) {
        let slot = self.slot(watcher);
        self.table.column_mut(slot).identities = identities;
    }

    /// Removes a watcher and its watches, in time proportional to their number. Does nothing if the
    /// watcher is not connected.
    pub fn disconnect(&mut self, watcher: WatcherId) {
        let Some(slot) = self.find(watcher) else { return };
        while let Some(cell) = self.table.first_of(slot) {
            self.clear(cell, Kinds::ALL);
        }
        self.table.remove_watcher(slot);
    }

    /// Returns whether the watcher is connected.
    pub fn is_connected(&self, watcher: WatcherId) -> bool {
        self.find(watcher).is_some()
    }

    /// Arms a watch, unless it is armed already. The front end that answers the client's request
    /// decides whether the znode must exist and be readable ([`znode_store::View::watch`] does, for
    /// requests that read nothing).
    pub fn arm(&mut self, watcher: WatcherId, kind: WatchKind, path: &ZPath) -> Result<(), TooManyWatches> {
        let slot = self.slot(watcher);
        let kind = Kinds::from(kind);
        if self.kinds(slot, path).contains(kind) {
            return Ok(());
        }
        let WatchLimits {
            per_watcher,
            per_node,
        } = self.limits;
        let units = units(path);
        if self.table.column_mut(slot).units.saturating_add(units) > per_watcher {
            return Err(TooManyWatches::OfWatcher { limit: per_watcher });
        }
        if self.units.saturating_add(units) > per_node {
            return Err(TooManyWatches::OfNode { limit: per_node });
        }
        let cell = self.table.find_or_add(path, slot);
        let cell = &mut self.table[cell];
        cell.kinds = cell.kinds | kind;
        self.table.column_mut(slot).units += units;
        self.units += units;
        self.watches += 1;
        if kind == Kinds::RECURSIVE {
            self.recursive += 1;
            let depth = path.depth();
            if self.recursive_at.len() <= depth {
                self.recursive_at.resize(depth + 1, 0);
            }
            self.recursive_at[depth] += 1;
        }
        Ok(())
    }

    /// Removes a watcher's watches on a path.
    ///
    /// # Panics
    ///
    /// If the watcher is not connected.
    pub fn remove(&mut self, watcher: WatcherId, path: &ZPath, which: WatcherType) -> Result<(), NoWatch> {
        let slot = self.slot(watcher);
        let found = self.kinds(slot, path) & which.into();
        if found.is_empty() {
            return Err(NoWatch(path.clone()));
        }
        let row = self.table.find_path(path.as_str());
        let cell = row.and_then(|row| self.table.find(row, slot));
        self.clear(cell.expect("it has some of these kinds"), found);
        Ok(())
    }

    /// Returns whether the watcher has such a watch on exactly this path.
    pub fn is_armed(&self, watcher: WatcherId, path: &ZPath, which: WatcherType) -> bool {
        let slot = self.slot(watcher);
        !(self.kinds(slot, path) & which.into()).is_empty()
    }

    /// Returns a watcher's watches, in the order in which it first watched their paths.
    pub fn armed(&self, watcher: WatcherId) -> impl Iterator<Item = (&ZPath, WatchKind)> {
        let slot = self.slot(watcher);
        let cells = core::iter::successors(self.table.first_of(slot), |&cell| self.table.next_of(cell));
        cells.flat_map(|cell| {
            let cell = &self.table[cell];
            let path = self.table.path(cell.path);
            cell.kinds.iter().map(move |kind| (path, kind))
        })
    }

    /// Returns the numbers of watchers, paths and watches.
    pub fn counts(&self) -> WatchCounts {
        WatchCounts {
            watchers: self.table.watchers(),
            paths: self.table.paths(),
            watches: self.watches,
            recursive: self.recursive,
        }
    }

    /// Fires an event: notifies each watcher that it triggers once, and removes the triggered
    /// one-shot watches. The caller must fire the events of a command in their order.
    ///
    /// A watcher that may not read the znode, by its ACL or by the policies in `visibility`, is not
    /// notified; its one-shot watch is still removed, as in ZooKeeper.
    pub fn fire(
        &mut self,
        zxid: Zxid,
        event: &ZnodeEvent,
        visibility: Visibility<'_>,
        mut notify: impl FnMut(WatcherId, Notice),
    ) {
        if self.watches == 0 {
            return;
        }
        self.events += 1;
        let path = event.path.as_str();
        self.fire_at(
            path,
            Kinds::triggered_by(event.kind),
            zxid,
            event,
            visibility,
            &mut notify,
        );
        if self.recursive == 0 || event.kind == ZnodeEventKind::ChildrenChanged {
            return;
        }
        let depths = self.recursive_at.len();
        for ancestor in ancestors(path).take(depths) {
            // Most depths have no recursive watch and need no lookup.
            if self
                .recursive_at
                .get(ancestor.depth)
                .is_some_and(|watches| *watches > 0)
            {
                self.fire_at(
                    ancestor.text,
                    Kinds::RECURSIVE,
                    zxid,
                    event,
                    visibility,
                    &mut notify,
                );
            }
        }
    }

    fn fire_at(
        &mut self,
        watched: &str,
        triggered: Kinds,
        zxid: Zxid,
        event: &ZnodeEvent,
        visibility: Visibility<'_>,
        notify: &mut impl FnMut(WatcherId, Notice),
    ) {
        let row = self.table.find_path(watched);
        let mut next = row.and_then(|row| self.table.first_at(row));
        while let Some(cell) = next {
            next = self.table.next_at(cell);
            let fired = self.table[cell].kinds & triggered;
            if fired.is_empty() {
                continue;
            }
            let slot = self.table[cell].watcher;
            let column = self.table.column_mut(slot);
            if column.last_notified != self.events {
                column.last_notified = self.events;
                if visibility.sees(&column.identities, &event.path, &event.acl) {
                    let generation = column.generation;
                    let notice = Notice {
                        kind: event.kind,
                        path: event.path.clone(),
                        zxid,
                    };
                    notify(WatcherId { slot, generation }, notice);
                }
            }
            self.clear(cell, fired & Kinds::ONE_SHOT);
        }
    }

    /// Removes some of the watches of a cell.
    pub(crate) fn clear(&mut self, cell: u32, which: Kinds) {
        let ended = self.table[cell].kinds & which;
        if ended.is_empty() {
            return;
        }
        let slot = self.table[cell].watcher;
        let path = self.table.path(self.table[cell].path);
        let units = ended.len() * units(path);
        self.table.column_mut(slot).units -= units;
        self.units -= units;
        self.watches -= ended.len();
        if ended.contains(Kinds::RECURSIVE) {
            self.recursive -= 1;
            let depth = self.table.path(self.table[cell].path).depth();
            self.recursive_at[depth] -= 1;
            while self.recursive_at.last() == Some(&0) {
                self.recursive_at.pop();
            }
        }
        let left = self.table[cell].kinds.without(ended);
        self.table[cell].kinds = left;
        if left.is_empty() {
            self.table.remove(cell);
        }
    }

    pub(crate) fn first_cell(&self, watcher: WatcherId) -> Option<u32> {
        self.table.first_of(self.slot(watcher))
    }

    /// Returns the proven identities of a watcher.
    ///
    /// # Panics
    ///
    /// If the watcher is not connected.
    pub(crate) fn identities(&self, watcher: WatcherId) -> Identities {
        let column = self.table.column(self.slot(watcher));
        column.expect("the watcher is connected").identities.clone()
    }

    fn kinds(&self, slot: u32, path: &ZPath) -> Kinds {
        let row = self.table.find_path(path.as_str());
        let cell = row.and_then(|row| self.table.find(row, slot));
        cell.map_or(Kinds::NONE, |cell| self.table[cell].kinds)
    }

    fn find(&self, watcher: WatcherId) -> Option<u32> {
        let column = self.table.column(watcher.slot)?;
        (column.generation == watcher.generation).then_some(watcher.slot)
    }

    fn slot(&self, watcher: WatcherId) -> u32 {
        self.find(watcher).expect("the watcher is connected")
    }
}

impl WatcherId {
    pub(crate) fn at(slot: u32, generation: u32) -> Self {
        Self { slot, generation }
    }
}

/// Ancestor of a path.
struct Ancestor<'p> {
    text: &'p str,
    depth: usize,
}

/// Returns the ancestors of `path`, from the root downwards, without copying them.
fn ancestors(path: &str) -> impl Iterator<Item = Ancestor<'_>> {
    let slashes = path.bytes().enumerate().filter(|(_, byte)| *byte == b'/');
    let above = slashes.zip(0..).map(move |((at, _), depth)| Ancestor {
        text: if at == 0 { "/" } else { &path[..at] },
        depth,
    });
    // The root contains a slash but has no ancestor.
    above.filter(move |_| path != "/")
}

#[cfg(test)]
mod tests {
    use znode_store::{Acl, Store};

    use super::*;

    #[test]
    fn ancestors_of_a_path_start_at_the_root() {
        let above = |path| -> alloc::vec::Vec<_> { ancestors(path).map(|a| (a.text, a.depth)).collect() };
        assert_eq!(above("/"), []);
        assert_eq!(above("/a"), [("/", 0)]);
        assert_eq!(above("/a/bc/d"), [("/", 0), ("/a", 1), ("/a/bc", 2)]);
    }

    #[test]
    fn recursive_watches_fire_at_any_depth() {
        let mut watches = Watches::new(WatchLimits::default(), 7);
        let watcher = watches.connect(Identities::none());
        let path = |depth: usize| ZPath::parse(&"/d".repeat(depth)).expect("it is a path");
        let store = Store::new();
        let fired = |watches: &mut Watches, at: usize| {
            let event = ZnodeEvent {
                kind: ZnodeEventKind::DataChanged,
                path: path(at),
                acl: Acl::open(),
            };
            let mut notices = 0;
            watches.fire(Zxid(1), &event, store.visibility(), |_, _| notices += 1);
            notices
        };
        for depth in [1_000, 400] {
            watches
                .arm(watcher, WatchKind::PersistentRecursive, &path(depth))
                .expect("there is room");
        }
        assert_eq!(
            [399, 400, 999, 5_000].map(|at| fired(&mut watches, at)),
            [0, 1, 1, 1]
        );
        watches
            .remove(watcher, &path(400), WatcherType::Any)
            .expect("it is armed");
        assert_eq!(
            [400, 999, 1_000, 5_000].map(|at| fired(&mut watches, at)),
            [0, 0, 1, 1]
        );
        watches.disconnect(watcher);
        assert_eq!((watches.recursive_at.len(), watches.units), (0, 0));
    }

    #[test]
    fn a_watch_on_a_long_path_counts_for_each_kibibyte() {
        let limits = WatchLimits {
            per_watcher: 5,
            per_node: 7,
        };
        let mut watches = Watches::new(limits, 7);
        let (one, other) = (
            watches.connect(Identities::none()),
            watches.connect(Identities::none()),
        );
        let path =
            |bytes: usize| ZPath::parse(&alloc::format!("/{}", "p".repeat(bytes - 1))).expect("it is a path");
        let mut arm = |watcher, kind, bytes| watches.arm(watcher, kind, &path(bytes));
        assert_eq!(arm(one, WatchKind::Data, 1_024), Ok(()));
        assert_eq!(arm(one, WatchKind::Data, 2_049), Ok(()));
        let of_watcher = Err(TooManyWatches::OfWatcher { limit: 5 });
        assert_eq!(arm(one, WatchKind::Children, 2_049), of_watcher);
        assert_eq!(
            arm(other, WatchKind::Data, 3_073),
            Err(TooManyWatches::OfNode { limit: 7 })
        );
        assert_eq!(arm(other, WatchKind::Data, 3_072), Ok(()));
        assert_eq!(watches.counts().watches, 3);
        watches
            .remove(one, &path(2_049), WatcherType::Any)
            .expect("it is armed");
        assert_eq!(watches.units, 4);
    }
}
