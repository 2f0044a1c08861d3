//! openraft's network: votes and heartbeats on the control connection, and a separate connection for each
//! stream of entries and for each snapshot.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use openraft::alias::SnapshotOf;
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::v2::RaftNetworkV2;
use openraft::network::{Backoff, RPCOption, RPCTypes, RaftNetworkFactory, stream_append_sequential};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendError, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};

use fault_injection::planted::{self, Bug};

use super::Peers;
use super::entries::Appends;
use super::peer_connection::{PeerConnectionError, connect};
use super::snapshots::{self, SnapshotTraffic};
use super::wire::{PeerRequest, PeerResponse, Purpose, WireAppendResult};
use crate::ids::Member;
use crate::ids::NodeId;
use crate::panics::PanicGuard;
use crate::snapshot_file::SnapshotHandle;
use crate::types::{TypeConfig, Vote};
use crate::witness::Loss;

type Rpc<T> = Result<T, RPCError<TypeConfig>>;

/// Factory of openraft's clients.
pub struct Network {
    peers: Arc<Peers>,
    /// Maximum time without an answer to an append before the connection is closed. The follower's disk may
    /// stall for a while, and a broken stream costs more than a slow one.
    append_timeout: Duration,
    traffic: Arc<SnapshotTraffic>,
}

impl Network {
    /// Creates a factory of clients that use `peers`.
    pub fn new(peers: Arc<Peers>, traffic: Arc<SnapshotTraffic>, append_timeout: Duration) -> Self {
        Self {
            peers,
            append_timeout,
            traffic,
        }
    }

    fn client(&self, to: NodeId, streaming: bool) -> Client {
        Client {
            to,
            peers: self.peers.clone(),
            append_timeout: self.append_timeout,
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

/// Error of a leader that has lost its quorum and suppresses its messages.
const SILENT: &str = "this leader reaches no quorum, and is silent so that the others can elect one";

/// openraft's client to one peer.
pub struct Client {
    to: NodeId,
    peers: Arc<Peers>,
    append_timeout: Duration,
    traffic: Arc<SnapshotTraffic>,
    /// Set if appends get a connection of their own; heartbeats go one by one on the control connection.
    streaming: bool,
}

impl Client {
    async fn request(&self, request: PeerRequest, rpc: RPCTypes, option: RPCOption) -> Rpc<PeerResponse> {
        // The calling task is one of openraft's, whose panic would go unnoticed.
        let _guard = PanicGuard::new(self.peers.registry().failure(), "a request to a peer");
        let timeout = option.hard_ttl();
        match self
            .peers
            .connection(self.to, Purpose::Control)
            .request(request, timeout)
            .await
        {
            Ok(PeerResponse::Failed(why)) => Err(RPCError::Unreachable(Unreachable::from_string(why))),
            Ok(answer) => Ok(answer),
            Err(PeerConnectionError::NotSent(why)) => {
                Err(RPCError::Unreachable(Unreachable::from_string(why)))
            }
            Err(PeerConnectionError::NoAnswer(_)) => Err(RPCError::Timeout(Timeout {
                action: rpc,
                id: self.peers.registry().node(),
                target: self.to,
                timeout,
            })),
        }
    }

    fn unexpected<T>(&self) -> Rpc<T> {
        let what = format!("node {} sent an unexpected kind of answer", self.to);
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
        if self.peers.is_silent() {
            return Err(RPCError::Unreachable(Unreachable::from_string(SILENT)));
        }
        let answer = self
            .request(PeerRequest::Append(rpc.into()), RPCTypes::AppendEntries, option)
            .await;
        if answer.is_err() && planted::is(Bug::CountedAbsent) {
            return Ok(AppendEntriesResponse::Success);
        }
        match answer? {
            PeerResponse::Append(WireAppendResult::Stored(_) | WireAppendResult::StoredQuietly(_)) => {
                Ok(AppendEntriesResponse::Success)
            }
            PeerResponse::Append(WireAppendResult::Conflict(_)) => Ok(AppendEntriesResponse::Conflict),
            PeerResponse::Append(WireAppendResult::HigherVote(vote)) => {
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
            // The task that polls the stream is one of openraft's, whose panic would go unnoticed.
            let guard = PanicGuard::new(self.peers.registry().failure(), "the stream of entries to a peer");
            let mut input = input;
            // openraft's pause after a failure is in the input: a connection opened before polling it would
            // never pause.
            let Some(first) = input.next().await else {
                let nothing: BoxStream<'s, _> = Box::pin(stream::empty());
                return Ok(nothing);
            };
            // Entries prevent a follower's election just as heartbeats do.
            if self.peers.is_silent() {
                return Err(RPCError::Unreachable(Unreachable::from_string(SILENT)));
            }
            let peers = self.peers.clone();
            let input = input.take_while(move |_| std::future::ready(!peers.is_silent()));
            let connected = connect(self.peers.registry(), self.to, Purpose::Append).await;
            if connected.is_err() && planted::is(Bug::CountedAbsent) {
                let last = first.entries.last().map(|entry| entry.log_id);
                let consent = WireAppendResult::Stored(last.or(first.prev_log_id).as_ref().map(Into::into));
                let answers: BoxStream<'s, _> = Box::pin(stream::iter([Ok(consent.into())]));
                return Ok(answers);
            }
            let acknowledged = first.prev_log_id.map_or(0, |prev| prev.index);
            let term = first.vote.leader_id.term;
            let (registry, to) = (self.peers.registry().clone(), self.to);
            let (reader, writer, _) =
                connected.map_err(|error| RPCError::Unreachable(Unreachable::new(&error)))?;
            let input = stream::iter([first]).chain(input);
            let floor = self.traffic.floor();
            let timeout = self.append_timeout;
            let appends = Appends::new(floor, acknowledged, reader, writer, input, timeout);
            let answers = stream::unfold(Some((appends, guard, registry)), move |stream| async move {
                let (mut appends, guard, registry) = stream?;
                match appends.next_answer().await {
                    Ok(Some(Err(StreamAppendError::Conflict(at))))
                        if registry.witness().denied(to, term, at.index) =>
                    {
                        let known = registry.witness().acknowledged_by(to);
                        let loss = Loss::Log {
                            shown: at.index.saturating_sub(1),
                            known,
                        };
                        registry.reject_rolled_back(to, loss);
                        let error = io::Error::other(format!("the follower has lost entry {}", at.index));
                        Some((Err(RPCError::Unreachable(Unreachable::new(&error))), None))
                    }
                    Ok(Some(answer)) => {
                        if let Ok(Some(last)) = &answer {
                            let committed = appends.committed();
                            registry.witness().acknowledged(to, term, last.index, committed);
                        }
                        // After a rejection the follower has closed the stream: entries in transit would not
                        // be answered.
                        let next = answer.is_ok().then_some((appends, guard, registry));
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
        match self
            .request(PeerRequest::Vote((&rpc).into()), RPCTypes::Vote, option)
            .await?
        {
            PeerResponse::Vote(response) => {
                if response.granted {
                    let witness = self.peers.registry().witness();
                    witness.voted(self.to, response.vote.term);
                }
                Ok(response.into())
            }
            _ => self.unexpected(),
        }
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Rpc<VoteResponse<TypeConfig>> {
        match self
            .request(PeerRequest::PreVote((&rpc).into()), RPCTypes::Vote, option)
            .await?
        {
            PeerResponse::Vote(response) => Ok(response.into()),
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
        let request = PeerRequest::TransferLeader {
            from: request.from_leader().into(),
            to: *request.to_node_id(),
            last: request.last_log_id().map(Into::into),
        };
        match self.request(request, RPCTypes::TransferLeader, option).await? {
            PeerResponse::TransferLeader(Ok(())) => Ok(Ok(())),
            PeerResponse::TransferLeader(Err(why)) => {
                tracing::info!(
                    node = self.to,
                    why,
                    "peers: a transfer of leadership was rejected"
                );
                Err(RPCError::Unreachable(Unreachable::from_string(why)))
            }
            _ => self.unexpected(),
        }
    }

    fn backoff(&self) -> Option<Backoff> {
        None
    }
}
