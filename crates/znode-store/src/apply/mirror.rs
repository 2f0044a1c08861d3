//! Commands that copy znodes of another server exactly: with versions, times, lists and counters of sequential names, none of which an ordinary
//! command can set. Positions (zxids) are this store's own. This module does not know the source of the other tree.

use alloc::vec::Vec;

use crate::apply::context::Context;
use crate::apply::znodes;
use crate::model::acl::{MAX_ACL_BYTES, Perms};
use crate::model::digits::MAX_SEQUENCE;
use crate::model::event::ContenderEnd;
use crate::model::mirrored::{MirrorStep, Mirrored, MirroredKind};
use crate::model::path::ZPath;
use crate::model::refusal::Refusal;
use crate::model::reply::{Outcome, Reply};
use crate::model::stat::MAX_TTL_MS;
use crate::store::Store;
use crate::tree::MirroredNode;
use crate::tree::index::NodeIndex;
use crate::tree::namespaces::NamespaceGrowth;
use crate::tree::quota::is_stats_of_quota;

/// Executes all steps or none.
pub(crate) fn mirror(store: &mut Store, cx: &mut Context<'_>, steps: Vec<MirrorStep>) -> Outcome {
    let (events_before, count) = (cx.events.len(), steps.len() as u32);
    store.tree.begin();
    for (index, step) in (0..).zip(steps) {
        let taken = match step {
            MirrorStep::Put(znode) => put_mirrored(store, cx, znode),
            MirrorStep::Remove { path } => remove_mirrored(store, cx, &path),
        };
        if let Err(refusal) = taken {
            cx.events.truncate(events_before);
            znodes::roll_back(store);
            return Err(Refusal::Multi {
                index,
                refusal: refusal.into(),
            });
        }
    }
    store.tree.commit();
    Ok(Reply::Mirrored(count))
}

fn put_mirrored(store: &mut Store, cx: &mut Context<'_>, znode: Mirrored) -> Result<(), Refusal> {
    check_mirrored(store, &znode)?;
    let found = store.tree.find(&znode.path);
    let Mirrored {
        path,
        data,
        acl,
        kind,
        version,
        aversion,
        ctime_ms,
        mtime_ms,
        creations,
    } = znode;
    // The usage of a quota is counted in this store, so the other server's count is ignored.
    let data = match found.filter(|_| is_stats_of_quota(&path)) {
        Some(index) => store.tree.node(index).data.clone(),
        None => data.into(),
    };
    let mirrored = MirroredNode {
        kind: kind.kind(),
        data,
        acl,
        version,
        aversion,
        ctime_ms,
        mtime_ms,
        creations,
    };
    let before = found.map_or(0, |index| store.tree.node(index).data.len());
    let growth = NamespaceGrowth {
        znodes: u64::from(found.is_none()),
        bytes: mirrored.data.len().saturating_sub(before) as u64,
        ..NamespaceGrowth::default()
    };
    let Some(index) = found else {
        let above = path.parent().expect("the root is always found");
        let place = store.tree.place_below(&above);
        if !place.has_parent() {
            return Err(Refusal::NoNode(above));
        }
        require_of_mirror(store, cx, place.ancestor, &[Perms::CREATE], &above)?;
        store.tree.may_have_children(&place, store.limits.children)?;
        store.tree.check_namespace(&path, &growth)?;
        znodes::add_mirrored(store, cx, place.ancestor, &path, mirrored);
        return Ok(());
    };
    let is_own = match index {
        NodeIndex::ROOT => kind != MirroredKind::Persistent,
        _ => index.is_special() || store.tree.node(index).session().is_some(),
    };
    if is_own {
        return Err(Refusal::NotMirrored(path));
    }
    require_of_mirror(store, cx, index, &[Perms::WRITE, Perms::ADMIN], &path)?;
    store.tree.check_namespace(&path, &growth)?;
    znodes::mirror_node(store, cx, index, &path, mirrored);
    Ok(())
}

fn check_mirrored(store: &Store, znode: &Mirrored) -> Result<(), Refusal> {
    store.limits.check_size(&znode.data)?;
    let entries = znode.acl.entries();
    let bytes =
        |texts: usize, entry: &crate::model::acl::AclEntry| texts + entry.scheme.len() + entry.id.len();
    if entries.is_empty() || entries.iter().fold(0, bytes) > MAX_ACL_BYTES {
        let why = alloc::format!(
            "that of {} is empty, or has more than {MAX_ACL_BYTES} bytes",
            znode.path
        );
        return Err(Refusal::InvalidAcl(why));
    }
    match znode.kind {
        MirroredKind::Persistent | MirroredKind::Container | MirroredKind::Ttl(1..=MAX_TTL_MS) => {}
        MirroredKind::Ttl(ttl_ms) => return Err(Refusal::BadTtl(ttl_ms)),
    }
    // The count may be one more than the last number, which means that none is left.
    match znode.creations <= MAX_SEQUENCE + 1 {
        true => Ok(()),
        false => Err(Refusal::SequenceExhausted(znode.path.clone())),
    }
}

fn remove_mirrored(store: &mut Store, cx: &mut Context<'_>, path: &ZPath) -> Result<(), Refusal> {
    let Some(index) = store.tree.find(path) else {
        return Ok(());
    };
    let node = store.tree.node(index);
    if index.is_special() {
        return Err(Refusal::Undeletable(path.clone()));
    }
    if node.session().is_some() {
        return Err(Refusal::NotMirrored(path.clone()));
    }
    if node.num_children() > 0 {
        return Err(Refusal::NotEmpty(path.clone()));
    }
    let parent = node.parent;
    require_of_mirror(store, cx, parent, &[Perms::DELETE], path)?;
    znodes::remove_node(store, cx, index, path, ContenderEnd::Deleted);
    Ok(())
}

/// Refuses the change of a znode whose list does not permit it, in an open state. There any caller can send such commands, and only the lists
/// protect a znode. In a secured state the caller may administer everything, and the lists are just a part of the copy.
fn require_of_mirror(
    store: &Store,
    cx: &Context<'_>,
    index: NodeIndex,
    all_of: &[Perms],
    path: &ZPath,
) -> Result<(), Refusal> {
    if store.access.is_secured() {
        return Ok(());
    }
    let acl = store.tree.acl(index);
    all_of
        .iter()
        .try_for_each(|perms| acl.require(*perms, cx.caller, path))
}
