//! Notices of missed events, for a client that reconnects and re-arms its watches, and for the
//! watchers of a node whose state was replaced.

use alloc::vec::Vec;

use znode_store::{Identities, Right, Stat, Store, ZPath, ZnodeEventKind, Zxid};

use crate::kind::{Kinds, WatchKind};
use crate::limits::TooManyWatches;
use crate::notice::Notice;
use crate::watches::{WatcherId, Watches};

/// Watches that a client had on an earlier connection, as it lists them when it reconnects: the
/// lists of ZooKeeper's `setWatches` and `setWatches2`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchLists {
    /// Paths of [`WatchKind::Data`] watches on znodes that existed.
    pub data: Vec<ZPath>,
    /// Paths of [`WatchKind::Data`] watches on znodes that did not exist.
    pub exists: Vec<ZPath>,
    /// Paths of [`WatchKind::Children`] watches.
    pub children: Vec<ZPath>,
    /// Paths of [`WatchKind::Persistent`] watches.
    pub persistent: Vec<ZPath>,
    /// Paths of [`WatchKind::PersistentRecursive`] watches.
    pub recursive: Vec<ZPath>,
}

impl Watches {
    /// Arms a client's watches again, and reports at once those that would have fired after
    /// `since`, the last position that the client has seen. The caller must not fire events between
    /// its read of `store` and the return of this call.
    ///
    /// Missed events of persistent watches are not reported, as in ZooKeeper: a client that had to
    /// reconnect knows that it has to read again. ZooKeeper does not check the znodes' ACLs here
    /// either, as the notices reveal no more than `exists` reveals to every client. The access
    /// policies do apply, as when a watch fires: a change that they hide from the client is not
    /// reported, and its watch is not armed.
    ///
    /// After an error, the watches armed before it stay armed. The client would go on with fewer
    /// watches than it believes to have, so the caller should disconnect it.
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
        let visibility = store.visibility();
        let mut notify = |notice: Notice| {
            if visibility.may(&identities, Right::Read, &notice.path) {
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

    /// Fires watches after the state was replaced by a later one, with unknown events in between. A
    /// one-shot watch fires if a comparison of the states shows that it would have, for watchers
    /// that may read the znode; the others stay armed.
    ///
    /// A persistent watch promises every event, which a comparison cannot reconstruct. This returns
    /// the watchers with a persistent watch that may have missed an event, and notifies them of
    /// nothing. The caller must disconnect them, so that they reconnect, re-arm and read again.
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

    /// Returns whether a persistent watch of the watcher may have missed an event.
    fn may_have_missed_events(&self, watcher: WatcherId, before: &Store, now: &Store) -> bool {
        self.armed(watcher).any(|(path, kind)| match kind {
            WatchKind::Data | WatchKind::Children => false,
            // An unchanged znode had no event. An absent one may have existed in between.
            WatchKind::Persistent => {
                let changes = |stat: Stat| (stat.czxid, stat.mzxid, stat.pzxid);
                match (before.stat(path), now.stat(path)) {
                    (Some(before), Some(now)) => changes(before) != changes(now),
                    _ => true,
                }
            }
            // A check would have to compare all descendants.
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
                // Both must allow it: the znode's current or last ACL, and the policies of the new
                // state, whatever the old ones said.
                last.seen_by(identities).get(path).is_ok()
                    && now.visibility().may(identities, Right::Read, path)
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
            // A deletion is one event, even if both watches fire for it.
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

/// Watched path, and its znode's state then and now.
struct PathState<'a> {
    path: &'a ZPath,
    /// The znode existed when the watch was armed.
    existed: bool,
    now: Option<Stat>,
    /// Events after this position were missed.
    since: Zxid,
    /// Position of the new state.
    zxid: Zxid,
}

impl PathState<'_> {
    /// Returns the notice that a data watch has missed.
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

    /// Returns the notice that a child watch has missed.
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
