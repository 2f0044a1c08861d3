//! Decision which replicas differ, from the members' digests at common positions. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;

/// Digest of a state at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateDigest {
    /// Position of the last command.
    pub zxid: u64,
    /// Digest of the state after it.
    pub digest: u64,
}

/// Result of a comparison, if replicas differ.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Position at which they were compared.
    pub zxid: u64,
    /// Members that have the same state as the majority of those compared; empty without a majority.
    pub agreeing: BTreeSet<NodeId>,
    /// The other members that were compared.
    pub differing: BTreeSet<NodeId>,
}

impl Finding {
    /// Returns whether no majority of the replicas compared has the same state, so that the right one is unknown.
    pub fn is_undecided(&self) -> bool {
        self.agreeing.is_empty()
    }
}

/// Returns the newest position at which both have a digest, and whether the digests are equal.
pub fn compare(ours: &[StateDigest], theirs: &[StateDigest]) -> Option<(u64, bool)> {
    let common = ours.iter().filter_map(|our| {
        let their = theirs.iter().find(|their| their.zxid == our.zxid)?;
        Some((our.zxid, their.digest == our.digest))
    });
    common.max_by_key(|(zxid, _)| *zxid)
}

/// Compares the digests of all members, including the leader. Returns `None` if no two members differ.
///
/// Among the positions where some members differ, the one with digests of most members decides, and of
/// several the newest. More than half of the members compared there must agree, not counting those whose
/// state is `known_wrong`.
pub fn judge(said: &BTreeMap<NodeId, Vec<StateDigest>>, known_wrong: &BTreeSet<NodeId>) -> Option<Finding> {
    let mut at: BTreeMap<u64, BTreeMap<NodeId, u64>> = BTreeMap::new();
    for (node, states) in said {
        for state in states {
            at.entry(state.zxid).or_default().insert(*node, state.digest);
        }
    }
    let differ = |digests: &BTreeMap<NodeId, u64>| {
        let distinct: BTreeSet<u64> = digests.values().copied().collect();
        distinct.len() > 1
    };
    let (zxid, digests) = at
        .into_iter()
        .filter(|(_, digests)| differ(digests))
        .max_by_key(|(zxid, digests)| (digests.len(), *zxid))?;
    let counted = |nodes: &BTreeSet<NodeId>| nodes.difference(known_wrong).count();
    let all = counted(&digests.keys().copied().collect());
    let agreeing = digests
        .values()
        .map(|digest| nodes_with(&digests, *digest))
        .find(|nodes| counted(nodes) > all / 2)
        .unwrap_or_default();
    let differing = digests
        .keys()
        .copied()
        .filter(|node| !agreeing.contains(node))
        .collect();
    Some(Finding {
        zxid,
        agreeing,
        differing,
    })
}

fn nodes_with(digests: &BTreeMap<NodeId, u64>, digest: u64) -> BTreeSet<NodeId> {
    let same = digests.iter().filter(|(_, its)| **its == digest);
    same.map(|(node, _)| *node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(all: &[(NodeId, &[(u64, u64)])]) -> BTreeMap<NodeId, Vec<StateDigest>> {
        let states = |of: &[(u64, u64)]| {
            of.iter()
                .map(|(zxid, digest)| StateDigest {
                    zxid: *zxid,
                    digest: *digest,
                })
                .collect()
        };
        all.iter().map(|(node, of)| (*node, states(of))).collect()
    }

    fn judge(said: &BTreeMap<NodeId, Vec<StateDigest>>) -> Option<Finding> {
        super::judge(said, &BTreeSet::new())
    }

    fn found(zxid: u64, agreeing: &[NodeId], differing: &[NodeId]) -> Option<Finding> {
        Some(Finding {
            zxid,
            agreeing: agreeing.iter().copied().collect(),
            differing: differing.iter().copied().collect(),
        })
    }

    #[test]
    fn equal_states_and_states_at_other_positions_are_no_finding() {
        assert_eq!(
            judge(&said(&[(1, &[(5, 7)]), (2, &[(5, 7)]), (3, &[(6, 9)])])),
            None
        );
        assert_eq!(judge(&said(&[(1, &[(5, 7)])])), None);
        assert_eq!(judge(&BTreeMap::new()), None);
    }

    #[test]
    fn majority_of_those_compared_decides_also_against_the_leader() {
        let follower = said(&[(1, &[(5, 7)]), (2, &[(5, 7)]), (3, &[(5, 8)])]);
        assert_eq!(judge(&follower), found(5, &[1, 2], &[3]));
        let leader = said(&[(1, &[(5, 1)]), (2, &[(5, 7)]), (3, &[(5, 7)])]);
        assert_eq!(judge(&leader), found(5, &[2, 3], &[1]));
    }

    #[test]
    fn without_a_majority_all_differ() {
        let two = said(&[(1, &[(5, 7)]), (3, &[(5, 8)])]);
        assert_eq!(judge(&two), found(5, &[], &[1, 3]));
        assert!(judge(&two).unwrap().is_undecided());
        let half = said(&[(1, &[(5, 7)]), (2, &[(5, 7)]), (3, &[(5, 8)]), (4, &[(5, 8)])]);
        assert_eq!(judge(&half), found(5, &[], &[1, 2, 3, 4]));
    }

    #[test]
    fn member_whose_state_is_known_to_be_wrong_does_not_count() {
        let two = said(&[(1, &[(5, 7)]), (3, &[(5, 8)])]);
        let wrong = |nodes: &[NodeId]| nodes.iter().copied().collect();
        assert_eq!(super::judge(&two, &wrong(&[3])), found(5, &[1], &[3]));
        assert_eq!(super::judge(&two, &wrong(&[1])), found(5, &[3], &[1]));
        assert_eq!(super::judge(&two, &wrong(&[1, 3])), found(5, &[], &[1, 3]));
    }

    #[test]
    fn position_with_most_members_decides() {
        let all = said(&[(1, &[(5, 7), (9, 1)]), (2, &[(5, 7)]), (3, &[(5, 8), (9, 2)])]);
        assert_eq!(judge(&all), found(5, &[1, 2], &[3]));
    }

    #[test]
    fn newest_common_position_is_compared() {
        let state = |zxid, digest| StateDigest { zxid, digest };
        let ours = [state(5, 7), state(9, 1)];
        assert_eq!(compare(&ours, &[state(5, 7), state(9, 2)]), Some((9, false)));
        assert_eq!(compare(&ours, &[state(5, 7), state(8, 2)]), Some((5, true)));
        assert_eq!(compare(&ours, &[state(8, 2)]), None);
    }
}
