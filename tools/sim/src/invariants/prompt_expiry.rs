//! No session ends late: whoever has fallen silent ends within its timeout after its last sign of life, and soon.
//!
//! The bound is that of `docs/sessions.md`: the timeout, a tick, and for each change of leaders an election and the time that
//! clients get to reach the new leader. A leader that dies adds half of the timeout: what it had not recorded yet. Several that die one after
//! the other add at most one timeout more.
//!
//! Leaders count by their own clocks, so a timeout lasts longer by a right clock if theirs are slow. While the cluster is not
//! whole (nobody leads, or no majority is well) nobody can end a session, and that time is added: [`PromptExpiry::passed`].

use std::collections::HashMap;

use znode_store::{SessionId, Zxid};

use super::Check;
use crate::agenda::{MILLI, Micros};

/// What nodes need beside all else: a tick of 50 ms to look at the deadlines, a commit, and a heartbeat's way to the leader, which is
/// bounded by a second over links that were slow a moment ago, and told by a clock that may be slow.
pub const SLACK: Micros = 1_500 * MILLI;

/// The same where links are never slow. When messages were held up the way is bounded by twice the last round trip, and that by a second; beside
/// that only a tick and a commit are needed.
pub const SLACK_WITH_FAST_LINKS: Micros = 1_150 * MILLI;

/// What a change of leaders costs, beside the time without a leader: clients get the longest election timeout to reach the new
/// one, by a clock that may be slow, and it looks at its sessions when an entry of its own is applied.
const PER_CHANGE: Micros = 900 * MILLI;

#[derive(Debug, Clone, Copy, Default)]
struct Passed {
    /// Time in which the cluster was not whole.
    disturbed: Micros,
    /// Changes of leaders.
    changes: u64,
    /// Of them those in which the leader died, or lost its majority.
    losses: u64,
}

struct Known {
    timeout: Micros,
    /// Its last sign of life.
    heard: Micros,
    before: Passed,
}

/// Until when sessions may live.
pub struct PromptExpiry {
    sessions: HashMap<SessionId, Known>,
    passed: Passed,
    /// The rate of the slowest clock, in thousandths.
    slowest: u64,
    slack: Micros,
    /// Up to where commands are known.
    last: Zxid,
}

impl PromptExpiry {
    /// With clocks of this rate, in thousandths, and faster ones, and so much time for what nodes need beside all else.
    pub fn new(slowest: u64, slack: Micros) -> Self {
        Self {
            sessions: HashMap::new(),
            passed: Passed::default(),
            slowest,
            slack,
            last: Zxid::default(),
        }
    }

    /// A session was opened.
    pub fn opened(&mut self, session: SessionId, timeout: Micros, now: Micros) {
        let known = Known {
            timeout,
            heard: now,
            before: self.passed,
        };
        self.sessions.insert(session, known);
    }

    /// A heartbeat of the session has come to a node.
    pub fn heard(&mut self, session: SessionId, now: Micros) {
        if let Some(known) = self.sessions.get_mut(&session) {
            known.heard = now;
            known.before = self.passed;
        }
    }

    /// A command of the session is applied; only the first node that does counts.
    pub fn asked(&mut self, session: SessionId, at: Zxid, now: Micros) {
        if at > self.last {
            self.last = at;
            self.heard(session, now);
        }
    }

    /// A session has ended.
    pub fn ended(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    /// The leader has changed. It was `lost` if it did not hand its office over.
    pub fn leader_changed(&mut self, lost: bool) {
        self.passed.changes += 1;
        self.passed.losses += u64::from(lost);
    }

    /// Some time has passed in which the cluster was whole, or was not.
    pub fn passed(&mut self, time: Micros, was_whole: bool) {
        if !was_whole {
            self.passed.disturbed += time;
        }
    }

    /// Whether all that live still may.
    pub fn look(&self, now: Micros) -> Check {
        for (session, known) in &self.sessions {
            let timeout = known.timeout * 1000 / self.slowest;
            let unrecorded = match self.passed.losses - known.before.losses {
                0 => 0,
                1 => timeout / 2,
                // If all processes end each time, half of what is left is lost each time.
                _ => timeout * 3 / 2,
            };
            let disturbed = self.passed.disturbed - known.before.disturbed;
            let changes = self.passed.changes - known.before.changes;
            let until = known.heard + timeout + unrecorded + self.slack + disturbed + changes * PER_CHANGE;
            if now > until {
                return Err(format!(
                    "{session} with a timeout of {timeout} us lives at {now} us, and was heard at {} us for the last time: \
                     since then leaders have changed {changes} times, and the cluster was not whole for {disturbed} us",
                    known.heard
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agenda::SECOND;

    const SESSION: SessionId = SessionId(1);

    #[test]
    fn a_session_that_lives_too_long_is_noticed() {
        let mut sessions = PromptExpiry::new(1_000, SLACK);
        sessions.opened(SESSION, 4 * SECOND, 0);
        sessions.heard(SESSION, SECOND);
        assert_eq!(sessions.look(5 * SECOND + SLACK), Ok(()));
        assert!(sessions.look(5 * SECOND + SLACK + 1).is_err());
        // Nobody leads for a while, and then another one, who knew of none of its silence.
        sessions.passed(SECOND, false);
        sessions.leader_changed(false);
        assert_eq!(sessions.look(6 * SECOND + SLACK + PER_CHANGE), Ok(()));
        assert!(sessions.look(6 * SECOND + SLACK + PER_CHANGE + 1).is_err());
        sessions.leader_changed(true);
        assert_eq!(sessions.look(8 * SECOND + SLACK + 2 * PER_CHANGE), Ok(()));
        assert!(sessions.look(8 * SECOND + SLACK + 2 * PER_CHANGE + 1).is_err());
        for changes in 3..6 {
            sessions.leader_changed(true);
            let until = 12 * SECOND + SLACK + changes * PER_CHANGE;
            assert_eq!(sessions.look(until), Ok(()));
            assert!(sessions.look(until + 1).is_err(), "one timeout more in all");
        }
        sessions.ended(SESSION);
        assert_eq!(sessions.look(100 * SECOND), Ok(()));
    }

    #[test]
    fn only_the_first_application_of_a_command_is_a_sign_of_life() {
        let mut sessions = PromptExpiry::new(1_000, SLACK);
        sessions.opened(SESSION, 4 * SECOND, 0);
        sessions.asked(SESSION, Zxid(7), SECOND);
        sessions.asked(SESSION, Zxid(7), 9 * SECOND);
        assert!(sessions.look(9 * SECOND).is_err());
    }
}
