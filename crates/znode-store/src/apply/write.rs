//! Operations on znodes (creations are in `create.rs`): checks in the order of ZooKeeper, then the change.

use alloc::vec::Vec;

use crate::apply::context::Context;
use crate::apply::create::{self, Creation};
use crate::apply::znodes;
use crate::locks::name;
use crate::model::acl::Perms;
use crate::model::command::Op;
use crate::model::event::ContenderEnd;
use crate::model::ids::SessionId;
use crate::model::path::{SHORT_PATH_BYTES, SHORT_PATH_DEPTH, ZPath};
use crate::model::refusal::Refusal;
use crate::model::reply::{Outcome, Reply};
use crate::store::Store;
use crate::tree::index::NodeIndex;
use crate::tree::namespaces::NamespaceGrowth;
use crate::tree::quota::Growth;

/// Executes one operation, or refuses it without any effect. The order of the checks is ZooKeeper's, because it decides which of several refusals
/// its clients see.
pub(crate) fn write(store: &mut Store, cx: &mut Context<'_>, session: Option<SessionId>, op: Op) -> Outcome {
    match op {
        Op::Create {
            path,
            data,
            acl,
            mode,
            parents,
        } => {
            let creation = Creation {
                path,
                data,
                acl,
                mode,
                parents,
            };
            create::create(store, cx, session, creation)
        }
        Op::Delete { path, version } => {
            let parent = deletable(store, cx, &path)?;
            let index = require_child(store, parent, &path)?;
            expect_version(store, index, &path, version)?;
            if store.tree.node(index).num_children() > 0 {
                return Err(Refusal::NotEmpty(path));
            }
            znodes::remove_node(store, cx, index, &path, ContenderEnd::Deleted);
            Ok(Reply::Deleted)
        }
        Op::DeleteRecursive { path } => {
            let parent = deletable(store, cx, &path)?;
            let index = require_child(store, parent, &path)?;
            check_subtree(store, cx, index, &path)?;
            remove_subtree(store, cx, index, &path);
            Ok(Reply::Deleted)
        }
        Op::Set { path, data, version } => {
            store.limits.check_size(&data)?;
            let index = store.tree.require(&path)?;
            store.tree.acl(index).require(Perms::WRITE, cx.caller, &path)?;
            let node = store.tree.node(index);
            let is_contender = node.session().is_some() && name::is_reserved(&path);
            let growth = Growth {
                count: 0,
                bytes: data.len() as i64 - node.data.len() as i64,
            };
            store.tree.check_quota(&path, growth)?;
            let growth = NamespaceGrowth {
                bytes: data.len().saturating_sub(node.data.len()) as u64,
                ..NamespaceGrowth::default()
            };
            store.tree.check_namespace(&path, &growth)?;
            expect_version(store, index, &path, version)?;
            if is_contender {
                return Err(name::written_by_locks_alone(&path));
            }
            znodes::replace_data(store, cx, index, &path, data.into());
            Ok(Reply::Set(store.tree.node(index).stat()))
        }
        Op::SetAcl { path, acl, aversion } => {
            let acl = acl.as_set_by(cx.caller)?;
            let index = store.tree.require(&path)?;
            store.tree.acl(index).require(Perms::ADMIN, cx.caller, &path)?;
            let actual = store.tree.node(index).aversion;
            matches_version(&path, aversion, actual)?;
            store.tree.set_acl(index, &path, &acl);
            Ok(Reply::AclSet(store.tree.node(index).stat()))
        }
        Op::Check { path, version } => {
            let index = store.tree.require(&path)?;
            store.tree.acl(index).require(Perms::READ, cx.caller, &path)?;
            expect_version(store, index, &path, version)?;
            Ok(Reply::Checked)
        }
        Op::Held { lock, fencing_token } => {
            let session = session.ok_or(Refusal::SessionRequired)?;
            if store.holds(session, &lock, fencing_token) {
                Ok(Reply::Held)
            } else {
                Err(Refusal::NotHeld { lock, fencing_token })
            }
        }
    }
}

/// Returns the parent of a znode that the caller may delete, or refuses the deletion.
fn deletable(store: &Store, cx: &Context<'_>, path: &ZPath) -> Result<NodeIndex, Refusal> {
    let Some(parent) = path.parent() else {
        return Err(Refusal::Undeletable(path.clone()));
    };
    if store.tree.find(path).is_some_and(NodeIndex::is_special) {
        return Err(Refusal::Undeletable(path.clone()));
    }
    let index = store.tree.require(&parent)?;
    store.tree.acl(index).require(Perms::DELETE, cx.caller, &parent)?;
    Ok(index)
}

fn require_child(store: &Store, parent: NodeIndex, path: &ZPath) -> Result<NodeIndex, Refusal> {
    store
        .tree
        .child(parent, path.name())
        .ok_or_else(|| Refusal::NoNode(path.clone()))
}

/// Refuses the deletion of a subtree if the caller may not delete all znodes below its top, or if their number or the bytes of their long paths are
/// too large. The refusal names the top, because siblings have no order that all replicas share.
fn check_subtree(store: &Store, cx: &mut Context<'_>, top: NodeIndex, path: &ZPath) -> Result<(), Refusal> {
    let (mut long_bytes, mut is_denied) = (0, false);
    let mut todo = Vec::from([(top, path.as_str().len(), path.depth())]);
    while let Some((index, bytes, depth)) = todo.pop() {
        if bytes > SHORT_PATH_BYTES || depth > SHORT_PATH_DEPTH {
            long_bytes += bytes;
        }
        if store.tree.node(index).num_children() == 0 {
            continue;
        }
        is_denied |= !store.tree.acl(index).allows(Perms::DELETE, cx.caller);
        // The children are counted before they are visited, and whatever was found before: the order of the visits differs between replicas.
        cx.add_descendants(store.tree.node(index).num_children(), path)?;
        let children = store.tree.children(index);
        todo.extend(children.map(|child| (child, bytes + 1 + store.tree.node(child).name.len(), depth + 1)));
    }
    // Refused only after all were counted, so that the order of the visits does not decide which refusal is returned.
    if is_denied {
        return Err(Refusal::NoAuth(path.clone()));
    }
    cx.add_long_paths(long_bytes, path)
}

/// Refuses a znode with another version; −1 matches all versions.
fn expect_version(store: &Store, index: NodeIndex, path: &ZPath, version: i32) -> Result<(), Refusal> {
    matches_version(path, version, store.tree.node(index).version)
}

/// Deletes a container that had children and has none, or an expired TTL znode without children. Returns false if the znode is not (or no longer)
/// one of these.
pub(crate) fn sweep(store: &mut Store, cx: &mut Context<'_>, path: &ZPath) -> bool {
    let Some(index) = store.tree.find(path) else {
        return false;
    };
    let node = store.tree.node(index);
    let is_over = |expires: u64| expires <= cx.now_ms;
    let is_due = node.emptied_at_ms().is_some() || node.expires_at_ms().is_some_and(is_over);
    let is_due = is_due && !store.locks.is_configured(path);
    if is_due {
        znodes::remove_node(store, cx, index, path, ContenderEnd::Deleted);
    }
    is_due
}

/// Deletes a znode and all below it: children before their parents, siblings by name.
fn remove_subtree(store: &mut Store, cx: &mut Context<'_>, top: NodeIndex, path: &ZPath) {
    // The last element is the next one. A znode is marked when its children are removed or on the list.
    let mut todo = Vec::from([(path.clone(), top, false)]);
    while let Some((path, index, is_bare)) = todo.pop() {
        if is_bare || store.tree.node(index).num_children() == 0 {
            znodes::remove_node(store, cx, index, &path, ContenderEnd::Deleted);
            continue;
        }
        let named = |child| (path.child(&store.tree.node(child).name), child, false);
        let mut children: Vec<_> = store.tree.children(index).map(named).collect();
        children.sort_unstable_by(|one, other| other.cmp(one));
        todo.push((path, index, true));
        todo.append(&mut children);
    }
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
