//! Prompt expiry: a silent session ends within its timeout after its last heartbeat, and soon.
//! The bound is that of `docs/concepts/sessions.md`: the timeout, a tick, and for each change of leaders an election
//! and the time that clients get to reach the new leader. A leader that dies adds half of the timeout: the
//! part that it had not recorded yet. Several leaders that die in a row add at most one more timeout.
//! Leaders measure by their own clocks, so a timeout lasts longer if their clocks are slow. While the cluster
//! is not whole (no leader, or no healthy majority) no session can be ended, and that time is added:
//! [`PromptExpiry::passed`].

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;

use znode_store::{SessionId, Zxid};

use super::Check;
use crate::time::{MILLI, Micros, SECOND};

/// Time that nodes need beside everything else: a tick of 50 ms to check the deadlines, and a commit.
const TICK_AND_COMMIT: Micros = 150 * MILLI;

/// Bound of the way of a heartbeat to the leader, by the leader's clock.
const TRANSIT: Micros = SECOND;

/// Time for which a node uses a moment of the leader's clock as the proof of that way, by the node's clock.
/// While the leader's clock is slower than the node's, the way may be longer by the difference.
const MOMENT_AGE: Micros = SECOND;

/// Cost of a change of leaders, beside the time without a leader: clients get the longest election timeout,
/// by a clock that may be slow, to reach the new leader, which checks its sessions once it has applied an
/// entry of its own.
const PER_CHANGE: Micros = 900 * MILLI;

#[derive(Debug, Clone, Copy, Default)]
struct Disturbance {
    /// Time in which the cluster was not whole.
    disturbed: Micros,
    /// Changes of leaders.
    changes: u64,
    /// Changes in which the old leader died or lost its majority.
    losses: u64,
}

struct SessionState {
    timeout: Micros,
    /// Time of the last heartbeat.
    heard: Micros,
    before: Disturbance,
}

/// Checker of the bound up to which sessions may live, or anything else whose time the leader counts.
pub struct PromptExpiry<K = SessionId> {
    sessions: HashMap<K, SessionState>,
    passed: Disturbance,
    /// Rate of the slowest clock, in thousandths.
    slowest: u64,
    /// Time that nodes need beside everything else.
    slack: Micros,
    /// Position up to which commands are known.
    last: Zxid,
}

impl<K: Debug + Eq + Hash> PromptExpiry<K> {
    /// Creates the checker for clocks of these rates, in thousandths.
    pub fn new(rates: &[u64]) -> Self {
        let slowest = rates.iter().copied().min().unwrap_or(1_000);
        let fastest = rates.iter().copied().max().unwrap_or(1_000);
        let difference = MOMENT_AGE * (fastest - slowest) / fastest;
        Self {
            sessions: HashMap::new(),
            passed: Disturbance::default(),
            slowest,
            slack: (TRANSIT + difference) * 1_000 / slowest + TICK_AND_COMMIT,
            last: Zxid::default(),
        }
    }

    /// Records the opening of a session.
    pub fn opened(&mut self, session: K, timeout: Micros, now: Micros) {
        let known = SessionState {
            timeout,
            heard: now,
            before: self.passed,
        };
        self.sessions.insert(session, known);
    }

    /// Records that a node sends a heartbeat of the session to the leader.
    pub fn note_activity(&mut self, session: K, now: Micros) {
        if let Some(known) = self.sessions.get_mut(&session) {
            known.heard = now;
            known.before = self.passed;
        }
    }

    /// Records the timeout that a lease has since a renewal.
    pub fn has_timeout(&mut self, session: &K, timeout: Micros) {
        if let Some(known) = self.sessions.get_mut(session) {
            known.timeout = timeout;
        }
    }

    /// Records an applied command of the session; only the first node that applies it counts.
    pub fn note_request(&mut self, session: K, at: Zxid, now: Micros) {
        if at > self.last {
            self.last = at;
            self.note_activity(session, now);
        }
    }

    /// Records the end of a session.
    pub fn ended(&mut self, session: &K) {
        self.sessions.remove(session);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.sessions.clear();
    }

    /// Records a change of leaders, which was a loss unless the old leader handed its leadership over.
    pub fn leader_changed(&mut self, lost: bool) {
        self.passed.changes += 1;
        self.passed.losses += u64::from(lost);
    }

    /// Records that time has passed in which the cluster was or was not whole.
    pub fn passed(&mut self, time: Micros, was_whole: bool) {
        if !was_whole {
            self.passed.disturbed += time;
        }
    }

    /// Checks that no session lives longer than it may.
    pub fn check(&self, now: Micros) -> Check {
        for (session, known) in &self.sessions {
            let timeout = known.timeout * 1000 / self.slowest;
            let unrecorded = match self.passed.losses - known.before.losses {
                0 => 0,
                1 => timeout / 2,
                // If all processes end each time, each change loses half of the remaining time.
                _ => timeout * 3 / 2,
            };
            let disturbed = self.passed.disturbed - known.before.disturbed;
            let changes = self.passed.changes - known.before.changes;
            let until = known.heard + timeout + unrecorded + self.slack + disturbed + changes * PER_CHANGE;
            if now > until {
                return Err(format!(
                    "{session:?} with a timeout of {timeout} us is alive at {now} us, after its last heartbeat at {} us: \
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

    const SESSION: SessionId = SessionId(1);

    /// Slack with correct clocks.
    const SLACK: Micros = 1_150 * MILLI;

    #[test]
    fn session_above_its_bound_is_a_violation() {
        let mut sessions = PromptExpiry::new(&[1_000; 3]);
        sessions.opened(SESSION, 4 * SECOND, 0);
        sessions.note_activity(SESSION, SECOND);
        assert_eq!(sessions.check(5 * SECOND + SLACK), Ok(()));
        assert!(sessions.check(5 * SECOND + SLACK + 1).is_err());
        // There is no leader for a while, and the next leader knew nothing of the silence.
        sessions.passed(SECOND, false);
        sessions.leader_changed(false);
        assert_eq!(sessions.check(6 * SECOND + SLACK + PER_CHANGE), Ok(()));
        assert!(sessions.check(6 * SECOND + SLACK + PER_CHANGE + 1).is_err());
        sessions.leader_changed(true);
        assert_eq!(sessions.check(8 * SECOND + SLACK + 2 * PER_CHANGE), Ok(()));
        assert!(sessions.check(8 * SECOND + SLACK + 2 * PER_CHANGE + 1).is_err());
        for changes in 3..6 {
            sessions.leader_changed(true);
            let until = 12 * SECOND + SLACK + changes * PER_CHANGE;
            assert_eq!(sessions.check(until), Ok(()));
            assert!(sessions.check(until + 1).is_err(), "one timeout more in all");
        }
        sessions.ended(&SESSION);
        assert_eq!(sessions.check(100 * SECOND), Ok(()));
    }

    #[test]
    fn command_counts_as_a_heartbeat_only_when_first_applied() {
        let mut sessions = PromptExpiry::new(&[1_000; 3]);
        sessions.opened(SESSION, 4 * SECOND, 0);
        sessions.note_request(SESSION, Zxid(7), SECOND);
        sessions.note_request(SESSION, Zxid(7), 9 * SECOND);
        assert!(sessions.check(9 * SECOND).is_err());
    }
}
