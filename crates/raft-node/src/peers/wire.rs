//! What peers say to each other, as bytes. Own structures with conversions to and from openraft's.
//!
//! Every message is a frame: its length as four bytes, little endian, then the message. A connection begins
//! with a [`Hello`] and its [`HelloReply`] and is then used for one purpose, see [`Purpose`].

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use openraft::EntryPayload;
use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, StreamAppendResult, VoteRequest, VoteResponse,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};
use znode_store::SessionId;

use crate::codec::{self, MAX_ENCODED_BYTES};
use crate::config::NodeId;
use crate::disks::{DiskReport, DiskView};
use crate::membership::{MembershipChange, MembershipOutcome};
use crate::storage::SnapshotKey;
use crate::types::{
    ClusterId, DiskId, Entry, LogId, Member, Membership, Proposal, SnapshotMeta, StoredMembership,
    TypeConfig, Vote, log_id, term_of,
};
use crate::versions::{ProgramVersions, WireRange};

/// The newest version of what is in this file, in which a message may be new. Two nodes use the highest version that both
/// speak; see `crate::versions`.
pub const WIRE_VERSION: u16 = 4;

/// The oldest version that is still spoken.
pub const OLDEST_WIRE_VERSION: u16 = 4;

/// What a connection begins with, so that a stranger's bytes are not taken for a message.
pub const MAGIC: [u8; 8] = *b"lockgate";

/// What a connection is for. Elections and heartbeats never queue behind bulk data: they have their own.
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
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// The versions of the peer protocol that the caller speaks.
    pub wire: WireRange,
}

/// The first message of a connection. Its layout, and that of its reply, stays as it is over all versions, for they are
/// read before a version is agreed upon; what has to be added goes into the extensions, of which unknown ones are passed
/// over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// The versions of the peer protocol that the caller speaks.
    pub wire: WireRange,
    /// The cluster's name.
    pub cluster: String,
    /// The cluster's id, once it is formed.
    pub cluster_id: Option<ClusterId>,
    /// Who calls.
    pub from: NodeId,
    /// With which disk.
    pub from_disk: DiskId,
    /// Who is meant.
    pub to: NodeId,
    /// With which disk, if the membership says.
    pub to_disk: Option<DiskId>,
    /// Whether the caller knows the cluster's membership.
    pub formed: bool,
    /// What for.
    pub purpose: Purpose,
    /// The version of the caller's program, for people.
    pub program: String,
    /// The newest kinds of commands that the caller can apply.
    pub commands: u8,
    /// Room for later versions: a number, and what it stands for.
    pub extensions: Vec<(u16, Bytes)>,
}

impl Hello {
    /// What every version of it begins with.
    pub fn start(&self) -> HelloStart {
        HelloStart {
            magic: self.magic,
            wire: self.wire,
        }
    }

    /// What the caller speaks, and can apply.
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
        /// What the node that answers speaks, and can apply.
        versions: ProgramVersions,
        /// As in the [`Hello`].
        extensions: Vec<(u16, Bytes)>,
    },
    /// No.
    Refused {
        /// The reason, for people.
        reason: String,
        /// What is wrong, for the caller.
        cause: RefusalCause,
        /// Whether the node that refuses knows the cluster's membership.
        formed: bool,
    },
}

/// Why a connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalCause {
    /// The two have different histories, or the caller's data directory is not the one that the cluster knows.
    Identity,
    /// Anything else: it may be right another time, or is a mistake in somebody's configuration.
    Other,
    /// The two have no version of the peer protocol in common.
    Version,
    /// The caller was a member of this cluster, and is none any more.
    Removed,
}

/// A request on a [`Purpose::Control`] or [`Purpose::Traffic`] connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
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
        /// What the receiver must have on disk.
        last: Option<WireLogId>,
    },
    /// Commands for the leader of `term`, encoded envelopes.
    Forward {
        /// The only term in which they may be proposed.
        term: u64,
        /// In this order.
        envelopes: Vec<Bytes>,
    },
    /// Heartbeats of sessions, for the leader.
    Touch {
        /// Whose.
        sessions: Vec<SessionId>,
    },
    /// Up to where must be applied for a linearizable read? For the leader.
    ReadIndex,
    /// How is your disk? From the leader, with what it has found about all disks.
    Disk {
        /// Nothing yet, at the beginning of its term.
        view: Option<DiskView>,
    },
    /// A change of the membership, for the leader.
    ChangeMembership(MembershipChange),
}

/// The answer to an [`Ask`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// To a vote or pre-vote.
    Vote(WireVoteResponse),
    /// To an append.
    Append(WireAppendResult),
    /// To a transfer: whether the receiver stands for election now, else why not.
    TransferLeader(Result<(), String>),
    /// To a forward: the commands were carried out, but for those that are named.
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
}

/// The commands of a run that the leader did not propose, because there is no room for what they make. Nothing was done
/// about them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declined {
    /// Their places in the run.
    pub places: Vec<u32>,
    /// Why, for people.
    pub reason: String,
    /// Whether it is for want of room, and not because a member could not apply them.
    pub read_only: bool,
}

/// The node that was asked does not lead (that term), or cannot prove it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotLeader {
    /// The leader that it knows.
    pub leader: Option<NodeId>,
}

/// What became of one session's heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Touched {
    /// Counted; the session's timeout in milliseconds.
    Renewed(u32),
    /// The session has ended, or is being ended.
    Ended,
    /// Never heard of.
    Unknown,
}

/// A vote on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireVote {
    /// The term.
    pub term: u64,
    /// For whom.
    pub node: NodeId,
    /// Whether a quorum granted it.
    pub committed: bool,
}

/// A log id on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Whether the old leader asked for this election: then its lease does not count.
    pub transfer: bool,
}

/// The answer to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireVoteResponse {
    /// The voter's own vote now.
    pub vote: WireVote,
    /// Whether it is granted.
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
    /// Where.
    pub at: WireLogId,
    /// What.
    pub payload: WirePayload,
}

/// What an entry carries, on the wire and on disk.
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
pub struct WireMembership {
    /// One set of voters, or two while it changes.
    pub voters: Vec<Vec<NodeId>>,
    /// All members, voting or not.
    pub members: Vec<(NodeId, Member)>,
}

/// What a snapshot covers, on wire and disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireSnapshotMeta {
    /// Its last entry.
    pub last: Option<WireLogId>,
    /// The entry of the last change of the membership that it covers.
    pub membership_at: Option<WireLogId>,
    /// The membership.
    pub membership: WireMembership,
}

/// What tells a snapshot's file from every other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireSnapshotKey {
    /// The index of the last entry that it covers.
    pub index: u64,
    /// How long it is.
    pub bytes: u64,
    /// The checksum of its header.
    pub header_crc: u32,
    /// The checksum of its last part.
    pub parts_crc: u32,
}

/// What a snapshot's connection begins with. A [`SnapshotResume`] answers it; then the bytes of the file follow from
/// there on in chunks, each an `Option<Bytes>`; `None` is the end, and a [`SnapshotTail`] answers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotHead {
    /// The leader's vote.
    pub vote: WireVote,
    /// What comes.
    pub meta: WireSnapshotMeta,
    /// Which file.
    pub key: WireSnapshotKey,
}

/// Where to begin with the bytes of a snapshot: what is before has come over an earlier connection.
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

/// What became of an append.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WireAppendResult {
    /// On disk up to here.
    Stored(Option<WireLogId>),
    /// The entry before them is not there.
    Conflict(WireLogId),
    /// A newer leader is known.
    HigherVote(WireVote),
}

impl Ask {
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
        let voters = membership
            .voters
            .into_iter()
            .map(|set| set.into_iter().collect())
            .collect();
        let members: std::collections::BTreeMap<_, _> = membership.members.into_iter().collect();
        Membership::new(voters, members).expect("a membership that was valid once stays valid")
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
            WireAppendResult::Stored(stored) => Ok(stored.map(Into::into)),
            WireAppendResult::Conflict(at) => Err(StreamAppendError::Conflict(at.into())),
            WireAppendResult::HigherVote(vote) => Err(StreamAppendError::HigherVote(vote.into())),
        }
    }
}

/// Appends a frame with `message` in it to `out`.
pub fn put_frame<T: Serialize>(out: &mut BytesMut, message: &T) {
    let body = codec::encode(message);
    out.reserve(4 + body.len());
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&body);
}

/// Reads frames from one end of a connection. A read that is given up loses nothing.
pub struct FrameReader<R> {
    from: R,
    buffer: BytesMut,
}

/// How much is asked of the socket at once.
const READ_CHUNK_BYTES: usize = 64 * 1024;

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads from `from`.
    pub fn new(from: R) -> Self {
        Self {
            from,
            buffer: BytesMut::with_capacity(READ_CHUNK_BYTES),
        }
    }

    /// The next frame's bytes; `None` when the peer closed the connection between two frames.
    pub async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some(frame) = self.take_buffered()? {
                return Ok(Some(frame));
            }
            self.buffer.reserve(READ_CHUNK_BYTES);
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return match self.buffer.is_empty() {
                    true => Ok(None),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }

    /// A frame that has already arrived.
    pub fn take_buffered(&mut self) -> io::Result<Option<Bytes>> {
        let Some(length) = self.buffer.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX_ENCODED_BYTES {
            let what = format!("a frame of {length} bytes is larger than any that a peer sends");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        if self.buffer.len() < 4 + length {
            return Ok(None);
        }
        self.buffer.advance(4);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// The next frame as a message.
    pub async fn message<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        match self.next().await? {
            None => Ok(None),
            Some(frame) => decode_frame(&frame).map(Some),
        }
    }
}

/// A frame's bytes as a message.
pub fn decode_frame<T: DeserializeOwned>(frame: &[u8]) -> io::Result<T> {
    codec::decode(frame).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
