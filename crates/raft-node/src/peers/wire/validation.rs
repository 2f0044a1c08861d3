//! Validation of messages beyond decoding. Possible positions of a log, and voters that are members, are
//! checked during decoding, so that no later code gets an invalid value. [`WireAppend::validated`] checks
//! that entries are consecutive. Raft trusts its own data, and a node that processed invalid data would stop.

use serde::Deserialize;

use super::raft::{WireAppend, WireEntry, WireLogId, WireMembership, WireVote};
use crate::ids::Member;
use crate::ids::NodeId;
use crate::types::Membership;
use raft_log::wal::MAX_POSITION;

fn position(what: &str, number: u64) -> Result<u64, String> {
    match number <= MAX_POSITION {
        true => Ok(number),
        false => Err(format!("{what} {number} is beyond the highest valid position")),
    }
}

/// Decoded fields of a [`WireLogId`], not yet checked.
#[derive(Deserialize)]
pub(super) struct UncheckedLogId {
    term: u64,
    index: u64,
}

impl TryFrom<UncheckedLogId> for WireLogId {
    type Error = String;

    fn try_from(any: UncheckedLogId) -> Result<Self, String> {
        Ok(Self {
            term: position("term", any.term)?,
            index: position("index", any.index)?,
        })
    }
}

/// Decoded fields of a [`WireVote`], not yet checked.
#[derive(Deserialize)]
pub(super) struct UncheckedVote {
    term: u64,
    node: NodeId,
    committed: bool,
}

impl TryFrom<UncheckedVote> for WireVote {
    type Error = String;

    fn try_from(any: UncheckedVote) -> Result<Self, String> {
        Ok(Self {
            term: position("term", any.term)?,
            node: any.node,
            committed: any.committed,
        })
    }
}

/// Decoded fields of a [`WireMembership`], not yet checked.
#[derive(Deserialize)]
pub(super) struct UncheckedMembership {
    voters: Vec<Vec<NodeId>>,
    members: Vec<(NodeId, Member)>,
}

impl TryFrom<UncheckedMembership> for WireMembership {
    type Error = String;

    fn try_from(any: UncheckedMembership) -> Result<Self, String> {
        let UncheckedMembership { voters, members } = any;
        let it = Self { voters, members };
        openraft_membership(it.clone()).map(|_| it)
    }
}

/// Converts to openraft's membership. openraft has a check of its own, but none that admits a cluster that is
/// not formed yet.
pub(super) fn openraft_membership(membership: WireMembership) -> Result<Membership, String> {
    let WireMembership { voters, members } = membership;
    if voters.is_empty() && members.is_empty() {
        return Ok(Membership::default());
    }
    let voters = voters.into_iter().map(|set| set.into_iter().collect()).collect();
    let members: std::collections::BTreeMap<_, _> = members.into_iter().collect();
    Membership::new(voters, members).map_err(|error| format!("an invalid membership: {error}"))
}

impl WireAppend {
    /// Returns the append if its entries are consecutive and follow the previous position. Applied to appends
    /// of other nodes.
    pub fn validated(self) -> Result<Self, String> {
        let mut before = self.prev;
        for WireEntry { at, .. } in &self.entries {
            if let Some(before) = before
                && (at.index != before.index + 1 || at.term < before.term)
            {
                let (before, at) = ((before.term, before.index), (at.term, at.index));
                return Err(format!("entry {at:?} (term, index) cannot follow {before:?}"));
            }
            before = Some(*at);
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::raft::WirePayload;
    use super::*;
    use crate::codec::{decode, encode};
    use crate::ids::DiskId;
    use crate::ids::MemberAddress;

    const VOTE: WireVote = WireVote {
        term: 3,
        node: 1,
        committed: true,
    };

    fn at(term: u64, index: u64) -> WireLogId {
        WireLogId { term, index }
    }

    fn append(prev: Option<WireLogId>, entries: &[WireLogId]) -> WireAppend {
        let entries = entries.iter().map(|at| WireEntry {
            at: *at,
            payload: WirePayload::Commands {
                term: at.term,
                batch: Bytes::new(),
            },
        });
        WireAppend {
            vote: VOTE,
            prev,
            commit: None,
            entries: entries.collect(),
        }
    }

    #[track_caller]
    fn check_accepted(append: &WireAppend, does: bool) {
        let decoded: WireAppend = decode(&encode(append)).unwrap();
        assert_eq!(&decoded, append);
        assert_eq!(decoded.validated().is_ok(), does, "{append:?}");
    }

    #[test]
    fn entries_must_be_consecutive() {
        check_accepted(&append(None, &[]), true);
        check_accepted(&append(None, &[at(2, 7), at(3, 8)]), true);
        check_accepted(&append(Some(at(2, 6)), &[at(2, 7)]), true);
        for strange in [
            append(Some(at(2, 5)), &[at(2, 7)]),
            append(Some(at(2, 7)), &[at(2, 7)]),
            append(Some(at(3, 6)), &[at(2, 7)]),
            append(None, &[at(2, 7), at(2, 9)]),
            append(None, &[at(2, 7), at(1, 8)]),
        ] {
            check_accepted(&strange, false);
        }
    }

    #[test]
    fn positions_beyond_the_maximum_are_rejected() {
        for (number, fits) in [
            (0, true),
            (MAX_POSITION, true),
            (MAX_POSITION + 1, false),
            (u64::MAX, false),
        ] {
            assert_eq!(
                decode::<WireLogId>(&encode(&at(number, 1))).is_ok(),
                fits,
                "{number}"
            );
            assert_eq!(
                decode::<WireLogId>(&encode(&at(1, number))).is_ok(),
                fits,
                "{number}"
            );
            let vote = WireVote { term: number, ..VOTE };
            assert_eq!(decode::<WireVote>(&encode(&vote)).is_ok(), fits, "{number}");
        }
    }

    #[test]
    fn voters_must_be_members() {
        let member = |id: NodeId| {
            let address = MemberAddress {
                peer: "127.0.0.1:1".into(),
                http: "127.0.0.1:2".into(),
            };
            let disk = DiskId([1; 16]);
            (id, Member { address, disk })
        };
        let membership = |voters: &[&[NodeId]], members: &[NodeId]| WireMembership {
            voters: voters.iter().map(|set| set.to_vec()).collect(),
            members: members.iter().map(|id| member(*id)).collect(),
        };
        for (sound, it) in [
            (true, membership(&[], &[])),
            (true, membership(&[&[1, 2]], &[1, 2, 3])),
            (true, membership(&[&[1], &[2]], &[1, 2])),
            // openraft stops the node that is asked for an election without voters.
            (false, membership(&[&[]], &[1])),
            (false, membership(&[&[1, 2]], &[1])),
        ] {
            assert_eq!(decode::<WireMembership>(&encode(&it)).is_ok(), sound, "{it:?}");
            let _: Result<Membership, _> = openraft_membership(it);
        }
    }
}
