//! Timer of lock delays. It decides when to open a lock that was closed because its holder was lost uncleanly. The leader counts the time by its own
//! monotonic clock, from when it sees that the lock is closed, so no wall clock matters. Each second it proposes its progress, and a new leader
//! continues from there. This module proposes nothing, and reads no clock: the caller does.
//!
//! So a lock is opened no earlier than its delay after the loss was applied, and at most two ticks later than that. Each change of leaders meanwhile
//! adds an election and at most [`PROGRESS_INTERVAL`].

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use znode_store::{ClosedLock, LockName, Zxid};

/// Maximum number of locks that one command opens. Each may grant its whole queue, and an entry is applied without interruption.
pub const MAX_LOCKS_AT_ONCE: usize = 256;

/// Interval at which progress is proposed, and time after which an unapplied proposal to open a lock is repeated. It bounds the progress that a
/// change of leaders loses. It costs one entry per interval while locks are closed.
pub const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Elapsed delay: the lock, the position at which it was closed, and the milliseconds since.
pub type Passed = (LockName, Zxid, u32);

/// Timer of the delays of all closed locks.
#[derive(Debug, Default)]
pub struct LockDelayTimer {
    /// Term in which this node leads and counts, or `None` if it does not lead.
    term: Option<u64>,
    counted: HashMap<(LockName, Zxid), Count>,
}

/// Elapsed delay of one lock.
#[derive(Debug, Clone, Copy)]
struct Count {
    /// Time from which this leader counts.
    since: Instant,
    /// Delay that former leaders have counted.
    before: Duration,
    /// Time of the next proposal.
    propose_at: Instant,
}

impl LockDelayTimer {
    /// Checks the locks that are closed `now`. Returns the progress that is due to be proposed, with the term to propose it in. Locks whose delay is
    /// over come first.
    ///
    /// `term` is the term in which this node leads, if it does.
    pub fn take_due(
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
                    propose_at: now + left.min(PROGRESS_INTERVAL),
                }
            });
            if count.propose_at <= now {
                let passed = count.before + (now - count.since);
                match passed.checked_sub(delay) {
                    Some(_) => over.push((key.clone(), delay, delay)),
                    None => running.push((key.clone(), passed, delay)),
                }
            }
            still.insert(key, count);
        }
        self.counted = still;
        let due: Vec<_> = over.into_iter().chain(running).take(MAX_LOCKS_AT_ONCE).collect();
        let due = due.into_iter().map(|(key, passed, delay)| {
            let left = delay.saturating_sub(passed);
            let count = self.counted.get_mut(&key).expect("it is closed");
            // Also when the delay is over, because the proposal may be lost.
            count.propose_at = now
                + if left.is_zero() {
                    PROGRESS_INTERVAL
                } else {
                    left.min(PROGRESS_INTERVAL)
                };
            let passed_ms = u32::try_from(passed.as_millis()).unwrap_or(u32::MAX);
            (key.0, key.1, passed_ms)
        });
        let due: Vec<_> = due.collect();
        (!due.is_empty()).then_some((term, due))
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

    fn due(term: u64, at: u64, passed_ms: u32) -> Option<(u64, Vec<Passed>)> {
        Some((term, vec![(name(), Zxid(at), passed_ms)]))
    }

    #[test]
    fn a_lock_is_opened_after_its_delay_and_not_before() {
        let (start, mut delays) = (Instant::now(), LockDelayTimer::default());
        assert_eq!(delays.take_due(Some(1), closed(5, 100, 0), start), None);
        assert_eq!(delays.take_due(Some(1), closed(5, 100, 0), start + ms(99)), None);
        let opened = due(1, 5, 100);
        assert_eq!(
            delays.take_due(Some(1), closed(5, 100, 0), start + ms(120)),
            opened
        );
        // The proposal is in flight; after the interval it is repeated.
        assert_eq!(delays.take_due(Some(1), closed(5, 100, 0), start + ms(121)), None);
        assert_eq!(
            delays.take_due(Some(1), closed(5, 100, 0), start + ms(1_120)),
            opened
        );
        assert_eq!(delays.take_due(Some(1), vec![], start + ms(1_200)), None);
    }

    #[test]
    fn progress_is_due_each_second() {
        let (start, mut delays) = (Instant::now(), LockDelayTimer::default());
        let mut seen = Vec::new();
        for at in (0..=2_600).step_by(50) {
            if let Some((1, due)) = delays.take_due(Some(1), closed(5, 2_500, 0), start + ms(at)) {
                seen.push((at, due[0].2));
            }
        }
        assert_eq!(seen, [(1_000, 1_000), (2_000, 2_000), (2_500, 2_500)]);
    }

    #[test]
    fn reclosed_lock_waits_for_the_new_delay() {
        let (start, mut delays) = (Instant::now(), LockDelayTimer::default());
        assert_eq!(delays.take_due(Some(1), closed(5, 100, 0), start), None);
        assert_eq!(delays.take_due(Some(1), closed(6, 100, 0), start + ms(90)), None);
        assert_eq!(delays.take_due(Some(1), closed(6, 100, 0), start + ms(189)), None);
        let opened = due(1, 6, 100);
        assert_eq!(
            delays.take_due(Some(1), closed(6, 100, 0), start + ms(190)),
            opened
        );
    }

    #[test]
    fn new_leader_continues_recorded_delays() {
        let (start, mut delays) = (Instant::now(), LockDelayTimer::default());
        assert_eq!(delays.take_due(Some(1), closed(5, 1_500, 0), start), None);
        assert_eq!(
            delays.take_due(None, closed(5, 1_500, 0), start + ms(1_600)),
            None
        );
        assert_eq!(
            delays.take_due(Some(3), closed(5, 1_500, 1_000), start + ms(1_700)),
            None
        );
        assert_eq!(
            delays.take_due(Some(3), closed(5, 1_500, 1_000), start + ms(2_199)),
            None
        );
        let opened = due(3, 5, 1_500);
        assert_eq!(
            delays.take_due(Some(3), closed(5, 1_500, 1_000), start + ms(2_200)),
            opened
        );
    }

    #[test]
    fn finished_delays_come_before_running_ones_and_none_is_omitted() {
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
        assert_eq!(delays.take_due(Some(1), left.clone(), start), None);
        let at = start + ms(1_000);
        let (_, first) = delays.take_due(Some(1), left.clone(), at).unwrap();
        assert_eq!(first.len(), MAX_LOCKS_AT_ONCE);
        assert!(first[..half as usize].iter().all(|(_, at, _)| at.0 >= half));
        left.truncate(half as usize);
        let (_, second) = delays.take_due(Some(1), left.clone(), at + ms(1)).unwrap();
        assert_eq!(second.len(), 2 * half as usize - MAX_LOCKS_AT_ONCE);
        assert_eq!(delays.take_due(Some(1), left, at + ms(2)), None);
    }
}
