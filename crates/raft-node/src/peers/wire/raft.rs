//! Wire format of Raft's own messages: structures of this crate, with conversions to and from openraft's, so that its
//! next version does not change a byte. Their contents are checked in `sound.rs`.

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
    /// The term.
    pub term: u64,
    /// For whom.
    pub node: NodeId,
    /// Set if a quorum granted it.
    pub committed: bool,
}

/// A log id on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedLogId")]
pub struct WireLogId {
    /// The term.
    pub term: u64,
    /// The index.
    pub index: u64,
}

/// A request for a vote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireVoteRequest {
    /// For whom, in which term.
    pub vote: WireVote,
    /// The candidate's last entry.
    pub last: Option<WireLogId>,
    /// Set if the old leader asked for this election: then its lease does not count.
    pub transfer: bool,
}

/// The answer to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireVoteResponse {
    /// The voter's own vote now.
    pub vote: WireVote,
    /// Set if the vote is granted.
    pub granted: bool,
    /// The voter's last entry.
    pub last: Option<WireLogId>,
}

/// Entries to append.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireAppend {
    /// The leader's vote.
    pub vote: WireVote,
    /// The entry before them.
    pub prev: Option<WireLogId>,
    /// Up to where is committed.
    pub commit: Option<WireLogId>,
    /// The entries.
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
        /// The term in which they were proposed.
        term: u64,
        /// A `CommandBatch`.
        batch: Bytes,
    },
    /// A change of the membership.
    Membership(WireMembership),
}

impl WireEntry {
    /// About how many bytes it takes in the log.
    pub fn bytes(&self) -> usize {
        /// Kind, version, term; a membership of a large cluster.
        const SMALL: usize = 64;
        const MEMBERSHIP: usize = 8 * 1024;
        match &self.payload {
            WirePayload::Blank => SMALL,
            WirePayload::Commands { batch, .. } => SMALL + batch.len(),
            WirePayload::Membership(_) => MEMBERSHIP,
        }
    }
}

/// A membership on wire and disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedMembership")]
pub struct WireMembership {
    /// One set of voters, or two while it changes.
    pub voters: Vec<Vec<NodeId>>,
    /// All members, voting or not.
    pub members: Vec<(NodeId, Member)>,
}

/// Coverage of a snapshot, on the wire and on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireSnapshotMeta {
    /// Its last entry.
    pub last: Option<WireLogId>,
    /// The entry of the last change of the membership that it covers.
    pub membership_at: Option<WireLogId>,
    /// The membership.
    pub membership: WireMembership,
}

/// Key of a snapshot's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireSnapshotKey {
    /// The index of the last entry that it covers.
    pub index: u64,
    /// Length of the file.
    pub bytes: u64,
    /// The checksum of its header.
    pub header_crc: u32,
    /// The checksum of its last part.
    pub parts_crc: u32,
}

/// First message on a snapshot's connection. A [`SnapshotResume`] answers it; then the bytes of the file follow from
/// there on in chunks, each an `Option<Bytes>`; `None` is the end, and a [`SnapshotTail`] answers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotHead {
    /// The leader's vote.
    pub vote: WireVote,
    /// Coverage of the snapshot.
    pub meta: WireSnapshotMeta,
    /// Key of its file.
    pub key: WireSnapshotKey,
}

/// Offset at which the bytes of a snapshot begin: the part before it came over an earlier connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotResume {
    /// The offset.
    pub offset: u64,
}

/// The answer to a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SnapshotTail {
    /// It is the follower's state now (or the vote says that a newer leader is known).
    Installed {
        /// The follower's vote.
        vote: WireVote,
    },
    /// It is not.
    Failed(String),
}

/// Result of an append.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WireAppendResult {
    /// On disk up to here.
    Stored(Option<WireLogId>),
    /// The entry before them is not there.
    Conflict(WireLogId),
    /// A newer leader is known.
    HigherVote(WireVote),
    /// On disk up to here, and no caller there waits for committed entries: the commit index may come with the next append. Since
    /// version 10 of the wire.
    StoredQuietly(Option<WireLogId>),
}

/// The first version in which a follower says that nobody there waits.
pub const QUIET_SINCE: u16 = 10;

impl WireAppendResult {
    /// Up to where the log is on disk there, if it says so.
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
        openraft_membership(membership).expect("it was looked at when it was decoded")
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
