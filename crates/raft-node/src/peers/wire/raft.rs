//! Wire format of Raft's own messages: structures of this crate with conversions to and from openraft's, so
//! that a new version of openraft does not change a byte. `validation.rs` checks their contents.

use bytes::Bytes;
use openraft::EntryPayload;
use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, StreamAppendResult, VoteRequest, VoteResponse,
};
use serde::{Deserialize, Serialize};

use super::validation::{UncheckedLogId, UncheckedMembership, UncheckedVote, openraft_membership};
use crate::ids::Member;
use crate::ids::NodeId;
use crate::types::{
    Entry, LogId, Membership, Proposal, SnapshotMeta, StoredMembership, TypeConfig, Vote, log_id, term_of,
};
use raft_log::SnapshotKey;

/// A vote on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedVote")]
pub struct WireVote {
    /// Term.
    pub term: u64,
    /// Node that the vote is for.
    pub node: NodeId,
    /// Set if a quorum granted it.
    pub committed: bool,
}

/// A log id on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedLogId")]
pub struct WireLogId {
    /// Term.
    pub term: u64,
    /// Index.
    pub index: u64,
}

/// Request for a vote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireVoteRequest {
    /// Candidate and term.
    pub vote: WireVote,
    /// Last entry of the candidate.
    pub last: Option<WireLogId>,
    /// Set if the old leader requested this election: then its lease does not count.
    pub transfer: bool,
}

/// Response to a vote request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireVoteResponse {
    /// Current vote of the voter.
    pub vote: WireVote,
    /// Set if the vote is granted.
    pub granted: bool,
    /// Last entry of the voter.
    pub last: Option<WireLogId>,
}

/// Entries to append.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireAppend {
    /// Vote of the leader.
    pub vote: WireVote,
    /// Entry before the first of the entries.
    pub prev: Option<WireLogId>,
    /// Last committed entry.
    pub commit: Option<WireLogId>,
    /// Entries.
    pub entries: Vec<WireEntry>,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireEntry {
    /// Position of the entry.
    pub at: WireLogId,
    /// Payload of the entry.
    pub payload: WirePayload,
}

/// Payload of an entry, on the wire and on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WirePayload {
    /// Nothing: a new leader's first entry.
    Blank,
    /// Commands.
    Commands {
        /// Term in which they were proposed.
        term: u64,
        /// Encoded `CommandBatch`.
        batch: Bytes,
    },
    /// A change of the membership.
    Membership(WireMembership),
}

impl WireEntry {
    /// Returns the approximate number of bytes in the log.
    pub fn bytes(&self) -> usize {
        /// Overhead of an entry (kind, version, term), and the size of a membership of a large cluster.
        const SMALL: usize = 64;
        const MEMBERSHIP: usize = 8 * 1024;
        match &self.payload {
            WirePayload::Blank => SMALL,
            WirePayload::Commands { batch, .. } => SMALL + batch.len(),
            WirePayload::Membership(_) => MEMBERSHIP,
        }
    }
}

/// Membership on the wire and on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedMembership")]
pub struct WireMembership {
    /// One set of voters, or two during a change.
    pub voters: Vec<Vec<NodeId>>,
    /// All members, voting or not.
    pub members: Vec<(NodeId, Member)>,
}

/// Coverage of a snapshot, on the wire and on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireSnapshotMeta {
    /// Last covered entry.
    pub last: Option<WireLogId>,
    /// Entry of the last covered change of the membership.
    pub membership_at: Option<WireLogId>,
    /// Membership at the last covered entry.
    pub membership: WireMembership,
}

/// Key of a snapshot's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireSnapshotKey {
    /// Index of the last covered entry.
    pub index: u64,
    /// Length of the file.
    pub bytes: u64,
    /// Checksum of its header.
    pub header_crc: u32,
    /// Checksum of its last part.
    pub parts_crc: u32,
}

/// First message on a snapshot's connection, answered by a [`SnapshotResume`]. The bytes of the file follow
/// from that offset in chunks, each an `Option<Bytes>`. `None` ends them and is answered by a
/// [`SnapshotTail`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotHead {
    /// Vote of the leader.
    pub vote: WireVote,
    /// Coverage of the snapshot.
    pub meta: WireSnapshotMeta,
    /// Key of its file.
    pub key: WireSnapshotKey,
}

/// Offset at which the sender continues: the part before it arrived over an earlier connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotResume {
    /// Offset in bytes.
    pub offset: u64,
}

/// Final response to a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SnapshotTail {
    /// The snapshot is now the follower's state, unless the vote shows that a newer leader is known.
    Installed {
        /// Vote of the follower.
        vote: WireVote,
    },
    /// The snapshot was not installed.
    Failed(String),
}

/// Result of an append.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WireAppendResult {
    /// On disk up to this entry.
    Stored(Option<WireLogId>),
    /// The entry before the first one is missing.
    Conflict(WireLogId),
    /// The follower knows a newer leader.
    HigherVote(WireVote),
    /// On disk up to this entry, and no caller there waits for committed entries: the commit index may be
    /// sent with the next append. Since version 10 of the wire.
    StoredQuietly(Option<WireLogId>),
}

/// First version in which a follower reports that no caller waits.
pub const QUIET_SINCE: u16 = 10;

impl WireAppendResult {
    /// Returns the entry up to which the follower's log is on disk, if the result contains it.
    pub fn stored(&self) -> Option<Option<WireLogId>> {
        match self {
            Self::Stored(last) | Self::StoredQuietly(last) => Some(*last),
            Self::Conflict(_) | Self::HigherVote(_) => None,
        }
    }
}

impl From<&Vote> for WireVote {
    fn from(vote: &Vote) -> Self {
        Self {
            term: vote.leader_id.term,
            node: vote.leader_id.voted_for,
            committed: vote.committed,
        }
    }
}

impl From<WireVote> for Vote {
    fn from(vote: WireVote) -> Self {
        match vote.committed {
            true => Vote::new_committed(vote.term, vote.node),
            false => Vote::new(vote.term, vote.node),
        }
    }
}

impl From<&LogId> for WireLogId {
    fn from(id: &LogId) -> Self {
        Self {
            term: term_of(id),
            index: id.index,
        }
    }
}

impl From<WireLogId> for LogId {
    fn from(id: WireLogId) -> Self {
        log_id(id.term, id.index)
    }
}

impl From<&VoteRequest<TypeConfig>> for WireVoteRequest {
    fn from(request: &VoteRequest<TypeConfig>) -> Self {
        Self {
            vote: (&request.vote).into(),
            last: request.last_log_id.as_ref().map(Into::into),
            transfer: request.leadership_transfer,
        }
    }
}

impl From<WireVoteRequest> for VoteRequest<TypeConfig> {
    fn from(request: WireVoteRequest) -> Self {
        let mut it = VoteRequest::new(request.vote.into(), request.last.map(Into::into));
        it.leadership_transfer = request.transfer;
        it
    }
}

impl From<&VoteResponse<TypeConfig>> for WireVoteResponse {
    fn from(response: &VoteResponse<TypeConfig>) -> Self {
        Self {
            vote: (&response.vote).into(),
            granted: response.vote_granted,
            last: response.last_log_id.as_ref().map(Into::into),
        }
    }
}

impl From<WireVoteResponse> for VoteResponse<TypeConfig> {
    fn from(response: WireVoteResponse) -> Self {
        VoteResponse {
            vote: response.vote.into(),
            vote_granted: response.granted,
            last_log_id: response.last.map(Into::into),
        }
    }
}

impl From<AppendEntriesRequest<TypeConfig>> for WireAppend {
    fn from(request: AppendEntriesRequest<TypeConfig>) -> Self {
        Self {
            vote: (&request.vote).into(),
            prev: request.prev_log_id.as_ref().map(Into::into),
            commit: request.leader_commit.as_ref().map(Into::into),
            entries: request.entries.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<WireAppend> for AppendEntriesRequest<TypeConfig> {
    fn from(append: WireAppend) -> Self {
        AppendEntriesRequest {
            vote: append.vote.into(),
            prev_log_id: append.prev.map(Into::into),
            leader_commit: append.commit.map(Into::into),
            entries: append.entries.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Entry> for WireEntry {
    fn from(entry: Entry) -> Self {
        Self {
            at: (&entry.log_id).into(),
            payload: entry.payload.into(),
        }
    }
}

impl From<WireEntry> for Entry {
    fn from(entry: WireEntry) -> Self {
        Entry {
            log_id: entry.at.into(),
            payload: entry.payload.into(),
        }
    }
}

impl From<EntryPayload<Proposal, NodeId, Member>> for WirePayload {
    fn from(payload: EntryPayload<Proposal, NodeId, Member>) -> Self {
        match payload {
            EntryPayload::Blank => Self::Blank,
            EntryPayload::Normal(proposal) => Self::Commands {
                term: proposal.term,
                batch: proposal.commands,
            },
            EntryPayload::Membership(membership) => Self::Membership((&membership).into()),
        }
    }
}

impl From<WirePayload> for EntryPayload<Proposal, NodeId, Member> {
    fn from(payload: WirePayload) -> Self {
        match payload {
            WirePayload::Blank => EntryPayload::Blank,
            WirePayload::Commands { term, batch } => EntryPayload::Normal(Proposal {
                term,
                commands: batch,
            }),
            WirePayload::Membership(membership) => EntryPayload::Membership(membership.into()),
        }
    }
}

impl From<&Membership> for WireMembership {
    fn from(membership: &Membership) -> Self {
        Self {
            voters: membership
                .get_joint_config()
                .iter()
                .map(|set| set.iter().copied().collect())
                .collect(),
            members: membership
                .nodes()
                .map(|(id, member)| (*id, member.clone()))
                .collect(),
        }
    }
}

impl From<WireMembership> for Membership {
    fn from(membership: WireMembership) -> Self {
        openraft_membership(membership).expect("it was checked during decoding")
    }
}

impl From<&SnapshotMeta> for WireSnapshotMeta {
    fn from(meta: &SnapshotMeta) -> Self {
        Self {
            last: meta.last_log_id.as_ref().map(Into::into),
            membership_at: meta.last_membership.log_id().as_ref().map(Into::into),
            membership: meta.last_membership.membership().into(),
        }
    }
}

impl From<WireSnapshotMeta> for SnapshotMeta {
    fn from(meta: WireSnapshotMeta) -> Self {
        let at = meta.membership_at.map(Into::into);
        SnapshotMeta {
            last_log_id: meta.last.map(Into::into),
            last_membership: StoredMembership::new(at, meta.membership.into()),
        }
    }
}

impl From<SnapshotKey> for WireSnapshotKey {
    fn from(key: SnapshotKey) -> Self {
        let SnapshotKey {
            index,
            bytes,
            header_crc,
            parts_crc,
        } = key;
        Self {
            index,
            bytes,
            header_crc,
            parts_crc,
        }
    }
}

impl From<WireSnapshotKey> for SnapshotKey {
    fn from(key: WireSnapshotKey) -> Self {
        let WireSnapshotKey {
            index,
            bytes,
            header_crc,
            parts_crc,
        } = key;
        Self {
            index,
            bytes,
            header_crc,
            parts_crc,
        }
    }
}

impl From<StreamAppendResult<TypeConfig>> for WireAppendResult {
    fn from(result: StreamAppendResult<TypeConfig>) -> Self {
        match result {
            Ok(stored) => Self::Stored(stored.as_ref().map(Into::into)),
            Err(StreamAppendError::Conflict(at)) => Self::Conflict((&at).into()),
            Err(StreamAppendError::HigherVote(vote)) => Self::HigherVote((&vote).into()),
        }
    }
}

impl From<WireAppendResult> for StreamAppendResult<TypeConfig> {
    fn from(result: WireAppendResult) -> Self {
        match result {
            WireAppendResult::Stored(stored) | WireAppendResult::StoredQuietly(stored) => {
                Ok(stored.map(Into::into))
            }
            WireAppendResult::Conflict(at) => Err(StreamAppendError::Conflict(at.into())),
            WireAppendResult::HigherVote(vote) => Err(StreamAppendError::HigherVote(vote.into())),
        }
    }
}
