//! Grants to waiters, at the end of each command, with the recorded outcomes of their requests.
//!
//! Between the steps of a command a lock may be free, but no step grants it. When a session ends, its holder is removed first and its
//! waiter second, and that waiter must never hold the lock.

use fault_injection::planted::{self, Bug};

use crate::apply::context::Context;
use crate::apply::locks::{contenders, modes};
use crate::locks::contender::Contender;
use crate::locks::queue::QueuePosition;
use crate::model::event::{ContenderEnd, Event};
use crate::model::ids::Zxid;
use crate::model::lock::HoldBounds;
use crate::model::path::LockName;
use crate::model::reply::Reply;
use crate::store::Store;

/// Grants the locks that a command touched to their waiters, and then those locks that earlier commands left with grants to make. Called once at the
/// end of each command. Most commands touch none, and pay only for the check.
#[inline]
pub(crate) fn grant_waiters(store: &mut Store, cx: &mut Context<'_>) {
    while store.locks.has_touched() {
        grant_touched(store, cx);
    }
    if store.locks.has_unfinished() {
        continue_unfinished(store, cx);
    }
}

/// Continues with the locks whose grants exceeded the budget of an earlier entry, within the budget of this one.
#[inline(never)]
fn continue_unfinished(store: &mut Store, cx: &mut Context<'_>) {
    if *cx.removals_left > 0 && *cx.grants_left > 0 {
        store.locks.touch_unfinished(*cx.grants_left);
        while store.locks.has_touched() {
            grant_touched(store, cx);
        }
    }
}

#[inline(never)]
fn grant_touched(store: &mut Store, cx: &mut Context<'_>) {
    let mut touched = store.locks.take_touched();
    for lock in touched.drain(..) {
        modes::grant_upgrade(store, cx, &lock);
        let is_finished = grant_next(store, cx, &lock);
        store.locks.set_unfinished(&lock, !is_finished);
        store.locks.lower_floor(&lock);
    }
    store.locks.recycle_touched(touched);
}

/// Grants a lock to its next waiters. Returns false if the budget of the entry ends before the waiters that may be granted the lock.
fn grant_next(store: &mut Store, cx: &mut Context<'_>, lock: &LockName) -> bool {
    while remove_ungrantable(store, cx, lock) && cx.may_grant() {
        let Some(contender) = store.locks.promote(lock) else {
            return true;
        };
        cx.count_grant();
        complete_grant(store, cx, lock, contender);
    }
    store.locks.next(lock).is_none()
}

/// Removes the next waiters from the queue while their sessions have ended, or the owners of their sessions have no right to the lock. Returns
/// whether the waiter that is next then may be granted the lock. It may not if it has to be removed and the budget of this entry is used up; the
/// entry that removes the waiter grants the lock.
fn remove_ungrantable(store: &mut Store, cx: &mut Context<'_>, lock: &LockName) -> bool {
    while (store.access.waits_end_with_rights() || store.sessions.are_ending())
        && let Some(next) = store.locks.next(lock)
    {
        let (path, czxid) = (next.path.clone(), next.czxid);
        let ended = store
            .sessions
            .get(next.session)
            .and_then(|session| session.ending)
            .filter(|_| !planted::is(Bug::GrantWhileEnding));
        let how = match ended {
            Some(_) if *cx.removals_left == 0 => return false,
            Some(ending) => {
                *cx.removals_left -= 1;
                ending.how()
            }
            // The rights for contenders that this very command created were checked before.
            None if czxid == cx.zxid => return true,
            None => ContenderEnd::Forbidden,
        };
        let found = store.contender(lock, path.name()).expect("it is in the queue");
        if how == ContenderEnd::Forbidden {
            if !contenders::has_lost_right(store, found.session, lock, found.record.is_some(), cx.now_ms) {
                return true;
            }
            if !cx.may_grant() {
                return false;
            }
            cx.count_grant();
        }
        contenders::remove_contender(store, cx, &found, how);
    }
    true
}

/// Completes the grant of a lock to a waiter: record, recorded outcomes, events.
fn complete_grant(store: &mut Store, cx: &mut Context<'_>, lock: &LockName, contender: Contender) {
    let mut found = store
        .contender(lock, contender.name())
        .expect("it was just granted the lock");
    debug_assert_eq!(found.queue_position, QueuePosition::Holds);
    let hold = match found.draft() {
        Some(mut record) => {
            record.granted_ms = Some(cx.now_ms);
            // A conflicting grant had a token that is larger than this contender's position.
            let floor = store.locks.state(lock).map_or(Zxid(0), |state| state.floor);
            if found.czxid <= floor {
                record.token = Some(cx.zxid);
                store.locks.change_state(lock, |state| state.floor = cx.zxid);
            }
            contenders::rewrite(store, cx, &mut found, record);
            store.hold(lock, &found)
        }
        None => {
            let session_name = store.sessions.name_of(found.session);
            found.describe_hold(lock, session_name, Some(cx.now_ms))
        }
    };
    let bounds = match planted::is(Bug::MinHoldOfWaiters) {
        true => HoldBounds::default(),
        false => found.bounds(),
    };
    let closed = store.locks.begin_min_hold(lock, bounds, cx.zxid, cx.now_ms);
    let grant = found.grant();
    for request_id in found.record.iter().flat_map(|record| record.request_ids()) {
        let answer = Ok(Reply::Granted(grant.clone()));
        store
            .sessions
            .correct_queued(found.session, request_id, lock, found.name(), answer);
    }
    cx.events.push(Event::HoldBegan(hold));
    cx.events.extend(closed);
    // A ZooKeeper client's contender that is created in a free lock has not waited.
    if found.czxid != cx.zxid {
        cx.events.push(Event::Granted {
            session: found.session,
            grant,
        });
    }
}
