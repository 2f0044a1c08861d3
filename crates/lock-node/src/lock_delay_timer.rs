//! Timer of lock delays: decides when a lock is opened that was closed after an unclean loss. The leader counts the time by its own
//! monotonic clock from when it sees that the lock is closed, so no wall clock decides. Each second it proposes its progress, and a new
//! leader continues from there. Nothing here proposes anything, or reads a clock.
//!
//! So a lock is opened not before its delay after the loss was applied, and not later than that and two ticks; each change of leaders
//! meanwhile adds an election and at most [`PROGRESS_INTERVAL`].

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use znode_store::{ClosedLock, LockName, Zxid};

/// Maximum number of locks that one command opens: each may grant a queue, and an entry is applied in one go.
pub const MAX_LOCKS_AT_ONCE: usize = 256;

/// Interval at which progress is proposed, and timeout of a proposal to open a lock. It is the maximum cost of a change of leaders, and one
/// entry each time while locks are closed.
pub const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Lock, the position at which it was closed, and the milliseconds since.
pub type Passed = (LockName, Zxid, u32);

/// See the module.
#[derive(Debug, Default)]
pub struct LockDelayTimer {
    /// The term of the leader that counts; `None` if this node does not lead.
    term: Option<u64>,
    counted: HashMap<(LockName, Zxid), Count>,
}

/// Progress of one lock.
#[derive(Debug, Clone, Copy)]
struct Count {
    /// Since when by this leader.
    since: Instant,
    /// Time that former leaders have counted.
    before: Duration,
    /// Time of the next proposal.
    tell: Instant,
}

impl LockDelayTimer {
    /// Checks the locks that are closed `now`. Returns the progress that is due to be proposed, with the term to propose it in. Locks whose
    /// time is over come first.
    ///
    /// `term` is the one that this node leads in, if it does.
    pub fn look(
        &mut self,
        term: Option<u64>,
        closed: Vec<ClosedLock>,
        now: Instant,
    ) -> Option<(u64, Vec<Passed>)> {
        if self.term != term {
            self.term = term;
            self.counted.clear();
        }
        let term = term?;
        let mut still = HashMap::with_capacity(closed.len());
        let (mut over, mut running) = (Vec::new(), Vec::new());
        for closed in closed {
            let delay = Duration::from_millis(u64::from(closed.delay_ms));
            let key = (closed.lock, closed.at);
            let count = self.counted.get(&key).copied().unwrap_or_else(|| {
                let before = Duration::from_millis(u64::from(closed.passed_ms));
                let left = delay.saturating_sub(before);
                Count {
                    since: now,
                    before,
                    tell: now + left.min(PROGRESS_INTERVAL),
                }
            });
            if count.tell <= now {
                let passed = count.before + (now - count.since);
                match passed.checked_sub(delay) {
                    Some(_) => over.push((key.clone(), delay, delay)),
                    None => running.push((key.clone(), passed, delay)),
                }
            }
            still.insert(key, count);
        }
        self.counted = still;
        let told: Vec<_> = over.into_iter().chain(running).take(MAX_LOCKS_AT_ONCE).collect();
        let told = told.into_iter().map(|(key, passed, delay)| {
            let left = delay.saturating_sub(passed);
            let count = self.counted.get_mut(&key).expect("it is closed");
            // When its time is over: the proposal may be lost.
            count.tell = now
                + if left.is_zero() {
                    PROGRESS_INTERVAL
                } else {
                    left.min(PROGRESS_INTERVAL)
                };
            let passed_ms = u32::try_from(passed.as_millis()).unwrap_or(u32::MAX);
            (key.0, key.1, passed_ms)
        });
        let told: Vec<_> = told.collect();
        (!told.is_empty()).then_some((term, told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(at: u64, delay_ms: u32, passed_ms: u32) -> Vec<ClosedLock> {
        vec![ClosedLock {
            lock: name(),
            at: Zxid(at),
            delay_ms,
            passed_ms,
        }]
    }

    fn name() -> LockName {
        LockName::parse("disk").unwrap()
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn told(term: u64, at: u64, passed_ms: u32) -> Option<(u64, Vec<Passed>)> {
        Some((term, vec![(name(), Zxid(at), passed_ms)]))
    }

    #[test]
    fn a_lock_is_opened_after_its_delay_and_not_before() {
        let (start, mut delays) = (Instant::now(), LockDelayTimer::default());
        assert_eq!(delays.look(Some(1), closed(5, 100, 0), start), None);
        assert_eq!(delays.look(Some(1), closed(5, 100, 0), start + ms(99)), None);
        let opened = told(1, 5, 100);
        assert_eq!(delays.look(Some(1), closed(5, 100, 0), start + ms(120)), opened);
        // It is on its way; then it is proposed again.
        assert_eq!(delays.look(Some(1), closed(5, 100, 0), start + ms(121)), None);
        assert_eq!(delays.look(Some(1), closed(5, 100, 0), start + ms(1_120)), opened);
        assert_eq!(delays.look(Some(1), vec![], start + ms(1_200)), None);
    }

    #[test]
    fn each_second_it_is_told_how_far_it_has_come() {
        let (start, mut delays) = (Instant::now(), LockDelayTimer::default());
        let mut seen = Vec::new();
        for at in (0..=2_600).step_by(50) {
            if let Some((1, told)) = delays.look(Some(1), closed(5, 2_500, 0), start + ms(at)) {
                seen.push((at, told[0].2));
            }
        }
        assert_eq!(seen, [(1_000, 1_000), (2_000, 2_000), (2_500, 2_500)]);
    }

    #[test]
    fn reclosed_lock_waits_for_the_new_delay() {
        let (start, mut delays) = (Instant::now(), LockDelayTimer::default());
        assert_eq!(delays.look(Some(1), closed(5, 100, 0), start), None);
        assert_eq!(delays.look(Some(1), closed(6, 100, 0), start + ms(90)), None);
        assert_eq!(delays.look(Some(1), closed(6, 100, 0), start + ms(189)), None);
        let opened = told(1, 6, 100);
        assert_eq!(delays.look(Some(1), closed(6, 100, 0), start + ms(190)), opened);
    }

    #[test]
    fn new_leader_continues_recorded_delays() {
        let (start, mut delays) = (Instant::now(), LockDelayTimer::default());
        assert_eq!(delays.look(Some(1), closed(5, 1_500, 0), start), None);
        assert_eq!(delays.look(None, closed(5, 1_500, 0), start + ms(1_600)), None);
        assert_eq!(
            delays.look(Some(3), closed(5, 1_500, 1_000), start + ms(1_700)),
            None
        );
        assert_eq!(
            delays.look(Some(3), closed(5, 1_500, 1_000), start + ms(2_199)),
            None
        );
        let opened = told(3, 5, 1_500);
        assert_eq!(
            delays.look(Some(3), closed(5, 1_500, 1_000), start + ms(2_200)),
            opened
        );
    }

    #[test]
    fn of_a_crowd_those_whose_time_is_over_come_first_and_all_get_their_turn() {
        let (start, mut delays) = (Instant::now(), LockDelayTimer::default());
        let crowd = |at: u64, delay_ms| ClosedLock {
            lock: LockName::parse(&format!("lock-{at}")).unwrap(),
            at: Zxid(at),
            delay_ms,
            passed_ms: 0,
        };
        let half = MAX_LOCKS_AT_ONCE as u64 / 2 + 1;
        let mut left: Vec<_> = (0..half).map(|at| crowd(at, 60_000)).collect();
        left.extend((half..2 * half).map(|at| crowd(at, 1_000)));
        assert_eq!(delays.look(Some(1), left.clone(), start), None);
        let at = start + ms(1_000);
        let (_, first) = delays.look(Some(1), left.clone(), at).unwrap();
        assert_eq!(first.len(), MAX_LOCKS_AT_ONCE);
        assert!(first[..half as usize].iter().all(|(_, at, _)| at.0 >= half));
        left.truncate(half as usize);
        let (_, second) = delays.look(Some(1), left.clone(), at + ms(1)).unwrap();
        assert_eq!(second.len(), 2 * half as usize - MAX_LOCKS_AT_ONCE);
        assert_eq!(delays.look(Some(1), left, at + ms(2)), None);
    }
}
