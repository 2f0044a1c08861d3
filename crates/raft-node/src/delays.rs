//! When a lock is opened that was closed after an unclean loss. The leader counts the time by its own monotonic clock from
//! when it sees that the lock is closed, so no wall clock decides; a new leader cannot know its predecessor's clock and
//! counts from the beginning. Nothing here proposes anything, or reads a clock.
//!
//! So a lock is opened not before its delay after the loss was applied, and not later than that and two ticks; each change
//! of leaders meanwhile adds an election and at most one delay.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use znode_store::{LockName, Zxid};

/// Locks opened by one command: each may let a queue in, and an entry is applied in one go.
pub const MAX_OPENED_AT_ONCE: usize = 256;

/// How long a proposal to open a lock is waited for before it is made again.
const PROPOSED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A lock that is closed: which, since which position, for how many milliseconds.
pub type ClosedLock = (LockName, Zxid, u32);

/// See the module.
#[derive(Debug, Default)]
pub struct Delays {
    /// The term of the leader that counts; `None` if this node does not lead.
    term: Option<u64>,
    /// When each lock is to be opened.
    due: HashMap<(LockName, Zxid), Instant>,
}

impl Delays {
    /// Looks at the locks that are closed `now`; says which of them have to be opened, with the term to propose it in.
    ///
    /// `term` is the one that this node leads in, if it does.
    pub fn look(
        &mut self,
        term: Option<u64>,
        closed: Vec<ClosedLock>,
        now: Instant,
    ) -> Option<(u64, Vec<(LockName, Zxid)>)> {
        if self.term != term {
            self.term = term;
            self.due.clear();
        }
        let term = term?;
        let mut still = HashMap::with_capacity(closed.len());
        let mut over = Vec::new();
        for (lock, at, delay_ms) in closed {
            let key = (lock, at);
            let delay = Duration::from_millis(u64::from(delay_ms));
            let mut due = self.due.get(&key).copied().unwrap_or(now + delay);
            if due <= now && over.len() < MAX_OPENED_AT_ONCE {
                over.push(key.clone());
                // The proposal may be lost.
                due = now + PROPOSED_AGAIN_AFTER;
            }
            still.insert(key, due);
        }
        self.due = still;
        (!over.is_empty()).then_some((term, over))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(at: u64, delay_ms: u32) -> Vec<ClosedLock> {
        vec![(name(), Zxid(at), delay_ms)]
    }

    fn name() -> LockName {
        LockName::parse("disk").unwrap()
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_lock_is_opened_after_its_delay_and_not_before() {
        let (start, mut delays) = (Instant::now(), Delays::default());
        assert_eq!(delays.look(Some(1), closed(5, 100), start), None);
        assert_eq!(delays.look(Some(1), closed(5, 100), start + ms(99)), None);
        let opened = Some((1, vec![(name(), Zxid(5))]));
        assert_eq!(delays.look(Some(1), closed(5, 100), start + ms(100)), opened);
        // Proposed: not again at once, but again if it was lost.
        assert_eq!(delays.look(Some(1), closed(5, 100), start + ms(101)), None);
        assert_eq!(delays.look(Some(1), closed(5, 100), start + ms(1_100)), opened);
        assert_eq!(delays.look(Some(1), vec![], start + ms(1_200)), None);
    }

    #[test]
    fn a_lock_that_was_closed_anew_waits_anew() {
        let (start, mut delays) = (Instant::now(), Delays::default());
        assert_eq!(delays.look(Some(1), closed(5, 100), start), None);
        assert_eq!(delays.look(Some(1), closed(6, 100), start + ms(90)), None);
        assert_eq!(delays.look(Some(1), closed(6, 100), start + ms(189)), None);
        let opened = Some((1, vec![(name(), Zxid(6))]));
        assert_eq!(delays.look(Some(1), closed(6, 100), start + ms(190)), opened);
    }

    #[test]
    fn a_new_leader_counts_from_the_beginning_and_who_does_not_lead_opens_nothing() {
        let (start, mut delays) = (Instant::now(), Delays::default());
        assert_eq!(delays.look(Some(1), closed(5, 100), start), None);
        assert_eq!(delays.look(None, closed(5, 100), start + ms(150)), None);
        assert_eq!(delays.look(Some(3), closed(5, 100), start + ms(150)), None);
        assert_eq!(delays.look(Some(3), closed(5, 100), start + ms(249)), None);
        let opened = Some((3, vec![(name(), Zxid(5))]));
        assert_eq!(delays.look(Some(3), closed(5, 100), start + ms(250)), opened);
    }

    #[test]
    fn a_crowd_is_opened_in_several_commands() {
        let (start, mut delays) = (Instant::now(), Delays::default());
        let crowd = |at: u64| (LockName::parse(&format!("lock-{at}")).unwrap(), Zxid(at), 1);
        let mut left: Vec<_> = (0..MAX_OPENED_AT_ONCE as u64 + 1).map(crowd).collect();
        assert_eq!(delays.look(Some(1), left.clone(), start), None);
        let (_, first) = delays.look(Some(1), left.clone(), start + ms(1)).unwrap();
        assert_eq!(first.len(), MAX_OPENED_AT_ONCE);
        left.retain(|(lock, at, _)| !first.contains(&(lock.clone(), *at)));
        let (_, second) = delays.look(Some(1), left, start + ms(2)).unwrap();
        assert_eq!(second.len(), 1);
    }
}
