//! Encoding of log entries in structures of this crate, with a version, so that a new openraft never changes
//! a byte on disk. This module does no I/O.
//!
//! | offset | bytes | what |
//! |---:|---:|---|
//! | 0 | 1 | version, 7 |
//! | 1 | 1 | 0: blank, 1: proposal, 2: membership |
//! | 2 | | proposal: its term (8 bytes), then the commands unchanged; membership: see [`encode_membership`] |

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::codec;
use crate::ids::MemberAddress;
use crate::ids::{DiskId, Member};
use crate::membership::RetiredIds;
use crate::types::{Entry, LogId, Membership, Payload, Proposal, StoredMembership, log_id, term_of};
use raft_log::StorageError;
use raft_log::wal::{LogPos, WalEntry};

const VERSION: u8 = 7;
/// Version of the membership in a snapshot's header, which changes independently.
const SNAPSHOT_MEMBERS_VERSION: u8 = 3;
const BLANK: u8 = 0;
const PROPOSAL: u8 = 1;
const MEMBERSHIP: u8 = 2;
/// Length of version, kind and term of a proposal.
const PROPOSAL_HEADER_BYTES: usize = 10;

/// Stored form of the members.
#[derive(Serialize, Deserialize)]
struct StoredMembers {
    /// Sets of voters; two during a change.
    voters: Vec<BTreeSet<u64>>,
    members: Vec<StoredMember>,
}

#[derive(Serialize, Deserialize)]
struct StoredMember {
    node_id: u64,
    peer: String,
    http: String,
    disk: [u8; 16],
}

/// Stored form of the members in a snapshot, with the entry that set them.
#[derive(Serialize, Deserialize)]
struct StoredSince {
    /// Term and index.
    since: Option<(u64, u64)>,
    members: StoredMembers,
    /// First and last id of each range.
    retired: Vec<(u64, u64)>,
}

impl From<&Membership> for StoredMembers {
    fn from(membership: &Membership) -> Self {
        let members = membership.nodes().map(|(node_id, member)| StoredMember {
            node_id: *node_id,
            peer: member.address.peer.clone(),
            http: member.address.http.clone(),
            disk: member.disk.0,
        });
        Self {
            voters: membership.get_joint_config().clone(),
            members: members.collect(),
        }
    }
}

impl StoredMembers {
    fn into_membership(self) -> Result<Membership, StorageError> {
        let Self { voters, members } = self;
        let members: BTreeMap<u64, Member> = members
            .into_iter()
            .map(
                |StoredMember {
                     node_id,
                     peer,
                     http,
                     disk,
                 }| {
                    (
                        node_id,
                        Member {
                            address: MemberAddress { peer, http },
                            disk: DiskId(disk),
                        },
                    )
                },
            )
            .collect();
        // A cluster that has not been formed has no members at all, which openraft's checks would reject.
        if voters.is_empty() && members.is_empty() {
            return Ok(Membership::default());
        }
        Membership::new(voters, members).map_err(|error| damaged(&error.to_string()))
    }
}

/// Converts a log id to a position.
pub fn position(id: &LogId) -> LogPos {
    LogPos {
        term: term_of(id),
        index: id.index,
    }
}

/// Converts a position to a log id.
pub fn id_at(pos: LogPos) -> LogId {
    log_id(pos.term, pos.index)
}

/// Encodes an entry for the log.
pub fn encode_entry(entry: &Entry) -> WalEntry {
    let payload = match &entry.payload {
        Payload::Blank => Bytes::from_static(&[VERSION, BLANK]),
        Payload::Normal(Proposal { term, commands }) => {
            let mut bytes = BytesMut::with_capacity(PROPOSAL_HEADER_BYTES + commands.len());
            bytes.put_u8(VERSION);
            bytes.put_u8(PROPOSAL);
            bytes.put_u64_le(*term);
            bytes.put_slice(commands);
            bytes.freeze()
        }
        Payload::Membership(membership) => {
            let mut bytes = vec![VERSION, MEMBERSHIP];
            bytes.extend(codec::encode(&StoredMembers::from(membership)));
            bytes.into()
        }
    };
    WalEntry {
        pos: position(&entry.log_id),
        payload,
    }
}

/// Decodes an entry of the log. The commands of a proposal are not copied.
pub fn decode_entry(entry: WalEntry) -> Result<Entry, StorageError> {
    let WalEntry { pos, payload } = entry;
    let decoded = match payload.as_ref() {
        [VERSION, BLANK] => Payload::Blank,
        [VERSION, PROPOSAL, a, b, c, d, e, f, g, h, ..] => {
            let term = u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]);
            Payload::Normal(Proposal {
                term,
                commands: payload.slice(PROPOSAL_HEADER_BYTES..),
            })
        }
        [VERSION, MEMBERSHIP, members @ ..] => {
            let members: StoredMembers =
                codec::decode(members).map_err(|error| undecodable(pos, &error.0))?;
            Payload::Membership(members.into_membership()?)
        }
        [version, ..] if *version != VERSION => {
            let why =
                format!("has version {version} of the format, and this program knows version {VERSION}");
            return Err(undecodable(pos, &why));
        }
        _ => return Err(undecodable(pos, "is of no known kind")),
    };
    Ok(Entry {
        log_id: id_at(pos),
        payload: decoded,
    })
}

/// Membership in a snapshot's header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotMembers {
    /// Membership and the entry that set it.
    pub membership: StoredMembership,
    /// Ids that are never assigned again.
    pub retired: RetiredIds,
}

/// Encodes the membership of a snapshot's header: version, then bincode of term and index of the entry that
/// set it, the sets of voters, the members with their addresses and disks, and the ranges of retired ids.
pub fn encode_membership(members: &SnapshotMembers) -> Bytes {
    let stored = &members.membership;
    let since = stored
        .log_id()
        .as_ref()
        .map(position)
        .map(|pos| (pos.term, pos.index));
    let mut bytes = vec![SNAPSHOT_MEMBERS_VERSION];
    bytes.extend(codec::encode(&StoredSince {
        since,
        members: StoredMembers::from(stored.membership()),
        retired: members.retired.ranges().collect(),
    }));
    bytes.into()
}

/// Decodes the membership of a snapshot's header.
pub fn decode_membership(bytes: &[u8]) -> Result<SnapshotMembers, StorageError> {
    let [SNAPSHOT_MEMBERS_VERSION, bytes @ ..] = bytes else {
        return Err(damaged("of another version of the format"));
    };
    let stored: StoredSince = codec::decode(bytes).map_err(|error| damaged(&error.0))?;
    let since = stored.since.map(|(term, index)| log_id(term, index));
    let retired =
        RetiredIds::from_ranges(stored.retired).ok_or_else(|| damaged("its retired ids are not in order"))?;
    let membership = StoredMembership::new(since, stored.members.into_membership()?);
    Ok(SnapshotMembers { membership, retired })
}

fn damaged(why: &str) -> StorageError {
    StorageError::Damaged(format!("a stored membership cannot be read: {why}"))
}

fn undecodable(pos: LogPos, why: &str) -> StorageError {
    StorageError::Damaged(format!("entry {pos} of the log cannot be read: it {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(n: u8) -> Member {
        let address = MemberAddress {
            peer: format!("127.0.0.1:{n}"),
            http: format!("127.0.0.2:{n}"),
        };
        Member {
            address,
            disk: DiskId([n; 16]),
        }
    }

    fn retired() -> RetiredIds {
        RetiredIds::from_ranges(vec![(2, 3), (7, 7)]).unwrap()
    }

    fn membership() -> Membership {
        let voters = vec![BTreeSet::from([1, 2]), BTreeSet::from([2, 3])];
        Membership::new(
            voters,
            (1..5)
                .map(|n| (u64::from(n), member(n)))
                .collect::<BTreeMap<_, _>>(),
        )
        .unwrap()
    }

    #[test]
    fn entries_round_trip() {
        let proposal = Proposal {
            term: 7,
            commands: Bytes::from_static(b"commands"),
        };
        for payload in [
            Payload::Blank,
            Payload::Normal(proposal),
            Payload::Membership(membership()),
        ] {
            let entry = Entry {
                log_id: log_id(3, 9),
                payload,
            };
            let stored = encode_entry(&entry);
            assert_eq!(decode_entry(stored).unwrap(), entry);
        }
    }

    #[test]
    fn encoding_of_entries_does_not_change() {
        let proposal = Proposal {
            term: 7,
            commands: Bytes::from_static(b"xy"),
        };
        let entry = Entry {
            log_id: log_id(3, 9),
            payload: Payload::Normal(proposal),
        };
        assert_eq!(
            encode_entry(&entry).payload.as_ref(),
            b"\x07\x01\x07\0\0\0\0\0\0\0xy"
        );
        let one = Membership::new(vec![BTreeSet::from([1])], BTreeMap::from([(1, member(5))])).unwrap();
        let members = SnapshotMembers {
            membership: StoredMembership::new(Some(log_id(2, 300)), one),
            retired: retired(),
        };
        let mut expected =
            b"\x03\x01\x02\xfb\x2c\x01\x01\x01\x01\x01\x01\x0b127.0.0.1:5\x0b127.0.0.2:5".to_vec();
        expected.extend([5; 16]);
        expected.extend(b"\x02\x02\x03\x07\x07");
        assert_eq!(encode_membership(&members), expected);
    }

    #[test]
    fn memberships_round_trip() {
        for members in [
            SnapshotMembers::default(),
            SnapshotMembers {
                membership: StoredMembership::new(Some(log_id(2, 300)), membership()),
                retired: retired(),
            },
        ] {
            assert_eq!(decode_membership(&encode_membership(&members)).unwrap(), members);
        }
    }

    #[test]
    fn invalid_bytes_are_errors() {
        let good = encode_entry(&Entry {
            log_id: log_id(1, 1),
            payload: Payload::Membership(membership()),
        });
        for len in 0..good.payload.len() {
            let cut = WalEntry {
                pos: good.pos,
                payload: good.payload.slice(..len),
            };
            assert!(decode_entry(cut).is_err(), "{len} bytes");
        }
        for bytes in [&b"\x01\x00"[..], b"\x03\x00\x00", b"\x03\x03", b"\x03\x01\x00"] {
            let strange = WalEntry {
                pos: good.pos,
                payload: Bytes::copy_from_slice(bytes),
            };
            assert!(decode_entry(strange).is_err(), "{bytes:?}");
        }
    }
}
