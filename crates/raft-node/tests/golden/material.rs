//! Sample data of the golden files: commands, members and a membership.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::ids::{DiskId, Member, MemberAddress};
use crate::types::Membership;

pub const CLUSTER: &str = "golden";
pub const CLUSTER_ID: [u8; 16] = [0xc1; 16];
pub const DISK_ID: [u8; 16] = [0xd1; 16];

pub fn member(n: u8) -> Member {
    let address = MemberAddress {
        peer: format!("127.0.0.1:750{n}"),
        http: format!("127.0.0.1:740{n}"),
    };
    let disk = if n == 1 { DISK_ID } else { [n; 16] };
    Member {
        address,
        disk: DiskId(disk),
    }
}

/// Returns a membership of five members, of which one has no vote, during the replacement of a voter.
pub fn changing() -> Membership {
    let sets = vec![BTreeSet::from([1, 2, 3]), BTreeSet::from([1, 2, 4])];
    let members: BTreeMap<u64, Member> = (1..=5).map(|n| (u64::from(n), member(n))).collect();
    Membership::new(sets, members).unwrap()
}

/// Returns the commands of one entry, as a program encoded them.
pub fn commands() -> Bytes {
    Bytes::from_static(include_bytes!("commands"))
}
