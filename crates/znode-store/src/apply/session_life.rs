//! Ends of sessions.

use alloc::vec::Vec;

use fault_injection::planted::{self, Bug};

use crate::apply::context::Context;
use crate::apply::znodes;
use crate::locks::queue::QueuePosition;
use crate::model::entry::Rules;
use crate::model::event::Event;
use crate::model::ids::{SessionId, Zxid};
use crate::model::path::{LockName, ZPath};
use crate::sessions::Ending;
use crate::store::Store;
use crate::tree::index::NodeIndex;

/// Removes from the list the nodes that planted bugs leave behind: the waiters, or the newest of the other ephemeral nodes.
fn leave_orphans(store: &Store, ephemerals: &mut Vec<(Zxid, ZPath, NodeIndex)>) {
    if planted::is(Bug::GrantToTheDead) {
        ephemerals.retain(|(_, path, _)| {
            let found = LockName::of_contender(path).and_then(|lock| store.contender(&lock, path.name()));
            !found.is_some_and(|found| matches!(found.queue_position, QueuePosition::Waits { .. }))
        });
    }
    if planted::is(Bug::KeptEphemeral)
        && let Some(newest) = ephemerals
            .iter()
            .rposition(|(_, path, _)| LockName::of_contender(path).is_none())
    {
        ephemerals.remove(newest);
    }
}

/// Ends a live session, or continues an end that has begun. Removes its ephemeral znodes in the order of their creation, within the budget
/// of the entry. If others remain the session has ended all the same, and the leader proposes to continue.
pub(crate) fn end_session(store: &mut Store, cx: &mut Context<'_>, session: SessionId, expired: bool) {
    let most = match cx.rules {
        Rules::Former => usize::MAX,
        Rules::Current => *cx.removals_left,
    };
    let state = store.sessions.get(session).expect("only a live session is ended");
    let begun = state.ending;
    let ending = begun.unwrap_or(Ending { expired, at: cx.zxid });
    let how = ending.how();
    let (mut oldest, cost) = state.oldest_ephemerals(&store.tree, most);
    let is_all = oldest.len() == state.ephemerals.len();
    *cx.removals_left = cx.removals_left.saturating_sub(cost);
    if planted::leaves_orphans() {
        leave_orphans(store, &mut oldest);
    }
    for (_, path, index) in oldest {
        znodes::remove_node(store, cx, index, &path, how.clone());
    }
    if is_all {
        store.sessions.remove(session);
    } else if begun.is_none() {
        store.sessions.begin_end(session, ending).expect("it lives");
    }
    if begun.is_none() {
        let expired = ending.expired;
        cx.events.push(Event::SessionEnded { session, expired });
    }
}
