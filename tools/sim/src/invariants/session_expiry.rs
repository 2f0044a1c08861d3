//! No live session expired early: whoever was told that a heartbeat counted lives for its timeout from when that was sent.
//!
//! A session that its own client has closed may be confirmed for a moment: the leader may be the last one to carry the closing
//! out, when its disk is slower than the others'. Nobody but that client could be misled by it.
//!
//! And nobody is told that his session has ended before it has: what he has asked for may yet be carried out, and hold locks.
//!
//! The leader counts by its own clock, so by a clock that is right it may be as much earlier as that one is fast.

use std::collections::HashMap;

use znode_store::SessionId;

use super::Check;
use crate::agenda::Micros;

/// Of a session's timeout so much passes at least by a clock that is right, in thousandths: the fastest clock of a machine
/// is faster by a fifth (see `plan.rs`), and a look at the deadlines takes a while.
const OF_TIMEOUT: Micros = 800;

#[derive(Default)]
struct Known {
    /// Until when it has to live.
    until: Micros,
    /// When it was ended, and whether for its silence.
    ended: Option<(Micros, bool)>,
}

/// Until when sessions have to live.
#[derive(Default)]
pub struct SessionExpiry {
    sessions: HashMap<SessionId, Known>,
}

impl SessionExpiry {
    /// A session was opened. Until its client is told of that nothing is promised.
    pub fn opened(&mut self, session: SessionId) {
        self.sessions.entry(session).or_default();
    }

    /// A heartbeat that was sent at `sent`, or the opening itself, was confirmed.
    pub fn heard(&mut self, session: SessionId, sent: Micros, timeout: Micros) -> Check {
        let known = self.sessions.entry(session).or_default();
        let until = sent + timeout * OF_TIMEOUT / 1000;
        known.until = known.until.max(until);
        match known.ended {
            Some((at, true)) if at < until => Err(format!(
                "{session} was ended at {at} us for its silence, and what it sent at {sent} us was confirmed"
            )),
            _ => Ok(()),
        }
    }

    /// A client was told that its session has ended.
    pub fn told_over(&self, session: SessionId) -> Check {
        match self.sessions.get(&session).and_then(|known| known.ended) {
            Some(_) => Ok(()),
            None => Err(format!(
                "a client was told that {session} has ended, and it lives"
            )),
        }
    }

    /// A session has ended.
    pub fn ended(&mut self, session: SessionId, expired: bool, now: Micros) -> Check {
        let known = self.sessions.entry(session).or_default();
        known.ended = Some((now, expired));
        match expired && now < known.until {
            true => Err(format!(
                "{session} was ended at {now} us for its silence, and had to live until {} us",
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
    fn an_early_end_is_noticed_whoever_is_told_first() {
        let mut sessions = SessionExpiry::default();
        sessions.opened(SESSION);
        assert_eq!(sessions.heard(SESSION, 1_000, 10_000), Ok(()));
        assert!(sessions.ended(SESSION, true, 5_000).is_err());
        let mut sessions = SessionExpiry::default();
        assert_eq!(sessions.ended(SESSION, true, 5_000), Ok(()));
        assert!(sessions.heard(SESSION, 1_000, 10_000).is_err());
        let mut sessions = SessionExpiry::default();
        assert_eq!(sessions.heard(SESSION, 1_000, 10_000), Ok(()));
        assert!(sessions.told_over(SESSION).is_err());
        assert_eq!(sessions.ended(SESSION, true, 9_500), Ok(()));
        assert_eq!(sessions.told_over(SESSION), Ok(()));
    }
}
