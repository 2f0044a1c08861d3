//! Lives of leases: renewals, releases, and ends. A lease begins with its acquire (`locks/acquire.rs`).

use fault_injection::planted::{self, Bug};

use crate::apply::context::Context;
use crate::apply::locks::contenders;
use crate::apply::session_life::end_session;
use crate::locks::queue::QueuePosition;
use crate::model::event::ContenderEnd;
use crate::model::ids::{LeaseKey, SessionId};
use crate::model::refusal::Refusal;
use crate::model::reply::{Outcome, Reply};
use crate::store::Store;

/// Gives a lease another timeout, counted from here.
pub(crate) fn renew_lease(
    store: &mut Store,
    cx: &mut Context<'_>,
    lease: &LeaseKey,
    timeout_ms: u32,
) -> Outcome {
    let session = lease.session;
    store.sessions.lease(lease).ok_or(Refusal::LeaseExpired)?;
    store.sessions.note_request(session, cx.zxid)?;
    let state = store.sessions.get_mut(session).expect("it lives");
    state.timeout_ms = timeout_ms;
    Ok(Reply::LeaseRenewed { session, timeout_ms })
}

/// The renewal of a lease was sent again under its request id; `first` is what it was answered then. The copy renews the lease again, as its
/// client counts from the sending of this copy. It does not if another renewal has changed the timeout since: then the copy was late.
pub(crate) fn repeat_renewal(
    store: &mut Store,
    cx: &mut Context<'_>,
    lease: &LeaseKey,
    timeout_ms: u32,
    first: Outcome,
) -> Outcome {
    match store.sessions.lease(lease) {
        Some(session) if session.timeout_ms == timeout_ms => renew_lease(store, cx, lease, timeout_ms),
        Some(_) => first,
        None => Err(Refusal::LeaseExpired),
    }
}

/// Ends the leases whose contenders the command removed, for whatever reason.
pub(crate) fn end_leases(store: &mut Store, cx: &mut Context<'_>) {
    for session in core::mem::take(&mut cx.ended_leases) {
        end_lease(store, cx, session);
    }
}

/// Ends a lease whose contender is gone. A session that ended together with its contender is skipped.
fn end_lease(store: &mut Store, cx: &mut Context<'_>, session: SessionId) {
    let state = store.sessions.get(session);
    let is_over = state.is_some_and(|state| state.ending.is_none() && state.ephemerals.is_empty());
    if is_over && !planted::is(Bug::LeaseWithoutLock) {
        end_session(store, cx, session, false);
    }
}

/// Releases the lock of a lease, or leaves its queue, and ends the lease. A repetition has the same answer.
pub(crate) fn release_lease(store: &mut Store, cx: &mut Context<'_>, lease: &LeaseKey) -> Outcome {
    let session = lease.session;
    if store.sessions.was_released(session) {
        return Ok(Reply::Released { holds: 0 });
    }
    let found = store.leased(lease).ok_or(Refusal::LeaseExpired)?;
    let how = match found.queue_position {
        QueuePosition::Holds => ContenderEnd::Released,
        QueuePosition::Waits { .. } => ContenderEnd::Withdrawn,
    };
    contenders::remove_contender(store, cx, &found, how);
    end_lease(store, cx, session);
    store.sessions.note_released(session);
    Ok(Reply::Released { holds: 0 })
}
