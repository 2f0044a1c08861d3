//! Versions of programs that can work together, and the messages that they may exchange.
//! `docs/internals/format.md`, "Upgrading", has the rules for changes of a format.
//!
//! A cluster is upgraded node by node, so for a while programs of two versions are members of it:
//!
//! - A connection uses the highest version of the peer protocol that both ends speak ([`WireRange`]). A
//!   request that an older peer does not know is not sent to it (`peers::wire::PeerRequest::since`).
//! - A new kind of command is proposed only when all members can apply it (`command_versions.rs` of
//!   `lock-node`); before, it is rejected without effect. All members must apply the entries of the log in
//!   the same way.
//!
//! Files have versions of their own; a program rejects files that it cannot read.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;

/// Newest version of the peer protocol (`crate::peers::wire`). Two nodes use the highest version that both speak.
pub const WIRE_VERSION: u16 = 12;

/// Oldest version of the peer protocol that this program speaks.
pub const OLDEST_WIRE_VERSION: u16 = 7;

/// Version of commands that is assumed for a member about which nothing is known.
pub const OLDEST_COMMANDS_VERSION: u8 = 1;

/// Range of versions of the peer protocol that a program speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct WireRange {
    /// Oldest version.
    pub oldest: u16,
    /// Newest version.
    pub newest: u16,
}

impl WireRange {
    /// Range of this program.
    pub const OWN: Self = Self {
        oldest: OLDEST_WIRE_VERSION,
        newest: WIRE_VERSION,
    };

    /// Returns the version that two programs use with each other.
    pub fn common(self, other: Self) -> Option<u16> {
        let version = self.newest.min(other.newest);
        (version >= self.oldest.max(other.oldest)).then_some(version)
    }
}

impl fmt::Display for WireRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.oldest == self.newest {
            true => write!(f, "version {}", self.newest),
            false => write!(f, "versions {} to {}", self.oldest, self.newest),
        }
    }
}

/// Versions of a member's program, as reported at its last connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct ProgramVersions {
    /// Version of the program.
    pub program: String,
    /// Versions of the peer protocol that it speaks.
    pub wire: WireRange,
    /// Highest version of commands that it can apply.
    pub commands: u8,
}

impl ProgramVersions {
    /// Returns the versions of this program, which applies commands up to version `commands`.
    pub fn own(commands: u8) -> Self {
        Self {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            wire: WireRange::OWN,
            commands,
        }
    }
}

/// Returns the reason why two nodes cannot communicate, and the remedy.
pub fn no_common_version(this: NodeId, ours: WireRange, other: NodeId, theirs: WireRange) -> String {
    let ((old, speaks), (new, asks)) = match ours.newest < theirs.oldest {
        true => ((this, ours), (other, theirs)),
        false => ((other, theirs), (this, ours)),
    };
    format!(
        "node {old} speaks {speaks} of the peer protocol, and node {new} {asks}: node {old}'s program is too \
         old for node {new}'s. Return to the previous program on node {new}, and upgrade all nodes step by \
         step, over releases \
         that have a version in common"
    )
}

/// Returns the highest commands version that all members can apply, from each member's version. `None` is a
/// member of which nothing is known.
pub fn commands_of_all(members: impl Iterator<Item = Option<u8>>) -> u8 {
    members
        .map(|known| known.unwrap_or(OLDEST_COMMANDS_VERSION))
        .min()
        .unwrap_or(OLDEST_COMMANDS_VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(oldest: u16, newest: u16) -> WireRange {
        WireRange { oldest, newest }
    }

    #[test]
    fn two_programs_use_the_highest_version_that_both_speak() {
        for (ours, theirs, common) in [
            (range(3, 3), range(3, 3), Some(3)),
            (range(3, 5), range(4, 6), Some(5)),
            (range(3, 9), range(4, 5), Some(5)),
            (range(3, 4), range(5, 6), None),
            (range(7, 7), range(3, 6), None),
        ] {
            assert_eq!(ours.common(theirs), common, "{ours}, {theirs}");
            assert_eq!(theirs.common(ours), common, "{theirs}, {ours}");
        }
    }

    #[test]
    fn message_names_the_node_that_is_too_old() {
        let old_first = no_common_version(1, range(3, 4), 2, range(5, 6));
        let new_first = no_common_version(2, range(5, 6), 1, range(3, 4));
        assert_eq!(old_first, new_first);
        assert!(
            old_first.starts_with(
                "node 1 speaks versions 3 to 4 of the peer protocol, and node 2 versions 5 to 6: node 1's \
                 program is too \
                 old for node 2's"
            ),
            "{old_first}"
        );
    }

    #[test]
    fn unknown_member_is_assumed_to_apply_the_oldest_commands() {
        assert_eq!(commands_of_all([Some(3), Some(2)].into_iter()), 2);
        assert_eq!(
            commands_of_all([Some(3), None].into_iter()),
            OLDEST_COMMANDS_VERSION
        );
        assert_eq!(commands_of_all([].into_iter()), OLDEST_COMMANDS_VERSION);
    }
}
