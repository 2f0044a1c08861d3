//! Versions of the program that may work together, and the messages that they may exchange meanwhile. The rules for
//! changes of a format are in `docs/internals/format.md`, "Upgrading".
//!
//! A cluster is upgraded one node after the other, so for a while programs of two versions are members of it:
//!
//! - A connection uses the highest version of the peer protocol that both ends speak ([`WireRange`]). A question that an
//!   older peer does not know is not sent to it (`peers::wire::PeerRequest::since`).
//! - A kind of command that is new is proposed only when all members can apply it (`command_versions.rs` of `lock-node`); before, it is refused and
//!   nothing is done. For what is in the log must be applied by all, and in the same way.
//!
//! Files have versions of their own; a program refuses those that it cannot read.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;

/// Newest version of the peer protocol (`crate::peers::wire`). Two nodes use the highest version that both speak.
pub const WIRE_VERSION: u16 = 11;

/// Oldest version of the peer protocol that this program speaks.
pub const OLDEST_WIRE_VERSION: u16 = 7;

/// Version of commands that every member can apply about which nothing is known yet.
pub const OLDEST_COMMANDS_VERSION: u8 = 1;

/// The versions of the peer protocol that a program speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct WireRange {
    /// The oldest.
    pub oldest: u16,
    /// The newest.
    pub newest: u16,
}

impl WireRange {
    /// Versions of this program.
    pub const OWN: Self = Self {
        oldest: OLDEST_WIRE_VERSION,
        newest: WIRE_VERSION,
    };

    /// The version that two programs use with each other.
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

/// Program of a member, as it said at its last connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct ProgramVersions {
    /// Its version.
    pub program: String,
    /// The versions of the peer protocol that it speaks.
    pub wire: WireRange,
    /// The newest kinds of commands that it can apply.
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

/// Returns why two nodes cannot talk to each other, and the remedy.
pub fn nothing_in_common(this: NodeId, ours: WireRange, other: NodeId, theirs: WireRange) -> String {
    let ((old, speaks), (new, asks)) = match ours.newest < theirs.oldest {
        true => ((this, ours), (other, theirs)),
        false => ((other, theirs), (this, ours)),
    };
    format!(
        "node {old} speaks {speaks} of the peer protocol, and node {new} {asks}: node {old}'s program is too old for \
         node {new}'s. Go back to the former program on node {new}, and upgrade all nodes step by step, over releases \
         that have a version in common"
    )
}

/// Returns the newest commands version that all members can apply, given that of each; `None` is a member of which nothing is known.
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
    fn it_is_said_which_node_is_too_old() {
        let old_first = nothing_in_common(1, range(3, 4), 2, range(5, 6));
        let new_first = nothing_in_common(2, range(5, 6), 1, range(3, 4));
        assert_eq!(old_first, new_first);
        assert!(
            old_first.starts_with(
                "node 1 speaks versions 3 to 4 of the peer protocol, and node 2 versions 5 to 6: node 1's program is too \
                 old for node 2's"
            ),
            "{old_first}"
        );
    }

    #[test]
    fn a_member_that_nobody_has_met_can_apply_the_oldest_commands() {
        assert_eq!(commands_of_all([Some(3), Some(2)].into_iter()), 2);
        assert_eq!(
            commands_of_all([Some(3), None].into_iter()),
            OLDEST_COMMANDS_VERSION
        );
        assert_eq!(commands_of_all([].into_iter()), OLDEST_COMMANDS_VERSION);
    }
}
