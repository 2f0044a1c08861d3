//! Membership of the cluster, and its changes while the cluster works.
//!
//! Every change is **one log entry** that differs from the membership before it by one node: Raft's single-server
//! change. The majorities of two such memberships always share a node, so there is no state in between that a leader
//! could die in: its successor either has the entry or not, and the caller repeats the request, which
//! succeeds if the change was made. The leader of a term begins no change before an entry of its own term is committed
//! (without that, two changes of different leaders could both be committed by majorities that do not meet), and none
//! while another is not committed.
//!
//! A new node joins as a *learner*: it gets the log, or a snapshot and the log after it, and counts for nothing until
//! it is promoted. A leader that is to be removed or demoted moves leadership to another voter first, and that one
//! carries the change out.
//!
//! [`plan`] decides, knowing nothing of time or network; [`change`] finds the facts and acts; [`connect_and_announce`] is the side of
//! a node that nobody calls.

pub mod change;
pub mod announcer;
pub mod plan;
pub mod retired;

use serde::{Deserialize, Serialize};

pub use retired::RetiredIds;

use crate::error::Unavailable;
use crate::ids::{MemberAddress, NodeId};

/// Maximum lag of a learner in entries when it is promoted: from then on a write may have to wait until it has them.
/// They are transferred within a fraction of a second.
pub const MAX_PROMOTE_LAG: u64 = 1_000;

/// The most members of a cluster, learners included. Each keeps some connections to every other one, and the leader
/// sends it everything.
pub const MAX_MEMBERS: usize = 32;

/// Change of the membership or of the leader. Every request may be repeated: a change that is in effect already succeeds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MembershipChange {
    /// Takes a node that waits at `address` in as a learner.
    Add {
        /// Its id, never used before.
        node_id: NodeId,
        /// Addresses for peers and for HTTP.
        address: MemberAddress,
    },
    /// Removes a member. Its id is never given again.
    Remove {
        /// Node to promote.
        node_id: NodeId,
        /// Also if the voters that remain cannot make a majority at the moment.
        force: bool,
    },
    /// Makes a learner that has caught up a voter.
    Promote {
        /// Node to demote.
        node_id: NodeId,
    },
    /// Makes a voter a learner.
    Demote {
        /// Node to remove.
        node_id: NodeId,
        /// Also if the voters that remain cannot make a majority at the moment.
        force: bool,
    },
    /// A member is found elsewhere from now on.
    SetAddress {
        /// Node whose address changes.
        node_id: NodeId,
        /// New addresses.
        address: MemberAddress,
    },
    /// Another voter leads from now on.
    MoveLeader {
        /// New leader; `None`: the member with most of the log.
        to: Option<NodeId>,
    },
}

/// Result of a change that was made, or that was in effect already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembershipChanged {
    /// `false` if the change was in effect already.
    pub changed: bool,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
}

/// Reason why a change was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum MembershipRefusal {
    /// It makes no sense.
    #[error("{0}")]
    Nonsense(String),
    /// There is no such member.
    #[error("node {0} is no member of the cluster")]
    NoMember(NodeId),
    /// The id is a member's, and the node that was meant is not that member.
    #[error("node {node_id} is a member already, {reason}")]
    MemberExists {
        /// The id.
        node_id: NodeId,
        /// Difference.
        reason: String,
    },
    /// The id was a member's before.
    #[error(
        "the id {node_id} was that of a member that was removed, and is never given again; free are {next_free} \
         and all above that neither have been nor are in use"
    )]
    RetiredId {
        /// The id.
        node_id: NodeId,
        /// The lowest id that is higher than all that were ever in use.
        next_free: NodeId,
    },
    /// Another member is found there.
    #[error("{address} is the address of node {used_by}")]
    AddressTaken {
        /// The address.
        address: String,
        /// Member that has it.
        used_by: NodeId,
    },
    /// There are as many members as there may be.
    #[error("there are {limit} members, which is as many as there may be")]
    TooManyMembers {
        /// Maximum number.
        limit: usize,
    },
    /// Another change has not been finished.
    #[error("another change of the membership is in progress; try again when it is done")]
    InProgress,
    /// The node does not answer.
    #[error("node {node_id} does not answer as a peer at {address}: {reason}")]
    Unreachable {
        /// The node.
        node_id: NodeId,
        /// Address at which the node should be reachable.
        address: String,
        /// Failure.
        reason: String,
    },
    /// A learner lacks too much of the log to vote.
    #[error("node {node_id} has not caught up: {}, and at most {limit} are allowed", missing(*.lag))]
    NotCaughtUp {
        /// The learner.
        node_id: NodeId,
        /// Number of missing entries; `None`: it does not answer the leader.
        lag: Option<u64>,
        /// Maximum number.
        limit: u64,
    },
    /// The voters would not be able to decide anything.
    #[error(
        "of the {voters} voters that there would be {reachable} can be reached, which is no majority: the cluster \
         would stop. Bring nodes back first, or force it"
    )]
    NoMajority {
        /// Number of voters after the change.
        voters: usize,
        /// Number of them that answer the leader.
        reachable: usize,
    },
    /// Nobody would be left to decide anything.
    #[error("node {0} is the last voter, and a cluster needs one")]
    LastVoter(NodeId),
    /// The new leader must have a vote.
    #[error("node {0} is a learner, and only voters can lead")]
    NotAVoter(NodeId),
    /// No other voter can take leadership over now.
    #[error("leadership cannot be moved: {0}")]
    NoSuccessor(String),
}

fn missing(lag: Option<u64>) -> String {
    match lag {
        Some(lag) => format!("it lacks {lag} entries of the log"),
        None => "it does not answer the leader, or is only just getting a snapshot".to_owned(),
    }
}

/// Reason why a change has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// It was refused; nothing was done.
    #[error(transparent)]
    Refused(#[from] MembershipRefusal),
    /// Nothing was done. Trying again later may help.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// It may have been done, or may yet be. Asking again is safe, and tells.
    #[error("the outcome is unknown: {0}")]
    OutcomeUnknown(String),
}

/// Answer of a leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MembershipOutcome {
    /// The change is in effect.
    Done(MembershipChanged),
    /// The change was refused. Nothing was tried.
    Refused(MembershipRefusal),
    /// The change is in the leader's log, and was not committed in time.
    Unknown(String),
}
