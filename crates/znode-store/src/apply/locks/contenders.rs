//! Changes of a contender's znode, which the steps of the lock protocol share.

use crate::apply::context::Context;
use crate::apply::locks::contender_end;
use crate::apply::znodes;
use crate::locks::queue::QueuePosition;
use crate::model::contender::{Record, Written};
use crate::model::event::ContenderEnd;
use crate::model::ids::SessionId;
use crate::model::path::LockName;
use crate::store::Store;
use crate::store::resolve::ResolvedContender;
use crate::tree::node_data::NodeData;

/// Removes the znode of a contender, and with it the contender.
pub(crate) fn remove_contender(
    store: &mut Store,
    cx: &mut Context<'_>,
    found: &ResolvedContender,
    how: ContenderEnd,
) {
    znodes::take_child(store, cx, found.index, found.lock.znode(), &found.path);
    contender_end::contender_removed(store, cx, found.lock.clone(), found.position(), how);
}

/// Replaces the record of a contender: in its znode, in its queue and in `found`.
pub(crate) fn rewrite(
    store: &mut Store,
    cx: &mut Context<'_>,
    found: &mut ResolvedContender,
    record: Record,
) {
    let record = Written::new(record);
    let data = NodeData::of_contender(record.clone());
    znodes::replace_data(store, cx, found.index, &found.path, data);
    found.contender.rewrite(record);
    if found.queue_position == QueuePosition::Holds {
        found.contender.hold = Some(store.hold(&found.lock, &found.contender));
    }
    store.locks.replace(&found.lock, found.contender.clone());
}

/// Returns whether the owner of a contender's session has no right to the lock any more.
pub(crate) fn has_lost_right(
    store: &Store,
    session: SessionId,
    lock: &LockName,
    is_ours: bool,
    now_ms: u64,
) -> bool {
    store.sessions.get(session).is_some_and(|state| {
        let certificate = state.certificate.as_ref();
        store
            .access
            .has_lost_right(&state.owner, certificate, lock, is_ours, now_ms)
    })
}
