//! Corrections of recorded outcomes: a call that was answered "queued" ends later, and its repetition gets the later outcome.

use crate::model::ids::{RequestId, SessionId};
use crate::model::path::LockName;
use crate::model::reply::{Outcome, Place, Reply};
use crate::sessions::Sessions;
use crate::sessions::request_cache::RequestKey;

impl Sessions {
    /// Corrects the recorded outcome of a call that was answered "queued", or of its part for one lock.
    pub(crate) fn correct_queued(
        &mut self,
        session: SessionId,
        id: &RequestId,
        lock: &LockName,
        holder: &str,
        answer: Outcome,
    ) {
        let id = &RequestKey::from(id);
        let Some(memory) = self.requests_mut(Some(session)) else {
            return;
        };
        let waits = |place: &Place| place.holder == holder && place.lock == *lock;
        let corrected = match memory.get(id).map(|record| &record.outcome) {
            Some(Ok(Reply::Queued(place))) if waits(place) => answer,
            Some(Ok(Reply::Multi(parts))) => {
                let waiting = |part: &Reply| matches!(part, Reply::Queued(place) if waits(place));
                match (parts.iter().position(waiting), answer) {
                    (Some(at), Ok(granted)) => {
                        let mut parts = parts.clone();
                        parts[at] = granted;
                        Ok(Reply::Multi(parts))
                    }
                    // Without one of its locks the call has failed.
                    (Some(_), refused @ Err(_)) => refused,
                    (None, _) => return,
                }
            }
            _ => return,
        };
        memory.update(id, corrected);
    }

    /// Replaces the recorded outcome of a withdrawn call, or removes it if `None` is given.
    ///
    /// After an eviction the request id may stand for another request by now, whose outcome is not changed.
    pub(crate) fn correct_withdrawn(
        &mut self,
        session: SessionId,
        id: &RequestId,
        holder: &str,
        answer: Option<Outcome>,
    ) {
        let id = &RequestKey::from(id);
        let Some(memory) = self.requests_mut(Some(session)) else {
            return;
        };
        let is_its = |reply: &Reply| match reply {
            Reply::Queued(place) => place.holder == holder,
            Reply::Granted(grant) => grant.holder == holder,
            _ => false,
        };
        let remembered = match memory.get(id).map(|record| &record.outcome) {
            Some(Ok(Reply::Multi(parts))) => parts.iter().any(is_its),
            Some(Ok(reply)) => is_its(reply),
            _ => false,
        };
        if remembered {
            match answer {
                Some(answer) => memory.update(id, answer),
                None => memory.forget(id),
            }
        }
    }
}
