//! Acquire: adds a contender, or one more call of an owner that has a contender. Each step refuses before it changes anything. Only
//! `grant_waiters.rs` grants a lock to a waiter.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;

use crate::apply::context::Context;
use crate::apply::locks::contenders;
use crate::apply::locks::modes::waits_for_itself;
use crate::apply::{session_opening, znodes};
use crate::locks::contender::Contender;
use crate::locks::name;
use crate::locks::plan::{Plan, named_holders, reach};
use crate::locks::queue::QueuePosition;
use crate::model::acl::Acl;
use crate::model::contender::{Attempt, Record, Written};
use crate::model::event::Event;
use crate::model::ids::{LeaseKey, RequestId, SessionId};
use crate::model::lock::{AttemptId, HoldBounds, LockMode, LockWish, MAX_HOLD_BOUND_MS, MAX_HOLDS, NewLease};
use crate::model::path::LockName;
use crate::model::refusal::Refusal;
use crate::model::reply::{Grant, LeaseContender, Outcome, Place, Reply};
use crate::model::stat::Kind;
use crate::store::Store;
use crate::store::resolve::ResolvedContender;
use crate::tree::NewZnode;
use crate::tree::node_data::NodeData;

/// One call of `acquire`.
pub(crate) struct AcquireCall {
    pub session: SessionId,
    pub wish: LockWish,
    pub bounds: HoldBounds,
    pub guid: u128,
    pub attempt: Attempt,
    pub wait: bool,
}

/// Outcome of a call.
pub(crate) enum AcquireOutcome {
    Joined(ResolvedContender),
    Created(Created),
}

/// Contender that was just created and is in no queue yet.
pub(crate) struct Created {
    lock: LockName,
    contender: Contender,
}

/// Creates a contender, joins a contender of the same owner, or refuses the call.
pub(crate) fn acquire(store: &mut Store, cx: &mut Context<'_>, mut call: AcquireCall) -> Outcome {
    check_bounds(store, &call)?;
    let stays = |contender: &Contender| !store.sessions.is_ending(contender.session);
    match store.locks.plan(call.session, &mut call.wish, call.wait, stays)? {
        Plan::Join(own) => join(store, cx, own.name(), call).map(|found| found.reply()),
        Plan::Enter { is_free } => {
            let created = create_contender(store, cx, call, is_free)?;
            Ok(enqueue(store, cx, created))
        }
    }
}

/// Refuses bounds of a hold that make no sense, and a minimum time of a hold if too many locks have a state besides their queues: the lock
/// has one until the time is over.
fn check_bounds(store: &Store, call: &AcquireCall) -> Result<(), Refusal> {
    let HoldBounds { min_ms, max_ms } = call.bounds;
    let longest = min_ms.max(max_ms);
    if longest > MAX_HOLD_BOUND_MS {
        let what = format!("a bound of {longest} ms is more than the {MAX_HOLD_BOUND_MS} allowed");
        return Err(Refusal::BadWish(what.into()));
    }
    if min_ms == 0 {
        return Ok(());
    }
    // The lock is closed meanwhile, and other modes have other holders.
    if call.wish.mode != LockMode::Exclusive {
        let what = "a minimum time of a hold needs the mode exclusive";
        return Err(Refusal::BadWish(what.into()));
    }
    store.locks.may_have_state(&call.wish.lock)
}

/// Opens a lease and acquires its lock, or does neither.
pub(crate) fn acquire_lease(
    store: &mut Store,
    cx: &mut Context<'_>,
    lease: NewLease,
    call: AcquireCall,
) -> Outcome {
    let NewLease { key, timeout_ms } = lease;
    let address = call.wish.address.clone();
    let events_before = cx.events.len();
    session_opening::open_session_of_caller(store, cx, key, timeout_ms, Arc::default(), address)?;
    let state = store.sessions.get_mut(key.session).expect("it was just opened");
    state.is_lease = true;
    match acquire(store, cx, call) {
        Ok(reply) => Ok(leased(key, timeout_ms, reply)),
        Err(refusal) => {
            cx.events.truncate(events_before);
            store.sessions.forget(key.session);
            Err(refusal)
        }
    }
}

fn leased(lease: LeaseKey, timeout_ms: u32, reply: Reply) -> Reply {
    let contender = match reply {
        Reply::Granted(grant) => LeaseContender::Holds(grant),
        Reply::Queued(place) => LeaseContender::Waits(place),
        other => unreachable!("a call is granted or queued, not {other}"),
    };
    Reply::Leased {
        lease,
        timeout_ms,
        contender,
    }
}

/// The acquire of a lease was sent again under its request id; `first` is what it was answered then.
pub(crate) fn repeat_acquire_lease(
    store: &mut Store,
    cx: &mut Context<'_>,
    request_id: &RequestId,
    attempt: AttemptId,
    first: Outcome,
) -> Outcome {
    let Ok(Reply::Leased {
        lease,
        timeout_ms: _,
        contender,
    }) = &first
    else {
        return first;
    };
    let (lock, holder) = match contender {
        LeaseContender::Holds(grant) => (&grant.lock, &grant.holder),
        LeaseContender::Waits(place) => (&place.lock, &place.holder),
    };
    let timeout_ms = match store.sessions.lease(lease) {
        Some(session) => session.timeout_ms,
        None => return Err(Refusal::LeaseExpired),
    };
    let Some(mut found) = store.contender(lock, holder) else {
        return Err(Refusal::LeaseExpired);
    };
    // Its client counts the timeout from the sending of this copy.
    store.sessions.note_request(lease.session, cx.zxid)?;
    if let Some(record) = found.draft_with_retry(request_id, attempt) {
        contenders::rewrite(store, cx, &mut found, record);
    }
    Ok(leased(*lease, timeout_ms, found.reply()))
}

/// Creates a contender, and the lock if need be. It is in the queue only after [`enqueue`].
pub(crate) fn create_contender(
    store: &mut Store,
    cx: &mut Context<'_>,
    call: AcquireCall,
    is_free: bool,
) -> Result<Created, Refusal> {
    let AcquireCall {
        session,
        wish,
        bounds,
        guid,
        attempt,
        ..
    } = call;
    let znode = wish.lock.znode();
    let place = store.tree.place_below(znode);
    let parent = place.has_parent().then_some(place.ancestor);
    let number = store.tree.next_sequence(parent, znode)?;
    let path = name::make(&wish.lock, guid, wish.mode, wish.names, number)
        .map_err(|bad| Refusal::BadPath(bad.to_string()))?;
    let acl = Acl::open();
    store.tree.may_create_at(&place, &acl, cx.caller)?;
    store.tree.may_have_children(&place, store.limits.children)?;
    store
        .sessions
        .may_own_more(session, &path, store.limits.ephemerals)?;
    let mut record = Record::new(&wish, bounds, attempt, cx.now_ms);
    record.granted_ms = is_free.then_some(cx.now_ms);
    let record = Written::new(record);
    let data = NodeData::of_contender(record.clone());
    store
        .tree
        .check_quotas_of_creation(&place, &path, &data, Some(session))?;
    let parent = znodes::create_missing(store, cx, place, &acl);
    let child = NewZnode {
        path: &path,
        kind: Kind::Ephemeral(session),
        data,
        acl: &acl,
    };
    znodes::insert_child(store, cx, parent, znode, child);
    let contender = Contender::new(path, number, session, cx.zxid, record);
    Ok(Created {
        lock: wish.lock,
        contender,
    })
}

/// Completes a new contender: it is in the queue from then on. Returns the reply to its call.
pub(crate) fn enqueue(store: &mut Store, cx: &mut Context<'_>, created: Created) -> Reply {
    let Created { lock, mut contender } = created;
    let (request, number, bounds) = (contender.request, contender.number, contender.bounds());
    let holder = String::from(contender.name());
    // Only a lock that was free before is granted here: the next waiter of a lock in use may belong to a session that has ended.
    let is_free = contender
        .record
        .as_ref()
        .is_some_and(|record| record.granted_ms.is_some());
    let hold = is_free.then(|| store.hold(&lock, &contender));
    contender.hold = hold.clone();
    let scope = contender.scope().filter(|_| !is_free);
    match store.locks.enter(&lock, contender, is_free) {
        QueuePosition::Holds => {
            cx.events.extend(hold.map(Event::HoldBegan));
            let closed = store.locks.begin_min_hold(&lock, bounds, cx.zxid, cx.now_ms);
            cx.events.extend(closed);
            Reply::Granted(Grant {
                lock,
                holder,
                mode: request.mode,
                fencing_token: cx.zxid,
                holds: 1,
                permits: request.permits,
            })
        }
        QueuePosition::Waits { ahead } => {
            if let Some(scope) = scope {
                store.locks.add_wait(scope, &lock, (cx.zxid, number, &holder));
            }
            Reply::Queued(Place { lock, holder, ahead })
        }
    }
}

/// Adds a call to the contender with which the owner holds the lock already, or waits already.
pub(crate) fn join(
    store: &mut Store,
    cx: &mut Context<'_>,
    own: &str,
    call: AcquireCall,
) -> Result<ResolvedContender, Refusal> {
    let AcquireCall {
        wish, attempt, wait, ..
    } = call;
    let mut found = store.contender(&wish.lock, own).expect("it is in the queue");
    // A shared holder that requests a stronger mode would wait for itself. (An exclusive holder that requests a shared lock has that right
    // already.)
    if reach(found.request.mode) < reach(wish.mode) {
        return Err(waits_for_itself(&found));
    }
    if !wait && found.queue_position != QueuePosition::Holds {
        let queue = store.locks.queue(&wish.lock).expect("its contender was found");
        return Err(Refusal::LockBusy {
            holders: named_holders(queue),
            lock: wish.lock,
        });
    }
    let mut record = found
        .draft()
        .expect("only contenders of our own making can be joined");
    if record.attempts().len() >= MAX_HOLDS {
        return Err(Refusal::TooManyHolds(wish.lock));
    }
    record.calls.push(attempt);
    record.lock_delay_ms = record.lock_delay_ms.max(wish.lock_delay_ms);
    contenders::rewrite(store, cx, &mut found, record);
    Ok(found)
}

/// Answers an `acquire` that was sent again under its request id. `first` is its recorded outcome, with later corrections. (A call that its caller
/// abandoned has no record, and is not handled here.)
pub(crate) fn repeat_acquire(
    store: &mut Store,
    cx: &mut Context<'_>,
    session: SessionId,
    request_id: &RequestId,
    wish: &LockWish,
    attempt: AttemptId,
    first: Outcome,
) -> Outcome {
    let holder = match &first {
        Ok(Reply::Queued(place)) => &place.holder,
        Ok(Reply::Granted(grant)) => &grant.holder,
        // The call was refused, or was not granted in time, which is final.
        _ => return first,
    };
    let found = store
        .contender(&wish.lock, holder)
        .filter(|found| found.session == session);
    let Some(mut found) = found else {
        return first;
    };
    // From here on the contender stands for the call that was sent last. Withdrawals of the other calls by their nodes have no effect.
    match found.draft_with_retry(request_id, attempt) {
        Some(record) => {
            contenders::rewrite(store, cx, &mut found, record);
            Ok(found.reply())
        }
        // The hold of this call was released; those of other calls stay.
        None => first,
    }
}
