//! Time for which a leader has reached no quorum. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use super::silence_timeout::MAX_SILENCE_INTERVALS;
use crate::ids::NodeId;
use crate::raft_config::RaftTiming;

/// Running time without a quorum, in longest election timeouts, after which a leader suppresses its
/// heartbeats for a while. Longer than a follower waits on a quiet machine.
const MAX_TIME_WITHOUT_QUORUM: u32 = 2;

/// Duration of a phase without heartbeats, in longest election timeouts: the maximum silence timeout of a
/// follower, and one election.
const SILENT_PHASE: u32 = MAX_SILENCE_INTERVALS + 1;

/// Duration of a phase with heartbeats before the next silence, in longest election timeouts. A reachable
/// quorum answers much sooner.
const SENDING_PHASE: u32 = 2;

/// Silence of a leader's quorum, by the leader's own clock.
///
/// A leader that has lost its quorum and still reaches one follower would prevent that follower from electing
/// another leader with the rest. So it suppresses its own heartbeats in alternating phases. Only time in
/// which the leader ran counts: a leader that stalled has received nothing, and must send heartbeats at once
/// when it continues.
///
/// Only answers that openraft counts are answers: those to heartbeats in time, and those to entries. Without
/// them openraft rejects all proposals after an election timeout, while late answers show that the followers
/// get the heartbeats, and so elect nobody.
#[derive(Debug, Default)]
pub struct QuorumWatch {
    unreached: Duration,
    answered: BTreeSet<NodeId>,
}

impl QuorumWatch {
    /// Records that this node ran for `slice`, and the nodes that answered in it. Returns whether the leader,
    /// `me`, may send heartbeats to these voters (two sets during a change).
    pub fn record_slice(
        &mut self,
        slice: Duration,
        me: NodeId,
        configs: &[BTreeSet<NodeId>],
        answered: impl IntoIterator<Item = NodeId>,
        timing: &RaftTiming,
    ) -> bool {
        self.answered.extend(answered);
        self.answered.insert(me);
        let majority =
            |voters: &BTreeSet<NodeId>| 2 * voters.intersection(&self.answered).count() > voters.len();
        if configs.iter().all(majority) {
            *self = Self::default();
            return true;
        }
        self.unreached += slice;
        !self.is_lost(timing) || self.sends_heartbeats(timing)
    }

    /// Returns whether the quorum has been unreachable long enough to count as lost.
    pub fn is_lost(&self, timing: &RaftTiming) -> bool {
        self.unreached >= timing.election_max * MAX_TIME_WITHOUT_QUORUM
    }

    /// Returns whether a leader without a quorum sends heartbeats now.
    fn sends_heartbeats(&self, timing: &RaftTiming) -> bool {
        let over = self
            .unreached
            .saturating_sub(timing.election_max * MAX_TIME_WITHOUT_QUORUM);
        let round = timing.election_max * (SILENT_PHASE + SENDING_PHASE);
        let into = over.as_micros() % round.as_micros().max(1);
        into >= (timing.election_max * SILENT_PHASE).as_micros()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::fast_failover::silence_timeout::SilenceTimeout;

    const CHECK_INTERVAL: Duration = Duration::from_millis(50);

    /// Returns the number of steps until the leader, node 1, is silent, and the number of further steps until
    /// it is not.
    fn phases(configs: &[BTreeSet<NodeId>], answered: &[NodeId]) -> (usize, usize) {
        let timing = RaftTiming::default();
        let mut quorum = QuorumWatch::default();
        let mut record_slice =
            || quorum.record_slice(CHECK_INTERVAL, 1, configs, answered.iter().copied(), &timing);
        let mut count = |sends: bool| (0..1_000).take_while(|_| record_slice() == sends).count();
        (count(true), count(false))
    }

    fn set(ids: impl IntoIterator<Item = NodeId>) -> BTreeSet<NodeId> {
        ids.into_iter().collect()
    }

    #[test]
    fn leader_without_quorum_is_silent_in_turns() {
        let five = [set(1..=5)];
        assert_eq!(phases(&five, &[2, 3]).0, 1_000);
        let slices = |timeouts: u32| (timeouts * 600 / 50) as usize;
        // Each count ends with the first step of the other kind.
        assert_eq!(
            phases(&five, &[2]),
            (slices(MAX_TIME_WITHOUT_QUORUM) - 1, slices(SILENT_PHASE) - 1)
        );
        assert_eq!(phases(&[set([1])], &[]).0, 1_000, "a lone voter is a quorum");
        let joint = [set(1..=3), set(3..=5)];
        assert_eq!(phases(&joint, &[2, 3]).0, slices(MAX_TIME_WITHOUT_QUORUM) - 1);
        assert_eq!(phases(&joint, &[3, 4]).0, 1_000);
    }

    /// A follower that has seen long pauses gives up the leader, too, with time left for an election.
    #[tokio::test(start_paused = true)]
    async fn silence_is_longer_than_the_most_patient_follower_waits() {
        let timing = RaftTiming::default();
        let now = Instant::now();
        let mut timeout = SilenceTimeout::new(timing.clone(), now);
        timeout.note(Duration::from_secs(60), now);
        let (_, silent) = phases(&[set(1..=5)], &[2]);
        assert!(CHECK_INTERVAL * silent as u32 >= timeout.silence(now) + timing.election_min);
    }

    #[test]
    fn answers_of_several_steps_make_a_quorum() {
        let (timing, five) = (RaftTiming::default(), [set(1..=5)]);
        let mut quorum = QuorumWatch::default();
        for round in 0..1_000 {
            let one = [2 + round % 2];
            assert!(
                quorum.record_slice(CHECK_INTERVAL, 1, &five, one, &timing),
                "{round}"
            );
        }
    }
}
