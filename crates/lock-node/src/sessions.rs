//! Deadlines of sessions at the leader, on its monotonic clock.
//!
//! Heartbeats are not in the log, so a new leader does not know when the old one received them. It knows *records of silence*
//! (`Command::RecordSilence`). Such a record contains the time for which a session had been silent at its leader, and it holds until the
//! session is taken off the record: while a session is on record, a leader confirms a heartbeat only after a `Command::NoteHeartbeats` is
//! applied. So a record means that no heartbeat was confirmed since. Each replica notes when it applied a record, by its own clock. As the
//! leader, it counts the silence from there.
//!
//! A leader records the silence of all sessions before it hands leadership over, of each session that was silent for half of its timeout,
//! and at the beginning of its term of all sessions that are not on record. Sessions without a record get their full timeout from then.
//!
//! A leader confirms no heartbeat before its own first entry is applied. A leader that was itself paused (its process was stopped, its
//! machine slept) moves all deadlines by the pause: the heartbeats may have been waiting in its sockets. For the same reason a new leader
//! ends no session before clients had [`SessionTracker::lead`]'s `grace` to reach it. A session whose end is proposed is not confirmed any
//! more; but if a command of its own was before that end in the log, the state (`Command::ExpireSessions`) and this module let it live.
//!
//! So a session lives for at least its timeout after the last confirmed heartbeat was *sent*. It ends within its timeout, plus an election
//! and the grace for each change of leaders. A leader that dies before it has recorded the silence of a session adds what it knew of that:
//! half of the timeout, once.
//!
//! Nothing here reads a clock: the caller passes the time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use fault_injection::planted::{self, Bug};
use tokio::time::Instant;
use znode_store::{SessionId, Silence, Zxid};

use raft_log::sync::Mutex;
use raft_node::messages::Touched;

/// Time after which a failed record of silence is proposed again. Until then a crash loses the unrecorded silence.
const RECORD_AGAIN: Duration = Duration::from_secs(1);

/// Sessions on one record: an entry is applied in one go.
const MAX_RECORDED_AT_ONCE: usize = 1_024;

/// For how many records each replica knows when it applied them. A leader makes one for all that fall silent in a tick, so these
/// are at least three minutes of records, and most often days. A session on an older record counts as silent from when the new
/// leader looks, which is safe.
const MAX_RECORDS: usize = 4_096;

#[derive(Debug)]
struct Tracked {
    timeout: Duration,
    last_heard: Instant,
    deadline: Instant,
    /// Its end is proposed.
    ending: bool,
    /// Its silence is on record, or may be: no heartbeat is confirmed before one is noted in the log.
    on_record: bool,
    /// Time at which its silence is to be recorded; `None` if that was proposed.
    record_at: Option<Instant>,
}

impl Tracked {
    fn next_look(&self) -> Instant {
        match self.record_at {
            Some(at) => at.min(self.deadline),
            None => self.deadline,
        }
    }
}

/// A session as a new leader finds it in the state.
#[derive(Debug, Clone, Copy)]
pub struct KnownSession {
    /// Session.
    pub session: SessionId,
    /// Its timeout.
    pub timeout: Duration,
    /// Its silence, if that is on record.
    pub silence: Option<Silence>,
}

/// Proposals that are due, with their term.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Term.
    pub term: u64,
    /// The sessions whose time is over. They count as ending; see [`SessionTracker::still_ending`].
    pub over: Vec<SessionId>,
    /// The sessions whose silence is to be put on record, and how many milliseconds that has lasted.
    pub silent: Vec<(SessionId, u32)>,
}

/// Results of heartbeats.
#[derive(Debug, PartialEq, Eq)]
pub struct Counted {
    /// Answers to the callers, in their order, valid once `to_note` are noted in the log.
    pub touched: Vec<Touched>,
    /// Sessions that are, or may be, on the record of silence.
    pub to_note: Vec<SessionId>,
}

#[derive(Debug)]
struct LeaderTerm {
    term: u64,
    sessions: HashMap<SessionId, Tracked>,
    /// At least one entry for every session that is not ending, none of them later than its next look. An
    /// entry that turns out to be too early is put back with the real one: so a heartbeat costs no more
    /// than a look-up.
    due: BinaryHeap<Reverse<(Instant, SessionId)>>,
}

/// The deadlines of all sessions while this node leads; while it does not, only when it applied which record.
#[derive(Debug, Default)]
pub struct SessionTracker {
    reign: Mutex<Option<LeaderTerm>>,
    /// Times at which this node applied records of silence, the oldest first.
    records: Mutex<VecDeque<(Zxid, Instant)>>,
}

impl SessionTracker {
    /// This node leads in `term` and has applied an entry of its own. Sessions on record go on being silent, the others get
    /// their full timeout, and each at least the `grace`. Call it while the state is locked, so that none is missed.
    pub fn lead(
        &self,
        term: u64,
        now: Instant,
        grace: Duration,
        sessions: impl IntoIterator<Item = KnownSession>,
    ) {
        let mut reign = LeaderTerm {
            term,
            sessions: HashMap::new(),
            due: BinaryHeap::new(),
        };
        let records = self.records.lock();
        let applied = |at: Zxid| {
            let place = records.binary_search_by_key(&at, |(at, _)| *at).ok()?;
            Some(records[place].1)
        };
        for KnownSession {
            session,
            timeout,
            silence,
        } in sessions
        {
            let recorded = silence.filter(|_| !planted::is(Bug::SilenceForgotten));
            let (last_heard, record_at) = match recorded {
                Some(Silence { at, ms }) => {
                    let mut silent = Duration::from_millis(u64::from(ms));
                    if planted::is(Bug::SilenceTooLong) {
                        silent += timeout;
                    }
                    let applied = applied(at).unwrap_or(now);
                    let last_heard = applied.checked_sub(silent).unwrap_or(applied);
                    let left = (last_heard + timeout).saturating_duration_since(now);
                    // If all processes end again, the silence since this record is lost. So each leader makes a new one.
                    (last_heard, Some(now + left / 2))
                }
                None => (now, Some(now)),
            };
            let tracked = Tracked {
                timeout,
                last_heard,
                deadline: (last_heard + timeout).max(now + grace),
                ending: false,
                on_record: silence.is_some(),
                record_at,
            };
            reign.enter(session, tracked);
        }
        *self.reign.lock() = Some(reign);
    }

    /// Notes that the record of silence at `at` was applied: the silence of its sessions continues from there.
    pub fn recorded(&self, at: Zxid, now: Instant) {
        let mut records = self.records.lock();
        if records.back().is_none_or(|(last, _)| *last < at) {
            records.push_back((at, now));
        }
        if records.len() > MAX_RECORDS {
            records.pop_front();
        }
    }

    /// The state was replaced by another one: what was noted of records may be of another past.
    pub fn replaced(&self) {
        self.records.lock().clear();
        self.resign();
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
            let tracked = Tracked {
                timeout,
                last_heard: now,
                deadline: now + timeout,
                ending: false,
                on_record: false,
                record_at: Some(now + timeout / 2),
            };
            reign.enter(session, tracked);
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
    ///
    /// Returns whether the session's silence is, or may be, on record. Then see [`SessionTracker::off_record`].
    pub fn heard(&self, session: SessionId, now: Instant) -> bool {
        let mut reign = self.reign.lock();
        let Some(reign) = &mut *reign else { return false };
        reign.spare(session);
        reign.renew(session, now);
        let tracked = reign.sessions.get(&session);
        tracked.is_some_and(|tracked| tracked.on_record)
    }

    /// Notes that the state has heard the session at the position that is applied now. The state has no record of the session's silence any
    /// more, and skips the session in records and ends that were proposed before.
    pub fn off_record(&self, session: SessionId) {
        if let Some(reign) = &mut *self.reign.lock() {
            reign.spare(session);
            if let Some(tracked) = reign.sessions.get_mut(&session)
                && std::mem::take(&mut tracked.on_record)
            {
                let at = tracked.last_heard + tracked.timeout / 2;
                tracked.record_at = Some(at);
                reign.due.push(Reverse((at, session)));
            }
        }
    }

    /// Counts heartbeats, each from the time beside it, given that leadership in `term` was proved later than all of
    /// these. `None`: this node does not lead in that term.
    pub fn touch(&self, term: u64, beats: &[(SessionId, Instant)]) -> Option<Counted> {
        let mut reign = self.reign.lock();
        let reign = reign.as_mut().filter(|reign| reign.term == term)?;
        let mut to_note = Vec::new();
        let touched = beats.iter().map(|(session, heard)| {
            let touched = reign.renew(*session, *heard);
            if matches!(touched, Touched::Renewed(_)) && reign.sessions[session].on_record {
                to_note.push(*session);
            }
            touched
        });
        Some(Counted {
            touched: touched.collect(),
            to_note,
        })
    }

    /// Returns the proposals that are due `now`: at most `limit` ends of sessions, and records of silence if all members know these.
    pub fn take_due(&self, now: Instant, limit: usize, records: bool) -> Option<Due> {
        let mut reign = self.reign.lock();
        let reign = reign.as_mut()?;
        let mut due = Due {
            term: reign.term,
            ..Due::default()
        };
        while let Some(Reverse((at, session))) = reign.due.peek().copied() {
            if at > now || due.over.len() == limit || due.silent.len() == MAX_RECORDED_AT_ONCE {
                break;
            }
            reign.due.pop();
            let Some(tracked) = reign.sessions.get_mut(&session).filter(|tracked| !tracked.ending) else {
                continue;
            };
            if tracked.deadline <= now {
                tracked.ending = true;
                due.over.push(session);
                continue;
            }
            if tracked.record_at.is_some_and(|at| at <= now) {
                match records {
                    true => due.silent.push((session, tracked.put_on_record(now))),
                    false => tracked.record_at = Some(now + RECORD_AGAIN),
                }
            }
            reign.due.push(Reverse((tracked.next_look(), session)));
        }
        (!due.over.is_empty() || !due.silent.is_empty()).then_some(due)
    }

    /// The silence of all sessions, to be put on record before another node leads.
    pub fn take_all_silent(&self, now: Instant) -> Vec<Due> {
        let mut reign = self.reign.lock();
        let Some(reign) = reign.as_mut() else {
            return Vec::new();
        };
        let sessions = reign.sessions.iter_mut();
        let silent = sessions.map(|(session, tracked)| (*session, tracked.put_on_record(now)));
        let silent: Vec<_> = silent.collect();
        let parts = silent.chunks(MAX_RECORDED_AT_ONCE).map(|part| Due {
            term: reign.term,
            over: Vec::new(),
            silent: part.to_vec(),
        });
        parts.collect()
    }

    /// A record of the silence of these was proposed in `term` and perhaps not applied. It is to be proposed again.
    pub fn not_recorded(&self, term: u64, sessions: &[(SessionId, u32)], now: Instant) {
        let mut reign = self.reign.lock();
        let Some(reign) = reign.as_mut().filter(|reign| reign.term == term) else {
            return;
        };
        for (session, _) in sessions {
            if let Some(tracked) = reign.sessions.get_mut(session)
                && tracked.record_at.is_none()
            {
                tracked.record_at = Some(now + RECORD_AGAIN);
                reign.due.push(Reverse((now + RECORD_AGAIN, *session)));
            }
        }
    }

    /// Returns those of `sessions` whose end was proposed in `term` and has not been applied, while this node leads there.
    ///
    /// A failed proposal may still be in the log and be applied later. So only a command of the session spares it, because the command is in
    /// the log, too. A heartbeat does not.
    pub fn still_ending(&self, term: u64, mut sessions: Vec<SessionId>) -> Vec<SessionId> {
        let reign = self.reign.lock();
        let reign = reign.as_ref().filter(|reign| reign.term == term);
        let is_ending = |session: &SessionId| {
            let tracked = reign.and_then(|reign| reign.sessions.get(session));
            tracked.is_some_and(|tracked| tracked.ending)
        };
        sessions.retain(is_ending);
        sessions
    }

    /// Moves all deadlines by the time for which this node was paused and received no heartbeat.
    pub fn stalled(&self, by: Duration) {
        if let Some(reign) = &mut *self.reign.lock() {
            for tracked in reign.sessions.values_mut() {
                tracked.deadline += by;
            }
        }
    }

    /// Returns the time since the last sign of life of a session; only the leader knows it.
    pub fn silence(&self, session: SessionId, now: Instant) -> Option<Duration> {
        let reign = self.reign.lock();
        let tracked = reign.as_ref()?.sessions.get(&session)?;
        Some(now.saturating_duration_since(tracked.last_heard))
    }
}

impl Tracked {
    /// From now on its silence may be on record. Returns how many milliseconds that has lasted.
    fn put_on_record(&mut self, now: Instant) -> u32 {
        self.on_record = true;
        self.record_at = None;
        let silent = now.saturating_duration_since(self.last_heard).as_millis();
        silent.try_into().unwrap_or(u32::MAX)
    }
}

impl LeaderTerm {
    fn enter(&mut self, session: SessionId, tracked: Tracked) {
        self.due.push(Reverse((tracked.next_look(), session)));
        self.sessions.insert(session, tracked);
    }

    fn spare(&mut self, session: SessionId) {
        if let Some(tracked) = self.sessions.get_mut(&session)
            && std::mem::take(&mut tracked.ending)
        {
            self.due.push(Reverse((tracked.next_look(), session)));
        }
    }

    fn renew(&mut self, session: SessionId, heard: Instant) -> Touched {
        match self.sessions.get_mut(&session) {
            None => Touched::Unknown,
            Some(tracked) if tracked.ending => Touched::Ended,
            Some(tracked) => {
                tracked.last_heard = tracked.last_heard.max(heard);
                tracked.deadline = tracked.deadline.max(heard + tracked.timeout);
                let record_at = &mut tracked.record_at;
                *record_at = record_at.map(|at| at.max(heard + tracked.timeout / 2));
                Touched::Renewed(tracked.timeout.as_millis().try_into().unwrap_or(u32::MAX))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);
    const MS: Duration = Duration::from_millis(1);
    /// Time that clients have to reach a new leader.
    const GRACE: Duration = Duration::from_millis(600);
    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);

    fn found(session: SessionId, silence: Option<(u64, Duration)>) -> KnownSession {
        KnownSession {
            session,
            timeout: TIMEOUT,
            silence: silence.map(|(at, silent)| Silence {
                at: Zxid(at),
                ms: silent.as_millis() as u32,
            }),
        }
    }

    fn leading(now: Instant) -> SessionTracker {
        let tracker = SessionTracker::default();
        tracker.lead(1, now, GRACE, [found(A, None), found(B, None)]);
        tracker
    }

    /// The sessions that are to be ended now, in the term beside them.
    fn over(tracker: &SessionTracker, now: Instant) -> Option<(u64, Vec<SessionId>)> {
        let due = tracker.take_due(now, 10, false)?;
        Some((due.term, due.over))
    }

    /// The silences that are to be put on record now.
    fn silent(tracker: &SessionTracker, now: Instant) -> Vec<(SessionId, u32)> {
        let mut silent = tracker
            .take_due(now, 10, true)
            .map_or(Vec::new(), |due| due.silent);
        silent.sort();
        silent
    }

    fn touch(
        tracker: &SessionTracker,
        term: u64,
        sessions: &[SessionId],
        at: Instant,
    ) -> Option<Vec<Touched>> {
        let beats: Vec<_> = sessions.iter().map(|session| (*session, at)).collect();
        Some(tracker.touch(term, &beats)?.touched)
    }

    /// The sessions whose heartbeat has to be noted in the log before it is confirmed.
    fn to_note(tracker: &SessionTracker, term: u64, sessions: &[SessionId], at: Instant) -> Vec<SessionId> {
        let beats: Vec<_> = sessions.iter().map(|session| (*session, at)).collect();
        tracker.touch(term, &beats).expect("it leads").to_note
    }

    #[test]
    fn a_session_is_due_after_its_timeout_and_not_before() {
        let start = Instant::now();
        let tracker = leading(start);
        assert_eq!(over(&tracker, start + TIMEOUT - MS), None);
        assert_eq!(
            touch(&tracker, 1, &[A], start + TIMEOUT / 2),
            Some(vec![Touched::Renewed(10_000)])
        );
        assert_eq!(over(&tracker, start + TIMEOUT), Some((1, vec![B])));
        assert_eq!(over(&tracker, start + TIMEOUT * 3 / 2), Some((1, vec![A])));
    }

    #[test]
    fn a_session_whose_end_is_proposed_is_not_confirmed() {
        let start = Instant::now();
        let tracker = leading(start);
        let late = start + TIMEOUT;
        let due = tracker.take_due(late, 1, false).unwrap();
        assert_eq!(due.over, [A]);
        assert_eq!(
            touch(&tracker, 1, &[A, B], late),
            Some(vec![Touched::Ended, Touched::Renewed(10_000)])
        );
        assert_eq!(
            tracker.still_ending(2, vec![A]),
            [],
            "this node does not lead in that term"
        );
        assert_eq!(tracker.still_ending(1, vec![A, B]), [A]);
    }

    /// A proposed end with an unknown outcome may be in the log. The time of a pause does not change that.
    #[test]
    fn a_session_whose_end_may_be_in_the_log_is_confirmed_only_after_a_command_of_its_own() {
        let start = Instant::now();
        let tracker = leading(start);
        let late = start + TIMEOUT;
        assert_eq!(over(&tracker, late), Some((1, vec![A, B])));
        tracker.stalled(TIMEOUT);
        assert_eq!(touch(&tracker, 1, &[A], late), Some(vec![Touched::Ended]));
        assert_eq!(
            over(&tracker, late + TIMEOUT * 3),
            None,
            "its proposer proposes it again"
        );
        tracker.heard(A, late);
        tracker.ended(B);
        assert_eq!(tracker.still_ending(1, vec![A, B]), []);
        assert_eq!(
            touch(&tracker, 1, &[A], late),
            Some(vec![Touched::Renewed(10_000)])
        );
    }

    #[test]
    fn a_command_that_comes_before_the_end_spares_the_session() {
        let start = Instant::now();
        let tracker = leading(start);
        let late = start + TIMEOUT;
        assert_eq!(over(&tracker, late), Some((1, vec![A, B])));
        tracker.heard(A, late);
        tracker.ended(B);
        assert_eq!(
            touch(&tracker, 1, &[A, B], late),
            Some(vec![Touched::Renewed(10_000), Touched::Unknown])
        );
        assert_eq!(over(&tracker, late + TIMEOUT - MS), None);
        assert_eq!(over(&tracker, late + TIMEOUT), Some((1, vec![A])));
    }

    #[test]
    fn a_new_leader_gives_the_full_timeout_to_those_whose_silence_is_not_on_record() {
        let start = Instant::now();
        let tracker = leading(start);
        let later = start + TIMEOUT * 2;
        tracker.resign();
        assert_eq!(over(&tracker, later), None);
        assert_eq!(touch(&tracker, 1, &[A], later), None);
        tracker.lead(2, later, GRACE, [found(A, None)]);
        assert_eq!(touch(&tracker, 1, &[A], later), None, "another term was proved");
        assert_eq!(over(&tracker, later + TIMEOUT - MS), None);
        assert_eq!(
            tracker.still_ending(1, vec![A]),
            [],
            "what an earlier reign proposed does not count"
        );
    }

    #[test]
    fn silence_on_record_goes_on_with_the_next_leader() {
        let start = Instant::now();
        let tracker = SessionTracker::default();
        // As a follower: the record that A has been silent for six seconds.
        tracker.recorded(Zxid(5), start);
        let elected = start + TIMEOUT / 5;
        tracker.lead(
            2,
            elected,
            GRACE,
            [found(A, Some((5, TIMEOUT * 3 / 5))), found(B, None)],
        );
        assert_eq!(tracker.silence(A, elected), Some(TIMEOUT * 4 / 5));
        assert_eq!(over(&tracker, start + TIMEOUT * 2 / 5 - MS), None);
        assert_eq!(over(&tracker, start + TIMEOUT * 2 / 5), Some((2, vec![A])));
        assert_eq!(over(&tracker, elected + TIMEOUT - MS), None);
        assert_eq!(over(&tracker, elected + TIMEOUT), Some((2, vec![B])));
    }

    #[test]
    fn record_applied_by_an_earlier_process_counts_from_now() {
        let start = Instant::now();
        let tracker = SessionTracker::default();
        tracker.recorded(Zxid(5), start);
        tracker.replaced();
        tracker.recorded(Zxid(9), start);
        let elected = start + TIMEOUT / 5;
        tracker.lead(2, elected, GRACE, [found(A, Some((5, TIMEOUT * 3 / 5)))]);
        assert_eq!(over(&tracker, elected + TIMEOUT * 2 / 5 - MS), None);
        assert_eq!(over(&tracker, elected + TIMEOUT * 2 / 5), Some((2, vec![A])));
    }

    /// Each leader starts after the last record and dies before it ends the session, and all other processes die with it.
    #[test]
    fn leaders_that_all_end_early_cost_a_silent_session_no_more_than_one_timeout() {
        let mut now = Instant::now();
        let begin = now;
        let mut on_record = (TIMEOUT / 2).as_millis() as u32;
        for term in 2..10 {
            let tracker = SessionTracker::default();
            let silence = Duration::from_millis(u64::from(on_record));
            tracker.lead(term, now, MS, [found(A, Some((5, silence)))]);
            let left = TIMEOUT - silence;
            assert_eq!(silent(&tracker, now + left / 2 - MS), []);
            now += left / 2 + MS;
            let recorded = silent(&tracker, now);
            assert!(recorded[0].1 > on_record, "{recorded:?}");
            on_record = recorded[0].1;
            // It dies just before it ends the session, and all others with it.
            now += left / 2 - MS * 2;
        }
        assert!(now - begin < TIMEOUT, "{:?}", now - begin);
    }

    #[test]
    fn no_session_ends_before_its_client_could_reach_the_new_leader() {
        let start = Instant::now();
        let tracker = SessionTracker::default();
        tracker.lead(2, start, GRACE, [found(A, Some((5, TIMEOUT * 2)))]);
        assert_eq!(over(&tracker, start + GRACE - MS), None);
        assert_eq!(over(&tracker, start + GRACE), Some((2, vec![A])));
    }

    #[test]
    fn silence_is_put_on_record_after_half_of_the_timeout() {
        let start = Instant::now();
        let tracker = SessionTracker::default();
        tracker.lead(1, start, GRACE, []);
        tracker.opened(A, TIMEOUT, start);
        tracker.opened(B, TIMEOUT, start);
        touch(&tracker, 1, &[B], start + TIMEOUT / 4);
        assert_eq!(silent(&tracker, start + TIMEOUT / 2 - MS), []);
        assert_eq!(silent(&tracker, start + TIMEOUT / 2), [(A, 5_000)]);
        assert_eq!(silent(&tracker, start + TIMEOUT / 2), [], "it is proposed");
        tracker.not_recorded(1, &[(A, 5_000)], start + TIMEOUT / 2);
        assert_eq!(silent(&tracker, start + TIMEOUT / 2 + RECORD_AGAIN), [(A, 6_000)]);
        assert_eq!(silent(&tracker, start + TIMEOUT * 3 / 4), [(B, 5_000)]);
        assert_eq!(over(&tracker, start + TIMEOUT), Some((1, vec![A])));
    }

    #[test]
    fn new_leader_records_silence_of_all_sessions() {
        let start = Instant::now();
        let tracker = SessionTracker::default();
        tracker.lead(
            2,
            start,
            GRACE,
            [found(A, Some((5, TIMEOUT / 2))), found(B, None)],
        );
        assert_eq!(silent(&tracker, start + MS), [(B, 1)]);
    }

    #[test]
    fn records_wait_until_all_members_know_them() {
        let start = Instant::now();
        let tracker = leading(start);
        assert_eq!(tracker.take_due(start, 10, false), None);
        assert_eq!(to_note(&tracker, 1, &[A, B], start), []);
        assert_eq!(silent(&tracker, start + RECORD_AGAIN - MS), []);
        assert_eq!(silent(&tracker, start + TIMEOUT / 2), [(A, 5_000), (B, 5_000)]);
    }

    #[test]
    fn heartbeat_of_a_session_on_record_is_noted_before_it_is_confirmed() {
        let start = Instant::now();
        let tracker = leading(start);
        assert_eq!(silent(&tracker, start), [(A, 0), (B, 0)]);
        assert_eq!(to_note(&tracker, 1, &[A], start + MS), [A], "it is only proposed");
        tracker.off_record(A);
        assert_eq!(to_note(&tracker, 1, &[A, B], start + MS * 2), [B]);
        // A command of the session does the same, once it is applied.
        assert!(tracker.heard(B, start + MS * 3));
        assert_eq!(to_note(&tracker, 1, &[B], start + MS * 3), [B]);
        tracker.off_record(B);
        assert!(!tracker.heard(B, start + MS * 4));
        // And it is put on record again.
        assert_eq!(silent(&tracker, start + MS * 2 + TIMEOUT / 2), [(A, 5_000)]);
    }

    #[test]
    fn silence_is_recorded_before_a_handover() {
        let start = Instant::now();
        let tracker = leading(start);
        touch(&tracker, 1, &[B], start + MS * 400);
        let parts = tracker.take_all_silent(start + MS * 1_000);
        let mut all = parts[0].silent.clone();
        all.sort();
        assert_eq!((parts.len(), parts[0].term), (1, 1));
        assert_eq!(all, [(A, 1_000), (B, 600)]);
        assert_eq!(to_note(&tracker, 1, &[A, B], start + MS * 1_001), [A, B]);
    }

    #[test]
    fn an_old_heartbeat_does_not_move_the_deadline_back() {
        let start = Instant::now();
        let tracker = leading(start);
        touch(&tracker, 1, &[A], start + TIMEOUT / 2);
        touch(&tracker, 1, &[A], start + TIMEOUT / 4);
        tracker.ended(B);
        assert_eq!(over(&tracker, start + TIMEOUT * 3 / 2 - MS), None);
        assert_eq!(over(&tracker, start + TIMEOUT * 3 / 2), Some((1, vec![A])));
    }

    #[test]
    fn stall_of_the_leader_expires_no_session() {
        let start = Instant::now();
        let tracker = leading(start);
        let stall = Duration::from_secs(30);
        tracker.stalled(stall);
        assert_eq!(over(&tracker, start + stall), None);
        assert_eq!(over(&tracker, start + stall + TIMEOUT), Some((1, vec![A, B])));
    }

    #[test]
    fn an_ended_session_is_forgotten() {
        let start = Instant::now();
        let tracker = leading(start);
        tracker.ended(A);
        assert_eq!(touch(&tracker, 1, &[A], start), Some(vec![Touched::Unknown]));
        assert_eq!(over(&tracker, start + TIMEOUT), Some((1, vec![B])));
    }
}
