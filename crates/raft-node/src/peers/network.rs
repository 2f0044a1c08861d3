//! openraft's view of the peers: votes and heartbeats on the control line, a connection of its own for each
//! stream of entries and for each snapshot.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::{Stream, StreamExt, stream};
use openraft::alias::SnapshotOf;
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::v2::RaftNetworkV2;
use openraft::network::{Backoff, RPCOption, RPCTypes, RaftNetworkFactory, stream_append_sequential};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use tokio::sync::watch;
use tokio::time::Instant;

use znode_store::planted::{self, Bug};

use super::Peers;
use super::link::{LinkError, connect};
use super::snapshots::{self, SnapshotTraffic};
use super::stream::{ReadHalf, WriteHalf};
use super::wire::{
    Answer, Ask, FrameReader, Purpose, WireAppend, WireAppendResult, decode_frame, put_frame, send_frames,
};
use crate::config::NodeId;
use crate::fail_step;
use crate::panics::Alarm;
use crate::snapshot_file::SnapshotHandle;
use crate::types::{Member, TypeConfig, Vote};

/// How many appends may be under way to one follower without an answer. Enough to keep a line of 100 ms
/// busy with batches; beyond that the follower is the bottleneck.
const MAX_APPENDS_IN_FLIGHT: usize = 128;

/// How many bytes may be under way to one follower without an answer, beside the frame that goes over it: so much
/// memory a stalled follower can cost the leader.
const MAX_BYTES_IN_FLIGHT: usize = 16 * 1024 * 1024;

type Rpc<T> = Result<T, RPCError<TypeConfig>>;

/// Makes openraft's clients.
pub struct Network {
    peers: Arc<Peers>,
    /// How long an append may stay unanswered before the connection is given up: the follower's disk may
    /// stall for a while, and a broken stream costs more than a slow one.
    append_patience: Duration,
    traffic: Arc<SnapshotTraffic>,
}

impl Network {
    /// Clients over `peers`.
    pub fn new(peers: Arc<Peers>, traffic: Arc<SnapshotTraffic>, append_patience: Duration) -> Self {
        Self {
            peers,
            append_patience,
            traffic,
        }
    }

    fn client(&self, to: NodeId, streaming: bool) -> Client {
        Client {
            to,
            peers: self.peers.clone(),
            append_patience: self.append_patience,
            traffic: self.traffic.clone(),
            streaming,
        }
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Client;

    async fn new_client(&mut self, target: NodeId, _member: &Member) -> Client {
        self.client(target, true)
    }

    async fn new_heartbeat_client(&mut self, target: NodeId, _member: &Member) -> Client {
        self.client(target, false)
    }
}

/// openraft's client to one peer.
pub struct Client {
    to: NodeId,
    peers: Arc<Peers>,
    append_patience: Duration,
    traffic: Arc<SnapshotTraffic>,
    /// Whether appends get a connection of their own; heartbeats go one by one on the control line.
    streaming: bool,
}

impl Client {
    async fn ask(&self, ask: Ask, rpc: RPCTypes, option: RPCOption) -> Rpc<Answer> {
        // Its caller is a task of openraft's that nobody misses.
        let _alarm = Alarm::new(self.peers.gate(), "a question to a peer");
        let patience = option.hard_ttl();
        match self
            .peers
            .link(self.to, Purpose::Control)
            .ask(ask, patience)
            .await
        {
            Ok(Answer::Failed(why)) => Err(RPCError::Unreachable(Unreachable::from_string(why))),
            Ok(answer) => Ok(answer),
            Err(LinkError::NotSent(why)) => Err(RPCError::Unreachable(Unreachable::from_string(why))),
            Err(LinkError::NoAnswer(_)) => Err(RPCError::Timeout(Timeout {
                action: rpc,
                id: self.peers.gate().node(),
                target: self.to,
                timeout: patience,
            })),
        }
    }

    fn unexpected<T>(&self) -> Rpc<T> {
        let what = format!("node {} answered something else than it was asked", self.to);
        Err(RPCError::Network(NetworkError::from_string(what)))
    }
}

impl RaftNetworkV2<TypeConfig> for Client {
    type SnapshotData = SnapshotHandle;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Rpc<AppendEntriesResponse<TypeConfig>> {
        let answer = self
            .ask(Ask::Append(rpc.into()), RPCTypes::AppendEntries, option)
            .await;
        if answer.is_err() && planted::is(Bug::CountedAbsent) {
            return Ok(AppendEntriesResponse::Success);
        }
        match answer? {
            Answer::Append(WireAppendResult::Stored(_)) => Ok(AppendEntriesResponse::Success),
            Answer::Append(WireAppendResult::Conflict(_)) => Ok(AppendEntriesResponse::Conflict),
            Answer::Append(WireAppendResult::HigherVote(vote)) => {
                Ok(AppendEntriesResponse::HigherVote(vote.into()))
            }
            _ => self.unexpected(),
        }
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Rpc<BoxStream<'s, Rpc<StreamAppendResult<TypeConfig>>>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin + 'static,
    {
        if !self.streaming {
            return stream_append_sequential(self, input, option);
        }
        Box::pin(async move {
            let alarm = Alarm::new(self.peers.gate(), "the stream of entries to a peer");
            let mut input = input;
            // The pause after a failure is in the input: whoever connects before asking it never pauses.
            let Some(first) = input.next().await else {
                let nothing: BoxStream<'s, _> = Box::pin(stream::empty());
                return Ok(nothing);
            };
            let connected = connect(self.peers.gate(), self.to, Purpose::Append).await;
            if connected.is_err() && planted::is(Bug::CountedAbsent) {
                let last = first.entries.last().map(|entry| entry.log_id);
                let consent = WireAppendResult::Stored(last.or(first.prev_log_id).as_ref().map(Into::into));
                let answers: BoxStream<'s, _> = Box::pin(stream::iter([Ok(consent.into())]));
                return Ok(answers);
            }
            let (reader, writer, _) =
                connected.map_err(|error| RPCError::Unreachable(Unreachable::new(&error)))?;
            let appends = Appends {
                _alarm: alarm,
                floor: self.traffic.floor(),
                acknowledged: first.prev_log_id.map_or(0, |prev| prev.index),
                reader,
                writer,
                input: Some(stream::iter([first]).chain(input)),
                in_flight: VecDeque::new(),
                bytes_in_flight: 0,
                last_progress: Instant::now(),
                patience: self.append_patience,
                out: BytesMut::new(),
            };
            let answers = stream::unfold(Some(appends), |appends| async move {
                let mut appends = appends?;
                match appends.next_answer().await {
                    Ok(Some(answer)) => {
                        // After a refusal the follower has closed the stream: what is still on the way
                        // would not be answered.
                        let next = answer.is_ok().then_some(appends);
                        Some((Ok(answer), next))
                    }
                    Ok(None) => None,
                    Err(error) => Some((Err(RPCError::Network(NetworkError::new(&error))), None)),
                }
            });
            let answers: BoxStream<'s, _> = Box::pin(answers);
            Ok(answers)
        })
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Rpc<VoteResponse<TypeConfig>> {
        match self.ask(Ask::Vote((&rpc).into()), RPCTypes::Vote, option).await? {
            Answer::Vote(response) => Ok(response.into()),
            _ => self.unexpected(),
        }
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Rpc<VoteResponse<TypeConfig>> {
        match self
            .ask(Ask::PreVote((&rpc).into()), RPCTypes::Vote, option)
            .await?
        {
            Answer::Vote(response) => Ok(response.into()),
            _ => self.unexpected(),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<TypeConfig, SnapshotHandle>,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = snapshots::send(&self.peers, &self.traffic, self.to, vote, snapshot) => match sent {
                Ok(vote) => Ok(SnapshotResponse::new(vote)),
                Err(error) => Err(StreamingError::Unreachable(Unreachable::new(&error))),
            },
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Rpc<TransferLeaderResponse<TypeConfig>> {
        let ask = Ask::TransferLeader {
            from: request.from_leader().into(),
            to: *request.to_node_id(),
            last: request.last_log_id().map(Into::into),
        };
        match self.ask(ask, RPCTypes::TransferLeader, option).await? {
            Answer::TransferLeader(Ok(())) => Ok(Ok(())),
            Answer::TransferLeader(Err(why)) => {
                tracing::info!(node = self.to, why, "a transfer of leadership was refused");
                Err(RPCError::Unreachable(Unreachable::from_string(why)))
            }
            _ => self.unexpected(),
        }
    }

    fn backoff(&self) -> Option<Backoff> {
        None
    }
}

/// One stream of appends: requests go out as they come, answers come back in the same order.
struct Appends<S> {
    /// The task that draws the answers is one of openraft's that nobody misses.
    _alarm: Alarm,
    /// The log is shortened up to here. As long as a stream needs them, openraft keeps entries, however long the log
    /// becomes.
    floor: watch::Receiver<u64>,
    /// Up to where the follower has the log.
    acknowledged: u64,
    reader: FrameReader<ReadHalf>,
    writer: WriteHalf,
    input: Option<S>,
    /// The sizes of the frames that are not answered yet.
    in_flight: VecDeque<usize>,
    bytes_in_flight: usize,
    last_progress: Instant,
    patience: Duration,
    out: BytesMut,
}

impl<S> Appends<S>
where
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin,
{
    /// Sends what there is to send until an answer comes. `None`: all is sent and answered.
    async fn next_answer(&mut self) -> io::Result<Option<StreamAppendResult<TypeConfig>>> {
        loop {
            let waiting = !self.in_flight.is_empty();
            if !waiting && self.input.is_none() {
                return Ok(None);
            }
            let room =
                self.in_flight.len() < MAX_APPENDS_IN_FLIGHT && self.bytes_in_flight < MAX_BYTES_IN_FLIGHT;
            let give_up = self.last_progress + self.patience;
            let acknowledged = self.acknowledged;
            tokio::select! {
                // Answers first: they free the follower's and the leader's hands.
                biased;
                frame = self.reader.next(), if waiting => {
                    let frame = frame?.ok_or(io::ErrorKind::UnexpectedEof)?;
                    let result: WireAppendResult = decode_frame(&frame)?;
                    fail_step!(async "append::after_answer", |error| error);
                    self.bytes_in_flight -= self.in_flight.pop_front().unwrap_or_default();
                    self.last_progress = Instant::now();
                    if let WireAppendResult::Stored(Some(last)) = &result {
                        self.acknowledged = last.index;
                    }
                    return Ok(Some(result.into()));
                }
                request = next_of(&mut self.input), if room && self.input.is_some() => match request {
                    Some(request) => {
                        put_frame(&mut self.out, &WireAppend::from(request));
                        if !waiting {
                            self.last_progress = Instant::now();
                        }
                        self.in_flight.push_back(self.out.len());
                        self.bytes_in_flight += self.out.len();
                        fail_step!(async "append::before_send", |error| error);
                        tokio::time::timeout(self.patience, send_frames(&mut self.writer, &self.out)).await??;
                        fail_step!(async "append::after_send", |error| error);
                        self.out.clear();
                    }
                    None => self.input = None,
                },
                () = rises_above(&mut self.floor, acknowledged) => {
                    return Err(io::Error::other("the follower is so far behind that it gets a snapshot"));
                }
                () = tokio::time::sleep_until(give_up), if waiting => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
    }
}

/// Waits until the floor is higher than `acknowledged`.
async fn rises_above(floor: &mut watch::Receiver<u64>, acknowledged: u64) {
    if floor.wait_for(|floor| *floor > acknowledged).await.is_err() {
        // Its sender has gone with the node.
        std::future::pending().await
    }
}

async fn next_of<S: Stream + Unpin>(input: &mut Option<S>) -> Option<S::Item> {
    match input {
        Some(input) => input.next().await,
        None => None,
    }
}
