//! Changes of the tree (creations are in [`crate::apply::create`]): what is refused, and what a change entails (events, the owner's list of ephemerals,
//! the lock table, quotas). The lock protocol changes the tree through the same few functions:
//! [`Store::create_missing`], [`Store::add_node`], [`Store::replace_data`], [`Store::remove_node`].

use alloc::vec::Vec;

use crate::apply::Context;
use crate::apply::locks::grant_waiters::EndedContender;
use crate::locks::name;
use crate::model::acl::{Acl, Perms};
use crate::model::command::Op;
use crate::model::data::Data;
use crate::model::event::{ContenderEnd, Event, ZnodeEvent, ZnodeEventKind};
use crate::model::ids::SessionId;
use crate::model::path::{LockName, MAX_LONG_PATHS_BYTES, SHORT_PATH_BYTES, SHORT_PATH_DEPTH, ZPath};
use crate::model::refusal::{Limited, Refusal};
use crate::model::reply::{Outcome, Reply};
use crate::model::stat::Kind;
use crate::planted;
use crate::store::Store;
use crate::tree::Restated;
use crate::tree::index::NodeIndex;
use crate::tree::quota::Growth;

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

impl Store {
    /// Carries out one operation, or refuses it and changes nothing. What is checked first is ZooKeeper's order, for
    /// its clients see which of several faults is told.
    pub(crate) fn write(&mut self, cx: &mut Context<'_>, session: Option<SessionId>, op: Op) -> Outcome {
        match op {
            Op::Create {
                path,
                data,
                acl,
                mode,
                parents,
            } => self.create(cx, session, &path, data, &acl, mode, parents),
            Op::Delete { path, version } => {
                let parent = self.deletable(cx, &path)?;
                let index = self.require_child(parent, &path)?;
                self.expect_version(index, &path, version)?;
                if self.tree.node(index).num_children() > 0 {
                    return Err(Refusal::NotEmpty(path));
                }
                self.remove_node(cx, index, &path, ContenderEnd::Deleted);
                Ok(Reply::Deleted)
            }
            Op::DeleteRecursive { path } => {
                let parent = self.deletable(cx, &path)?;
                let index = self.require_child(parent, &path)?;
                self.check_subtree(cx, index, &path)?;
                self.remove_subtree(cx, index, &path);
                Ok(Reply::Deleted)
            }
            Op::Set { path, data, version } => {
                self.check_size(&data)?;
                let index = self.tree.require(&path)?;
                self.tree.acl(index).require(Perms::WRITE, cx.caller, &path)?;
                let node = self.tree.node(index);
                let is_contender = node.session().is_some() && name::is_reserved(&path);
                let growth = Growth {
                    count: 0,
                    bytes: data.len() as i64 - node.data.len() as i64,
                };
                self.tree.check_quota(&path, growth)?;
                self.expect_version(index, &path, version)?;
                if is_contender {
                    return Err(name::written_by_locks_alone(&path));
                }
                self.replace_data(cx, index, &path, data);
                Ok(Reply::Set(self.tree.node(index).stat()))
            }
            Op::SetAcl { path, acl, aversion } => {
                let acl = acl.as_set_by(cx.caller)?;
                let index = self.tree.require(&path)?;
                self.tree.acl(index).require(Perms::ADMIN, cx.caller, &path)?;
                let actual = self.tree.node(index).aversion;
                matches_version(&path, aversion, actual)?;
                self.tree.set_acl(index, &path, &acl);
                Ok(Reply::AclSet(self.tree.node(index).stat()))
            }
            Op::Check { path, version } => {
                let index = self.tree.require(&path)?;
                self.tree.acl(index).require(Perms::READ, cx.caller, &path)?;
                self.expect_version(index, &path, version)?;
                Ok(Reply::Checked)
            }
            Op::Held { lock, fencing_token } => {
                let session = session.ok_or(Refusal::SessionRequired)?;
                if self.holds(session, &lock, fencing_token) {
                    Ok(Reply::Held)
                } else {
                    Err(Refusal::NotHeld { lock, fencing_token })
                }
            }
        }
    }

    /// The parent of a node that the caller may delete, if it exists.
    fn deletable(&self, cx: &Context<'_>, path: &ZPath) -> Result<NodeIndex, Refusal> {
        let Some(parent) = path.parent() else {
            return Err(Refusal::Undeletable(path.clone()));
        };
        if self.tree.find(path).is_some_and(NodeIndex::is_special) {
            return Err(Refusal::Undeletable(path.clone()));
        }
        let index = self.tree.require(&parent)?;
        self.tree.acl(index).require(Perms::DELETE, cx.caller, &parent)?;
        Ok(index)
    }

    fn require_child(&self, parent: NodeIndex, path: &ZPath) -> Result<NodeIndex, Refusal> {
        self.tree
            .child(parent, path.name())
            .ok_or_else(|| Refusal::NoNode(path.clone()))
    }

    /// Refuses unless the caller may delete all that is below a node, or if the long paths of all that is to be deleted
    /// are too many. It names the top, for siblings have no order that all replicas share.
    fn check_subtree(&self, cx: &mut Context<'_>, top: NodeIndex, path: &ZPath) -> Result<(), Refusal> {
        let mut long_bytes = 0;
        let mut todo = Vec::from([(top, path.as_str().len(), path.depth())]);
        while let Some((index, bytes, depth)) = todo.pop() {
            if bytes > SHORT_PATH_BYTES || depth > SHORT_PATH_DEPTH {
                long_bytes += bytes;
            }
            if self.tree.node(index).num_children() == 0 {
                continue;
            }
            if !self.tree.acl(index).allows(Perms::DELETE, cx.caller) {
                return Err(Refusal::NoAuth(path.clone()));
            }
            let children = self.tree.children(index);
            todo.extend(
                children.map(|child| (child, bytes + 1 + self.tree.node(child).name.len(), depth + 1)),
            );
        }
        // Only now: a node that the caller may not delete counts first, in whatever order all were looked at.
        cx.add_long_paths(long_bytes, path)
    }

    /// Refuses a node that has another version; −1 matches all.
    fn expect_version(&self, index: NodeIndex, path: &ZPath, version: i32) -> Result<(), Refusal> {
        matches_version(path, version, self.tree.node(index).version)
    }

    /// Deletes a container that had children and has none, or a TTL node without children whose time is over; false
    /// if that is not (any more) so.
    pub(crate) fn sweep(&mut self, cx: &mut Context<'_>, path: &ZPath) -> bool {
        let Some(index) = self.tree.find(path) else {
            return false;
        };
        let node = self.tree.node(index);
        let is_over = |expires: u64| expires <= cx.now_ms;
        let is_due = node.emptied_at_ms().is_some() || node.expires_at_ms().is_some_and(is_over);
        let is_due = is_due && !self.is_configured(path);
        if is_due {
            self.remove_node(cx, index, path, ContenderEnd::Deleted);
        }
        is_due
    }

    /// Deletes a node and all below it: children before their parents, siblings by name.
    fn remove_subtree(&mut self, cx: &mut Context<'_>, top: NodeIndex, path: &ZPath) {
        // The next one is the last; those whose children are removed, or on the list, are marked.
        let mut todo = Vec::from([(path.clone(), top, false)]);
        while let Some((path, index, is_bare)) = todo.pop() {
            if is_bare || self.tree.node(index).num_children() == 0 {
                self.remove_node(cx, index, &path, ContenderEnd::Deleted);
                continue;
            }
            let named = |child| (path.child(&self.tree.node(child).name), child, false);
            let mut children: Vec<_> = self.tree.children(index).map(named).collect();
            children.sort_unstable_by(|one, other| other.cmp(one));
            todo.push((path, index, true));
            todo.append(&mut children);
        }
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
        acl: &Acl,
    ) -> NodeIndex {
        let parent_path = path.parent().expect("the root is not created");
        self.add_child(cx, parent, &parent_path, path, kind, data, acl)
    }

    /// The same for whoever has the path of the parent at hand.
    #[expect(clippy::too_many_arguments, reason = "each is a fact of the new node")]
    pub(crate) fn add_child(
        &mut self,
        cx: &mut Context<'_>,
        parent: NodeIndex,
        parent_path: &ZPath,
        path: &ZPath,
        kind: Kind,
        data: Data,
        acl: &Acl,
    ) -> NodeIndex {
        let contender = match kind {
            Kind::Ephemeral(session) => {
                LockName::of_contender_below(parent_path, path).map(|lock| ContenderChange::Created {
                    lock,
                    node: path.clone(),
                    data: data.clone(),
                    session,
                })
            }
            Kind::Persistent | Kind::Container | Kind::Ttl(_) => None,
        };
        let growth = Growth {
            count: 1,
            bytes: data.len() as i64,
        };
        let index = self
            .tree
            .insert(parent, path, kind, data, acl, cx.zxid, cx.now_ms);
        if let Kind::Ephemeral(session) = kind {
            let owner = self
                .sessions
                .get_mut(session)
                .expect("ephemeral nodes have live owners");
            owner.ephemerals.insert((cx.zxid, index));
        }
        if parent_is_quota(path) {
            self.tree.begin_quota(index, path);
        }
        self.tree.use_quota(path, growth, cx.events);
        cx.changed(ZnodeEventKind::Created, path, acl.clone());
        self.children_changed(cx, parent, parent_path);
        if let Some(change) = contender {
            self.tell_locks(cx, change);
        }
        index
    }

    /// Adds the child at `path`, as it is in another tree, to `parent`, which exists and is not ephemeral.
    pub(crate) fn add_restated(
        &mut self,
        cx: &mut Context<'_>,
        parent: NodeIndex,
        path: &ZPath,
        restated: Restated,
    ) {
        let growth = Growth {
            count: 1,
            bytes: restated.data.len() as i64,
        };
        let acl = restated.acl.clone();
        let parent_path = path.parent().expect("the root is not created");
        let index = self
            .tree
            .insert_restated(parent, path, restated, cx.zxid, cx.now_ms);
        if parent_is_quota(path) {
            self.tree.begin_quota(index, path);
        }
        self.tree.use_quota(path, growth, cx.events);
        cx.changed(ZnodeEventKind::Created, path, acl);
        self.children_changed(cx, parent, &parent_path);
    }

    /// Makes the node at `path`, which is not ephemeral, what it is in another tree.
    pub(crate) fn restate_node(
        &mut self,
        cx: &mut Context<'_>,
        index: NodeIndex,
        path: &ZPath,
        restated: Restated,
    ) {
        let node = self.tree.node(index);
        let is_written = node.data != restated.data || node.version != restated.version;
        let growth = Growth {
            count: 0,
            bytes: restated.data.len() as i64 - node.data.len() as i64,
        };
        let acl = restated.acl.clone();
        self.tree.restate(index, path, restated, cx.zxid, cx.now_ms);
        self.tree.use_quota(path, growth, cx.events);
        if is_written {
            cx.changed(ZnodeEventKind::DataChanged, path, acl);
        }
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
        let parent = path.parent().expect("the root is not deleted");
        self.remove_child(cx, index, &parent, path, how);
    }

    /// The same for whoever has the path of the parent at hand.
    pub(crate) fn remove_child(
        &mut self,
        cx: &mut Context<'_>,
        index: NodeIndex,
        parent_path: &ZPath,
        path: &ZPath,
        how: ContenderEnd,
    ) {
        let node = self.tree.node(index);
        let (parent, session, czxid, data) = (node.parent, node.session(), node.czxid, node.data.clone());
        let acl = self.tree.acl(index).clone();
        self.tree.remove(index, path, cx.zxid, cx.now_ms);
        let growth = Growth {
            count: -1,
            bytes: -(data.len() as i64),
        };
        self.tree.use_quota(path, growth, cx.events);
        cx.changed(ZnodeEventKind::Deleted, path, acl);
        self.children_changed(cx, parent, parent_path);
        if let Some(session) = session {
            match self.sessions.get_mut(session) {
                Some(owner) => {
                    owner.ephemerals.remove(&(czxid, index));
                }
                None => assert!(planted::leaves_orphans(), "ephemeral nodes have live owners"),
            }
            if let Some(lock) = LockName::of_contender_below(parent_path, path) {
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
        let growth = Growth {
            count: 0,
            bytes: data.len() as i64 - self.tree.node(index).data.len() as i64,
        };
        self.tree.set_data(index, path, data, cx.zxid, cx.now_ms);
        self.tree.use_quota(path, growth, cx.events);
        let acl = self.tree.acl(index).clone();
        cx.changed(ZnodeEventKind::DataChanged, path, acl);
    }

    /// Tells that the set of children of `parent`, which is at `path`, changed.
    fn children_changed(&self, cx: &mut Context<'_>, parent: NodeIndex, path: &ZPath) {
        let acl = self.tree.acl(parent).clone();
        cx.changed(ZnodeEventKind::ChildrenChanged, path, acl);
    }

    pub(crate) fn check_size(&self, data: &Data) -> Result<(), Refusal> {
        let limit = self.limits.data_bytes;
        if data.len() > limit as usize {
            return Err(Refusal::DataTooLarge {
                bytes: data.len() as u64,
                limit: limit.into(),
            });
        }
        Ok(())
    }

    /// Takes a failed transaction back.
    pub(crate) fn roll_back(&mut self) {
        let Self { tree, sessions, .. } = self;
        tree.roll_back(|session, ephemeral, lives| {
            let owner = sessions
                .get_mut(session)
                .expect("no session ends within a transaction");
            if lives {
                owner.ephemerals.insert(ephemeral);
            } else {
                owner.ephemerals.remove(&ephemeral);
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
    /// Refuses a command that would create or remove more long paths than one may; these are at `path`, and above or
    /// below it.
    pub(crate) fn add_long_paths(&mut self, bytes: usize, path: &ZPath) -> Result<(), Refusal> {
        self.long_paths_bytes += bytes;
        match self.long_paths_bytes > MAX_LONG_PATHS_BYTES {
            true => Err(Refusal::LimitReached {
                what: Limited::LongPaths(path.clone()),
                limit: MAX_LONG_PATHS_BYTES as u32,
            }),
            false => Ok(()),
        }
    }

    /// Tells of a change of the node at `path`, which has (or had) the list `acl`.
    fn changed(&mut self, kind: ZnodeEventKind, path: &ZPath, acl: Acl) {
        self.events.push(Event::Znode(ZnodeEvent {
            kind,
            path: path.clone(),
            acl,
        }));
    }
}

/// Whether the node at `path` would be below one that holds a quota.
fn parent_is_quota(path: &ZPath) -> bool {
    path.as_str().starts_with("/zookeeper/quota/")
}

fn matches_version(path: &ZPath, expected: i32, actual: i32) -> Result<(), Refusal> {
    if expected != -1 && expected != actual {
        return Err(Refusal::BadVersion {
            path: path.clone(),
            expected,
            actual,
        });
    }
    Ok(())
}
