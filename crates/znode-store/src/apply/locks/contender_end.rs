//! Ends of contenders: events, corrected outcomes, closed locks.

use alloc::string::String;

#[cfg(feature = "planted")]
use fault_injection::planted::{self, Bug};

use crate::apply::context::Context;
use crate::locks::contender::Position;
use crate::model::event::{ContenderEnd, Event};
use crate::model::lock::LockMode;
use crate::model::path::LockName;
use crate::model::refusal::Refusal;
use crate::store::Store;

/// Removes a contender from its queue, after its znode was removed and the `Deleted` event was appended.
pub(crate) fn contender_removed(
    store: &mut Store,
    cx: &mut Context<'_>,
    lock: LockName,
    position: Position<'_>,
    how: ContenderEnd,
) {
    let (contender, held) = store.locks.remove(&lock, position);
    let session = contender.session;
    if store
        .sessions
        .get(session)
        .is_some_and(|session| session.is_lease)
    {
        cx.ended_leases.push(session);
    }
    if contender.is_upgrading() {
        store.locks.change_state(&lock, |state| state.upgrading = false);
    }
    let record = contender.record.as_ref();
    let delay_ms = record.map_or(0, |record| record.lock_delay_ms);
    if held && delay_ms > 0 && how == ContenderEnd::SessionExpired {
        let closed = store.locks.close(&lock, delay_ms, cx.zxid, cx.now_ms);
        cx.events.push(closed);
    }
    let holder = String::from(position.2);
    // The repetition of a call that was still waiting gets this refusal. (The repetition of a granted call gets the grant, as after a
    // release.)
    let answer = match &how {
        ContenderEnd::Broken { by, reason } => Some(Refusal::Broken {
            lock: lock.clone(),
            holder: holder.clone(),
            by: by.clone(),
            reason: reason.clone(),
        }),
        ContenderEnd::NeverGrantable { limit } => Some(Refusal::ModeConflict {
            lock: lock.clone(),
            in_use: LockMode::Semaphore { limit: *limit },
        }),
        ContenderEnd::Deleted => {
            let (lock, holder) = (lock.clone(), holder.clone());
            Some(Refusal::NotHolder { lock, holder })
        }
        ContenderEnd::Forbidden => Some(Refusal::no_right_to_lock(&lock)),
        // The step that withdrew the call corrects the recorded outcome itself; a release does not change it.
        ContenderEnd::Withdrawn | ContenderEnd::Released | ContenderEnd::MaxHold | ContenderEnd::Upgraded => {
            None
        }
        // The recorded outcomes of the session are removed with it.
        ContenderEnd::SessionClosed | ContenderEnd::SessionExpired => None,
    };
    if let Some(refusal) = answer {
        for request_id in record.iter().flat_map(|record| record.request_ids()) {
            store
                .sessions
                .correct_queued(session, request_id, &lock, &holder, Err(refusal.clone()));
        }
    }
    if held {
        #[cfg(feature = "planted")]
        if planted::is(Bug::LeakedPermits)
            && matches!(contender.request.mode, LockMode::Semaphore { .. })
            && matches!(how, ContenderEnd::SessionExpired | ContenderEnd::SessionClosed)
        {
            store.locks.leak(&lock, contender.request.permits);
        }
        let hold = store.hold(&lock, &contender);
        let by = match &how {
            ContenderEnd::Broken { .. } | ContenderEnd::Deleted => cx.caller.shown(),
            _ => None,
        };
        let how = how.clone();
        cx.events.push(Event::HoldEnded { hold, how, by });
    }
    cx.events.push(Event::ContenderEnded {
        session,
        lock,
        holder,
        how,
    });
}
