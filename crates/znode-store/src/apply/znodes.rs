//! Changes of znodes with their consequences: events, the owner's ephemerals, the queues of locks, quotas.

use fault_injection::planted;

use crate::apply::context::{ContenderChange, Context, EndedContender};
use crate::apply::locks::contender_end;
use crate::locks::contender::Contender;
use crate::model::acl::Acl;
use crate::model::data::Data;
use crate::model::digits::sequence_number;
use crate::model::event::{ContenderEnd, ZnodeEventKind};
use crate::model::path::{LockName, ZPath};
use crate::model::stat::Kind;
use crate::store::Store;
use crate::tree::index::NodeIndex;
use crate::tree::node_data::NodeData;
use crate::tree::placement::Placement;
use crate::tree::quota::Growth;
use crate::tree::{MirroredNode, NewZnode};

/// Returns whether the znode at `path` would be below a znode with quotas.
fn parent_is_quota(path: &ZPath) -> bool {
    path.as_str().starts_with("/zookeeper/quota/")
}

/// Adds a child to `parent`, and to the queue if it is a contender of a lock. The caller has checked that the child does not exist, that the parent
/// exists and is not ephemeral, and that the session of an ephemeral child lives.
pub(crate) fn add_child(
    store: &mut Store,
    cx: &mut Context<'_>,
    parent: NodeIndex,
    parent_path: &ZPath,
    child: NewZnode<'_>,
) -> NodeIndex {
    let contender = match child.kind {
        Kind::Ephemeral(session) => LockName::of_contender_below(parent_path, child.path).and_then(|lock| {
            let contender = Contender::read(child.path, child.data.bytes(), session, cx.zxid)?;
            Some((lock, contender))
        }),
        Kind::Persistent | Kind::Container | Kind::Ttl(_) => None,
    };
    let index = insert_child(store, cx, parent, parent_path, child);
    if let Some((lock, contender)) = contender {
        update_queue(store, cx, ContenderChange::Created(lock, contender));
    }
    index
}

/// Adds a child without adding it to a queue; the caller does that if it is a contender.
pub(crate) fn insert_child(
    store: &mut Store,
    cx: &mut Context<'_>,
    parent: NodeIndex,
    parent_path: &ZPath,
    child: NewZnode<'_>,
) -> NodeIndex {
    let NewZnode { path, kind, acl, .. } = child;
    let growth = Growth {
        count: 1,
        bytes: child.data.len() as i64,
    };
    let index = store.tree.insert(parent, child, cx.zxid, cx.now_ms);
    if let Kind::Ephemeral(session) = kind {
        let owner = store
            .sessions
            .get_mut(session)
            .expect("ephemeral nodes have live owners");
        owner.ephemerals.insert((cx.zxid, index));
    }
    if parent_is_quota(path) {
        store.tree.begin_quota(index, path);
    }
    store.tree.use_quota(path, growth, cx.events);
    cx.changed(ZnodeEventKind::Created, path, acl.clone());
    children_changed(store, cx, parent, parent_path);
    index
}

/// Adds the child at `path` as a copy of a znode of another tree. `parent` exists and is not ephemeral.
pub(crate) fn add_mirrored(
    store: &mut Store,
    cx: &mut Context<'_>,
    parent: NodeIndex,
    path: &ZPath,
    mirrored: MirroredNode,
) {
    let growth = Growth {
        count: 1,
        bytes: mirrored.data.len() as i64,
    };
    let acl = mirrored.acl.clone();
    let parent_path = path.parent().expect("the root is not created");
    let index = store
        .tree
        .insert_mirrored(parent, path, mirrored, cx.zxid, cx.now_ms);
    if parent_is_quota(path) {
        store.tree.begin_quota(index, path);
    }
    store.tree.use_quota(path, growth, cx.events);
    cx.changed(ZnodeEventKind::Created, path, acl);
    children_changed(store, cx, parent, &parent_path);
}

/// Makes the znode at `path`, which is not ephemeral, a copy of a znode of another tree.
pub(crate) fn mirror_node(
    store: &mut Store,
    cx: &mut Context<'_>,
    index: NodeIndex,
    path: &ZPath,
    mirrored: MirroredNode,
) {
    let node = store.tree.node(index);
    let is_written = node.data != mirrored.data || node.version != mirrored.version;
    let growth = Growth {
        count: 0,
        bytes: mirrored.data.len() as i64 - node.data.len() as i64,
    };
    let acl = mirrored.acl.clone();
    store.tree.mirror(index, path, mirrored, cx.zxid, cx.now_ms);
    store.tree.use_quota(path, growth, cx.events);
    if is_written {
        cx.changed(ZnodeEventKind::DataChanged, path, acl);
    }
}

/// Removes the znode at `path`, which has no children and is not the root. If it is a contender, removes it from its queue with the cause of its
/// end.
pub(crate) fn remove_node(
    store: &mut Store,
    cx: &mut Context<'_>,
    index: NodeIndex,
    path: &ZPath,
    how: ContenderEnd,
) {
    let parent = path.parent().expect("the root is not deleted");
    remove_child(store, cx, index, &parent, path, how);
}

/// Removes a child like [`remove_node`], for callers that have the path of the parent.
pub(crate) fn remove_child(
    store: &mut Store,
    cx: &mut Context<'_>,
    index: NodeIndex,
    parent_path: &ZPath,
    path: &ZPath,
    how: ContenderEnd,
) {
    let node = store.tree.node(index);
    let (is_ephemeral, czxid) = (node.session().is_some(), node.czxid);
    take_child(store, cx, index, parent_path, path);
    if is_ephemeral
        && let Some(lock) = LockName::of_contender_below(parent_path, path)
        && let Some(number) = sequence_number(path.name())
    {
        let ended = EndedContender {
            lock,
            node: path.clone(),
            number,
            czxid,
            how,
        };
        update_queue(store, cx, ContenderChange::Removed(ended));
    }
}

/// Removes a child without removing it from a queue; the caller does that if it is a contender.
pub(crate) fn take_child(
    store: &mut Store,
    cx: &mut Context<'_>,
    index: NodeIndex,
    parent_path: &ZPath,
    path: &ZPath,
) {
    let node = store.tree.node(index);
    let (parent, session, czxid, bytes) = (node.parent, node.session(), node.czxid, node.data.len());
    let acl = store.tree.acl(index).clone();
    store.tree.remove(index, path, cx.zxid, cx.now_ms);
    let growth = Growth {
        count: -1,
        bytes: -(bytes as i64),
    };
    store.tree.use_quota(path, growth, cx.events);
    cx.changed(ZnodeEventKind::Deleted, path, acl);
    children_changed(store, cx, parent, parent_path);
    if let Some(session) = session {
        match store.sessions.get_mut(session) {
            Some(owner) => {
                owner.ephemerals.remove(&(czxid, index));
            }
            None => assert!(planted::leaves_orphans(), "ephemeral nodes have live owners"),
        }
    }
}

/// Replaces the data of the znode at `path`. The queues do not depend on the data of contenders that clients may write.
pub(crate) fn replace_data(
    store: &mut Store,
    cx: &mut Context<'_>,
    index: NodeIndex,
    path: &ZPath,
    data: NodeData,
) {
    let growth = Growth {
        count: 0,
        bytes: data.len() as i64 - store.tree.node(index).data.len() as i64,
    };
    store.tree.set_data(index, path, data, cx.zxid, cx.now_ms);
    store.tree.use_quota(path, growth, cx.events);
    let acl = store.tree.acl(index).clone();
    cx.changed(ZnodeEventKind::DataChanged, path, acl);
}

/// Appends the event that the set of children of `parent`, which is at `path`, has changed.
fn children_changed(store: &Store, cx: &mut Context<'_>, parent: NodeIndex, path: &ZPath) {
    let acl = store.tree.acl(parent).clone();
    cx.changed(ZnodeEventKind::ChildrenChanged, path, acl);
}

/// Undoes a failed transaction.
pub(crate) fn roll_back(store: &mut Store) {
    let Store { tree, sessions, .. } = store;
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

/// Passes a change of a contender to its queue, now or when the transaction has succeeded.
pub(crate) fn update_queue(store: &mut Store, cx: &mut Context<'_>, change: ContenderChange) {
    if let Some(held_back) = &mut cx.held_back {
        held_back.push(change);
        return;
    }
    match change {
        ContenderChange::Created(lock, contender) => {
            store.locks.enter(&lock, contender, false);
        }
        ContenderChange::Removed(ended) => {
            let position = (ended.czxid, ended.number, ended.node.name());
            contender_end::contender_removed(store, cx, ended.lock, position, ended.how);
        }
    }
}

/// Creates missing znodes, as containers with the list `acl`, and returns the last one.
pub(crate) fn create_missing(
    store: &mut Store,
    cx: &mut Context<'_>,
    place: Placement<'_>,
    acl: &Acl,
) -> NodeIndex {
    place.missing().fold(place.ancestor, |parent, path| {
        let parent_path = path.parent().expect("the root is not created");
        let child = NewZnode {
            path: &path,
            kind: Kind::Container,
            data: Data::empty().into(),
            acl,
        };
        add_child(store, cx, parent, &parent_path, child)
    })
}
