//! Settings of a lock that apply to all its holders: limit of a semaphore, draining, lock-delay.

use alloc::string::String;
use alloc::vec::Vec;

use crate::apply::context::Context;
use crate::apply::locks::contenders;
use crate::apply::znodes;
use crate::locks::state::only_removes_settings;
use crate::model::acl::{Acl, Perms};
use crate::model::event::{ContenderEnd, Event};
use crate::model::ids::Zxid;
use crate::model::lock::LockMode;
use crate::model::path::LockName;
use crate::model::refusal::Refusal;
use crate::model::reply::{Outcome, Reply};
use crate::store::Store;
use crate::tree::namespaces::NamespaceGrowth;
use crate::tree::quota::Growth;

/// Changes the settings of a lock. They stay while the lock is not in use, until they are changed again.
pub(crate) fn configure(
    store: &mut Store,
    cx: &mut Context<'_>,
    lock: LockName,
    limit: Option<Option<u32>>,
    draining: Option<bool>,
) -> Outcome {
    let terms = store.locks.terms(&lock);
    let in_use = store.locks.queue(&lock).and_then(|queue| queue.mode(terms));
    match (limit, in_use) {
        (Some(Some(0)), _) => {
            return Err(Refusal::BadWish("the limit of a semaphore is at least 1".into()));
        }
        (None, _) | (Some(_), None) | (Some(Some(_)), Some(LockMode::Semaphore { .. })) => {}
        // Without the setting there would be as many limits as there are holders that requested one.
        (Some(None), Some(in_use)) | (Some(Some(_)), Some(in_use)) => {
            return Err(Refusal::ModeConflict { lock, in_use });
        }
    }
    // A lock that does not exist has no settings to remove. So no znode is created for it, and a full disk does not prevent a removal of settings.
    let only_removes_settings = only_removes_settings(limit, draining);
    if only_removes_settings && store.tree.find(lock.znode()).is_none() {
        return Ok(Reply::Configured);
    }
    may_configure(store, cx, &lock)?;
    if only_removes_settings && store.locks.state(&lock).is_none() {
        return Ok(Reply::Configured);
    }
    store.locks.may_have_state(&lock)?;
    store.locks.change_state(&lock, |state| {
        state.limit = limit.unwrap_or(state.limit);
        state.draining = draining.unwrap_or(state.draining);
    });
    if let Some(Some(limit)) = limit {
        remove_never_grantable(store, cx, &lock, limit);
    }
    Ok(Reply::Configured)
}

/// Refuses callers that may not write the lock's znode, and creates the znode if it is missing.
fn may_configure(store: &mut Store, cx: &mut Context<'_>, lock: &LockName) -> Result<(), Refusal> {
    if let Some(znode) = store.tree.find(lock.znode()) {
        let acl = store.tree.acl(znode);
        return acl.require(Perms::WRITE, cx.caller, lock.znode());
    }
    let acl = Acl::open();
    let place = store.tree.place_below(lock.znode());
    store.tree.may_create_at(&place, &acl, cx.caller)?;
    store.tree.may_have_children(&place, store.limits.children)?;
    let growth = Growth {
        count: place.count_missing(),
        bytes: 0,
    };
    store.tree.check_quota(lock.znode(), growth)?;
    let growth = NamespaceGrowth {
        znodes: place.count_missing_in_namespace(),
        ..NamespaceGrowth::default()
    };
    store.tree.check_namespace(lock.znode(), &growth)?;
    znodes::create_missing(store, cx, place, &acl);
    Ok(())
}

/// Removes waiters that request more permits than the new limit, and would block the queue without end. No holder loses permits.
fn remove_never_grantable(store: &mut Store, cx: &mut Context<'_>, lock: &LockName, limit: u32) {
    let waiters = store
        .locks
        .queue(lock)
        .into_iter()
        .flat_map(|queue| queue.waiters());
    let never = waiters.filter(|waiter| waiter.request.permits > limit);
    let never: Vec<String> = never.map(|waiter| String::from(waiter.name())).collect();
    for holder in never {
        let found = store.contender(lock, &holder).expect("it was just listed");
        let how = ContenderEnd::NeverGrantable { limit };
        contenders::remove_contender(store, cx, &found, how);
    }
}

/// Records the part of the lock-delay of closed locks that has passed, and opens locks with no delay left.
pub(crate) fn count_delays(
    store: &mut Store,
    cx: &mut Context<'_>,
    locks: Vec<(LockName, Zxid, u32)>,
    term: u64,
) -> Outcome {
    if term != cx.term {
        return Err(Refusal::StaleLeader);
    }
    let mut opened = 0;
    for (lock, at, passed_ms) in locks {
        let closed = store.locks.state(&lock).and_then(|state| state.closed);
        let Some(mut closed) = closed.filter(|closed| closed.at == at) else {
            continue;
        };
        closed.passed_ms = closed.passed_ms.max(passed_ms);
        let is_over = closed.passed_ms >= closed.delay_ms;
        store
            .locks
            .change_state(&lock, |state| state.closed = (!is_over).then_some(closed));
        if is_over {
            cx.events.push(Event::LockOpened(lock));
            opened += 1;
        }
    }
    Ok(Reply::Opened(opened))
}
