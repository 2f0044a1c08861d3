//! Deadlines of sessions at the leader, on its monotonic clock.
//!
//! Heartbeats are not in the log, so a new leader does not know when the old one received them. It knows *records of silence*
//! (`Command::RecordSilence`). A record contains the time for which a session had been silent at its leader, and it holds until the session is
//! taken off the record. While a session is on record, a leader confirms a heartbeat only after a `Command::NoteHeartbeats` is applied. So a
//! record means that no heartbeat was confirmed since. Each replica remembers when it applied a record, by its own clock. When it becomes the
//! leader, it counts the silence from there.
//!
//! A leader records silence on three occasions: of all sessions before it hands leadership over; of each session that was silent for half of its
//! timeout; and at the beginning of its term of all sessions that are not on record. The latter get their full timeout from then.
//!
//! A leader confirms no heartbeat before its own first entry is applied. A leader that was itself paused (its process was stopped, its machine
//! slept) moves all deadlines by the pause, because heartbeats may have been waiting in its sockets. A new leader ends no session before the
//! clients had the `grace` of [`SessionTracker::lead`] to reach it. A leader does not confirm heartbeats of a session whose end is proposed. But
//! if a command of the session is before that end in the log, the state (`Command::ExpireSessions`) and this module let the session live.
//!
//! So a session lives for at least its timeout after the last confirmed heartbeat was *sent*. It ends within its timeout, plus an election and the
//! grace for each change of leaders. A leader that dies before it has recorded the silence of a session prolongs the session by the unrecorded
//! silence: at most half of the timeout, once.
//!
//! This module reads no clock: the caller passes the time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use fault_injection::planted::{self, Bug};
use tokio::time::Instant;
use znode_store::{NEVER_ENDS_MS, SessionId, Silence, Zxid};

use raft_log::sync::Mutex;
use raft_node::messages::Touched;

/// Time after which a failed record of silence is proposed again. Until then a crash loses the unrecorded silence.
const RECORD_AGAIN: Duration = Duration::from_secs(1);

/// Maximum number of sessions on one record, because an entry is applied without interruption.
const MAX_RECORDED_AT_ONCE: usize = 1_024;

/// Maximum number of records whose time of application a replica remembers. A leader makes one record for all sessions that fall silent in a
/// tick. So these are the records of at least three minutes, and usually of days. The silence of a session on an older record counts from the
/// beginning of the new leader's term, which is safe.
const MAX_RECORDS: usize = 4_096;

/// Lifetime of a session whose timeout is [`NEVER_ENDS_MS`]: longer than any process runs, and short enough for all clocks.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Returns the time for which a session with this timeout lives without a heartbeat.
fn lifetime(timeout: Duration) -> Duration {
    match timeout == Duration::from_millis(NEVER_ENDS_MS as u64) {
        true => NEVER,
        false => timeout,
    }
}

/// Session with its deadline.
#[derive(Debug)]
struct Tracked {
    timeout: Duration,
    last_heard: Instant,
    deadline: Instant,
    /// True if the end of the session is proposed.
    ending: bool,
    /// True if the silence of the session is, or may be, on record. Then no heartbeat is confirmed before one is noted in the log.
    on_record: bool,
    /// Time at which the silence of the session is to be recorded; `None` if a record is proposed.
    record_at: Option<Instant>,
}

impl Tracked {
    /// Returns the time of the next check of the session.
    fn next_check(&self) -> Instant {
        match self.record_at {
            Some(at) => at.min(self.deadline),
            None => self.deadline,
        }
    }
}

/// Session as a new leader finds it in the state.
#[derive(Debug, Clone, Copy)]
pub struct KnownSession {
    /// Session id.
    pub session: SessionId,
    /// Timeout.
    pub timeout: Duration,
    /// Recorded silence, if there is a record.
    pub silence: Option<Silence>,
}

/// Proposals that are due, with their term.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Term in which this node leads.
    pub term: u64,
    /// Sessions to expire. They count as ending; see [`SessionTracker::still_ending`].
    pub over: Vec<SessionId>,
    /// Sessions whose silence is to be recorded, each with its silence in milliseconds.
    pub silent: Vec<(SessionId, u32)>,
}

/// Results of heartbeats.
#[derive(Debug, PartialEq, Eq)]
pub struct Counted {
    /// Results in the order of the heartbeats, valid once `to_note` are noted in the log.
    pub touched: Vec<Touched>,
    /// Sessions that are, or may be, on the record of silence.
    pub to_note: Vec<SessionId>,
}

/// Deadlines of all sessions in one term of this node as the leader.
#[derive(Debug)]
struct LeaderTerm {
    term: u64,
    sessions: HashMap<SessionId, Tracked>,
    /// Times of checks. It has at least one entry for each session that is not ending, and none is later than the next check of its session. An
    /// entry that turns out to be too early is replaced by the correct one. So a heartbeat costs only a lookup.
    due: BinaryHeap<Reverse<(Instant, SessionId)>>,
}

/// Deadlines of all sessions while this node leads, and the times at which it applied records of silence.
#[derive(Debug, Default)]
pub struct SessionTracker {
    leader_term: Mutex<Option<LeaderTerm>>,
    /// Positions of the records of silence and the times at which this node applied them, the oldest first.
    records: Mutex<VecDeque<(Zxid, Instant)>>,
}

impl SessionTracker {
    /// Starts the deadlines of `sessions`, when this node leads in `term` and has applied an entry of its own. The recorded silence of a session
    /// continues; a session without a record gets its full timeout. Each session gets at least the `grace`. The caller holds the lock of the
    /// state, so that no session is missed.
    pub fn lead(
        &self,
        term: u64,
        now: Instant,
        grace: Duration,
        sessions: impl IntoIterator<Item = KnownSession>,
    ) {
        let mut leader_term = LeaderTerm {
            term,
            sessions: HashMap::new(),
            due: BinaryHeap::new(),
        };
        let records = self.records.lock();
        let applied = |at: Zxid| {
            let index = records.binary_search_by_key(&at, |(at, _)| *at).ok()?;
            Some(records[index].1)
        };
        for KnownSession {
            session,
            timeout,
            silence,
        } in sessions
        {
            let timeout = lifetime(timeout);
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
                    // If all processes end again, the silence since this record is lost. So each leader makes a new record.
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
            leader_term.insert(session, tracked);
        }
        *self.leader_term.lock() = Some(leader_term);
    }

    /// Remembers that the record of silence at `at` was applied `now`. The silence of its sessions continues from there.
    pub fn recorded(&self, at: Zxid, now: Instant) {
        let mut records = self.records.lock();
        if records.back().is_none_or(|(last, _)| *last < at) {
            records.push_back((at, now));
        }
        if records.len() > MAX_RECORDS {
            records.pop_front();
        }
    }

    /// Forgets all records and deadlines, because a snapshot has replaced the state: the records may belong to another history.
    pub fn replaced(&self) {
        self.records.lock().clear();
        self.resign();
    }

    /// Drops the deadlines, because this node has ceased to lead.
    pub fn resign(&self) {
        *self.leader_term.lock() = None;
    }

    /// Returns the term in which this node leads and has deadlines, or `None`.
    pub fn leading_term(&self) -> Option<u64> {
        self.leader_term
            .lock()
            .as_ref()
            .map(|leader_term| leader_term.term)
    }

    /// Starts the deadline of a session that was opened.
    pub fn opened(&self, session: SessionId, timeout: Duration, now: Instant) {
        if let Some(leader_term) = &mut *self.leader_term.lock() {
            let timeout = lifetime(timeout);
            let tracked = Tracked {
                timeout,
                last_heard: now,
                deadline: now + timeout,
                ending: false,
                on_record: false,
                record_at: Some(now + timeout / 2),
            };
            leader_term.insert(session, tracked);
        }
    }

    /// Removes a session that has ended.
    pub fn ended(&self, session: SessionId) {
        if let Some(leader_term) = &mut *self.leader_term.lock() {
            leader_term.sessions.remove(&session);
        }
    }

    /// Renews a session because a command of it was applied. Unlike a heartbeat, a command also cancels a proposed end of the session: the end is
    /// behind this command in the log, so the state will skip the session.
    ///
    /// Returns whether the session's silence is, or may be, on record. If so, the caller goes on with [`SessionTracker::off_record`].
    pub fn note_activity(&self, session: SessionId, now: Instant) -> bool {
        let mut leader_term = self.leader_term.lock();
        let Some(leader_term) = &mut *leader_term else {
            return false;
        };
        leader_term.spare(session);
        leader_term.renew(session, now);
        let tracked = leader_term.sessions.get(&session);
        tracked.is_some_and(|tracked| tracked.on_record)
    }

    /// Takes a session off the record, because the state noted a heartbeat or a command of it at the position that is applied now. The state has no
    /// record of the session's silence any more, and skips the session in records and ends that were proposed before.
    pub fn off_record(&self, session: SessionId) {
        if let Some(leader_term) = &mut *self.leader_term.lock() {
            leader_term.spare(session);
            if let Some(tracked) = leader_term.sessions.get_mut(&session)
                && std::mem::take(&mut tracked.on_record)
            {
                let at = tracked.last_heard + tracked.timeout / 2;
                tracked.record_at = Some(at);
                leader_term.due.push(Reverse((at, session)));
            }
        }
    }

    /// Counts heartbeats, each from the time beside it. The caller has proved leadership in `term` later than all of these times. Returns `None` if
    /// this node does not lead in that term.
    pub fn touch(&self, term: u64, beats: &[(SessionId, Instant)]) -> Option<Counted> {
        let mut leader_term = self.leader_term.lock();
        let leader_term = leader_term
            .as_mut()
            .filter(|leader_term| leader_term.term == term)?;
        let mut to_note = Vec::new();
        let touched = beats.iter().map(|(session, heard)| {
            let touched = leader_term.renew(*session, *heard);
            if matches!(touched, Touched::Renewed(_)) && leader_term.sessions[session].on_record {
                to_note.push(*session);
            }
            touched
        });
        Some(Counted {
            touched: touched.collect(),
            to_note,
        })
    }

    /// Returns the proposals that are due `now`: at most `limit` ends of sessions, and records of silence if `records`, which means that all
    /// members know this command.
    pub fn take_due(&self, now: Instant, limit: usize, records: bool) -> Option<Due> {
        let mut leader_term = self.leader_term.lock();
        let leader_term = leader_term.as_mut()?;
        let mut due = Due {
            term: leader_term.term,
            ..Due::default()
        };
        while let Some(Reverse((at, session))) = leader_term.due.peek().copied() {
            if at > now || due.over.len() == limit || due.silent.len() == MAX_RECORDED_AT_ONCE {
                break;
            }
            leader_term.due.pop();
            let Some(tracked) = leader_term
                .sessions
                .get_mut(&session)
                .filter(|tracked| !tracked.ending)
            else {
                continue;
            };
            if tracked.deadline <= now {
                tracked.ending = true;
                due.over.push(session);
                continue;
            }
            if tracked.record_at.is_some_and(|at| at <= now) {
                match records {
                    true => due.silent.push((session, tracked.begin_record(now))),
                    false => tracked.record_at = Some(now + RECORD_AGAIN),
                }
            }
            leader_term.due.push(Reverse((tracked.next_check(), session)));
        }
        (!due.over.is_empty() || !due.silent.is_empty()).then_some(due)
    }

    /// Returns the silence of all sessions, to be recorded before another node leads.
    pub fn take_all_silent(&self, now: Instant) -> Vec<Due> {
        let mut leader_term = self.leader_term.lock();
        let Some(leader_term) = leader_term.as_mut() else {
            return Vec::new();
        };
        let sessions = leader_term.sessions.iter_mut();
        let silent = sessions.map(|(session, tracked)| (*session, tracked.begin_record(now)));
        let silent: Vec<_> = silent.collect();
        let parts = silent.chunks(MAX_RECORDED_AT_ONCE).map(|part| Due {
            term: leader_term.term,
            over: Vec::new(),
            silent: part.to_vec(),
        });
        parts.collect()
    }

    /// Schedules another record of the silence of `sessions`, because the one proposed in `term` may not have been applied.
    pub fn not_recorded(&self, term: u64, sessions: &[(SessionId, u32)], now: Instant) {
        let mut leader_term = self.leader_term.lock();
        let Some(leader_term) = leader_term
            .as_mut()
            .filter(|leader_term| leader_term.term == term)
        else {
            return;
        };
        for (session, _) in sessions {
            if let Some(tracked) = leader_term.sessions.get_mut(session)
                && tracked.record_at.is_none()
            {
                tracked.record_at = Some(now + RECORD_AGAIN);
                leader_term.due.push(Reverse((now + RECORD_AGAIN, *session)));
            }
        }
    }

    /// Returns those of `sessions` whose end was proposed in `term` and has not been applied. Returns none if this node does not lead in `term`.
    ///
    /// A failed proposal may still be in the log and be applied later. So a heartbeat does not cancel the end. Only a command of the session does,
    /// because it is in the log, too.
    pub fn still_ending(&self, term: u64, mut sessions: Vec<SessionId>) -> Vec<SessionId> {
        let leader_term = self.leader_term.lock();
        let leader_term = leader_term
            .as_ref()
            .filter(|leader_term| leader_term.term == term);
        let is_ending = |session: &SessionId| {
            let tracked = leader_term.and_then(|leader_term| leader_term.sessions.get(session));
            tracked.is_some_and(|tracked| tracked.ending)
        };
        sessions.retain(is_ending);
        sessions
    }

    /// Moves all deadlines by the time for which this node was paused and received no heartbeat.
    pub fn stalled(&self, by: Duration) {
        if let Some(leader_term) = &mut *self.leader_term.lock() {
            for tracked in leader_term.sessions.values_mut() {
                tracked.deadline += by;
            }
        }
    }

    /// Returns the time since the last sign of life of a session; only the leader knows it.
    pub fn silence(&self, session: SessionId, now: Instant) -> Option<Duration> {
        let leader_term = self.leader_term.lock();
        let tracked = leader_term.as_ref()?.sessions.get(&session)?;
        Some(now.saturating_duration_since(tracked.last_heard))
    }
}

impl Tracked {
    /// Marks the silence of the session as possibly on record, and returns it in milliseconds.
    fn begin_record(&mut self, now: Instant) -> u32 {
        self.on_record = true;
        self.record_at = None;
        let silent = now.saturating_duration_since(self.last_heard).as_millis();
        silent.try_into().unwrap_or(u32::MAX)
    }
}

impl LeaderTerm {
    fn insert(&mut self, session: SessionId, tracked: Tracked) {
        self.due.push(Reverse((tracked.next_check(), session)));
        self.sessions.insert(session, tracked);
    }

    /// Cancels the end of a session, if one is proposed.
    fn spare(&mut self, session: SessionId) {
        if let Some(tracked) = self.sessions.get_mut(&session)
            && std::mem::take(&mut tracked.ending)
        {
            self.due.push(Reverse((tracked.next_check(), session)));
        }
    }

    /// Moves the deadline of a session for a heartbeat that was sent at `heard`.
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
    /// Time for clients to reach a new leader.
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

    /// Returns the sessions to expire now, with the term.
    fn over(tracker: &SessionTracker, now: Instant) -> Option<(u64, Vec<SessionId>)> {
        let due = tracker.take_due(now, 10, false)?;
        Some((due.term, due.over))
    }

    /// Returns the silences to record now.
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

    /// Returns the sessions whose heartbeat has to be noted in the log before it is confirmed.
    fn to_note(tracker: &SessionTracker, term: u64, sessions: &[SessionId], at: Instant) -> Vec<SessionId> {
        let beats: Vec<_> = sessions.iter().map(|session| (*session, at)).collect();
        tracker.touch(term, &beats).expect("it leads").to_note
    }

    #[test]
    fn session_that_never_ends_outlives_its_timeout_at_every_leader() {
        let start = Instant::now();
        let tracker = SessionTracker::default();
        let timeout = Duration::from_millis(NEVER_ENDS_MS.into());
        let endless = KnownSession {
            timeout,
            ..found(A, Some((5, TIMEOUT)))
        };
        tracker.lead(1, start, GRACE, [endless]);
        tracker.opened(B, timeout, start);
        assert_eq!(over(&tracker, start + 2 * timeout), None);
        assert_eq!(tracker.silence(A, start + timeout), Some(timeout + TIMEOUT));
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
            "the end is proposed already"
        );
        tracker.note_activity(A, late);
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
        tracker.note_activity(A, late);
        tracker.ended(B);
        assert_eq!(
            touch(&tracker, 1, &[A, B], late),
            Some(vec![Touched::Renewed(10_000), Touched::Unknown])
        );
        assert_eq!(over(&tracker, late + TIMEOUT - MS), None);
        assert_eq!(over(&tracker, late + TIMEOUT), Some((1, vec![A])));
    }

    #[test]
    fn new_leader_gives_the_full_timeout_to_sessions_without_a_record() {
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
            "proposals of an earlier term do not count"
        );
    }

    #[test]
    fn recorded_silence_continues_at_the_next_leader() {
        let start = Instant::now();
        let tracker = SessionTracker::default();
        // As a follower, this node applies the record that A was silent for six seconds.
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
            // The leader dies just before it ends the session, and all other processes die with it.
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
    fn silence_is_recorded_after_half_of_the_timeout() {
        let start = Instant::now();
        let tracker = SessionTracker::default();
        tracker.lead(1, start, GRACE, []);
        tracker.opened(A, TIMEOUT, start);
        tracker.opened(B, TIMEOUT, start);
        touch(&tracker, 1, &[B], start + TIMEOUT / 4);
        assert_eq!(silent(&tracker, start + TIMEOUT / 2 - MS), []);
        assert_eq!(silent(&tracker, start + TIMEOUT / 2), [(A, 5_000)]);
        assert_eq!(
            silent(&tracker, start + TIMEOUT / 2),
            [],
            "the record is proposed already"
        );
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
        assert_eq!(
            to_note(&tracker, 1, &[A], start + MS),
            [A],
            "the record is only proposed"
        );
        tracker.off_record(A);
        assert_eq!(to_note(&tracker, 1, &[A, B], start + MS * 2), [B]);
        // A command of the session takes it off the record as well, once it is applied.
        assert!(tracker.note_activity(B, start + MS * 3));
        assert_eq!(to_note(&tracker, 1, &[B], start + MS * 3), [B]);
        tracker.off_record(B);
        assert!(!tracker.note_activity(B, start + MS * 4));
        // Its next silence is recorded again.
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
