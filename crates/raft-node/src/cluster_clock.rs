//! Cluster clock for the time of log entries: this node's wall clock, unless most members' clocks differ from
//! it.
//!
//! A node knows the members' clocks as differences from its own monotonic clock. It measures them in two
//! exchanges, each with a bounded round trip: the reply to its own handshake, and, while it leads, the
//! answers of the audit. A node that becomes leader has completed handshakes with a majority, so it knows the
//! clocks of a majority before it assigns a time. The leader sends with each audit how far all clocks are
//! ahead of its own. Differences between clocks do not depend on the transit time of that message, so
//! followers know the clocks as precisely as their leader.
//!
//! A follower relates these differences to the clock that it showed in its previous answer to that leader.
//! Without such an answer it ignores them: the leader may have measured an earlier process of the follower,
//! whose wall clock was another one.
//!
//! The median of all members' clocks is right while more than half of them are. An unknown clock counts as
//! one that is behind, and for an even number of clocks the lower of the two middle values counts: a time
//! that is too low is corrected by the next right one, while one that is too high stays in the state.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::ids::NodeId;
use crate::wall_clock::SteadyClock;
use raft_log::sync::Mutex;

/// Difference from the median above which a wall clock is overruled. Clocks set by a time service differ by
/// far less, and a token for an hour may be valid for a minute more or less.
const TOLERATED_MS: u64 = 60_000;

/// Maximum difference at which an overruled wall clock is used again. Lower than [`TOLERATED_MS`], so that a
/// clock near the limit does not alternate.
const AGREES_MS: u64 = 30_000;

/// Maximum duration of an exchange. After a longer one the answer may have waited on this node, and says too
/// little about the other clock.
const MAX_EXCHANGE: Duration = Duration::from_secs(2);

/// Cluster clock; see the module.
#[derive(Debug)]
pub struct ClusterClock {
    /// This node's own clock.
    own: SteadyClock,
    /// Origin of this node's monotonic clock.
    began: Instant,
    others: Mutex<Others>,
}

/// Clocks of other members. A clock is stored as its zero: the time that it showed at `began`.
#[derive(Debug, Default)]
struct Others {
    /// All members, including this node. If empty, all known clocks count.
    members: BTreeSet<NodeId>,
    zeros: BTreeMap<NodeId, i64>,
    /// The same values in ascending order.
    sorted: Vec<i64>,
    /// Zero of this node's own clock in its last answer to each leader.
    shown: BTreeMap<NodeId, i64>,
    /// Set if this node's own clock is too far from the median.
    overruled: bool,
}

impl Default for ClusterClock {
    fn default() -> Self {
        Self {
            own: SteadyClock::default(),
            began: Instant::now(),
            others: Mutex::default(),
        }
    }
}

impl ClusterClock {
    /// Returns the time in milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        let now = Instant::now();
        self.agreed(self.own.now_ms(now), now)
    }

    /// Returns the time on this node's own clock, for other members.
    pub fn own_ms(&self) -> u64 {
        self.own.now_ms(Instant::now())
    }

    /// Returns the time on this node's own clock, for the answer to an audit of `leader`. The leads in the
    /// leader's next audit relate to it.
    pub fn show_to(&self, leader: NodeId) -> u64 {
        let now = Instant::now();
        let own_ms = self.own.now_ms(now);
        let zero = self.zero(own_ms, now);
        self.others.lock().shown.insert(leader, zero);
        own_ms
    }

    /// Returns the number of jumps of this node's wall clock.
    pub fn jumps(&self) -> u64 {
        self.own.jumps.get()
    }

    /// Records the time that another node's clock showed in an answer received now to a request sent at
    /// `asked`.
    pub fn measured(&self, node: NodeId, shown_ms: u64, asked: Instant) {
        let now = Instant::now();
        if now.saturating_duration_since(asked) <= MAX_EXCHANGE {
            let zero = self.zero(shown_ms, now);
            self.change(|zeros| {
                zeros.insert(node, zero);
            });
        }
    }

    /// Sets the members whose clocks count. This node is one of them.
    pub fn set_members(&self, members: BTreeSet<NodeId>) {
        self.others.lock().members = members;
        self.change(|_| {});
    }

    /// Returns by how many milliseconds each known clock is ahead of that of `me`, which is this node.
    pub fn ahead_of(&self, me: NodeId) -> BTreeMap<NodeId, i64> {
        let own = self.own_zero();
        let others = self.others.lock();
        let others = others.zeros.iter();
        let others = others.map(|(id, zero)| (*id, zero.saturating_sub(own)));
        others.chain([(me, 0)]).collect()
    }

    /// Adopts the leads of the members' clocks over that of `leader`, in milliseconds, if the clock of `me`,
    /// which is this node, is among them, and this process has shown its clock to the leader before.
    pub fn take_over(&self, me: NodeId, leader: NodeId, ahead_ms: &BTreeMap<NodeId, i64>) {
        let shown = self.others.lock().shown.get(&leader).copied();
        let (Some(shown), Some(mine)) = (shown, ahead_ms.get(&me)) else {
            return;
        };
        let reference = shown.saturating_sub(*mine);
        let others = ahead_ms.iter().filter(|(id, _)| **id != me);
        let others = others.map(|(id, ahead)| (*id, reference.saturating_add(*ahead)));
        self.change(|zeros| zeros.extend(others));
    }

    /// Returns the members whose clocks differ from the median by more than the tolerance, with their lead in
    /// milliseconds. `me` is this node.
    pub fn wrong(&self, me: NodeId) -> BTreeMap<NodeId, i64> {
        let own = self.own_zero();
        let others = self.others.lock();
        let median = lower_median(&others.sorted, own, others.members.len());
        let zeros = others.zeros.iter().map(|(id, zero)| (*id, *zero));
        let ahead = zeros
            .chain([(me, own)])
            .map(|(id, zero)| (id, zero.saturating_sub(median)));
        ahead
            .filter(|(_, ahead_ms)| ahead_ms.unsigned_abs() > TOLERATED_MS)
            .collect()
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<NodeId, i64>)) {
        let mut others = self.others.lock();
        change(&mut others.zeros);
        let Others { members, zeros, .. } = &mut *others;
        zeros.retain(|id, _| members.is_empty() || members.contains(id));
        others.sorted = others.zeros.values().copied().collect();
        others.sorted.sort_unstable();
    }

    fn own_zero(&self) -> i64 {
        let now = Instant::now();
        self.zero(self.own.now_ms(now), now)
    }

    /// Returns the zero of a clock that shows this time.
    fn zero(&self, shown_ms: u64, at: Instant) -> i64 {
        signed(shown_ms).saturating_sub(self.passed_ms(at))
    }

    fn passed_ms(&self, at: Instant) -> i64 {
        let passed = at.saturating_duration_since(self.began).as_millis();
        passed.try_into().unwrap_or(i64::MAX)
    }

    /// Returns the agreed time when this node's own clock shows `own_ms`.
    fn agreed(&self, own_ms: u64, at: Instant) -> u64 {
        let mut others = self.others.lock();
        if others.sorted.is_empty() && !others.overruled {
            return own_ms;
        }
        let own = self.zero(own_ms, at);
        let median = lower_median(&others.sorted, own, others.members.len());
        let tolerated = if others.overruled { AGREES_MS } else { TOLERATED_MS };
        let overruled = own.abs_diff(median) > tolerated;
        if overruled != others.overruled {
            others.overruled = overruled;
            let ahead_ms = own.saturating_sub(median);
            match overruled {
                true => tracing::warn!(
                    ahead_ms,
                    "clock: this machine's wall clock differs from those of most members, whose time is used; check how the clock is set"
                ),
                false => tracing::info!(
                    ahead_ms,
                    "clock: this machine's wall clock agrees with those of most members"
                ),
            }
        }
        match overruled {
            true => unsigned(median.saturating_add(self.passed_ms(at))),
            false => own_ms,
        }
    }
}

/// Returns the median of `sorted` and one more value, as if the missing ones of `members` values were lower
/// than all of them. For an even number it is the lower of the two middle values.
fn lower_median(sorted: &[i64], more: i64, members: usize) -> i64 {
    let known = sorted.len() + 1;
    let all = members.max(known);
    let at = (known - 1).saturating_sub(all / 2);
    let below = sorted.partition_point(|it| *it < more);
    match below.cmp(&at) {
        Ordering::Less => sorted[at - 1],
        Ordering::Equal => more,
        Ordering::Greater => sorted[at],
    }
}

fn signed(ms: u64) -> i64 {
    ms.try_into().unwrap_or(i64::MAX)
}

fn unsigned(ms: i64) -> u64 {
    ms.try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAYS_60_MS: i64 = 60 * 86_400_000;
    const TRUE_MS: u64 = 1_780_000_000_000;

    fn shown(ahead_ms: i64) -> u64 {
        TRUE_MS.saturating_add_signed(ahead_ms)
    }

    /// Returns node 1's time relative to the true one, if its own clock and those of others are ahead by these amounts.
    fn agreed(own: i64, others: &[i64]) -> i64 {
        let clock = ClusterClock::default();
        let now = clock.began;
        for (id, ahead) in (2..).zip(others) {
            clock.measured(id, shown(*ahead), now);
        }
        signed(clock.agreed(shown(own), now)) - signed(TRUE_MS)
    }

    #[test]
    fn median_counts_unknown_clocks_as_low() {
        let all = [-7, -1, 0, 3, 3, 9];
        for count in 0..all.len() {
            for more in -9..11 {
                for unknown in 0..3 {
                    let mut together = all[..count].to_vec();
                    together.push(more);
                    let known = together.len();
                    together.extend(vec![i64::MIN; unknown]);
                    together.sort_unstable();
                    // Never an unknown clock.
                    let at = ((together.len() - 1) / 2).max(unknown);
                    let found = lower_median(&all[..count], more, known + unknown);
                    assert_eq!(found, together[at], "{together:?}");
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn minority_of_clocks_that_are_ahead_is_overruled_although_others_are_unknown() {
        let clock = ClusterClock::default();
        clock.set_members((1..=5).collect());
        for (id, ahead) in [(2, DAYS_60_MS), (3, 0), (9, 0)] {
            clock.measured(id, shown(ahead), clock.began);
        }
        assert_eq!(clock.agreed(shown(DAYS_60_MS), clock.began), TRUE_MS);
        assert_eq!(clock.others.lock().sorted.len(), 2, "node 9 is not a member");
        clock.set_members([1, 2].into());
        assert_eq!(clock.others.lock().sorted.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_clock_of_a_minority_is_overruled_by_the_others() {
        for wrong in [DAYS_60_MS, -DAYS_60_MS, -signed(TRUE_MS), i64::MAX] {
            assert_eq!(agreed(wrong, &[0, 20]).clamp(0, 20), agreed(wrong, &[0, 20]));
            assert_eq!(
                agreed(wrong, &[wrong, 0, 10, 20]).clamp(0, 20),
                agreed(wrong, &[wrong, 0, 10, 20])
            );
            assert_eq!(agreed(5, &[wrong, 20]), 5, "a right clock is used as it is");
        }
        assert_eq!(
            agreed(59_000, &[0, 20]),
            59_000,
            "a clock that differs little is used, too"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_clocks_are_those_far_from_the_median() {
        let clock = ClusterClock::default();
        assert_eq!(clock.wrong(1), BTreeMap::new());
        clock.set_members((1..=3).collect());
        let now_ms = clock.own_ms();
        for (id, ahead_ms) in [(2, 7_000_000), (3, 20)] {
            clock.measured(id, now_ms + ahead_ms, Instant::now());
        }
        let wrong = clock.wrong(1);
        assert_eq!(wrong.keys().copied().collect::<Vec<_>>(), [2]);
        assert!(wrong[&2].abs_diff(7_000_000) < 10_000, "{wrong:?}");
        // Now this node's own clock is far from the others.
        clock.measured(3, now_ms + 7_000_000, Instant::now());
        let wrong = clock.wrong(1);
        assert_eq!(wrong.keys().copied().collect::<Vec<_>>(), [1]);
        assert!(wrong[&1] < 0);
    }

    #[tokio::test(start_paused = true)]
    async fn clock_that_is_ahead_of_the_only_other_one_is_not_believed() {
        assert_eq!(agreed(DAYS_60_MS, &[0]), 0);
        assert_eq!(agreed(0, &[DAYS_60_MS]), 0);
        assert_eq!(agreed(DAYS_60_MS, &[]), DAYS_60_MS, "a single clock is used");
    }

    #[tokio::test(start_paused = true)]
    async fn followers_know_the_clocks_as_precisely_as_the_leader() {
        let (leader, follower) = (ClusterClock::default(), ClusterClock::default());
        let now_ms = leader.own_ms();
        for (id, ahead_ms) in [(2, 7_000_000), (3, 5_000_000), (9, 0)] {
            leader.measured(id, now_ms + ahead_ms, Instant::now());
        }
        leader.set_members([1, 2, 3].into());
        let sent = leader.ahead_of(1);
        follower.show_to(1);
        // The delay of the message does not matter.
        tokio::time::advance(Duration::from_secs(600)).await;
        follower.take_over(4, 1, &sent);
        assert_eq!(
            follower.ahead_of(4),
            BTreeMap::from([(4, 0)]),
            "its own clock is not in it"
        );
        follower.measured(5, follower.own_ms(), Instant::now());
        follower.take_over(2, 1, &sent);
        let known = follower.ahead_of(2);
        let near = |id: NodeId, ahead_ms: i64| known[&id].abs_diff(ahead_ms) < 10_000;
        assert!(
            near(1, -7_000_000) && near(2, 0) && near(3, -2_000_000),
            "{known:?}"
        );
        assert!(near(5, 0), "what the leader does not know is kept: {known:?}");
        assert_eq!(known.len(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn lead_of_an_earlier_process_moves_no_other_clock() {
        // Node 2 starts again. Its wall clock was 2,000 s behind the others, and now it is 900 s ahead of them.
        let restarted = ClusterClock::default();
        restarted.set_members((1..=3).collect());
        let true_ms = restarted.own_ms() - 900_000;
        for id in [1, 3] {
            restarted.measured(id, true_ms, Instant::now());
        }
        let is_right = || restarted.now_ms().abs_diff(true_ms) < 10_000;
        assert!(is_right());
        // Another node may have led before, and knows the clock of this process.
        restarted.show_to(3);
        let of_earlier_process = BTreeMap::from([(1, 0), (2, -2_000_000), (3, 0)]);
        restarted.take_over(2, 1, &of_earlier_process);
        assert!(is_right(), "{:?}", restarted.ahead_of(2));
        restarted.show_to(1);
        let of_this_process = BTreeMap::from([(1, 0), (2, 900_000), (3, 5_000)]);
        restarted.take_over(2, 1, &of_this_process);
        assert!(is_right());
        let known = restarted.ahead_of(2);
        assert_eq!(known[&3] - known[&1], 5_000, "the leads are adopted");
    }

    #[tokio::test(start_paused = true)]
    async fn known_clocks_advance_with_the_monotonic_clock() {
        let clock = ClusterClock::default();
        for id in [2, 3] {
            clock.measured(id, TRUE_MS, clock.began);
        }
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(clock.agreed(shown(DAYS_60_MS), Instant::now()), TRUE_MS + 90_000);
    }

    #[tokio::test(start_paused = true)]
    async fn late_answer_is_not_counted() {
        let clock = ClusterClock::default();
        tokio::time::advance(MAX_EXCHANGE + Duration::from_millis(1)).await;
        clock.measured(2, TRUE_MS, clock.began);
        assert!(clock.others.lock().sorted.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn overruled_clock_is_used_again_only_when_it_is_near() {
        let clock = ClusterClock::default();
        for id in [2, 3] {
            clock.measured(id, TRUE_MS, clock.began);
        }
        let agreed = |ahead| clock.agreed(shown(ahead), clock.began) - TRUE_MS;
        let seen = [59_000, 61_000, 59_000, 31_000, 29_000, 59_000].map(agreed);
        assert_eq!(seen, [59_000, 0, 0, 0, 29_000, 59_000]);
    }
}
