//! openraft's generic types with this crate's parameters. Code that names openraft's types uses these
//! aliases, so that a new version of openraft is adapted in one place. None of these types reaches a disk or
//! a wire: see `codec.rs`.

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
    // One leader per term, as in the paper: a term alone identifies the leader that proposed an entry.
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

/// Id of a term's leader in log ids: the term alone, with standard Raft.
pub type CommittedLeaderId = openraft::alias::CommittedLeaderIdOf<TypeConfig>;
/// Term and index of an entry.
pub type LogId = openraft::alias::LogIdOf<TypeConfig>;
/// A vote, granted or requested.
pub type Vote = openraft::alias::VoteOf<TypeConfig>;
/// A log entry.
pub type Entry = openraft::alias::EntryOf<TypeConfig>;
/// Payload of a log entry.
pub type Payload = openraft::alias::PayloadOf<TypeConfig>;
/// Members and voters, without the entry that set them.
pub type Membership = openraft::Membership<NodeId, Member>;
/// Members and voters with the entry that set them.
pub type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
/// Coverage of a snapshot.
pub type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;

/// Commands that were proposed together, in their encoding on the wire and on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// Term in which they were proposed. In any other term they are void, and the forwarders retry.
    pub term: u64,
    /// Encoded batch of commands (`command_batch.rs`).
    pub commands: Bytes,
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of term {}", self.commands.len(), self.term)
    }
}

/// Returns the log id of `index` in `term`.
pub fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(term), index)
}

/// Returns the term in which an entry was proposed.
pub fn term_of(log_id: &LogId) -> u64 {
    **log_id.committed_leader_id()
}
