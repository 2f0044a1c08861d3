//! Changes of open sessions: heartbeats, silences, and ends.

use alloc::vec::Vec;

use fault_injection::planted::{self, Bug};

use crate::apply::context::Context;
use crate::apply::znodes;
use crate::locks::queue::QueuePosition;
use crate::model::entry::Rules;
use crate::model::event::Event;
use crate::model::ids::{SessionId, Zxid};
use crate::model::path::{LockName, ZPath};
use crate::model::refusal::Refusal;
use crate::model::reply::{Outcome, Reply};
use crate::model::session::Silence;
use crate::sessions::Ending;
use crate::store::Store;
use crate::tree::index::NodeIndex;

/// Ends silent sessions. Only the leader of this very term knows that they were silent: the entry of a deposed leader may be committed by its
/// successor, which has given the sessions their full timeout. A session with a request after `as_of`, when the leader found it silent, is
/// spared: that request may be answered already, and the client counts on another timeout since then.
pub(crate) fn expire_sessions(
    store: &mut Store,
    cx: &mut Context<'_>,
    sessions: Vec<SessionId>,
    term: u64,
    as_of: Zxid,
) -> Outcome {
    if term != cx.term && !planted::is(Bug::UnprovenLeader) {
        return Err(Refusal::StaleLeader);
    }
    let mut expired = 0;
    for session in sessions {
        match store.sessions.get(session) {
            // The session has ended, and only its ephemeral znodes are left.
            Some(state) if state.ending.is_some() => end_session(store, cx, session, true),
            Some(state) if state.heard_at <= as_of => {
                end_session(store, cx, session, true);
                expired += 1;
            }
            _ => {}
        }
    }
    Ok(Reply::SessionsExpired(expired))
}

/// Records silences of sessions, in milliseconds. Only the leader of this very term knows which heartbeats it has confirmed. A
/// request of a session after `as_of` keeps the session off the record, whichever of the two is first in the log.
pub(crate) fn record_silences(
    store: &mut Store,
    cx: &mut Context<'_>,
    silences: Vec<(SessionId, u32)>,
    term: u64,
    as_of: Zxid,
) -> Outcome {
    if term != cx.term {
        return Err(Refusal::StaleLeader);
    }
    let mut recorded = 0;
    for (session, ms) in silences {
        // A session that has ended has no silence, although it may still have ephemeral znodes.
        if let Some(state) = store.sessions.get_mut(session)
            && state.ending.is_none()
            && state.heard_at <= as_of
        {
            state.silence = Some(Silence { at: cx.zxid, ms });
            recorded += 1;
        }
    }
    Ok(Reply::SilenceRecorded(recorded))
}

/// Records that sessions sent heartbeats, which the leader of this very term counted.
pub(crate) fn note_heartbeats(
    store: &mut Store,
    cx: &mut Context<'_>,
    sessions: Vec<SessionId>,
    term: u64,
) -> Outcome {
    if term != cx.term {
        return Err(Refusal::StaleLeader);
    }
    let live = sessions
        .into_iter()
        .filter(|session| store.sessions.note_request(*session, cx.zxid).is_ok());
    Ok(Reply::HeartbeatsNoted(live.count() as u32))
}

/// Removes from the list the znodes that planted bugs leave behind: the waiters, or the newest of the other ephemeral znodes.
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
/// of the entry. If some remain, the session has ended all the same, and the leader proposes to continue.
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
