//! Messages between peers: requests and responses. Raft's own messages are in `raft.rs`, the validation of
//! their contents in `validation.rs`, their encoding in `frame.rs`.
//!
//! Every message is a frame: its length as four bytes, little endian, then the message. A connection begins
//! with a [`Hello`] and its [`HelloReply`] and is then used for one purpose, see [`Purpose`].

mod frame;
mod raft;
mod validation;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use self::frame::*;
pub use self::raft::*;
use crate::audit::messages::{AuditAnswer, AuditQuestion};
use crate::disk_health::report::{DiskReport, DiskView, MemberNews};
use crate::ids::NodeId;
use crate::ids::{ClusterId, DiskId};
use crate::membership::{MembershipChange, MembershipOutcome};
use crate::messages::{Declined, ForwardedTrace, HeartbeatsTaken, NotLeader, SeenMoment, Touched};
use crate::versions::{ProgramVersions, WireRange};

/// Version in which forwarded heartbeats got their ages.
pub const HEARTBEATS_SINCE: u16 = 11;

/// Version of the peer protocol that introduced [`PeerRequest::ForwardTraced`].
pub const TRACES_SINCE: u16 = 12;

/// First bytes of a connection, so that bytes of another protocol are not decoded as a message.
pub const MAGIC: [u8; 8] = *b"lockgate";

/// Extension of [`Hello`] and [`HelloReply::Welcome`] with the start of the sender's data directory, a
/// `crate::witness::Shown`.
pub const WITNESS_EXTENSION: u16 = 1;

/// Extension of [`HelloReply::Welcome`] with the responding node's wall clock, in milliseconds since 1970.
pub const CLOCK_EXTENSION: u16 = 2;

/// Purpose of a connection. Elections and heartbeats have their own, so they never queue behind bulk data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Purpose {
    /// Votes, heartbeats, read confirmations: small messages on which availability depends.
    Control,
    /// Commands forwarded to the leader, and heartbeats of sessions.
    Traffic,
    /// One stream of log entries and their acknowledgements.
    Append,
    /// One snapshot.
    Snapshot,
}

/// Beginning of every [`Hello`], in every version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloStart {
    /// Always [`MAGIC`].
    pub magic: [u8; 8],
    /// Versions of the peer protocol that the caller speaks.
    pub wire: WireRange,
}

/// First message of a connection. Its layout, and that of its reply, is the same in all versions, because
/// both are read before a version is negotiated. Additions go into the extensions; unknown ones are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Always [`MAGIC`].
    pub magic: [u8; 8],
    /// Versions of the peer protocol that the caller speaks.
    pub wire: WireRange,
    /// Name of the cluster.
    pub cluster: String,
    /// Id of the cluster, once it is formed.
    pub cluster_id: Option<ClusterId>,
    /// Id of the calling node.
    pub from: NodeId,
    /// Disk of the calling node.
    pub from_disk: DiskId,
    /// Id of the called node.
    pub to: NodeId,
    /// Disk of the called node according to the membership, if known.
    pub to_disk: Option<DiskId>,
    /// Set if the caller knows the cluster's membership.
    pub formed: bool,
    /// Purpose of the connection.
    pub purpose: Purpose,
    /// Version of the caller's program, informational.
    pub program: String,
    /// Highest version of commands that the caller can apply.
    pub commands: u8,
    /// Extensions of later versions: a number and its encoded value.
    pub extensions: Vec<(u16, Bytes)>,
}

impl Hello {
    /// Returns the part that is the same in every version.
    pub fn start(&self) -> HelloStart {
        HelloStart {
            magic: self.magic,
            wire: self.wire,
        }
    }

    /// Returns the versions of the caller's program.
    pub fn versions(&self) -> ProgramVersions {
        ProgramVersions {
            program: self.program.clone(),
            wire: self.wire,
            commands: self.commands,
        }
    }
}

/// Reply to a [`Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HelloReply {
    /// The connection is accepted.
    Welcome {
        /// Disk of the responding node.
        disk: DiskId,
        /// Negotiated version of the peer protocol.
        version: u16,
        /// Versions of the responding node's program.
        versions: ProgramVersions,
        /// Extensions, as in the [`Hello`].
        extensions: Vec<(u16, Bytes)>,
    },
    /// The connection is rejected.
    Refused {
        /// Reason, for operators.
        reason: String,
        /// Reason, for the caller's program.
        cause: RefusalCause,
        /// Set if the responding node knows the cluster's membership.
        formed: bool,
    },
}

/// Reason to reject a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalCause {
    /// The nodes have different histories, or the caller's data directory is not the one that the cluster
    /// knows.
    Identity,
    /// Any other reason: it may pass, or is a mistake in a configuration.
    Other,
    /// The nodes share no version of the peer protocol.
    Version,
    /// The caller was removed from this cluster.
    Removed,
    /// The caller's data directory is older than what the caller has acknowledged. Sent only to callers with the
    /// [`WITNESS_EXTENSION`].
    RolledBack,
}

/// A request on a [`Purpose::Control`] or [`Purpose::Traffic`] connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerRequest {
    /// Raft's RequestVote.
    Vote(WireVoteRequest),
    /// Pre-vote: a vote without consequences, to check whether an election could be won.
    PreVote(WireVoteRequest),
    /// Raft's AppendEntries without entries: the heartbeat.
    Append(WireAppend),
    /// Leadership transfer: the leader steps down in favour of the receiver.
    TransferLeader {
        /// Vote of the leader.
        from: WireVote,
        /// Id of the receiver.
        to: NodeId,
        /// Entry that the receiver must have on disk.
        last: Option<WireLogId>,
    },
    /// Forwarded batch: encoded envelopes of commands for the leader of `term`.
    Forward {
        /// The only term in which the commands may be proposed.
        term: u64,
        /// Envelopes, in order.
        envelopes: Vec<Bytes>,
    },
    /// Heartbeats of sessions for the leader, counted from their arrival there. Nodes that speak version 11
    /// send [`PeerRequest::Heartbeats`] instead.
    Touch {
        /// Ids of the sessions.
        sessions: Vec<u64>,
    },
    /// Request to the leader for the index up to which a node must apply the log for a linearizable read.
    ReadIndex,
    /// Request of the leader for the disk's health, with the leader's findings about all disks.
    Disk {
        /// Findings; `None` at the beginning of the leader's term.
        view: Option<DiskView>,
    },
    /// Change of the membership, for the leader.
    ChangeMembership(MembershipChange),
    /// Request to the leader for the condition of the members.
    Members,
    /// Request of a voter that suspects the leader, for another voter's opinion whether the leader is lost.
    LeaderLost {
        /// Term of the leader.
        term: u64,
        /// Id of the leader.
        leader: NodeId,
    },
    /// Request of the leader to compare states, with its records of all members.
    Audit(Box<AuditQuestion>),
    /// Heartbeats of sessions with their ages, for the leader.
    Heartbeats {
        /// Proof of the transit time of this request; without it the leader cannot count the heartbeats.
        seen: Option<SeenMoment>,
        /// Maximum transit time of this request in milliseconds. The leader does not count heartbeats of a
        /// later request.
        within_ms: u32,
        /// Sessions, each with the milliseconds since the sending node received its heartbeat.
        sessions: Vec<(u64, u32)>,
    },
    /// Like [`PeerRequest::Forward`], with traced commands, for a leader that speaks version 12.
    ForwardTraced {
        /// The only term in which the commands may be proposed.
        term: u64,
        /// Envelopes, in order.
        envelopes: Vec<Bytes>,
        /// Traces of some of them.
        traces: Vec<ForwardedTrace>,
    },
}

/// Response to a [`PeerRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerResponse {
    /// Response to a vote or pre-vote.
    Vote(WireVoteResponse),
    /// Response to an append.
    Append(WireAppendResult),
    /// Response to a transfer: `Ok` if the receiver starts an election now, otherwise the reason.
    TransferLeader(Result<(), String>),
    /// Response to a forwarded batch: the commands were applied, except for the declined ones.
    Forward(Result<Declined, NotLeader>),
    /// Response to a touch: for each session in order, its timeout in milliseconds if it was renewed.
    Touch(Result<Vec<Touched>, NotLeader>),
    /// Response to a read-index request.
    ReadIndex(Result<u64, NotLeader>),
    /// Response to a disk request.
    Disk(DiskReport),
    /// The node could not respond (it is shutting down, or its Raft has stopped).
    Failed(String),
    /// Response to a change of the membership.
    ChangeMembership(Result<MembershipOutcome, NotLeader>),
    /// Response to a request for the members.
    Members(Result<Vec<MemberNews>, NotLeader>),
    /// Response to a voter's request about the leader.
    LeaderLost(LeaderLoss),
    /// Response to an audit request.
    Audit(AuditAnswer),
    /// Response to heartbeats.
    Heartbeats(Result<HeartbeatsTaken, NotLeader>),
}

/// Opinion of a voter about a leader that another voter suspects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderLoss {
    /// Set if this voter has lost the leader, too, by its own observations, and knows no later one.
    pub lost: bool,
    /// End of its log.
    pub last: Option<WireLogId>,
}

impl PeerRequest {
    /// Returns the version of the peer protocol that introduced this request. It is not sent to a node with
    /// an older version.
    pub fn since(&self) -> u16 {
        match self {
            Self::Vote(_)
            | Self::PreVote(_)
            | Self::Append(_)
            | Self::TransferLeader { .. }
            | Self::Forward { .. }
            | Self::Touch { .. }
            | Self::ReadIndex
            | Self::Disk { .. }
            | Self::ChangeMembership(_) => 3,
            Self::Members => 8,
            Self::LeaderLost { .. } => 9,
            Self::Audit(_) => 11,
            Self::Heartbeats { .. } => HEARTBEATS_SINCE,
            Self::ForwardTraced { .. } => TRACES_SINCE,
        }
    }
}
