//! Plan of a change of the membership, decided from the facts that the leader has. This module does not wait,
//! connect or write.

use std::collections::{BTreeMap, BTreeSet};

use super::{MAX_MEMBERS, MAX_PROMOTE_LAG, MembershipChange, MembershipRefusal, RetiredIds};
use crate::ids::{DiskId, Member};
use crate::ids::{MemberAddress, NodeId};

/// Facts on which the leader decides.
#[derive(Debug, Clone)]
pub struct MembershipFacts {
    /// Id of the leader itself.
    pub leader: NodeId,
    /// All members.
    pub members: BTreeMap<NodeId, Member>,
    /// Members with a vote.
    pub voters: BTreeSet<NodeId>,
    /// Ids that are never assigned again.
    pub retired: RetiredIds,
    /// Members that have answered the leader since the change was requested, including itself.
    pub answered: BTreeSet<NodeId>,
    /// Number of entries that each other member lacks, as far as the leader knows.
    pub lag: BTreeMap<NodeId, u64>,
}

/// Next step of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// None: the change is already in effect.
    Nothing,
    /// Connect to the node to learn the id of its data directory.
    Call {
        /// Data directory that it must have if it is already a member.
        known: Option<DiskId>,
    },
    /// Move leadership to this voter.
    MoveLeader {
        /// New leader.
        to: NodeId,
        /// The change concerns the leader itself: the next leader makes it.
        then_change: bool,
    },
    /// Append this membership.
    Append(Next),
    /// Append the same membership with new addresses of one member.
    Readdress(NodeId, Member),
}

/// Membership that may directly follow the present one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Next {
    /// Members with a vote.
    pub voters: BTreeSet<NodeId>,
    /// All members.
    pub members: BTreeMap<NodeId, Member>,
}

impl MembershipFacts {
    /// Plans the next step of a change.
    pub fn plan(&self, change: &MembershipChange) -> Result<Step, MembershipRefusal> {
        match change {
            MembershipChange::Add { node_id, address } => self.plan_add(*node_id, address),
            MembershipChange::Remove { node_id, force } => {
                if !self.members.contains_key(node_id) {
                    return match self.retired.contains(*node_id) {
                        true => Ok(Step::Nothing),
                        false => Err(MembershipRefusal::NoMember(*node_id)),
                    };
                }
                if self.voters.contains(node_id) {
                    self.may_lose_vote_of(*node_id, *force)?;
                }
                if *node_id == self.leader {
                    return self.leave();
                }
                let mut next = self.present();
                next.voters.remove(node_id);
                next.members.remove(node_id);
                Ok(Step::Append(next))
            }
            MembershipChange::Promote { node_id } => {
                self.member(*node_id)?;
                if self.voters.contains(node_id) {
                    return Ok(Step::Nothing);
                }
                self.has_caught_up(*node_id)?;
                let mut next = self.present();
                next.voters.insert(*node_id);
                self.can_decide(&next.voters)?;
                Ok(Step::Append(next))
            }
            MembershipChange::Demote { node_id, force } => {
                self.member(*node_id)?;
                if !self.voters.contains(node_id) {
                    return Ok(Step::Nothing);
                }
                self.may_lose_vote_of(*node_id, *force)?;
                if *node_id == self.leader {
                    return self.leave();
                }
                let mut next = self.present();
                next.voters.remove(node_id);
                Ok(Step::Append(next))
            }
            MembershipChange::SetAddress { node_id, address } => {
                check_address(address)?;
                let member = self.member(*node_id)?;
                // Addresses of other members are not compared: nodes may have exchanged addresses, and the
                // handshake identifies the node at an address.
                match member.address == *address {
                    true => Ok(Step::Nothing),
                    false => Ok(Step::Readdress(
                        *node_id,
                        Member {
                            address: address.clone(),
                            disk: member.disk,
                        },
                    )),
                }
            }
            MembershipChange::MoveLeader { to: None } => self.successor().map(|to| Step::MoveLeader {
                to,
                then_change: false,
            }),
            MembershipChange::MoveLeader { to: Some(to) } => {
                self.member(*to)?;
                if *to == self.leader {
                    return Ok(Step::Nothing);
                }
                if !self.voters.contains(to) {
                    return Err(MembershipRefusal::NotAVoter(*to));
                }
                self.has_caught_up(*to)?;
                Ok(Step::MoveLeader {
                    to: *to,
                    then_change: false,
                })
            }
        }
    }

    /// Returns the membership with a new learner that has this data directory.
    pub fn with_learner(&self, node_id: NodeId, address: &MemberAddress, disk: DiskId) -> Next {
        let mut next = self.present();
        let address = address.clone();
        next.members.insert(node_id, Member { address, disk });
        next
    }

    fn plan_add(&self, node_id: NodeId, address: &MemberAddress) -> Result<Step, MembershipRefusal> {
        check_address(address)?;
        if node_id == 0 {
            return Err(MembershipRefusal::Nonsense("ids of nodes start at 1".into()));
        }
        if let Some(member) = self.members.get(&node_id) {
            if member.address != *address {
                let (peer, http) = (&member.address.peer, &member.address.http);
                return Err(MembershipRefusal::MemberExists {
                    node_id,
                    reason: format!("at {peer} and {http}"),
                });
            }
            return Ok(match node_id == self.leader {
                true => Step::Nothing,
                false => Step::Call {
                    known: Some(member.disk),
                },
            });
        }
        if self.retired.contains(node_id) {
            return Err(MembershipRefusal::RetiredId {
                node_id,
                next_free: self.next_free(),
            });
        }
        for (used_by, member) in &self.members {
            for (taken, wanted) in [
                (&member.address.peer, &address.peer),
                (&member.address.http, &address.http),
            ] {
                if taken == wanted {
                    return Err(MembershipRefusal::AddressTaken {
                        address: wanted.clone(),
                        used_by: *used_by,
                    });
                }
            }
        }
        if self.members.len() >= MAX_MEMBERS {
            return Err(MembershipRefusal::TooManyMembers { limit: MAX_MEMBERS });
        }
        Ok(Step::Call { known: None })
    }

    fn present(&self) -> Next {
        Next {
            voters: self.voters.clone(),
            members: self.members.clone(),
        }
    }

    fn member(&self, id: NodeId) -> Result<&Member, MembershipRefusal> {
        self.members.get(&id).ok_or(MembershipRefusal::NoMember(id))
    }

    /// Returns the lowest id above all that were ever in use.
    fn next_free(&self) -> NodeId {
        next_free(self.members.keys().copied(), &self.retired)
    }

    fn has_caught_up(&self, id: NodeId) -> Result<(), MembershipRefusal> {
        let lag = self.lag.get(&id).copied().filter(|_| self.answered.contains(&id));
        match lag {
            Some(lag) if lag <= MAX_PROMOTE_LAG => Ok(()),
            lag => Err(MembershipRefusal::NotCaughtUp {
                node_id: id,
                lag,
                limit: MAX_PROMOTE_LAG,
            }),
        }
    }

    fn may_lose_vote_of(&self, id: NodeId, force: bool) -> Result<(), MembershipRefusal> {
        let mut voters = self.voters.clone();
        voters.remove(&id);
        match (voters.is_empty(), force) {
            (true, _) => Err(MembershipRefusal::LastVoter(id)),
            (false, true) => Ok(()),
            (false, false) => self.can_decide(&voters),
        }
    }

    fn can_decide(&self, voters: &BTreeSet<NodeId>) -> Result<(), MembershipRefusal> {
        let reachable = voters.intersection(&self.answered).count();
        match reachable > voters.len() / 2 {
            true => Ok(()),
            false => Err(MembershipRefusal::NoMajority {
                voters: voters.len(),
                reachable,
            }),
        }
    }

    /// Moves leadership to another voter, which then makes the change.
    fn leave(&self) -> Result<Step, MembershipRefusal> {
        self.successor().map(|to| Step::MoveLeader {
            to,
            then_change: true,
        })
    }

    /// Returns the live voter with the most complete log.
    fn successor(&self) -> Result<NodeId, MembershipRefusal> {
        let others = self.voters.iter().filter(|id| **id != self.leader);
        let living = others.filter(|id| self.answered.contains(id));
        living
            .filter_map(|id| self.lag.get(id).map(|lag| (*lag, *id)))
            .min()
            .map(|(_, id)| id)
            .ok_or_else(|| MembershipRefusal::NoSuccessor("no other voter has answered recently".into()))
    }
}

/// Returns the lowest id above all that are or were in use.
pub fn next_free(members: impl Iterator<Item = NodeId>, retired: &RetiredIds) -> NodeId {
    let used = retired.ranges().map(|(_, last)| last).chain(members).max();
    used.unwrap_or(0).saturating_add(1)
}

/// Returns warnings about the current number of voters for the caller of a change.
pub fn warnings(voters: usize) -> Vec<String> {
    match voters {
        even if even % 2 == 0 => vec![format!(
            "{even} voters tolerate the loss of {}, as many as {} voters do, and every write needs one more \
             of them: use an odd number",
            (even - 1) / 2,
            even - 1
        )],
        _ => Vec::new(),
    }
}

fn check_address(address: &MemberAddress) -> Result<(), MembershipRefusal> {
    for (what, text) in [("peer", &address.peer), ("http", &address.http)] {
        let sound = text
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        if !sound || text.len() > MAX_ADDRESS_BYTES {
            return Err(MembershipRefusal::Nonsense(format!(
                "{what}: {:?} is not of the form HOST:PORT",
                text.chars().take(MAX_ADDRESS_BYTES).collect::<String>()
            )));
        }
    }
    Ok(())
}

/// Maximum length of an address: 253 bytes for a host name, a colon and a port.
const MAX_ADDRESS_BYTES: usize = 259;

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u64) -> MemberAddress {
        MemberAddress {
            peer: format!("peer:{n}"),
            http: format!("http:{n}"),
        }
    }

    /// Returns facts of a healthy cluster: voters 1 to `voters`, led by node 1, and learners after them.
    fn membership_facts(voters: u64, learners: u64) -> MembershipFacts {
        let all = 1..=voters + learners;
        let member = |n: u64| Member {
            address: address(n),
            disk: DiskId([n as u8; 16]),
        };
        MembershipFacts {
            leader: 1,
            members: all.clone().map(|n| (n, member(n))).collect(),
            voters: (1..=voters).collect(),
            retired: RetiredIds::default(),
            answered: all.clone().collect(),
            lag: all.skip(1).map(|n| (n, 0)).collect(),
        }
    }

    fn add(n: u64) -> MembershipChange {
        MembershipChange::Add {
            node_id: n,
            address: address(n),
        }
    }

    fn remove(node_id: u64) -> MembershipChange {
        MembershipChange::Remove {
            node_id,
            force: false,
        }
    }

    fn demote(node_id: u64) -> MembershipChange {
        MembershipChange::Demote {
            node_id,
            force: false,
        }
    }

    const PROMOTE_4: MembershipChange = MembershipChange::Promote { node_id: 4 };

    fn voters(step: Result<Step, MembershipRefusal>) -> Vec<NodeId> {
        match step {
            Ok(Step::Append(next)) => {
                assert!(next.voters.iter().all(|id| next.members.contains_key(id)));
                next.voters.into_iter().collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn change_in_effect_already_succeeds() {
        let mut membership_facts = membership_facts(3, 1);
        membership_facts.retired.insert(9, &BTreeSet::new());
        for change in [
            MembershipChange::Promote { node_id: 2 },
            demote(4),
            remove(9),
            MembershipChange::MoveLeader { to: Some(1) },
            MembershipChange::SetAddress {
                node_id: 3,
                address: address(3),
            },
            add(1),
        ] {
            assert_eq!(membership_facts.plan(&change), Ok(Step::Nothing), "{change:?}");
        }
        let known = Some(DiskId([2; 16]));
        assert_eq!(membership_facts.plan(&add(2)), Ok(Step::Call { known }));
    }

    #[test]
    fn ids_are_assigned_once() {
        let mut membership_facts = membership_facts(3, 0);
        membership_facts.retired.insert(7, &BTreeSet::new());
        assert_eq!(membership_facts.plan(&add(4)), Ok(Step::Call { known: None }));
        assert_eq!(
            membership_facts.plan(&add(7)),
            Err(MembershipRefusal::RetiredId {
                node_id: 7,
                next_free: 8
            })
        );
        assert!(matches!(
            membership_facts.plan(&add(0)),
            Err(MembershipRefusal::Nonsense(_))
        ));
        let elsewhere = MembershipChange::Add {
            node_id: 2,
            address: address(5),
        };
        assert!(matches!(
            membership_facts.plan(&elsewhere),
            Err(MembershipRefusal::MemberExists { node_id: 2, .. })
        ));
        let same_place = MembershipChange::Add {
            node_id: 4,
            address: address(2),
        };
        assert_eq!(
            membership_facts.plan(&same_place),
            Err(MembershipRefusal::AddressTaken {
                address: "peer:2".into(),
                used_by: 2
            })
        );
    }

    #[test]
    fn learner_is_promoted_if_it_has_caught_up_and_answers() {
        let mut membership_facts = membership_facts(3, 1);
        assert_eq!(voters(membership_facts.plan(&PROMOTE_4)), [1, 2, 3, 4]);
        membership_facts.lag.insert(4, MAX_PROMOTE_LAG + 1);
        let refused = |lag| {
            Err(MembershipRefusal::NotCaughtUp {
                node_id: 4,
                lag,
                limit: MAX_PROMOTE_LAG,
            })
        };
        assert_eq!(
            membership_facts.plan(&PROMOTE_4),
            refused(Some(MAX_PROMOTE_LAG + 1))
        );
        membership_facts.lag.insert(4, 0);
        membership_facts.answered.remove(&4);
        assert_eq!(membership_facts.plan(&PROMOTE_4), refused(None));
    }

    #[test]
    fn remaining_voters_must_have_a_majority() {
        let mut membership_facts = membership_facts(3, 0);
        assert_eq!(voters(membership_facts.plan(&remove(3))), [1, 2]);
        membership_facts.answered.remove(&2);
        assert_eq!(
            voters(membership_facts.plan(&remove(2))),
            [1, 3],
            "a dead member can be removed"
        );
        for change in [remove(3), demote(3)] {
            assert_eq!(
                membership_facts.plan(&change),
                Err(MembershipRefusal::NoMajority {
                    voters: 2,
                    reachable: 1
                })
            );
        }
        let forced = MembershipChange::Remove {
            node_id: 3,
            force: true,
        };
        assert_eq!(voters(membership_facts.plan(&forced)), [1, 2]);
        let alone = self::membership_facts(1, 1);
        for change in [
            remove(1),
            MembershipChange::Demote {
                node_id: 1,
                force: true,
            },
        ] {
            assert_eq!(alone.plan(&change), Err(MembershipRefusal::LastVoter(1)));
        }
    }

    #[test]
    fn removed_leader_hands_over_to_voter_with_longest_log() {
        let mut membership_facts = membership_facts(3, 1);
        membership_facts.lag = BTreeMap::from([(2, 5), (3, 2), (4, 0)]);
        for change in [remove(1), demote(1)] {
            assert_eq!(
                membership_facts.plan(&change),
                Ok(Step::MoveLeader {
                    to: 3,
                    then_change: true
                })
            );
        }
        membership_facts.answered.remove(&3);
        assert_eq!(
            membership_facts.plan(&MembershipChange::MoveLeader { to: None }),
            Ok(Step::MoveLeader {
                to: 2,
                then_change: false
            })
        );
        assert_eq!(
            membership_facts.plan(&MembershipChange::MoveLeader { to: Some(4) }),
            Err(MembershipRefusal::NotAVoter(4))
        );
    }

    #[test]
    fn even_number_of_voters_causes_a_warning() {
        assert!(warnings(3).is_empty());
        assert_eq!(warnings(4).len(), 1);
    }
}
