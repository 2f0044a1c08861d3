//! What happened while nobody looked: a client that comes back re-arms its watches by the position that it saw last,
//! and a node whose state was replaced finds out what its watchers have missed.

use alloc::vec::Vec;

use znode_store::{Identities, Right, Stat, Store, ZPath, ZnodeEventKind, Zxid};

use crate::kind::{Kinds, WatchKind};
use crate::limits::TooManyWatches;
use crate::notice::Notice;
use crate::watches::{WatcherId, Watches};

/// The watches that a client had on another connection, as it tells them when it comes back: the lists of ZooKeeper's
/// `setWatches` and `setWatches2`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchLists {
    /// [`WatchKind::Data`] on znodes that existed.
    pub data: Vec<ZPath>,
    /// [`WatchKind::Data`] on znodes that did not exist.
    pub exists: Vec<ZPath>,
    /// [`WatchKind::Children`]
    pub children: Vec<ZPath>,
    /// [`WatchKind::Persistent`]
    pub persistent: Vec<ZPath>,
    /// [`WatchKind::PersistentRecursive`]
    pub recursive: Vec<ZPath>,
}

impl Watches {
    /// Arms a client's watches again, and tells at once of those that would have fired after `since`, the last position
    /// that the client has seen. No event may be fired between the state at `store` and the end of this.
    ///
    /// What persistent watches have missed is not told, as in ZooKeeper: a client that had to connect again knows that
    /// it has to read again. And as there the znodes' lists are not asked: this tells nothing that `exists` does not notify to
    /// everybody. But what the policies do not let the client see it is not told, as when a watch fires; that one has deleted.
    ///
    /// A refusal leaves what was told and armed before it. The client would go on with fewer watches than it thinks to
    /// have, so whoever asked should disconnect it.
    ///
    /// # Panics
    ///
    /// If the watcher is not connected.
    pub fn rearm(
        &mut self,
        watcher: WatcherId,
        store: &Store,
        since: Zxid,
        lists: &WatchLists,
        mut notify: impl FnMut(Notice),
    ) -> Result<(), TooManyWatches> {
        let identities = self.identities(watcher);
        let sight = store.sight();
        let mut notify = |notice: Notice| {
            if sight.may(&identities, Right::Read, &notice.path) {
                notify(notice);
            }
        };
        let state = |path, existed| PathState {
            path,
            existed,
            now: store.stat(path),
            since,
            zxid: store.zxid(),
        };
        for path in &lists.data {
            match state(path, true).data() {
                Some(notice) => notify(notice),
                None => self.arm(watcher, WatchKind::Data, path)?,
            }
        }
        for path in &lists.exists {
            match state(path, false).data() {
                Some(notice) => notify(notice),
                None => self.arm(watcher, WatchKind::Data, path)?,
            }
        }
        for path in &lists.children {
            match state(path, true).children() {
                Some(notice) => notify(notice),
                None => self.arm(watcher, WatchKind::Children, path)?,
            }
        }
        for path in &lists.persistent {
            self.arm(watcher, WatchKind::Persistent, path)?;
        }
        for path in &lists.recursive {
            self.arm(watcher, WatchKind::PersistentRecursive, path)?;
        }
        Ok(())
    }

    /// The state was replaced by a later one, and the events in between are not known. One-shot watches fire if a
    /// comparison shows that they would have, for those who may read the znode; the others stay.
    ///
    /// A persistent watch promises every event, and a comparison cannot give them. Those who have one are returned and
    /// told nothing, unless it is clear that there was none: they have to be disconnected, so that they come back, arm
    /// again and read again.
    pub fn catch_up(
        &mut self,
        before: &Store,
        now: &Store,
        mut notify: impl FnMut(WatcherId, Notice),
    ) -> Vec<WatcherId> {
        let mut lost = Vec::new();
        if before.zxid() == now.zxid() {
            return lost;
        }
        let columns = self.table.columns();
        let watchers: Vec<_> = columns
            .map(|(slot, column)| (WatcherId::at(slot, column.generation), column.identities.clone()))
            .collect();
        for (watcher, identities) in watchers {
            if self.may_have_missed_events(watcher, before, now) {
                lost.push(watcher);
            } else {
                self.fire_missed(watcher, &identities, before, now, &mut notify);
            }
        }
        lost
    }

    /// Whether a persistent watch of the watcher may have missed an event.
    fn may_have_missed_events(&self, watcher: WatcherId, before: &Store, now: &Store) -> bool {
        self.armed(watcher).any(|(path, kind)| match kind {
            WatchKind::Data | WatchKind::Children => false,
            // A node that is as it was has had no event. One that is not there may have been in between.
            WatchKind::Persistent => {
                let changes = |stat: Stat| (stat.czxid, stat.mzxid, stat.pzxid);
                match (before.stat(path), now.stat(path)) {
                    (Some(before), Some(now)) => changes(before) != changes(now),
                    _ => true,
                }
            }
            // Finding out would mean to compare all that is below.
            WatchKind::PersistentRecursive => true,
        })
    }

    fn fire_missed(
        &mut self,
        watcher: WatcherId,
        identities: &Identities,
        before: &Store,
        now: &Store,
        notify: &mut impl FnMut(WatcherId, Notice),
    ) {
        let mut next = self.first_cell(watcher);
        while let Some(cell) = next {
            next = self.table.next_of(cell);
            let kinds = self.table[cell].kinds;
            let path = self.table.path(self.table[cell].path);
            let state = PathState {
                path,
                existed: before.stat(path).is_some(),
                now: now.stat(path),
                since: before.zxid(),
                zxid: now.zxid(),
            };
            let may_read = |kind| {
                let last = if kind == ZnodeEventKind::Deleted {
                    before
                } else {
                    now
                };
                // By the list that the znode has, or had at last; and by what is allowed now, whatever was then.
                last.seen_by(identities).get(path).is_ok() && now.sight().may(identities, Right::Read, path)
            };
            let data = state.data().filter(|_| kinds.contains(Kinds::DATA));
            let children = state.children().filter(|_| kinds.contains(Kinds::CHILDREN));
            let mut fired = Kinds::NONE;
            if data.is_some() {
                fired = fired | Kinds::DATA;
            }
            if children.is_some() {
                fired = fired | Kinds::CHILDREN;
            }
            // The end of the node is one event, whoever asks.
            let children = children.filter(|_| !state.deleted() || data.is_none());
            for notice in data.into_iter().chain(children) {
                if may_read(notice.kind) {
                    notify(watcher, notice);
                }
            }
            self.clear(cell, fired);
        }
    }
}

/// A path that was watched, and what has become of it.
struct PathState<'a> {
    path: &'a ZPath,
    /// Whether there was a znode when the watch was armed.
    existed: bool,
    now: Option<Stat>,
    /// What is later than this was missed.
    since: Zxid,
    /// The position of the state.
    zxid: Zxid,
}

impl PathState<'_> {
    /// What a data watch has missed.
    fn data(&self) -> Option<Notice> {
        match &self.now {
            None if self.existed => Some(self.notice(ZnodeEventKind::Deleted, self.zxid)),
            Some(stat) if !self.existed => Some(self.notice(ZnodeEventKind::Created, stat.czxid)),
            Some(stat) if stat.mzxid > self.since => {
                Some(self.notice(ZnodeEventKind::DataChanged, stat.mzxid))
            }
            Some(_) | None => None,
        }
    }

    /// What a child watch has missed.
    fn children(&self) -> Option<Notice> {
        match &self.now {
            None if self.existed => Some(self.notice(ZnodeEventKind::Deleted, self.zxid)),
            Some(stat) if stat.pzxid > self.since => {
                Some(self.notice(ZnodeEventKind::ChildrenChanged, stat.pzxid))
            }
            Some(_) | None => None,
        }
    }

    fn deleted(&self) -> bool {
        self.existed && self.now.is_none()
    }

    fn notice(&self, kind: ZnodeEventKind, zxid: Zxid) -> Notice {
        Notice {
            kind,
            path: self.path.clone(),
            zxid,
        }
    }
}
