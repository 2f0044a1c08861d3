//! No early expiry: after a confirmed heartbeat a session lives for its timeout from the time at which the
//! heartbeat was sent.
//! A session that its own client has closed may be confirmed for a moment: the leader may be the last node
//! that applies the closing, if its disk is slower than the others'. Only that client could be misled by it.
//! A client must not be informed of its session's end before the session has ended: its pending requests
//! might still be applied, and hold locks.
//! The leader measures by its own clock; measured by a correct clock it may be earlier by as much as its
//! clock is fast.

use std::collections::HashMap;

use znode_store::SessionId;

use super::Check;
use crate::time::Micros;

/// Share of a timeout that passes at least by a correct clock, in thousandths: the fastest clock of a machine
/// is a fifth too fast (see `plan.rs`), and a check of the deadlines takes a while.
pub const OF_TIMEOUT: Micros = 800;

#[derive(Default)]
struct SessionState {
    /// Time up to which the session must live.
    until: Micros,
    /// Time of the end, and whether the session expired.
    ended: Option<(Micros, bool)>,
}

/// Checker of the times up to which sessions must live.
#[derive(Default)]
pub struct SessionExpiry {
    sessions: HashMap<SessionId, SessionState>,
}

impl SessionExpiry {
    /// Records the opening of a session. Nothing is promised before the client gets the response.
    pub fn opened(&mut self, session: SessionId) {
        self.sessions.entry(session).or_default();
    }

    /// Records a confirmed heartbeat that was sent at `sent`, or the confirmed opening itself.
    pub fn note_activity(&mut self, session: SessionId, sent: Micros, timeout: Micros) -> Check {
        let known = self.sessions.entry(session).or_default();
        let until = sent + timeout * OF_TIMEOUT / 1000;
        known.until = known.until.max(until);
        match known.ended {
            Some((at, true)) if at < until => Err(format!(
                "{session} expired at {at} us, although its heartbeat of {sent} us was confirmed"
            )),
            _ => Ok(()),
        }
    }

    /// Records that a lease may have a shorter timeout since its client sent a request for it.
    pub fn may_shorten(&mut self, session: SessionId, sent: Micros, timeout: Micros) {
        let known = self.sessions.entry(session).or_default();
        known.until = known.until.min(sent + timeout * OF_TIMEOUT / 1000);
    }

    /// Checks that a session whose client was informed of its end has ended.
    pub fn reported_ended(&self, session: SessionId) -> Check {
        match self.sessions.get(&session).and_then(|known| known.ended) {
            Some(_) => Ok(()),
            None => Err(format!(
                "a client was informed that {session} has ended, but it is alive"
            )),
        }
    }

    /// Checks the end of a session.
    pub fn ended(&mut self, session: SessionId, expired: bool, now: Micros) -> Check {
        let known = self.sessions.entry(session).or_default();
        known.ended = Some((now, expired));
        match expired && now < known.until {
            true => Err(format!(
                "{session} expired at {now} us, although it had to live until {} us",
                known.until
            )),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionId = SessionId(1);

    #[test]
    fn early_expiry_is_a_violation_in_either_order_of_reports() {
        let mut sessions = SessionExpiry::default();
        sessions.opened(SESSION);
        assert_eq!(sessions.note_activity(SESSION, 1_000, 10_000), Ok(()));
        assert!(sessions.ended(SESSION, true, 5_000).is_err());
        let mut sessions = SessionExpiry::default();
        assert_eq!(sessions.ended(SESSION, true, 5_000), Ok(()));
        assert!(sessions.note_activity(SESSION, 1_000, 10_000).is_err());
        let mut sessions = SessionExpiry::default();
        assert_eq!(sessions.note_activity(SESSION, 1_000, 10_000), Ok(()));
        assert!(sessions.reported_ended(SESSION).is_err());
        assert_eq!(sessions.ended(SESSION, true, 9_500), Ok(()));
        assert_eq!(sessions.reported_ended(SESSION), Ok(()));
    }
}
