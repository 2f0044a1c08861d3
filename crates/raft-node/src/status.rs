//! What a node knows about its cluster, for those who ask.

use serde::{Deserialize, Serialize};

use crate::disk_health::Alarm;
use crate::ids::NodeId;
use crate::versions::ProgramVersions;

/// A member's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub enum Role {
    /// Orders the log.
    Leader,
    /// Votes and follows.
    Follower,
    /// Stands for election.
    Candidate,
    /// Follows without a vote.
    Learner,
}

/// What this node knows about the cluster at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct ClusterStatus {
    /// The cluster's name.
    pub cluster: String,
    /// The cluster's id, drawn when it was formed. Empty until then.
    pub cluster_id: String,
    /// This node.
    #[cfg_attr(feature = "schemas", schema(value_type = u64))]
    pub node_id: NodeId,
    /// This node's part.
    pub role: Role,
    /// The leader, if this node knows one.
    #[cfg_attr(feature = "schemas", schema(value_type = Option<u64>, required))]
    pub leader: Option<NodeId>,
    /// The term.
    pub term: u64,
    /// The last log entry known to be committed.
    pub committed_index: u64,
    /// The last log entry applied here.
    pub applied_index: u64,
    /// The last position applied here.
    pub applied_zxid: u64,
    /// The last log entry covered by this node's snapshot.
    pub snapshot_index: u64,
    /// How many bytes it has.
    pub snapshot_bytes: u64,
    /// How long ago it was begun, in milliseconds, by the clocks of this node and of the one that wrote it.
    #[cfg_attr(feature = "schemas", schema(required))]
    pub snapshot_age_ms: Option<u64>,
    /// Why this node could not make a newer one, if it could not.
    #[cfg_attr(feature = "schemas", schema(required))]
    pub snapshot_failure: Option<String>,
    /// The oldest log entry that is there.
    pub log_first_index: u64,
    /// How many bytes the entries have that are there.
    pub log_bytes: u64,
    /// Whether this node can serve: it knows a leader and has applied what was committed when it joined.
    pub ready: bool,
    /// Why not, if not.
    #[cfg_attr(feature = "schemas", schema(required))]
    pub not_ready_reason: Option<String>,
    /// Whether the cluster takes only what makes the state smaller, because its disks are nearly full.
    pub read_only: bool,
    /// What a person should look at.
    pub alarms: Vec<Alarm>,
    /// All members, by id.
    pub members: Vec<MemberStatus>,
    /// The ids of former members, which are never given again: single ones and ranges, like `2, 5-7`.
    pub retired_node_ids: String,
    /// The lowest id that is higher than all that are or were in use: for the next node.
    #[cfg_attr(feature = "schemas", schema(value_type = u64))]
    pub next_node_id: NodeId,
}

/// What a leader knows of those who follow it, right now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Followers {
    /// Members that answer, with and without a vote.
    pub answering: u32,
    /// Those of them that vote, and have all of the log but for a little.
    pub synced_voters: u32,
    /// Those of them that do not vote, likewise.
    pub synced_learners: u32,
}

/// What this node knows about one member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct MemberStatus {
    /// Its id.
    #[cfg_attr(feature = "schemas", schema(value_type = u64))]
    pub node_id: NodeId,
    /// Where it listens for peers.
    pub peer: String,
    /// Where it serves HTTP.
    pub http: String,
    /// Its part, as far as this node can tell.
    pub role: Role,
    /// Known to the leader only: the last entry known to be on the member's disk.
    #[cfg_attr(feature = "schemas", schema(required))]
    pub matched_index: Option<u64>,
    /// Known to the leader only: how many entries that is behind the leader's last.
    #[cfg_attr(feature = "schemas", schema(required))]
    pub lag: Option<u64>,
    /// Of its program, if it was connected to this node since that has started. The leader knows them of all that live.
    #[cfg_attr(feature = "schemas", schema(required))]
    pub versions: Option<ProgramVersions>,
}
