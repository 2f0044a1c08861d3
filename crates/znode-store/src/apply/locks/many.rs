//! Acquire of several locks by one call, which enters all their queues at one position. Of two such calls one is ahead of the other in every lock
//! that both request, so they never wait for each other. The call is complete when all its contenders hold their locks. Until then some of them
//! hold already; otherwise other calls would overtake them.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::apply::context::Context;
use crate::apply::locks::acquire::{self, AcquireCall, AcquireOutcome};
use crate::apply::locks::{contenders, release};
use crate::apply::znodes;
use crate::locks::contender::Contender;
use crate::locks::plan::Plan;
use crate::locks::queue::QueuePosition;
use crate::model::contender::{Attempt, Written};
use crate::model::event::ContenderEnd;
use crate::model::ids::{RequestId, SessionId};
use crate::model::lock::{AttemptId, HoldBounds, HolderId, LockWish, MAX_LOCKS_AT_ONCE, WithdrawCause};
use crate::model::path::LockName;
use crate::model::refusal::Refusal;
use crate::model::reply::{Outcome, Reply};
use crate::store::Store;
use crate::store::resolve::ResolvedContender;

/// Enters all queues or none.
pub(crate) fn acquire_many(
    store: &mut Store,
    cx: &mut Context<'_>,
    session: SessionId,
    wishes: Vec<LockWish>,
    guid: u128,
    attempt: &Attempt,
    wait: bool,
) -> Outcome {
    check_count(wishes.len())?;
    let mut names = BTreeSet::new();
    if let Some(twice) = wishes.iter().find(|wish| !names.insert(&wish.lock)) {
        return Err(Refusal::BadWish(format!("{} is named twice", twice.lock).into()));
    }
    let mut calls = Vec::with_capacity(wishes.len());
    for (at, wish) in (0..).zip(wishes) {
        let mut call = AcquireCall {
            session,
            wish,
            bounds: HoldBounds::default(),
            // Contenders have distinct names, also within one call.
            guid: guid.wrapping_add(at),
            attempt: attempt.clone(),
            wait,
        };
        let stays = |contender: &Contender| !store.sessions.is_ending(contender.session);
        let plan = store.locks.plan(session, &mut call.wish, wait, stays)?;
        calls.push((call, plan));
    }
    // Only the limits of sessions, parents and quotas can still refuse the call, because they count all contenders together.
    let events_before = cx.events.len();
    store.tree.begin();
    let mut entries = Vec::with_capacity(calls.len());
    // The tree can roll back its znodes, but not the records in the queues.
    let mut before_joins = Vec::new();
    for (call, plan) in calls {
        let entry = match plan {
            Plan::Join(own) => {
                before_joins.extend(store.contender(&call.wish.lock, own.name()));
                acquire::join(store, cx, own.name(), call).map(AcquireOutcome::Joined)
            }
            Plan::Enter { is_free } => {
                acquire::create_contender(store, cx, call, is_free).map(AcquireOutcome::Created)
            }
        };
        match entry {
            Ok(entry) => entries.push(entry),
            Err(refusal) => {
                cx.events.truncate(events_before);
                znodes::roll_back(store);
                for ResolvedContender { lock, contender, .. } in before_joins {
                    store.locks.replace(&lock, contender);
                }
                return Err(refusal);
            }
        }
    }
    store.tree.commit();
    let replies = entries.into_iter().map(|entry| match entry {
        AcquireOutcome::Joined(found) => found.reply(),
        AcquireOutcome::Created(created) => acquire::enqueue(store, cx, created),
    });
    Ok(Reply::Multi(replies.collect()))
}

/// Answers a call for several locks that was sent again. `first` is its recorded outcome.
pub(crate) fn repeat_acquire_many(
    store: &mut Store,
    cx: &mut Context<'_>,
    session: SessionId,
    request_id: &RequestId,
    attempt: AttemptId,
    first: Outcome,
) -> Outcome {
    let Ok(Reply::Multi(parts)) = &first else {
        return first;
    };
    let mut all = Vec::with_capacity(parts.len());
    for part in parts {
        let (lock, holder) = match part {
            Reply::Granted(grant) => (&grant.lock, &grant.holder),
            Reply::Queued(place) => (&place.lock, &place.holder),
            _ => return first,
        };
        let found = store.contender(lock, holder);
        let Some(found) = found.filter(|found| found.session == session) else {
            return first;
        };
        let Some(record) = found.draft_with_retry(request_id, attempt) else {
            return first;
        };
        all.push((found, record));
    }
    let mut replies = Vec::with_capacity(all.len());
    for (mut found, record) in all {
        contenders::rewrite(store, cx, &mut found, record);
        replies.push(found.reply());
    }
    Ok(Reply::Multi(replies))
}

/// Releases one hold of each lock. A lock that is not held is skipped, because the caller has lost it, and the others have to be released all the
/// same.
pub(crate) fn release_many(
    store: &mut Store,
    cx: &mut Context<'_>,
    session: SessionId,
    holders: Vec<(LockName, HolderId)>,
) -> Outcome {
    check_count(holders.len())?;
    let mut lost = None;
    let mut released = Vec::with_capacity(holders.len());
    for (lock, holder) in holders {
        match release::release(store, cx, session, lock, holder) {
            Ok(Reply::Released { holds }) => released.push(Some(holds)),
            Ok(other) => unreachable!("a release is not answered: {other}"),
            Err(refusal) => {
                released.push(None);
                lost.get_or_insert(refusal);
            }
        }
    }
    match lost {
        Some(refusal) if released.iter().all(Option::is_none) => Err(refusal),
        _ => Ok(Reply::ReleasedMany(released)),
    }
}

/// Withdraws a call from all queues, and releases its grants.
pub(crate) fn withdraw_many(
    store: &mut Store,
    cx: &mut Context<'_>,
    session: SessionId,
    holders: &[(LockName, HolderId)],
    attempt: AttemptId,
    cause: WithdrawCause,
) -> Outcome {
    check_count(holders.len())?;
    let find = |(lock, holder): &(LockName, HolderId)| {
        let found = store.contender(lock, holder)?;
        let knows = |record: &Arc<Written>| record.knows(attempt);
        let known = found.session == session && found.record.as_ref().is_some_and(knows);
        known.then_some(found)
    };
    let found: Vec<Option<ResolvedContender>> = holders.iter().map(find).collect();
    let granted = |found: &Option<ResolvedContender>| {
        found
            .as_ref()
            .filter(|found| found.queue_position == QueuePosition::Holds)
            .map(ResolvedContender::reply)
    };
    let grants: Option<Vec<Reply>> = found.iter().map(granted).collect();
    // All locks were granted just before the timeout of the caller.
    if let Some(grants) = grants.filter(|_| cause == WithdrawCause::TimedOut) {
        return Ok(Reply::Multi(grants));
    }
    let late = found.iter().position(|found| granted(found).is_none());
    let answer = match cause {
        WithdrawCause::TimedOut => {
            let (lock, _) = &holders[late.unwrap_or(0)];
            Some(Err(Refusal::LockTimeout(lock.clone())))
        }
        WithdrawCause::Abandoned => None,
    };
    for found in found.into_iter().flatten() {
        let how = match found.queue_position {
            QueuePosition::Holds => ContenderEnd::Released,
            QueuePosition::Waits { .. } => ContenderEnd::Withdrawn,
        };
        release::withdraw_call(store, cx, found, attempt, how, answer.clone());
    }
    Ok(Reply::Withdrawn)
}

fn check_count(count: usize) -> Result<(), Refusal> {
    match count {
        1..=MAX_LOCKS_AT_ONCE => Ok(()),
        _ => Err(Refusal::BadWish(
            format!("{count} locks at once are not between 1 and {MAX_LOCKS_AT_ONCE}").into(),
        )),
    }
}
