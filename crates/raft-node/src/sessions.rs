//! When sessions end: the leader's deadlines, on the monotonic clock, never in the log.
//!
//! A new leader gives every session its full timeout afresh, and confirms no heartbeat before its own first
//! entry is applied. A leader that was itself stalled (its process was stopped, its machine slept) moves all
//! deadlines by the stall: the heartbeats may have been waiting at its door. A session whose end is proposed
//! is not confirmed any more; but if a command of its own was before that end in the log, it is spared, by the state
//! (`Command::ExpireSessions`) and here.
//!
//! So a session lives for at least its timeout after the last confirmed heartbeat was *sent*, and ends within
//! its timeout, plus an election and a full timeout for every change of leaders in between.
//!
//! Nothing here reads a clock: the caller says what time it is.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use znode_store::SessionId;

use crate::peers::wire::Touched;

#[derive(Debug)]
struct Tracked {
    timeout: Duration,
    last_heard: Instant,
    deadline: Instant,
    /// Its end is proposed.
    ending: bool,
}

#[derive(Debug)]
struct Reign {
    term: u64,
    sessions: HashMap<SessionId, Tracked>,
    /// At least one entry for every session that is not ending, none of them later than its deadline. An
    /// entry that turns out to be too early is put back with the real one: so a heartbeat costs no more
    /// than a look-up.
    due: BinaryHeap<Reverse<(Instant, SessionId)>>,
}

/// The deadlines of all sessions while this node leads; nothing while it does not.
#[derive(Debug, Default)]
pub struct SessionTracker {
    reign: Mutex<Option<Reign>>,
}

impl SessionTracker {
    /// This node leads in `term` and has applied an entry of its own: every session gets its full timeout.
    /// Call it while the state is locked, so that none is missed.
    pub fn lead(&self, term: u64, now: Instant, sessions: impl IntoIterator<Item = (SessionId, Duration)>) {
        let mut reign = Reign {
            term,
            sessions: HashMap::new(),
            due: BinaryHeap::new(),
        };
        for (session, timeout) in sessions {
            reign.enter(session, timeout, now);
        }
        *self.reign.lock() = Some(reign);
    }

    /// This node does not lead any more.
    pub fn resign(&self) {
        *self.reign.lock() = None;
    }

    /// The term in which deadlines are kept here.
    pub fn leading_term(&self) -> Option<u64> {
        self.reign.lock().as_ref().map(|reign| reign.term)
    }

    /// A session was opened.
    pub fn opened(&self, session: SessionId, timeout: Duration, now: Instant) {
        if let Some(reign) = &mut *self.reign.lock() {
            reign.enter(session, timeout, now);
        }
    }

    /// A session has ended.
    pub fn ended(&self, session: SessionId) {
        if let Some(reign) = &mut *self.reign.lock() {
            reign.sessions.remove(&session);
        }
    }

    /// A command of the session is applied: as good as a heartbeat, and better. If the session's end is proposed already, it
    /// stands behind this command in the log, and will pass the session over.
    pub fn heard(&self, session: SessionId, now: Instant) {
        if let Some(reign) = &mut *self.reign.lock() {
            reign.spare(session);
            reign.renew(session, now);
        }
    }

    /// Counts a heartbeat that arrived at `arrived`, given that leadership in `term` was proved later than
    /// that. `None`: this node does not lead in that term.
    pub fn touch(&self, term: u64, sessions: &[SessionId], arrived: Instant) -> Option<Vec<Touched>> {
        let mut reign = self.reign.lock();
        let reign = reign.as_mut().filter(|reign| reign.term == term)?;
        Some(
            sessions
                .iter()
                .map(|session| reign.renew(*session, arrived))
                .collect(),
        )
    }

    /// The sessions whose time is over. They count as ending from now on; see [`SessionTracker::not_ended`].
    /// At most `limit`, with the term in which their end has to be proposed.
    pub fn take_due(&self, now: Instant, limit: usize) -> Option<(u64, Vec<SessionId>)> {
        let mut reign = self.reign.lock();
        let reign = reign.as_mut()?;
        let mut due = Vec::new();
        while let Some(Reverse((at, session))) = reign.due.peek().copied() {
            if at > now || due.len() == limit {
                break;
            }
            reign.due.pop();
            match reign.sessions.get_mut(&session) {
                Some(tracked) if tracked.ending => {}
                Some(tracked) if tracked.deadline > now => {
                    reign.due.push(Reverse((tracked.deadline, session)));
                }
                Some(tracked) => {
                    tracked.ending = true;
                    due.push(session);
                }
                None => {}
            }
        }
        (!due.is_empty()).then_some((reign.term, due))
    }

    /// The end of these sessions was proposed in `term` and not carried out. If this node still leads there,
    /// it is to be proposed again.
    pub fn not_ended(&self, term: u64, sessions: &[SessionId], now: Instant) {
        let mut reign = self.reign.lock();
        let Some(reign) = reign.as_mut().filter(|reign| reign.term == term) else {
            return;
        };
        for session in sessions {
            if let Some(tracked) = reign.sessions.get_mut(session) {
                tracked.ending = false;
                reign.due.push(Reverse((now, *session)));
            }
        }
    }

    /// This node was stalled for so long: nobody's heartbeat could be heard.
    pub fn stalled(&self, by: Duration) {
        if let Some(reign) = &mut *self.reign.lock() {
            for tracked in reign.sessions.values_mut() {
                tracked.deadline += by;
            }
        }
    }

    /// How long ago a session was last heard of; only the leader can tell.
    pub fn silence(&self, session: SessionId, now: Instant) -> Option<Duration> {
        let reign = self.reign.lock();
        let tracked = reign.as_ref()?.sessions.get(&session)?;
        Some(now.saturating_duration_since(tracked.last_heard))
    }
}

impl Reign {
    fn enter(&mut self, session: SessionId, timeout: Duration, now: Instant) {
        let deadline = now + timeout;
        let tracked = Tracked {
            timeout,
            last_heard: now,
            deadline,
            ending: false,
        };
        self.sessions.insert(session, tracked);
        self.due.push(Reverse((deadline, session)));
    }

    fn spare(&mut self, session: SessionId) {
        if let Some(tracked) = self.sessions.get_mut(&session)
            && std::mem::take(&mut tracked.ending)
        {
            self.due.push(Reverse((tracked.deadline, session)));
        }
    }

    fn renew(&mut self, session: SessionId, heard: Instant) -> Touched {
        match self.sessions.get_mut(&session) {
            None => Touched::Unknown,
            Some(tracked) if tracked.ending => Touched::Ended,
            Some(tracked) => {
                tracked.last_heard = tracked.last_heard.max(heard);
                tracked.deadline = tracked.deadline.max(heard + tracked.timeout);
                Touched::Renewed(tracked.timeout.as_millis().try_into().unwrap_or(u32::MAX))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);
    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);

    fn leading(now: Instant) -> SessionTracker {
        let tracker = SessionTracker::default();
        tracker.lead(1, now, [(A, TIMEOUT), (B, TIMEOUT)]);
        tracker
    }

    #[test]
    fn a_session_is_due_after_its_timeout_and_not_before() {
        let start = Instant::now();
        let tracker = leading(start);
        assert_eq!(
            tracker.take_due(start + TIMEOUT - Duration::from_millis(1), 10),
            None
        );
        assert_eq!(
            tracker.touch(1, &[A], start + TIMEOUT / 2),
            Some(vec![Touched::Renewed(10_000)])
        );
        assert_eq!(tracker.take_due(start + TIMEOUT, 10), Some((1, vec![B])));
        assert_eq!(tracker.take_due(start + TIMEOUT * 3 / 2, 10), Some((1, vec![A])));
    }

    #[test]
    fn a_session_whose_end_is_proposed_is_not_confirmed() {
        let start = Instant::now();
        let tracker = leading(start);
        let late = start + TIMEOUT;
        assert_eq!(tracker.take_due(late, 1), Some((1, vec![A])));
        assert_eq!(
            tracker.touch(1, &[A, B], late),
            Some(vec![Touched::Ended, Touched::Renewed(10_000)])
        );
        tracker.not_ended(1, &[A], late);
        assert_eq!(
            tracker.take_due(late, 10),
            Some((1, vec![A])),
            "it is proposed again"
        );
    }

    #[test]
    fn a_command_that_comes_before_the_end_spares_the_session() {
        let start = Instant::now();
        let tracker = leading(start);
        let late = start + TIMEOUT;
        assert_eq!(tracker.take_due(late, 10), Some((1, vec![A, B])));
        tracker.heard(A, late);
        tracker.ended(B);
        assert_eq!(
            tracker.touch(1, &[A, B], late),
            Some(vec![Touched::Renewed(10_000), Touched::Unknown])
        );
        assert_eq!(
            tracker.take_due(late + TIMEOUT - Duration::from_millis(1), 10),
            None
        );
        assert_eq!(tracker.take_due(late + TIMEOUT, 10), Some((1, vec![A])));
    }

    #[test]
    fn a_new_leader_gives_everybody_the_full_timeout() {
        let start = Instant::now();
        let tracker = leading(start);
        let later = start + TIMEOUT * 2;
        tracker.resign();
        assert_eq!(tracker.take_due(later, 10), None);
        assert_eq!(tracker.touch(1, &[A], later), None);
        tracker.lead(2, later, [(A, TIMEOUT)]);
        assert_eq!(tracker.touch(1, &[A], later), None, "another term was proved");
        assert_eq!(
            tracker.take_due(later + TIMEOUT - Duration::from_millis(1), 10),
            None
        );
        tracker.not_ended(1, &[A], later);
        assert_eq!(
            tracker.take_due(later, 10),
            None,
            "what an earlier reign proposed does not count"
        );
    }

    #[test]
    fn a_stall_of_the_leader_is_no_ones_fault() {
        let start = Instant::now();
        let tracker = leading(start);
        let stall = Duration::from_secs(30);
        tracker.stalled(stall);
        assert_eq!(tracker.take_due(start + stall, 10), None);
        assert_eq!(
            tracker.take_due(start + stall + TIMEOUT, 10),
            Some((1, vec![A, B]))
        );
    }

    #[test]
    fn an_ended_session_is_forgotten() {
        let start = Instant::now();
        let tracker = leading(start);
        tracker.ended(A);
        assert_eq!(tracker.touch(1, &[A], start), Some(vec![Touched::Unknown]));
        assert_eq!(tracker.take_due(start + TIMEOUT, 10), Some((1, vec![B])));
    }
}
