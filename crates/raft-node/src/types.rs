//! openraft's generics, filled in once. Everything that names openraft's types goes through here, so that a
//! new version of it is met in one place. Nothing here reaches a disk or a wire: see `codec.rs`.

use std::fmt;

use bytes::Bytes;

use crate::ids::{Member, NodeId};

/// Types with which openraft is instantiated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeConfig;

impl openraft::RaftTypeConfig for TypeConfig {
    type D = Proposal;
    type R = ();
    type NodeId = NodeId;
    type Node = Member;
    type Term = u64;
    // One leader a term, as in the paper: so a term alone names the leader that proposed an entry.
    type LeaderId = openraft::impls::leader_id_std::LeaderId<u64, NodeId>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = openraft::EntryPayload<Proposal, NodeId, Member>;
    type Entry = openraft::Entry<CommittedLeaderId, Self::Payload>;
    type AsyncRuntime = openraft_rt_tokio::TokioRuntime;
    type Responder<T>
        = openraft::impls::OneshotResponder<Self, T>
    where
        T: Send + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: Send + 'static;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

/// The name of a term's leader in log ids: with standard Raft the term alone.
pub type CommittedLeaderId = openraft::alias::CommittedLeaderIdOf<TypeConfig>;
/// Term and index of an entry.
pub type LogId = openraft::alias::LogIdOf<TypeConfig>;
/// A vote, granted or asked for.
pub type Vote = openraft::alias::VoteOf<TypeConfig>;
/// A log entry.
pub type Entry = openraft::alias::EntryOf<TypeConfig>;
/// Payload of a log entry.
pub type Payload = openraft::alias::PayloadOf<TypeConfig>;
/// The voters, without the entry that set them.
pub type Membership = openraft::Membership<NodeId, Member>;
/// The voters and the entry that set them.
pub type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
/// Coverage of a snapshot.
pub type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;

/// A run of commands that were proposed together, in the bytes in which they travel and are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// The term in which it was proposed. In any other term it is void: its proposers try again.
    pub term: u64,
    /// Encoded batch of commands (`command_batch.rs`).
    pub commands: Bytes,
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of term {}", self.commands.len(), self.term)
    }
}

/// The log id of `index` in `term`.
pub fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(term), index)
}

/// The term in which an entry was proposed.
pub fn term_of(log_id: &LogId) -> u64 {
    **log_id.committed_leader_id()
}
