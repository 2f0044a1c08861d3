//! Timer of holds with a maximum time. Each replica notes when it applied the grant, by its own monotonic clock, and the leader proposes
//! the end: so a change of leaders neither shortens nor prolongs a hold.
//!
//! A replica that applied the grant late, because it was restarted or got a snapshot, would count the time before twice. So a hold also ends
//! when the state's time says that it has lasted too long, by more than [`CLOCK_TOLERANCE`]. Such a hold may last longer by that time, and
//! none ends early.
//!
//! Nothing here proposes anything, or reads a clock.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;
use znode_store::{BoundedHold, HolderId, LockName};

use raft_log::sync::Mutex;

/// Maximum error of a difference between times of the state, which come from the wall clocks of leaders: one may be a minute behind, and a later
/// one a minute ahead, before they are overruled as wrong.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(2 * 60);

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
    /// End of each hold by this replica's monotonic clock, and by the state's time in milliseconds.
    ends: HashMap<Key, (Instant, u64)>,
    /// The same, in order.
    by_clock: BTreeSet<(Instant, Key)>,
    by_state: BTreeSet<(u64, Key)>,
}

impl HoldTimer {
    /// Notes a hold that began, or that was found in a state that this replica got as a whole. A hold that is known already keeps its time:
    /// an upgrade does not prolong it.
    pub fn began(&self, hold: BoundedHold, now: Instant) {
        if hold.bounds.max_ms == 0 {
            return;
        }
        let max = Duration::from_millis(u64::from(hold.bounds.max_ms));
        let by_state = hold.granted_ms + (max + CLOCK_TOLERANCE).as_millis() as u64;
        let mut holds = self.0.lock();
        let key = (hold.lock, hold.holder);
        if !holds.ends.contains_key(&key) {
            holds.insert(key, now + max, by_state);
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
    pub fn replaced(&self, all: Vec<BoundedHold>, now: Instant) {
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
        all.into_iter().for_each(|hold| self.began(hold, now));
    }

    /// Returns holds whose time is over, for the leader to end them; `state_ms` is the time of the state.
    pub fn take_due(&self, now: Instant, state_ms: u64) -> Vec<Key> {
        let mut holds = self.0.lock();
        let by_clock = holds.by_clock.iter().take_while(|(at, _)| *at <= now);
        let by_state = holds.by_state.iter().take_while(|(at, _)| *at <= state_ms);
        let keys = by_clock.map(|(_, key)| key).chain(by_state.map(|(_, key)| key));
        // A hold may be due by both.
        let due: BTreeSet<Key> = keys.take(MAX_ENDED_AT_ONCE).cloned().collect();
        for key in &due {
            holds.remove(key);
            holds.insert(key.clone(), now + PROPOSE_AGAIN, u64::MAX);
        }
        due.into_iter().collect()
    }
}

impl Holds {
    fn insert(&mut self, key: Key, by_clock: Instant, by_state: u64) {
        self.by_clock.insert((by_clock, key.clone()));
        self.by_state.insert((by_state, key.clone()));
        self.ends.insert(key, (by_clock, by_state));
    }

    fn remove(&mut self, key: &Key) {
        if let Some((by_clock, by_state)) = self.ends.remove(key) {
            self.by_clock.remove(&(by_clock, key.clone()));
            self.by_state.remove(&(by_state, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use znode_store::HoldBounds;

    use super::*;

    fn hold(holder: &str, granted_ms: u64, max_ms: u32) -> BoundedHold {
        BoundedHold {
            lock: LockName::parse("disk").unwrap(),
            holder: holder.into(),
            granted_ms,
            bounds: HoldBounds { min_ms: 0, max_ms },
        }
    }

    fn due(timer: &HoldTimer, now: Instant) -> Vec<HolderId> {
        let due = timer.take_due(now, 0).into_iter();
        due.map(|(_, holder)| holder).collect()
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn hold_ends_after_its_time_and_is_proposed_again_until_it_has_ended() {
        let (start, timer) = (Instant::now(), HoldTimer::default());
        timer.began(hold("a", 1_000, 5_000), start);
        timer.began(hold("b", 1_000, 9_000), start);
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
        timer.began(hold("a", 1_000, 5_000), start);
        timer.began(hold("a", 5_000, 5_000), start + ms(4_000));
        assert_eq!(due(&timer, start + ms(5_000)), ["a"]);
    }

    #[test]
    fn replica_that_applies_a_grant_late_counts_by_the_time_of_the_state_but_for_the_tolerance_of_clocks() {
        let (start, timer) = (Instant::now(), HoldTimer::default());
        timer.began(hold("late", 1_000, 500_000), start);
        assert_eq!(timer.take_due(start, 620_999), []);
        assert_eq!(timer.take_due(start, 621_000).len(), 1);
        assert_eq!(
            timer.take_due(start + ms(999), 700_000),
            [],
            "it was proposed just now"
        );
        assert_eq!(timer.take_due(start + ms(1_000), 0).len(), 1);
        timer.began(hold("by both", 1_000, 5_000), start);
        assert_eq!(timer.take_due(start + ms(5_000), 600_000).len(), 2);
    }

    #[test]
    fn holds_of_a_replaced_state_are_forgotten_and_those_in_both_keep_their_time() {
        let (start, timer) = (Instant::now(), HoldTimer::default());
        timer.began(hold("gone", 1_000, 5_000), start);
        timer.began(hold("kept", 1_000, 5_000), start);
        let all = vec![hold("kept", 1_000, 5_000), hold("new", 3_000, 5_000)];
        timer.replaced(all, start + ms(2_000));
        assert_eq!(due(&timer, start + ms(5_000)), ["kept"]);
        assert_eq!(due(&timer, start + ms(7_000)), ["kept", "new"]);
    }
}
