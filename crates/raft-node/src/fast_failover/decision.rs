//! Decision which voter starts an election when a leader is lost. Pure.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::ids::NodeId;
use crate::peers::wire::WireLogId;

/// A voter that has lost the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Voter {
    pub id: NodeId,
    /// End of its log.
    pub last: Option<WireLogId>,
}

/// Next action of a voter that has the other voters' opinions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Too few voters have lost the leader.
    TooFew,
    /// Start an election after waiting for `rank` other voters.
    StartElection { rank: u32 },
}

impl Decision {
    /// Decides the action of `me` when the voters of `agreed` have lost the leader as well, in a cluster with
    /// these voters (two sets during a change; a majority of each is needed).
    ///
    /// The voter with the longest log goes first, because it would not vote for the others. Among equal logs
    /// the lowest id goes first, so that the voters do not split the votes.
    pub fn of(configs: &[BTreeSet<NodeId>], me: Voter, agreed: &[Voter]) -> Self {
        let lost: BTreeSet<NodeId> = agreed.iter().map(|voter| voter.id).chain([me.id]).collect();
        let majority = |voters: &BTreeSet<NodeId>| 2 * voters.intersection(&lost).count() > voters.len();
        if configs.is_empty() || !configs.iter().all(majority) {
            return Self::TooFew;
        }
        let order = |voter: &Voter| (Reverse(voter.last.map(|at| (at.term, at.index))), voter.id);
        let before = agreed.iter().filter(|voter| order(voter) < order(&me)).count();
        Self::StartElection {
            rank: u32::try_from(before).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voter(id: NodeId, term: u64, index: u64) -> Voter {
        Voter {
            id,
            last: Some(WireLogId { term, index }),
        }
    }

    fn set(ids: impl IntoIterator<Item = NodeId>) -> BTreeSet<NodeId> {
        ids.into_iter().collect()
    }

    #[test]
    fn longest_log_goes_first_then_lowest_id() {
        let configs = [set(1..=5)];
        let behind = voter(1, 3, 90);
        let (two, three) = (voter(2, 3, 100), voter(3, 3, 100));
        let later_term = voter(4, 4, 1);
        for (me, agreed, rank) in [
            (two, vec![three, behind], 0),
            (three, vec![two, behind], 1),
            (behind, vec![two, three], 2),
            (two, vec![later_term, three], 1),
            (later_term, vec![two, behind], 0),
        ] {
            assert_eq!(
                Decision::of(&configs, me, &agreed),
                Decision::StartElection { rank },
                "{me:?}"
            );
        }
        let empty = Voter { id: 1, last: None };
        assert_eq!(
            Decision::of(&configs, empty, &[two, three]),
            Decision::StartElection { rank: 2 }
        );
    }

    #[test]
    fn majority_of_voters_must_have_lost_the_leader() {
        let [one, two, three] = [1, 2, 3].map(|id| voter(id, 1, 1));
        let stand = Decision::StartElection { rank: 0 };
        for (configs, agreed, decision) in [
            (vec![set(1..=3)], vec![], Decision::TooFew),
            (vec![set(1..=3)], vec![two], stand),
            (vec![set(1..=4)], vec![two], Decision::TooFew),
            (vec![set(1..=4)], vec![two, three], stand),
            // During a change of the voters, a majority of both sets is needed.
            (vec![set(1..=3), set(3..=5)], vec![two, three], Decision::TooFew),
            (vec![set(1..=3), set(2..=4)], vec![two, three], stand),
            // A node that is no longer a voter does not count.
            (vec![set([1, 4, 5])], vec![two, three], Decision::TooFew),
            (vec![], vec![two, three], Decision::TooFew),
        ] {
            assert_eq!(Decision::of(&configs, one, &agreed), decision, "{configs:?}");
        }
    }
}
