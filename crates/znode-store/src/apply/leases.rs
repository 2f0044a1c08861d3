//! Lives of leases: renewals, releases, and ends. A lease begins with its acquire (`locks/acquire.rs`).

use alloc::sync::Arc;

use fault_injection::planted::{self, Bug};

use crate::apply::context::Context;
use crate::apply::locks::acquire::{self, AcquireCall};
use crate::apply::locks::contenders;
use crate::apply::session_life::end_session;
use crate::locks::plan::named_holders;
use crate::locks::queue::QueuePosition;
use crate::model::contender::Attempt;
use crate::model::event::ContenderEnd;
use crate::model::ids::{LeaseKey, SessionId};
use crate::model::lock::{
    AttemptId, ContenderNames, HoldBounds, LeaseChange, LockMode, LockWish, MAX_NOTE_BYTES, NewLease,
};
use crate::model::path::LockName;
use crate::model::refusal::Refusal;
use crate::model::reply::{Grant, LeaseContender, Outcome, Reply};
use crate::store::Store;
use crate::store::resolve::ResolvedContender;

/// Gives a lease another timeout, counted from here.
pub(crate) fn renew_lease(
    store: &mut Store,
    cx: &mut Context<'_>,
    lease: &LeaseKey,
    timeout_ms: u32,
) -> Outcome {
    store.sessions.lease(lease).ok_or(Refusal::LeaseExpired)?;
    renew(store, cx, lease.session, timeout_ms)
}

fn renew(store: &mut Store, cx: &Context<'_>, session: SessionId, timeout_ms: u32) -> Outcome {
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

/// Changes the lease that holds a lock, if it is still this one.
pub(crate) fn change_lease(
    store: &mut Store,
    cx: &mut Context<'_>,
    lock: &LockName,
    lease: SessionId,
    change: LeaseChange,
) -> Outcome {
    let found = store.held_by_lease(lock, lease).ok_or(Refusal::LeaseExpired)?;
    match change {
        LeaseChange::Release => {
            contenders::remove_contender(store, cx, &found, ContenderEnd::Released);
            Ok(Reply::Released { holds: 0 })
        }
        LeaseChange::ReleaseOwn => {
            contenders::remove_contender(store, cx, &found, ContenderEnd::Released);
            end_lease(store, cx, lease);
            store.sessions.note_released(lease);
            Ok(Reply::Released { holds: 0 })
        }
        LeaseChange::Renew { timeout_ms } => renew(store, cx, lease, timeout_ms),
        LeaseChange::Rewrite { note, timeout_ms } => rewrite(store, cx, found, note, timeout_ms),
        LeaseChange::Replace {
            note,
            address,
            guid,
            attempt,
            new,
        } => {
            let wish = LockWish {
                lock: lock.clone(),
                mode: LockMode::Exclusive,
                permits: 1,
                owner: "".into(),
                reentrant: false,
                note,
                address,
                lock_delay_ms: 0,
                names: ContenderNames::default(),
            };
            replace(store, cx, &found, wish, guid, attempt, new)
        }
    }
}

/// Gives the lease that holds a lock another note and another timeout.
fn rewrite(
    store: &mut Store,
    cx: &mut Context<'_>,
    mut found: ResolvedContender,
    note: Arc<str>,
    timeout_ms: u32,
) -> Outcome {
    if note.len() > MAX_NOTE_BYTES {
        return Err(Refusal::BadWish("the note is too long".into()));
    }
    let mut record = found
        .draft()
        .expect("no other client makes the contender of a lease");
    record.note = note;
    contenders::rewrite(store, cx, &mut found, record);
    renew(store, cx, found.session, timeout_ms)
}

/// Ends a lease and gives its lock to a new one. The new one enters the queue first, as the only waiter, so that a refusal changes nothing;
/// the end of the old one then makes it the holder.
fn replace(
    store: &mut Store,
    cx: &mut Context<'_>,
    old: &ResolvedContender,
    wish: LockWish,
    guid: u128,
    attempt: AttemptId,
    new: NewLease,
) -> Outcome {
    let lock = wish.lock.clone();
    let queue = store.locks.queue(&lock).expect("the lock has a holder");
    // After a minimum time of the hold the lock would be closed, and the new lease would wait.
    if queue.len() > 1 || old.bounds().min_ms > 0 {
        let holders = named_holders(queue);
        return Err(Refusal::LockBusy { holders, lock });
    }
    let call = AcquireCall {
        session: new.key.session,
        wish,
        bounds: HoldBounds::default(),
        guid,
        attempt: Attempt {
            id: attempt,
            request_id: None,
        },
        wait: true,
    };
    let reply = acquire::acquire_lease(store, cx, new, call)?;
    let Reply::Leased {
        lease,
        timeout_ms,
        contender: LeaseContender::Waits(place),
    } = reply
    else {
        unreachable!("the lock is held, so the new lease waits, and not {reply}");
    };
    contenders::remove_contender(store, cx, old, ContenderEnd::Released);
    Ok(Reply::Leased {
        lease,
        timeout_ms,
        contender: LeaseContender::Holds(Grant {
            lock,
            holder: place.holder,
            mode: LockMode::Exclusive,
            fencing_token: cx.zxid,
            holds: 1,
            permits: 1,
        }),
    })
}
