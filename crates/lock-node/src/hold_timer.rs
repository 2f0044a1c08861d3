//! Timer of holds with a maximum time. Each replica notes when it applied the grant, by its own monotonic clock, and whichever leads proposes
//! the end: so a change of leaders neither shortens nor prolongs a hold.
//!
//! A replica that applied the grant late, because it was restarted or got a snapshot, counts from the wall clock's time of the grant, and adds
//! [`CLOCK_TOLERANCE`]: clocks of members may differ by that. Such a hold may last longer by that time, and none ends early.
//!
//! Nothing here proposes anything, or reads a clock.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;
use znode_store::{BoundedHold, HolderId, LockName};

use raft_log::sync::Mutex;

/// Maximum difference between the wall clocks of two members that is not reported as wrong.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);

/// Time after which a proposed end is proposed again, if it was not applied.
const PROPOSE_AGAIN: Duration = Duration::from_secs(1);

/// Holds ended by one command: an entry is applied in one go.
const MAX_ENDED_AT_ONCE: usize = 256;

type Key = (LockName, HolderId);

/// See the module.
#[derive(Debug, Default)]
pub struct HoldTimer(Mutex<Holds>);

#[derive(Debug, Default)]
struct Holds {
    /// Time at which the end of each hold is to be proposed.
    ends: HashMap<Key, Instant>,
    /// The same, by time.
    due: BTreeSet<(Instant, Key)>,
}

impl HoldTimer {
    /// Notes a hold that began, or that was found in a state that this replica got as a whole. A hold that is known already keeps its time:
    /// an upgrade does not prolong it.
    pub fn began(&self, hold: BoundedHold, now: Instant, now_ms: u64) {
        let since_grant = Duration::from_millis(now_ms.saturating_sub(hold.granted_ms));
        let passed = since_grant.saturating_sub(CLOCK_TOLERANCE);
        let max = Duration::from_millis(u64::from(hold.max_ms));
        let mut holds = self.0.lock();
        let key = (hold.lock, hold.holder);
        if !holds.ends.contains_key(&key) {
            holds.set(key, now + max.saturating_sub(passed));
        }
    }

    /// A hold has ended.
    pub fn ended(&self, lock: &LockName, holder: &str) {
        let mut holds = self.0.lock();
        // Most holds have no maximum time.
        if !holds.ends.is_empty() {
            holds.remove(&(lock.clone(), holder.into()));
        }
    }

    /// The state was replaced by another one, with these holds.
    pub fn replaced(&self, all: Vec<BoundedHold>, now: Instant, now_ms: u64) {
        let known: BTreeSet<Key> = all
            .iter()
            .map(|hold| (hold.lock.clone(), hold.holder.clone()))
            .collect();
        let mut holds = self.0.lock();
        let gone: Vec<Key> = holds
            .ends
            .keys()
            .filter(|key| !known.contains(key))
            .cloned()
            .collect();
        gone.iter().for_each(|key| holds.remove(key));
        drop(holds);
        all.into_iter().for_each(|hold| self.began(hold, now, now_ms));
    }

    /// Returns holds whose time is over, for the leader to end them.
    pub fn take_due(&self, now: Instant) -> Vec<Key> {
        let mut holds = self.0.lock();
        let due: Vec<Key> = holds
            .due
            .iter()
            .take_while(|(at, _)| *at <= now)
            .take(MAX_ENDED_AT_ONCE)
            .map(|(_, key)| key.clone())
            .collect();
        for key in &due {
            holds.set(key.clone(), now + PROPOSE_AGAIN);
        }
        due
    }
}

impl Holds {
    fn set(&mut self, key: Key, end: Instant) {
        self.remove(&key);
        self.due.insert((end, key.clone()));
        self.ends.insert(key, end);
    }

    fn remove(&mut self, key: &Key) {
        if let Some(end) = self.ends.remove(key) {
            self.due.remove(&(end, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(holder: &str, granted_ms: u64, max_ms: u32) -> BoundedHold {
        BoundedHold {
            lock: LockName::parse("disk").unwrap(),
            holder: holder.into(),
            granted_ms,
            max_ms,
        }
    }

    fn due(timer: &HoldTimer, now: Instant) -> Vec<HolderId> {
        let due = timer.take_due(now).into_iter();
        due.map(|(_, holder)| holder).collect()
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn hold_ends_after_its_time_and_is_proposed_again_until_it_has_ended() {
        let (start, timer) = (Instant::now(), HoldTimer::default());
        timer.began(hold("a", 1_000, 5_000), start, 1_000);
        timer.began(hold("b", 1_000, 9_000), start, 1_000);
        assert_eq!(due(&timer, start + ms(4_999)), [""; 0]);
        assert_eq!(due(&timer, start + ms(5_000)), ["a"]);
        assert_eq!(due(&timer, start + ms(5_999)), [""; 0]);
        assert_eq!(due(&timer, start + ms(6_000)), ["a"]);
        timer.ended(&LockName::parse("disk").unwrap(), "a");
        assert_eq!(due(&timer, start + ms(8_000)), [""; 0]);
        assert_eq!(due(&timer, start + ms(9_000)), ["b"]);
    }

    #[test]
    fn an_upgrade_does_not_prolong_a_hold() {
        let (start, timer) = (Instant::now(), HoldTimer::default());
        timer.began(hold("a", 1_000, 5_000), start, 1_000);
        timer.began(hold("a", 5_000, 5_000), start + ms(4_000), 5_000);
        assert_eq!(due(&timer, start + ms(5_000)), ["a"]);
    }

    #[test]
    fn replica_that_applies_a_grant_late_counts_the_time_since_but_for_the_tolerance_of_clocks() {
        let (start, timer) = (Instant::now(), HoldTimer::default());
        timer.began(hold("late", 1_000, 100_000), start, 91_000);
        assert_eq!(due(&timer, start + ms(69_999)), [""; 0]);
        assert_eq!(due(&timer, start + ms(70_000)), ["late"]);
        timer.began(hold("long over", 1_000, 5_000), start, 900_000);
        assert_eq!(due(&timer, start), ["long over"]);
    }

    #[test]
    fn holds_of_a_replaced_state_are_forgotten_and_those_in_both_keep_their_time() {
        let (start, timer) = (Instant::now(), HoldTimer::default());
        timer.began(hold("gone", 1_000, 5_000), start, 1_000);
        timer.began(hold("kept", 1_000, 5_000), start, 1_000);
        let all = vec![hold("kept", 1_000, 5_000), hold("new", 3_000, 5_000)];
        timer.replaced(all, start + ms(2_000), 3_000);
        assert_eq!(due(&timer, start + ms(5_000)), ["kept"]);
        assert_eq!(due(&timer, start + ms(7_000)), ["kept", "new"]);
    }
}
