//! Status of a node and its cluster, for clients and operators.

use serde::{Deserialize, Serialize};

use crate::disk_health::Alarm;
use crate::ids::NodeId;
use crate::versions::ProgramVersions;

/// Role of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub enum Role {
    /// Leads the cluster.
    Leader,
    /// Follows the leader, with a vote.
    Follower,
    /// Requests votes in an election.
    Candidate,
    /// Follows the leader, without a vote.
    Learner,
}

/// Knowledge of this node about the cluster at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct ClusterStatus {
    /// Name of the cluster.
    pub cluster: String,
    /// Id of the cluster, chosen at random when it was formed. Empty until then.
    pub cluster_id: String,
    /// Id of this node.
    #[cfg_attr(feature = "schemas", schema(value_type = u64))]
    pub node_id: NodeId,
    /// Role of this node.
    pub role: Role,
    /// The leader, if this node knows one.
    #[cfg_attr(feature = "schemas", schema(value_type = Option<u64>, required))]
    pub leader: Option<NodeId>,
    /// Term.
    pub term: u64,
    /// Index of the last log entry known to be committed.
    pub committed_index: u64,
    /// Index of the last log entry that this node has applied.
    pub applied_index: u64,
    /// Position (zxid) of the last command that this node has applied.
    pub applied_zxid: u64,
    /// Index of the last log entry covered by this node's snapshot.
    pub snapshot_index: u64,
    /// Size of that snapshot in bytes.
    pub snapshot_bytes: u64,
    /// Age of that snapshot in milliseconds, by the clocks of this node and of the node that wrote it.
    #[cfg_attr(feature = "schemas", schema(required))]
    pub snapshot_age_ms: Option<u64>,
    /// Reason why this node could not make a newer snapshot, if its last attempt failed.
    #[cfg_attr(feature = "schemas", schema(required))]
    pub snapshot_failure: Option<String>,
    /// Index of the oldest entry in the log.
    pub log_first_index: u64,
    /// Size of the entries in the log, in bytes.
    pub log_bytes: u64,
    /// Set if this node can serve: it knows a leader and has applied the entries that were committed when it
    /// joined.
    pub ready: bool,
    /// Reason why it cannot serve, if it cannot.
    #[cfg_attr(feature = "schemas", schema(required))]
    pub not_ready_reason: Option<String>,
    /// Set if the cluster accepts only commands that shrink the state, because its disks are nearly full.
    pub read_only: bool,
    /// Problems that an operator should look at.
    pub alarms: Vec<Alarm>,
    /// All members, by id.
    pub members: Vec<MemberStatus>,
    /// Ids of former members, which are never assigned again.
    pub retired_node_ids: Vec<NodeIdRange>,
    /// Lowest id above all that are or were in use, for the next node.
    #[cfg_attr(feature = "schemas", schema(value_type = u64))]
    pub next_node_id: NodeId,
}

/// Range of node ids, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct NodeIdRange {
    /// First id.
    #[cfg_attr(feature = "schemas", schema(value_type = u64))]
    pub first: NodeId,
    /// Last id.
    #[cfg_attr(feature = "schemas", schema(value_type = u64))]
    pub last: NodeId,
}

/// Current knowledge of a leader about its followers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Followers {
    /// Number of members that answer, with and without a vote.
    pub answering: u32,
    /// Number of those that vote and lack at most a few entries.
    pub synced_voters: u32,
    /// Number of those that do not vote and lack at most a few entries.
    pub synced_learners: u32,
}

/// Knowledge of this node about one member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct MemberStatus {
    /// Id of the member.
    #[cfg_attr(feature = "schemas", schema(value_type = u64))]
    pub node_id: NodeId,
    /// Address at which it listens for peers.
    pub peer: String,
    /// Address at which it serves HTTP.
    pub http: String,
    /// Role, as far as this node knows.
    pub role: Role,
    /// Index of the last entry known to be on the member's disk. Known to the leader only.
    #[cfg_attr(feature = "schemas", schema(required))]
    pub matched_index: Option<u64>,
    /// Number of entries that the member lacks compared with the leader. Known to the leader only.
    #[cfg_attr(feature = "schemas", schema(required))]
    pub lag: Option<u64>,
    /// Versions of the member's program, if it was connected to this node since this node started. The leader
    /// knows those of all live members.
    #[cfg_attr(feature = "schemas", schema(required))]
    pub versions: Option<ProgramVersions>,
}
