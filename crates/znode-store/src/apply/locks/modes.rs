//! Changes of a holder's mode without a release: downgrade, and upgrade of the upgradeable holder.
//!
//! A downgraded holder keeps its token, because it conflicts with fewer modes than before. An upgraded holder needs a new token, because the shared
//! holders that conflict with it now may have had larger ones. The new token is the position at which the upgrade is granted. It may be larger than
//! the positions of waiters, so their grants need new tokens as well: `floor` in `locks/state.rs` ensures that.

use alloc::string::String;

use crate::apply::context::Context;
use crate::apply::locks::contenders;
use crate::locks::contender::Contender;
use crate::locks::deadlock::Ask;
use crate::locks::plan::names;
use crate::locks::queue::{Queue, QueuePosition};
use crate::model::contender::{Attempt, Record, Upgrade};
use crate::model::event::{ContenderEnd, Event};
use crate::model::ids::{RequestId, SessionId};
use crate::model::lock::{AttemptId, Downgraded, HolderId, LockMode, WithdrawCause};
use crate::model::path::LockName;
use crate::model::refusal::{ModeStep, Owner, Refusal};
use crate::model::reply::{Outcome, Reply};
use crate::store::Store;
use crate::store::resolve::ResolvedContender;

/// Changes a hold to a weaker mode. Waiters that become compatible are granted the lock at the end of the command.
pub(crate) fn downgrade(
    store: &mut Store,
    cx: &mut Context<'_>,
    session: SessionId,
    lock: LockName,
    holder: HolderId,
    to: Downgraded,
) -> Outcome {
    let mut found = own_holder(store, session, lock, holder)?;
    let mode = match to {
        Downgraded::Shared => LockMode::Shared,
        Downgraded::Upgradeable => LockMode::Upgradeable,
    };
    match (found.request.mode, mode) {
        // The holder was downgraded before.
        (now, then) if now == then => return Ok(Reply::Granted(found.grant())),
        (LockMode::Exclusive, _) | (LockMode::Upgradeable, LockMode::Shared) => {}
        (LockMode::Shared | LockMode::Upgradeable | LockMode::Semaphore { .. }, _) => {
            return Err(wrong_mode(&found, ModeStep::Downgraded));
        }
    }
    let mut record = found.draft().expect("an own holder has a record");
    end_upgrade(store, cx, &found, &mut record);
    set_mode(store, cx, &mut found, record, mode);
    Ok(Reply::Granted(found.grant()))
}

/// Makes a holder the only one, or lets it wait until the others are gone.
pub(crate) fn upgrade(
    store: &mut Store,
    cx: &mut Context<'_>,
    session: SessionId,
    lock: LockName,
    holder: HolderId,
    attempt: &Attempt,
    wait: bool,
) -> Outcome {
    let mut found = own_holder(store, session, lock, holder)?;
    match found.request.mode {
        // The holder was upgraded before.
        LockMode::Exclusive => return Ok(Reply::Granted(found.grant())),
        // If shared holders could upgrade, two of them could wait for each other.
        LockMode::Shared => return Err(waits_for_itself(&found)),
        LockMode::Semaphore { .. } => return Err(wrong_mode(&found, ModeStep::Upgraded)),
        LockMode::Upgradeable => {}
    }
    let lock = found.lock.clone();
    let mut record = found.draft().expect("only ours are upgradeable");
    let upgrade = |done| {
        Some(Upgrade {
            attempt: attempt.clone(),
            since_ms: cx.now_ms,
            done,
        })
    };
    if may_be_alone(store, &lock) {
        record.upgrade = upgrade(true);
        finish_upgrade(store, cx, &mut found, record);
        return Ok(Reply::Granted(found.grant()));
    }
    if !wait {
        let queue = store.locks.queue(&lock).expect("its contender was found");
        let others = queue
            .holders()
            .filter(|holder| holder.position() != found.position());
        let holders = names(others);
        return Err(Refusal::LockBusy { lock, holders });
    }
    let scope = found.scope();
    if let Some(scope) = &scope {
        let stays = |contender: &Contender| !store.sessions.is_ending(contender.session);
        store
            .locks
            .refuse_deadlock(scope.clone(), &Ask::Upgrade(&lock, found.position()), stays)?;
    }
    record.upgrade = upgrade(false);
    store.locks.change_state(&lock, |state| state.upgrading = true);
    if let Some(scope) = scope {
        store.locks.add_wait(scope, &lock, found.position());
    }
    contenders::rewrite(store, cx, &mut found, record);
    Ok(upgrade_reply(store, &found))
}

/// Answers an `upgrade` that was sent again. `first` is its recorded outcome.
pub(crate) fn repeat_upgrade(
    store: &mut Store,
    cx: &mut Context<'_>,
    session: SessionId,
    request_id: &RequestId,
    lock: &LockName,
    attempt: AttemptId,
    first: Outcome,
) -> Outcome {
    let holder = match &first {
        Ok(Reply::Queued(place)) => &place.holder,
        Ok(Reply::Granted(grant)) => &grant.holder,
        _ => return first,
    };
    let found = store
        .contender(lock, holder)
        .filter(|found| found.session == session);
    let Some(mut found) = found else {
        return first;
    };
    match found.draft_with_retry(request_id, attempt) {
        Some(record) => {
            contenders::rewrite(store, cx, &mut found, record);
            Ok(upgrade_reply(store, &found))
        }
        None => first,
    }
}

/// Grants a waiting upgrade if the other holders are gone. Called at the end of a command for each lock that it touched.
pub(crate) fn grant_upgrade(store: &mut Store, cx: &mut Context<'_>, lock: &LockName) {
    let upgrading = store.locks.queue(lock).and_then(Queue::upgrading);
    let Some(path) = upgrading.map(|upgrading| upgrading.path.clone()) else {
        return;
    };
    if !may_be_alone(store, lock) {
        return;
    }
    let mut found = store.contender(lock, path.name()).expect("it is in the queue");
    // The session has ended, and a later entry removes the holder.
    if store.is_ending(found.session) {
        return;
    }
    let may_lock = !contenders::has_lost_right(store, found.session, lock, true, cx.now_ms);
    let mut record = found.draft().expect("only ours are upgraded");
    let upgrade = record.upgrade.as_mut().expect("the queue knows of it");
    upgrade.done = may_lock;
    let request_id = upgrade.attempt.request_id.clone();
    match may_lock {
        true => finish_upgrade(store, cx, &mut found, record),
        // The contender holds the lock as before.
        false => {
            end_upgrade(store, cx, &found, &mut record);
            contenders::rewrite(store, cx, &mut found, record);
        }
    }
    if let Some(request_id) = request_id {
        let answer = match may_lock {
            true => Ok(Reply::Granted(found.grant())),
            false => Err(Refusal::no_right_to_lock(lock)),
        };
        store
            .sessions
            .correct_queued(found.session, &request_id, lock, path.name(), answer);
    }
}

/// Withdraws a call of `upgrade`, also a granted one. The contender holds the lock as before.
pub(crate) fn withdraw_upgrade(
    store: &mut Store,
    cx: &mut Context<'_>,
    mut found: ResolvedContender,
    cause: WithdrawCause,
) -> Reply {
    let mut record = found.draft().expect("it knows the call");
    let upgrade = record.upgrade.clone().expect("it knows the call");
    if upgrade.done && cause == WithdrawCause::TimedOut {
        return Reply::Granted(found.grant());
    }
    end_upgrade(store, cx, &found, &mut record);
    if upgrade.done {
        set_mode(store, cx, &mut found, record, LockMode::Upgradeable);
    } else {
        contenders::rewrite(store, cx, &mut found, record);
    }
    if let Some(request_id) = upgrade.attempt.request_id {
        let answer = match cause {
            WithdrawCause::TimedOut => Some(Err(Refusal::LockTimeout(found.lock.clone()))),
            WithdrawCause::Abandoned => None,
        };
        store
            .sessions
            .correct_withdrawn(found.session, &request_id, found.name(), answer);
    }
    Reply::Withdrawn
}

/// Returns the reply to a call of `upgrade`.
fn upgrade_reply(store: &Store, found: &ResolvedContender) -> Reply {
    if !found.is_upgrading() {
        return Reply::Granted(found.grant());
    }
    let queue = store.locks.queue(&found.lock).expect("its contender was found");
    let others = u32::try_from(queue.holding() - 1).unwrap_or(u32::MAX);
    Reply::Queued(found.place(others))
}

/// Returns the contender with which a session holds a lock.
pub(crate) fn own_holder(
    store: &Store,
    session: SessionId,
    lock: LockName,
    holder: HolderId,
) -> Result<ResolvedContender, Refusal> {
    let Some(znode) = store.tree.find(lock.znode()) else {
        return Err(Refusal::NoLock(lock));
    };
    let found = store.contender_below(znode, &lock, &holder);
    let is_own = |found: &ResolvedContender| {
        found.session == session && found.queue_position == QueuePosition::Holds && found.record.is_some()
    };
    found.filter(is_own).ok_or(Refusal::NotHolder { lock, holder })
}

/// Returns whether a holder could be the only one now. (Draining does not matter, because an upgrade adds no contender.)
fn may_be_alone(store: &Store, lock: &LockName) -> bool {
    let queue = store.locks.queue(lock);
    queue.is_some_and(|queue| queue.holding() == 1) && !store.locks.terms(lock).closed
}

fn finish_upgrade(
    store: &mut Store,
    cx: &mut Context<'_>,
    found: &mut ResolvedContender,
    mut record: Record,
) {
    let hold = store.hold(&found.lock, found);
    cx.events.push(Event::HoldEnded {
        hold,
        how: ContenderEnd::Upgraded,
        by: None,
    });
    end_upgrade_wait(store, found);
    record.token = Some(cx.zxid);
    record.granted_ms = Some(cx.now_ms);
    store
        .locks
        .change_state(&found.lock, |state| state.floor = cx.zxid);
    set_mode(store, cx, found, record, LockMode::Exclusive);
    let hold = store.hold(&found.lock, found);
    cx.events.push(Event::HoldBegan(hold));
}

/// Removes the last upgrade from a record, and its wait if it has one.
fn end_upgrade(store: &mut Store, cx: &mut Context<'_>, found: &ResolvedContender, record: &mut Record) {
    let Some(upgrade) = record.upgrade.take() else {
        return;
    };
    end_upgrade_wait(store, found);
    if !upgrade.done {
        cx.events.push(Event::UpgradeWithdrawn {
            session: found.session,
            lock: found.lock.clone(),
            holder: String::from(found.name()),
        });
    }
}

fn end_upgrade_wait(store: &mut Store, found: &ResolvedContender) {
    let lock = &found.lock;
    if store.locks.state(lock).is_some_and(|state| state.upgrading) {
        if let Some(scope) = found.scope() {
            store.locks.remove_wait(&scope, lock, found.position());
        }
        store.locks.change_state(lock, |state| state.upgrading = false);
    }
}

/// Writes the record of a holder with another mode.
fn set_mode(
    store: &mut Store,
    cx: &mut Context<'_>,
    found: &mut ResolvedContender,
    mut record: Record,
    mode: LockMode,
) {
    record.request.mode = mode;
    contenders::rewrite(store, cx, found, record);
    store.locks.touch(&found.lock);
    cx.events.push(Event::ModeChanged {
        session: found.session,
        grant: found.grant(),
    });
}

/// Returns the refusal of a step that the holder's mode does not allow.
fn wrong_mode(found: &ResolvedContender, what: ModeStep) -> Refusal {
    Refusal::WrongMode {
        lock: found.lock.clone(),
        holder: String::from(found.name()),
        mode: found.request.mode,
        what,
    }
}

/// Returns the refusal of a stronger mode for an owner that holds the lock as shared.
pub(crate) fn waits_for_itself(found: &ResolvedContender) -> Refusal {
    let lock = &found.lock;
    let owner = found.record.as_ref().map(|record| record.owner.clone());
    Refusal::WouldDeadlock {
        lock: lock.clone(),
        cycle: alloc::vec![Owner {
            session: found.session,
            owner: owner.unwrap_or_default(),
            has: lock.clone(),
            awaits: lock.clone(),
        }],
    }
}
