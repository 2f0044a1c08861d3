//! Changes of a contender's znode, which the steps of the lock protocol share.

use crate::apply::context::Context;
use crate::apply::znodes;
use crate::model::event::ContenderEnd;
use crate::model::ids::SessionId;
use crate::model::path::LockName;
use crate::store::Store;
use crate::store::resolve::ResolvedContender;

/// Removes the znode of a contender, and with it the contender.
pub(crate) fn remove_contender(
    store: &mut Store,
    cx: &mut Context<'_>,
    found: &ResolvedContender,
    how: ContenderEnd,
) {
    znodes::remove_child(store, cx, found.index, found.lock.znode(), &found.path, how);
}

/// Writes a record that was changed back to its znode.
pub(crate) fn rewrite(store: &mut Store, cx: &mut Context<'_>, found: &mut ResolvedContender) {
    let record = found
        .record
        .as_ref()
        .expect("only records of our own making are changed");
    found.holds = record.holds();
    let data = store.locks.write(&found.path, found.number, record);
    znodes::replace_data(store, cx, found.index, &found.path, data);
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
