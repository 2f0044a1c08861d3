//! Gaps in the servers' records. The lock history pauses while a disk is full or broken, and nothing else
//! does. The servers report these gaps, and holds within them are judged by the clients' observations alone.

use lockgate_check::Nanos;
use lockgate_check::holds::{Gap, History};

use super::KnownGrant;
use crate::world::World;

/// Maximum distance between a client's clock and the recorded time of its hold. A hold is recorded when it
/// ends, at the time of the log: that of the leader's clock at the proposal.
const MARGIN_MS: u64 = 2_000;

/// Times for which no server has a history, in milliseconds since 1970.
pub struct Gaps(Vec<Gap>);

impl Gaps {
    /// Returns the gaps of the merged accounts of all nodes.
    pub fn of(history: &History) -> Self {
        let mut sorted = history.gaps.clone();
        sorted.sort_by_key(|gap| gap.after);
        let mut all: Vec<Gap> = Vec::new();
        for gap in sorted {
            match all.last_mut() {
                Some(last) if gap.after <= last.until => last.until = last.until.max(gap.until),
                _ => all.push(gap),
            }
        }
        Self(all)
    }

    /// Returns the total length of the gaps in milliseconds, from the beginning of the run until now.
    pub fn of_run_ms(&self, world: &World) -> u64 {
        self.within(world.wall_ms(0), world.wall_ms(world.now()))
    }

    /// Returns whether the gaps leave enough of a run to judge it: at least half.
    pub fn leave_enough(&self, world: &World) -> bool {
        let run = world.wall_ms(world.now()) - world.wall_ms(0);
        2 * self.of_run_ms(world) <= run
    }

    /// Returns whether a gap may be the reason for a missing record of a grant.
    pub fn excuse(&self, world: &World, grant: &KnownGrant) -> bool {
        let end: Nanos = grant.released.unwrap_or_else(|| world.now());
        let from = world.wall_ms(grant.begin).saturating_sub(MARGIN_MS);
        self.within(from, world.wall_ms(end) + MARGIN_MS) > 0
    }

    fn within(&self, from: u64, until: u64) -> u64 {
        let parts = self.0.iter().map(|gap| {
            let (from, until) = (gap.after.max(from), gap.until.min(until));
            until.saturating_sub(from)
        });
        parts.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_gaps_are_counted_once() {
        let gap = |after, until| Gap { after, until };
        let history = History {
            gaps: vec![gap(50, 70), gap(10, 20), gap(15, 30), gap(60, 65)],
            ..History::default()
        };
        let gaps = Gaps::of(&history);
        assert_eq!(gaps.0, [gap(10, 30), gap(50, 70)]);
        assert_eq!(gaps.within(0, 100), 40);
        assert_eq!(gaps.within(20, 55), 15);
        assert_eq!(gaps.within(30, 50), 0);
    }
}
