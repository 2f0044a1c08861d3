//! Messages between peers: the questions and answers. Raft's own messages among them are in `raft.rs`, the checks of their
//! contents in `sound.rs`, their encoding in `frame.rs`.
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
use crate::messages::{Declined, HeartbeatsTaken, NotLeader, SeenMoment, Touched};
use crate::versions::{ProgramVersions, WireRange};

/// The version in which forwarded heartbeats got their ages.
pub const HEARTBEATS_SINCE: u16 = 11;

/// First bytes of a connection, so that bytes of another protocol are not taken for a message.
pub const MAGIC: [u8; 8] = *b"lockgate";

/// The extension of [`Hello`] and [`HelloReply::Welcome`] that shows which start of its data directory a node is: a
/// `crate::witness::Shown`.
pub const WITNESS_EXTENSION: u16 = 1;

/// The extension of [`HelloReply::Welcome`] that shows the answering node's wall clock: milliseconds since 1970.
pub const CLOCK_EXTENSION: u16 = 2;

/// Purpose of a connection. Elections and heartbeats never queue behind bulk data: they have their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Purpose {
    /// Votes, heartbeats, read confirmations: small, and they decide about availability.
    Control,
    /// Commands passed on to the leader, and heartbeats of sessions.
    Traffic,
    /// One stream of log entries and their acknowledgements.
    Append,
    /// One snapshot.
    Snapshot,
}

/// The beginning of every [`Hello`], whatever its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloStart {
    /// The same eight bytes always.
    pub magic: [u8; 8],
    /// The versions of the peer protocol that the caller speaks.
    pub wire: WireRange,
}

/// The first message of a connection. Its layout, and that of its reply, stays as it is over all versions, for they are
/// read before a version is agreed upon; what has to be added goes into the extensions, of which unknown ones are passed
/// over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The same eight bytes always.
    pub magic: [u8; 8],
    /// The versions of the peer protocol that the caller speaks.
    pub wire: WireRange,
    /// The cluster's name.
    pub cluster: String,
    /// The cluster's id, once it is formed.
    pub cluster_id: Option<ClusterId>,
    /// Node that calls.
    pub from: NodeId,
    /// With which disk.
    pub from_disk: DiskId,
    /// Node that is called.
    pub to: NodeId,
    /// With which disk, if the membership says.
    pub to_disk: Option<DiskId>,
    /// Set if the caller knows the cluster's membership.
    pub formed: bool,
    /// Purpose of the connection.
    pub purpose: Purpose,
    /// The version of the caller's program, for people.
    pub program: String,
    /// The newest kinds of commands that the caller can apply.
    pub commands: u8,
    /// Room for later versions: a number, and what it stands for.
    pub extensions: Vec<(u16, Bytes)>,
}

impl Hello {
    /// Returns the part that every version begins with.
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

/// The answer to a [`Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HelloReply {
    /// Go on.
    Welcome {
        /// The disk of the node that answers.
        disk: DiskId,
        /// The version of the peer protocol in which the connection goes on.
        version: u16,
        /// Versions of the program of the node that answers.
        versions: ProgramVersions,
        /// As in the [`Hello`].
        extensions: Vec<(u16, Bytes)>,
    },
    /// No.
    Refused {
        /// The reason, for people.
        reason: String,
        /// Reason, for the caller.
        cause: RefusalCause,
        /// Set if the node that refuses knows the cluster's membership.
        formed: bool,
    },
}

/// Reason to refuse a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalCause {
    /// The two have different histories, or the caller's data directory is not the one that the cluster knows.
    Identity,
    /// Anything else: it may be right another time, or is a mistake in somebody's configuration.
    Other,
    /// The two have no version of the peer protocol in common.
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
    /// The same without consequences, to see whether an election could be won.
    PreVote(WireVoteRequest),
    /// Raft's AppendEntries with no entries in it: the heartbeat.
    Append(WireAppend),
    /// The leader steps down in favour of the receiver.
    TransferLeader {
        /// The leader's vote.
        from: WireVote,
        /// The receiver.
        to: NodeId,
        /// Entry that the receiver must have on disk.
        last: Option<WireLogId>,
    },
    /// Commands for the leader of `term`, encoded envelopes.
    Forward {
        /// The only term in which they may be proposed.
        term: u64,
        /// In this order.
        envelopes: Vec<Bytes>,
    },
    /// Heartbeats of sessions, for the leader, counted from when they arrive there. Nodes that speak version 11 use
    /// [`PeerRequest::Heartbeats`] instead.
    Touch {
        /// Numbers of the sessions.
        sessions: Vec<u64>,
    },
    /// Up to where must be applied for a linearizable read? For the leader.
    ReadIndex,
    /// Asks for the health of the disk. From the leader, with its findings about all disks.
    Disk {
        /// Nothing yet, at the beginning of its term.
        view: Option<DiskView>,
    },
    /// A change of the membership, for the leader.
    ChangeMembership(MembershipChange),
    /// Asks for the condition of the members. To the leader.
    Members,
    /// Has the leader of this term gone, as far as can be seen from there? From a voter that suspects it.
    LeaderLost {
        /// The term.
        term: u64,
        /// Its leader.
        leader: NodeId,
    },
    /// Is the state there the same? From the leader, with what it knows of all members.
    Audit(Box<AuditQuestion>),
    /// Heartbeats of sessions with their ages, for the leader.
    Heartbeats {
        /// Proof of how long this question was on its way; without it the leader cannot count the heartbeats.
        seen: Option<SeenMoment>,
        /// Maximum time of this question on its way, in milliseconds. The leader does not count heartbeats of a later one.
        within_ms: u32,
        /// Sessions, each with the milliseconds since the asking node received its heartbeat.
        sessions: Vec<(u64, u32)>,
    },
}

/// The answer to an [`PeerRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerResponse {
    /// To a vote or pre-vote.
    Vote(WireVoteResponse),
    /// To an append.
    Append(WireAppendResult),
    /// To a transfer: whether the receiver stands for election now, else why not.
    TransferLeader(Result<(), String>),
    /// To a forward: the commands were carried out, except for the declined ones.
    Forward(Result<Declined, NotLeader>),
    /// To a touch: for each session in order, its timeout in milliseconds if it was renewed.
    Touch(Result<Vec<Touched>, NotLeader>),
    /// To a read index.
    ReadIndex(Result<u64, NotLeader>),
    /// To a disk's question.
    Disk(DiskReport),
    /// The node could not answer (it is shutting down, or its Raft has stopped).
    Failed(String),
    /// To a change of the membership.
    ChangeMembership(Result<MembershipOutcome, NotLeader>),
    /// To the question about the members.
    Members(Result<Vec<MemberNews>, NotLeader>),
    /// To the question about the leader.
    LeaderLost(LeaderLoss),
    /// To the question about the state.
    Audit(AuditAnswer),
    /// To heartbeats.
    Heartbeats(Result<HeartbeatsTaken, NotLeader>),
}

/// Opinion of a voter about a leader that another voter suspects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderLoss {
    /// Set if this voter has lost the leader, too, by its own observations, and knows of no later one.
    pub lost: bool,
    /// The end of its log.
    pub last: Option<WireLogId>,
}

impl PeerRequest {
    /// The version of the peer protocol in which this question came. It is not sent to a node that speaks an older one.
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
        }
    }
}
