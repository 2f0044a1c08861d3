//! Membership of the cluster, and its changes during operation.
//!
//! Every change is **one log entry** that differs from the membership before it by one node: Raft's
//! single-server change. The majorities of two such memberships always share a node, so there is no
//! intermediate state in which a leader could die: its successor either has the entry or not, and the caller
//! repeats the request, which succeeds if the change was made. The leader of a term begins no change before
//! an entry of its own term is committed (otherwise two changes of different leaders could both be committed
//! by majorities that do not overlap), and none while another is not committed.
//!
//! A new node joins as a *learner*: it gets the log, or a snapshot and the log after it, and has no vote
//! until it is promoted. A leader that is to be removed or demoted moves leadership to another voter first,
//! and the new leader makes the change.
//!
//! [`plan`] decides without knowledge of time or network; [`change`] collects the facts and acts;
//! [`announcer`] is the side of a node that no member connects to.

pub mod change;
pub mod announcer;
pub mod plan;
pub mod retired;

use serde::{Deserialize, Serialize};

pub use retired::RetiredIds;

use crate::error::Unavailable;
use crate::ids::{MemberAddress, NodeId};

/// Maximum lag, in entries, of a learner that is promoted: afterwards a write may have to wait until it has
/// them. They are transferred within a fraction of a second.
pub const MAX_PROMOTE_LAG: u64 = 1_000;

/// Maximum number of members of a cluster, including learners. Each keeps some connections to every other
/// one, and the leader sends all entries to each.
pub const MAX_MEMBERS: usize = 32;

/// Change of the membership or of the leader. Every request may be repeated: a change that is in effect already succeeds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MembershipChange {
    /// Adds a node that waits at `address` as a learner.
    Add {
        /// Id of the node, never used before.
        node_id: NodeId,
        /// Addresses for peers and for HTTP.
        address: MemberAddress,
    },
    /// Removes a member. Its id is never assigned again.
    Remove {
        /// Node to remove.
        node_id: NodeId,
        /// Removes it even if the remaining voters have no majority at the moment.
        force: bool,
    },
    /// Promotes a learner that has caught up to a voter.
    Promote {
        /// Node to promote.
        node_id: NodeId,
    },
    /// Demotes a voter to a learner.
    Demote {
        /// Node to demote.
        node_id: NodeId,
        /// Demotes it even if the remaining voters have no majority at the moment.
        force: bool,
    },
    /// Changes the addresses of a member.
    SetAddress {
        /// Node whose address changes.
        node_id: NodeId,
        /// New addresses.
        address: MemberAddress,
    },
    /// Moves leadership to another voter.
    MoveLeader {
        /// New leader; `None` selects the voter with the most complete log.
        to: Option<NodeId>,
    },
}

/// Result of a change that was made, or that was already in effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembershipChanged {
    /// `false` if the change was already in effect.
    pub changed: bool,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
}

/// Reason for a rejected change. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum MembershipRefusal {
    /// The request is invalid.
    #[error("{0}")]
    Nonsense(String),
    /// No member has this id.
    #[error("node {0} is not a member of the cluster")]
    NoMember(NodeId),
    /// The id belongs to a member that is not the requested node.
    #[error("node {node_id} is already a member, {reason}")]
    MemberExists {
        /// Id of the member.
        node_id: NodeId,
        /// Difference between the two.
        reason: String,
    },
    /// The id belonged to a removed member.
    #[error(
        "the id {node_id} was that of a removed member, and is never assigned again; {next_free} and all \
         higher ids are free"
    )]
    RetiredId {
        /// Requested id.
        node_id: NodeId,
        /// Lowest id above all that were ever in use.
        next_free: NodeId,
    },
    /// Another member has this address.
    #[error("{address} is the address of node {used_by}")]
    AddressTaken {
        /// Requested address.
        address: String,
        /// Member that has it.
        used_by: NodeId,
    },
    /// The cluster has the maximum number of members.
    #[error("the cluster has {limit} members, which is the maximum")]
    TooManyMembers {
        /// Maximum number.
        limit: usize,
    },
    /// Another change is in progress.
    #[error("another change of the membership is in progress; try again when it is done")]
    InProgress,
    /// The node does not answer.
    #[error("node {node_id} does not answer as a peer at {address}: {reason}")]
    Unreachable {
        /// Id of the node.
        node_id: NodeId,
        /// Address at which the node should be reachable.
        address: String,
        /// Failure.
        reason: String,
    },
    /// A learner lacks too many entries to vote.
    #[error("node {node_id} has not caught up: {}, and at most {limit} are allowed", missing(*.lag))]
    NotCaughtUp {
        /// Id of the learner.
        node_id: NodeId,
        /// Number of missing entries; `None` if it does not answer the leader.
        lag: Option<u64>,
        /// Maximum number.
        limit: u64,
    },
    /// The remaining voters would have no majority.
    #[error(
        "only {reachable} of the {voters} voters after the change can be reached, which is not a majority: \
         the cluster would stop. Start more nodes first, or use force"
    )]
    NoMajority {
        /// Number of voters after the change.
        voters: usize,
        /// Number of them that answer the leader.
        reachable: usize,
    },
    /// The cluster would have no voter.
    #[error("node {0} is the last voter, and a cluster needs one")]
    LastVoter(NodeId),
    /// The new leader must be a voter.
    #[error("node {0} is a learner, and only voters can lead")]
    NotAVoter(NodeId),
    /// No other voter can take over leadership now.
    #[error("leadership cannot be moved: {0}")]
    NoSuccessor(String),
}

fn missing(lag: Option<u64>) -> String {
    match lag {
        Some(lag) => format!("it lacks {lag} entries of the log"),
        None => "it does not answer the leader, or is receiving a snapshot".to_owned(),
    }
}

/// Reason for which a change has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// The change was rejected; nothing was done.
    #[error(transparent)]
    Refused(#[from] MembershipRefusal),
    /// Nothing was done. A later attempt may succeed.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The change may have been made, or may yet be. Repeating the request is safe and returns the outcome.
    #[error("the outcome is unknown: {0}")]
    OutcomeUnknown(String),
}

/// Answer of the leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MembershipOutcome {
    /// The change is in effect.
    Done(MembershipChanged),
    /// The change was rejected. Nothing was done.
    Refused(MembershipRefusal),
    /// The change is in the leader's log, but was not committed in time.
    Unknown(String),
}
