//! Changes of the tree: what is refused, and what a change entails (events, the owner's list of ephemerals,
//! the lock table). The lock protocol changes the tree through the same few functions:
//! [`Store::ensure_container`], [`Store::add_node`], [`Store::replace_data`], [`Store::remove_node`].

use alloc::string::ToString;
use alloc::vec::Vec;

use crate::apply::Context;
use crate::command::{CreateMode, Op};
use crate::event::{ContenderEnd, Event};
use crate::ids::{Data, MAX_DATA_BYTES, SessionId};
use crate::lock::{self, EndedContender};
use crate::path::{CreatePath, LockName, ZPath};
use crate::reply::{Outcome, Refusal, Reply};
use crate::store::Store;
use crate::tree::{Kind, NodeIndex};

/// The last sequence number that has ten digits. Clients compare numbers as text, so an eleventh digit
/// would put the newest contender before the oldest.
pub const MAX_SEQUENCE: u64 = 9_999_999_999;

/// What the lock table learns of an ephemeral node below a lock's znode.
pub(crate) enum ContenderChange {
    Created {
        lock: LockName,
        node: ZPath,
        data: Data,
        session: SessionId,
    },
    Removed(EndedContender),
}

/// Where a node is to be created.
struct Place {
    /// The deepest ancestor that exists.
    ancestor: NodeIndex,
    /// The ancestors that do not, from above.
    missing: Vec<ZPath>,
}

impl Store {
    /// Carries out one operation, or refuses it and changes nothing.
    pub(crate) fn write(&mut self, cx: &mut Context<'_>, session: Option<SessionId>, op: Op) -> Outcome {
        match op {
            Op::Create {
                path,
                data,
                mode,
                parents,
            } => self.create(cx, session, &path, data, mode, parents),
            Op::Delete { path, version } => {
                let index = self.expect_version(&path, version)?;
                if index == NodeIndex::ROOT {
                    return Err(Refusal::Undeletable(path));
                }
                if self.tree.node(index).num_children() > 0 {
                    return Err(Refusal::NotEmpty(path));
                }
                self.remove_node(cx, index, &path, ContenderEnd::Deleted);
                Ok(Reply::Deleted)
            }
            Op::DeleteRecursive { path } => {
                let index = self.expect_version(&path, -1)?;
                if index == NodeIndex::ROOT {
                    return Err(Refusal::Undeletable(path));
                }
                self.remove_subtree(cx, index, &path);
                Ok(Reply::Deleted)
            }
            Op::Set { path, data, version } => {
                check_size(&data)?;
                let index = self.expect_version(&path, version)?;
                if self.tree.node(index).session().is_some() && lock::is_reserved(&path) {
                    return Err(lock::written_by_locks_alone(&path));
                }
                self.replace_data(cx, index, &path, data);
                Ok(Reply::Set(self.tree.node(index).stat()))
            }
            Op::Check { path, version } => {
                self.expect_version(&path, version)?;
                Ok(Reply::Checked)
            }
        }
    }

    fn create(
        &mut self,
        cx: &mut Context<'_>,
        session: Option<SessionId>,
        path: &CreatePath,
        data: Data,
        mode: CreateMode,
        parents: bool,
    ) -> Outcome {
        check_size(&data)?;
        let kind = match (mode, session) {
            (CreateMode::Persistent | CreateMode::PersistentSequential, _) => Kind::Persistent,
            (CreateMode::Container, _) => Kind::Container,
            (CreateMode::Ephemeral | CreateMode::EphemeralSequential, Some(session)) => {
                Kind::Ephemeral(session)
            }
            (CreateMode::Ephemeral | CreateMode::EphemeralSequential, None) => {
                return Err(Refusal::SessionRequired);
            }
        };
        if path.parent.is_root() && path.name.is_empty() && !mode.is_sequential() {
            return Err(Refusal::NodeExists(ZPath::root()));
        }
        let place = self.place_below(&path.parent)?;
        if !place.missing.is_empty() && !parents {
            return Err(Refusal::NoNode(path.parent.clone()));
        }
        let parent = place.missing.is_empty().then_some(place.ancestor);
        let path = if mode.is_sequential() {
            let sequence = self.next_sequence(parent, &path.parent)?;
            path.parent.join(&alloc::format!("{}{sequence:010}", path.name))
        } else {
            path.parent.join(&path.name)
        };
        let path = path.map_err(|bad| Refusal::BadPath(bad.to_string()))?;
        if mode.is_ephemeral() && lock::is_reserved(&path) {
            return Err(lock::written_by_locks_alone(&path));
        }
        if parent.is_some_and(|parent| self.tree.child(parent, path.name()).is_some()) {
            return Err(Refusal::NodeExists(path));
        }
        let parent = self.create_missing(cx, place);
        let index = self.add_node(cx, parent, &path, kind, data);
        let stat = self.tree.node(index).stat();
        Ok(Reply::Created { path, stat })
    }

    /// The number that the next sequential child gets; `parent` is `None` if it does not exist yet.
    pub(crate) fn next_sequence(&self, parent: Option<NodeIndex>, path: &ZPath) -> Result<u64, Refusal> {
        match parent.map_or(0, |parent| self.tree.node(parent).creations()) {
            sequence if sequence > MAX_SEQUENCE => Err(Refusal::SequenceExhausted(path.clone())),
            sequence => Ok(sequence),
        }
    }

    /// Finds the znode `path`, or creates it and whatever is missing above it as containers. Refused,
    /// without any change, if an ancestor (or the node itself) is ephemeral.
    pub(crate) fn ensure_container(
        &mut self,
        cx: &mut Context<'_>,
        path: &ZPath,
    ) -> Result<NodeIndex, Refusal> {
        let place = self.place_below(path)?;
        Ok(self.create_missing(cx, place))
    }

    /// Looks where children of `parent` would come; refused if that is below an ephemeral node.
    fn place_below(&self, parent: &ZPath) -> Result<Place, Refusal> {
        let mut ancestor = NodeIndex::ROOT;
        let mut missing = Vec::new();
        let mut end = 0;
        for name in parent.components() {
            end += 1 + name.len();
            match self.tree.child(ancestor, name) {
                Some(child) if missing.is_empty() => ancestor = child,
                _ => missing.push(ZPath::from_checked(parent.as_str()[..end].into())),
            }
        }
        if self.tree.node(ancestor).session().is_some() {
            return Err(Refusal::NoChildrenForEphemerals(self.tree.path(ancestor)));
        }
        Ok(Place { ancestor, missing })
    }

    fn create_missing(&mut self, cx: &mut Context<'_>, place: Place) -> NodeIndex {
        place.missing.iter().fold(place.ancestor, |parent, path| {
            self.add_node(cx, parent, path, Kind::Container, Data::empty())
        })
    }

    /// The node at `path`, if it has the version; −1 matches all.
    fn expect_version(&self, path: &ZPath, version: i32) -> Result<NodeIndex, Refusal> {
        let index = self
            .tree
            .find(path)
            .ok_or_else(|| Refusal::NoNode(path.clone()))?;
        match self.tree.node(index).version {
            actual if version != -1 && version != actual => Err(Refusal::BadVersion {
                path: path.clone(),
                expected: version,
                actual,
            }),
            _ => Ok(index),
        }
    }

    /// Deletes a container that had children and has none; false if that is not (any more) so.
    pub(crate) fn sweep(&mut self, cx: &mut Context<'_>, path: &ZPath) -> bool {
        match self.tree.find(path) {
            Some(index) if self.tree.node(index).emptied_at_ms().is_some() => {
                self.remove_node(cx, index, path, ContenderEnd::Deleted);
                true
            }
            _ => false,
        }
    }

    /// Deletes a node and all below it: children before their parents, siblings by name.
    fn remove_subtree(&mut self, cx: &mut Context<'_>, index: NodeIndex, path: &ZPath) {
        let mut children: Vec<_> = self
            .tree
            .children(index)
            .map(|child| (self.tree.path(child), child))
            .collect();
        children.sort_unstable();
        for (path, child) in children {
            // Paths are at most MAX_PATH_DEPTH deep, and so is this.
            self.remove_subtree(cx, child, &path);
        }
        self.remove_node(cx, index, path, ContenderEnd::Deleted);
    }

    /// Adds the child at `path`, which does not exist, to `parent`, which does and is not ephemeral; the
    /// session of an ephemeral child lives. If the child is a contender of a lock, the lock table learns
    /// of it.
    pub(crate) fn add_node(
        &mut self,
        cx: &mut Context<'_>,
        parent: NodeIndex,
        path: &ZPath,
        kind: Kind,
        data: Data,
    ) -> NodeIndex {
        let contender = match kind {
            Kind::Ephemeral(session) => lock_of_child(path).map(|lock| ContenderChange::Created {
                lock,
                node: path.clone(),
                data: data.clone(),
                session,
            }),
            Kind::Persistent | Kind::Container => None,
        };
        let index = self.tree.insert(parent, path, kind, data, cx.zxid, cx.now_ms);
        if let Kind::Ephemeral(session) = kind {
            let owner = self
                .sessions
                .get_mut(session)
                .expect("ephemeral nodes have live owners");
            owner.ephemerals.insert(index);
        }
        cx.events.push(Event::Created(path.clone()));
        cx.children_changed(path);
        if let Some(change) = contender {
            self.tell_locks(cx, change);
        }
        index
    }

    /// Removes the node at `path`, which has no children and is not the root. If it is a contender, the lock
    /// table learns how it ended.
    pub(crate) fn remove_node(
        &mut self,
        cx: &mut Context<'_>,
        index: NodeIndex,
        path: &ZPath,
        how: ContenderEnd,
    ) {
        let node = self.tree.node(index);
        let (session, czxid, data) = (node.session(), node.czxid, node.data.clone());
        self.tree.remove(index, cx.zxid, cx.now_ms);
        cx.events.push(Event::Deleted(path.clone()));
        cx.children_changed(path);
        if let Some(session) = session {
            let owner = self
                .sessions
                .get_mut(session)
                .expect("ephemeral nodes have live owners");
            owner.ephemerals.remove(&index);
            if let Some(lock) = lock_of_child(path) {
                self.tell_locks(
                    cx,
                    ContenderChange::Removed(EndedContender {
                        lock,
                        node: path.clone(),
                        data,
                        czxid,
                        session,
                        how,
                    }),
                );
            }
        }
    }

    /// Replaces the data of the node at `path`. (The lock table knows nothing that data could change.)
    pub(crate) fn replace_data(&mut self, cx: &mut Context<'_>, index: NodeIndex, path: &ZPath, data: Data) {
        self.tree.set_data(index, data, cx.zxid, cx.now_ms);
        cx.events.push(Event::DataChanged(path.clone()));
    }

    /// Takes a failed transaction back.
    pub(crate) fn roll_back(&mut self) {
        let Self { tree, sessions, .. } = self;
        tree.roll_back(|session, index, lives| {
            let owner = sessions
                .get_mut(session)
                .expect("no session ends within a transaction");
            if lives {
                owner.ephemerals.insert(index);
            } else {
                owner.ephemerals.remove(&index);
            }
        });
    }

    /// Tells the lock table of a contender, now or when the transaction has succeeded.
    pub(crate) fn tell_locks(&mut self, cx: &mut Context<'_>, change: ContenderChange) {
        if let Some(held_back) = &mut cx.held_back {
            held_back.push(change);
            return;
        }
        match change {
            ContenderChange::Created {
                lock,
                node,
                data,
                session,
            } => {
                self.locks
                    .contender_created(&lock, node.name(), &data, session, cx.zxid);
            }
            ContenderChange::Removed(contender) => self.contender_removed(cx, contender),
        }
    }
}

impl Context<'_> {
    /// Tells that the set of children of the parent of `child` changed.
    fn children_changed(&mut self, child: &ZPath) {
        let parent = child.parent().expect("the root is neither created nor deleted");
        self.events.push(Event::ChildrenChanged(parent));
    }
}

/// The lock that the node at `path` would be a contender of.
pub(crate) fn lock_of_child(path: &ZPath) -> Option<LockName> {
    if !path.as_str().starts_with(crate::path::LOCK_ROOT) {
        return None;
    }
    LockName::of_parent(&path.parent()?)
}

fn check_size(data: &Data) -> Result<(), Refusal> {
    if data.len() > MAX_DATA_BYTES {
        return Err(Refusal::DataTooLarge {
            bytes: data.len() as u64,
            limit: MAX_DATA_BYTES as u64,
        });
    }
    Ok(())
}
