//! Ends of calls and holds: release, withdraw, break.

use alloc::sync::Arc;
use alloc::vec::Vec;

use fault_injection::planted::{self, Bug};

use crate::apply::context::Context;
use crate::apply::locks::{contenders, modes};
use crate::locks::queue::{Queue, QueuePosition};
use crate::model::acl::Perms;
use crate::model::contender::Record;
use crate::model::event::ContenderEnd;
use crate::model::ids::SessionId;
use crate::model::lock::{AttemptId, HolderId, WithdrawCause};
use crate::model::path::LockName;
use crate::model::refusal::Refusal;
use crate::model::reply::{Outcome, Reply};
use crate::store::Store;
use crate::store::resolve::ResolvedContender;

/// Releases one hold of a contender.
pub(crate) fn release(
    store: &mut Store,
    cx: &mut Context<'_>,
    session: SessionId,
    lock: LockName,
    holder: HolderId,
) -> Outcome {
    let Some(znode) = store.tree.find(lock.znode()) else {
        return Err(Refusal::NoLock(lock));
    };
    let found = store.contender_below(znode, &lock, &holder);
    let mut found =
        found.filter(|found| found.session == session && found.queue_position == QueuePosition::Holds);
    if found.is_none() && planted::is(Bug::ReleaseByName) {
        let held = |queue: &Queue| {
            let mut own = queue.holders().filter(|holder| holder.session == session);
            own.next().map(|holder| holder.path.clone())
        };
        let path = store.locks.queue(&lock).and_then(held);
        found = path.and_then(|path| store.contender(&lock, path.name()));
    }
    let Some(mut found) = found else {
        return Err(Refusal::NotHolder { lock, holder });
    };
    if found.holds() == 1 {
        contenders::remove_contender(store, cx, &found, ContenderEnd::Released);
        return Ok(Reply::Released { holds: 0 });
    }
    let mut record = found
        .draft()
        .expect("other clients' contenders stand for one call");
    record.release_one();
    contenders::rewrite(store, cx, &mut found, record);
    Ok(Reply::Released { holds: found.holds() })
}

/// Withdraws one call: ends its wait, or releases its grant.
pub(crate) fn withdraw(
    store: &mut Store,
    cx: &mut Context<'_>,
    session: SessionId,
    lock: &LockName,
    holder: &str,
    attempt: AttemptId,
    cause: WithdrawCause,
) -> Reply {
    let found = store
        .contender(lock, holder)
        .filter(|found| found.session == session);
    let record = found.as_ref().and_then(|found| found.record.as_ref());
    let knows = record.is_some_and(|record| record.knows(attempt));
    let upgrades = record.is_some_and(|record| record.upgrades_by(attempt));
    let found = match found {
        Some(found) if upgrades => return modes::withdraw_upgrade(store, cx, found, cause),
        Some(found) if knows => found,
        // The call was withdrawn before, was replaced by a repeated call, or its contender has ended.
        _ => return Reply::Withdrawn,
    };
    let how = match (found.queue_position, cause) {
        // The grant was applied just before the timeout.
        (QueuePosition::Holds, WithdrawCause::TimedOut) => return Reply::Granted(found.grant()),
        // The caller is gone and will not learn of the grant.
        (QueuePosition::Holds, WithdrawCause::Abandoned) => ContenderEnd::Released,
        (QueuePosition::Waits { .. }, _) => ContenderEnd::Withdrawn,
    };
    let answer = match cause {
        WithdrawCause::TimedOut => Some(Err(Refusal::LockTimeout(lock.clone()))),
        WithdrawCause::Abandoned => None,
    };
    withdraw_call(store, cx, found, attempt, how, answer);
    Reply::Withdrawn
}

/// Withdraws a call of a contender, and removes the contender with its last call. A repetition of the call gets `answer`, or is executed again if
/// there is none.
pub(crate) fn withdraw_call(
    store: &mut Store,
    cx: &mut Context<'_>,
    mut found: ResolvedContender,
    attempt: AttemptId,
    how: ContenderEnd,
    answer: Option<Outcome>,
) {
    let record = found.record.as_ref().expect("it knows the call");
    let request_id = record.request_id_of(attempt);
    if record.attempts().len() == 1 {
        contenders::remove_contender(store, cx, &found, how);
    } else {
        let mut record = Record::clone(record);
        record.remove_call(attempt);
        contenders::rewrite(store, cx, &mut found, record);
    }
    if let Some(request_id) = request_id {
        store
            .sessions
            .correct_withdrawn(found.session, &request_id, found.name(), answer);
    }
}

/// Ends holds that have lasted as long as they may. The leader of the term has counted their time.
pub(crate) fn end_holds(
    store: &mut Store,
    cx: &mut Context<'_>,
    holders: Vec<(LockName, HolderId)>,
    term: u64,
) -> Outcome {
    if term != cx.term {
        return Err(Refusal::StaleLeader);
    }
    let mut ended = 0;
    for (lock, holder) in holders {
        let found = store
            .contender(&lock, &holder)
            .filter(|found| found.queue_position == QueuePosition::Holds && found.bounds().max_ms > 0);
        if let Some(found) = found {
            contenders::remove_contender(store, cx, &found, ContenderEnd::MaxHold);
            ended += 1;
        }
    }
    Ok(Reply::HoldsEnded(ended))
}

/// Ends a hold or a wait by force.
pub(crate) fn break_contender(
    store: &mut Store,
    cx: &mut Context<'_>,
    lock: LockName,
    holder: HolderId,
    by: Arc<str>,
    reason: Arc<str>,
) -> Outcome {
    let Some(znode) = store.tree.find(lock.znode()) else {
        return Err(Refusal::NoLock(lock));
    };
    store
        .tree
        .acl(znode)
        .require(Perms::DELETE, cx.caller, lock.znode())?;
    let Some(found) = store.contender_below(znode, &lock, &holder) else {
        return Err(Refusal::NotHolder { lock, holder });
    };
    contenders::remove_contender(store, cx, &found, ContenderEnd::Broken { by, reason });
    Ok(Reply::Broken)
}
