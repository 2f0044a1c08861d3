//! Election safety: a term has at most one leader, and no node votes for two candidates in one term, even
//! across crashes. A vote counts once it is on disk: before that it has not been sent to anyone.

use std::collections::{BTreeMap, BTreeSet};

use super::Check;

/// Checker of elections: the leader of each term, and the votes.
#[derive(Default)]
pub struct ElectionSafety {
    leaders: BTreeMap<u64, u64>,
    votes: BTreeMap<(usize, u64), u64>,
    /// Machines that have lost votes. Their votes may not be counted by others, so they are not compared.
    rolled_back: BTreeSet<usize>,
}

impl ElectionSafety {
    /// Returns the number of terms that had a leader.
    pub fn leaders(&self) -> u64 {
        self.leaders.len() as u64
    }

    /// Returns the last term that had a leader, with the leader.
    pub fn last(&self) -> Option<(u64, u64)> {
        let (term, leader) = self.leaders.last_key_value()?;
        Some((*term, *leader))
    }

    /// Records that a machine runs on an older copy of its disk, or has its own again.
    pub fn rolled_back(&mut self, machine: usize, is: bool) {
        match is {
            true => self.rolled_back.insert(machine),
            false => self.rolled_back.remove(&machine),
        };
    }

    /// Records a vote on a machine's disk: a vote for a candidate, or the knowledge of a leader.
    pub fn voted(&mut self, machine: usize, term: u64, candidate: u64, leads: bool) -> Check {
        let node = machine + 1;
        if leads {
            let leader = *self.leaders.entry(term).or_insert(candidate);
            if leader != candidate {
                return Err(format!(
                    "term {term} has two leaders, nodes {leader} and {candidate}, says node {node}"
                ));
            }
            return Ok(());
        }
        if self.rolled_back.contains(&machine) {
            return Ok(());
        }
        let before = *self.votes.entry((machine, term)).or_insert(candidate);
        if before != candidate {
            return Err(format!(
                "in term {term} node {node} voted for {before} and then for {candidate}"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_leaders_or_two_votes_in_a_term_are_violations() {
        let mut elections = ElectionSafety::default();
        assert_eq!(elections.voted(0, 1, 1, false), Ok(()));
        assert_eq!(
            elections.voted(0, 1, 1, false),
            Ok(()),
            "the same vote after a restart"
        );
        assert_eq!(elections.voted(0, 1, 2, true), Ok(()), "it voted for the loser");
        assert!(elections.voted(0, 1, 3, false).is_err());
        assert!(elections.voted(2, 1, 1, true).is_err());
        assert_eq!(elections.voted(2, 2, 1, true), Ok(()));
    }

    #[test]
    fn votes_of_a_rolled_back_machine_do_not_count() {
        let mut elections = ElectionSafety::default();
        assert_eq!(elections.voted(0, 1, 1, false), Ok(()));
        elections.rolled_back(0, true);
        assert_eq!(elections.voted(0, 1, 2, false), Ok(()));
        assert_eq!(elections.voted(1, 1, 1, true), Ok(()));
        assert!(
            elections.voted(0, 1, 2, true).is_err(),
            "the leader of a term counts"
        );
        elections.rolled_back(0, false);
        assert!(elections.voted(0, 1, 2, false).is_err(), "it voted for 1");
    }
}
