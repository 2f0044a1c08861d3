//! Queries of the tree and the queues that decide which right is needed: the owner of a contender, missing parents, reserved paths.

use crate::apply::context::Context;
use crate::model::access::right::Right;
use crate::model::entry::Rules;
use crate::model::ids::SessionId;
use crate::model::path::{LOCK_ROOT, LockName, ZPath};
use crate::store::Store;
use crate::tree::index::NodeIndex;

/// Path of the cluster's own znodes. They include quotas, which limit callers that have the right to write.
const RESERVED: &str = "/zookeeper";

/// Returns whether a path is that of the cluster's own znodes.
pub(crate) fn is_reserved(path: &ZPath) -> bool {
    let rest = path.as_str().strip_prefix(RESERVED);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns whether a path is that of a lock, or above one.
pub(crate) fn is_of_locks(path: &ZPath) -> bool {
    path.as_str() == LOCK_ROOT || LockName::of_parent(path).is_some()
}

/// Returns whether a caller creates the znode of a lock, or one above it, and has only the right to lock.
pub(crate) fn creates_by_lock_alone(store: &Store, cx: &Context<'_>, at: &ZPath) -> bool {
    cx.rules == Rules::Current && store.access.is_secured() && is_of_locks(at) && {
        let caller_rights = store.access.caller_rights(cx.caller, cx.now_ms);
        caller_rights.is_ok_and(|caller_rights| !caller_rights.may(Right::Write, at))
    }
}

/// Contender at a path.
pub(crate) struct ContenderOwnership {
    pub(crate) lock: LockName,
    pub(crate) is_own: bool,
}

/// Returns the lock that the node at `path` is a contender of, and whether the session owns it; `None` if it is no contender.
pub(crate) fn contender_at(
    store: &Store,
    path: &ZPath,
    session: Option<SessionId>,
) -> Option<ContenderOwnership> {
    let lock = LockName::of_contender(path)?;
    let owner = store.tree.node(store.tree.find(path)?).session()?;
    Some(ContenderOwnership {
        lock,
        is_own: session == Some(owner),
    })
}

/// Returns whether the session owns an ephemeral node.
pub(crate) fn is_own_ephemeral(store: &Store, path: &ZPath, session: Option<SessionId>) -> bool {
    let index = store.tree.find(path);
    let owner = index.and_then(|index| store.tree.node(index).session());
    owner.is_some() && owner == session
}

/// Returns whether other sessions have contenders in a lock at `path`, or in the first `most` locks below it.
pub(crate) fn has_contenders_of_others(
    store: &Store,
    path: &ZPath,
    session: Option<SessionId>,
    most: usize,
) -> bool {
    let of_others = |queue: &crate::locks::queue::Queue| {
        let mut all = queue.holders().chain(queue.waiters());
        all.any(|contender| session != Some(contender.session))
    };
    if path.as_str() == LOCK_ROOT || path.is_root() {
        let mut all = store.locks.page("", None).take(most);
        return all.any(|(_, queue)| of_others(queue));
    }
    let Some(lock) = LockName::of_parent(path) else {
        return false;
    };
    let below = alloc::format!("{}/", lock.as_str());
    store.locks.queue(&lock).is_some_and(of_others)
        || (store.locks.page(&below, None).take(most)).any(|(_, queue)| of_others(queue))
}

/// Returns the first path from the root to `path`, inclusively, that does not exist.
pub(crate) fn first_missing(store: &Store, path: &ZPath) -> Option<ZPath> {
    store.tree.place_below(path).missing().next()
}

/// Returns whether the session has the contender `holder` of a lock.
pub(crate) fn is_own_contender(
    store: &Store,
    lock: &LockName,
    holder: &str,
    session: Option<SessionId>,
) -> bool {
    let lock = store.tree.find(lock.znode());
    let index: Option<NodeIndex> = lock.and_then(|lock| store.tree.child(lock, holder));
    let owner = index.and_then(|index| store.tree.node(index).session());
    owner.is_some() && owner == session
}
