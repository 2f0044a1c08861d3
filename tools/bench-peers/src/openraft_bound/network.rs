//! openraft's network: connections to the other processes.

use std::future::Future;
use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use openraft::BasicNode;
use openraft::alias::SnapshotOf;
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::v2::RaftNetworkV2;
use openraft::network::{RPCOption, RaftNetworkFactory, stream_append_sequential};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, VoteRequest,
    VoteResponse,
};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::frames::{Frames, put_numbered};
use super::log_store::Acks;
use super::{LogId, Types, Vote, wire};

type Rpc<T> = Result<T, RPCError<Types>>;

/// Addresses of the other processes by number, and the delayed notifications that their responses release.
pub struct Network {
    pub others: Arc<[String]>,
    pub acks: Acks,
}

/// One connection.
struct PeerConnection {
    frames: Frames<OwnedReadHalf>,
    to: OwnedWriteHalf,
    out: BytesMut,
}

impl PeerConnection {
    async fn open(to: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        let (from, to) = stream.into_split();
        let (frames, out) = (Frames::new(from), BytesMut::new());
        Ok(Self { frames, to, out })
    }

    async fn send(&mut self, number: u64, message: &[u8]) -> io::Result<()> {
        put_numbered(&mut self.out, number, &[message]);
        self.to.write_all_buf(&mut self.out).await
    }

    async fn receive(&mut self) -> io::Result<Bytes> {
        let frame = self.frames.next().await?;
        frame.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    async fn append(&mut self, request: &AppendEntriesRequest<Types>) -> io::Result<()> {
        let mut message = Vec::new();
        wire::put_append(&mut message, request);
        self.send(wire::APPEND, &message).await
    }
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Client;

    async fn new_client(&mut self, target: u64, _node: &BasicNode) -> Client {
        self.client(target, true)
    }

    async fn new_heartbeat_client(&mut self, target: u64, _node: &BasicNode) -> Client {
        self.client(target, false)
    }
}

impl Network {
    fn client(&self, target: u64, streams: bool) -> Client {
        Client {
            // No process connects to the leader, so it has no address here.
            to: self.others.get(target as usize - 1).cloned().unwrap_or_default(),
            acks: self.acks.clone(),
            streams,
            connection: None,
        }
    }
}

/// openraft's client of one other process.
pub struct Client {
    to: String,
    acks: Acks,
    streams: bool,
    /// Connection for requests that are sent one at a time.
    connection: Option<PeerConnection>,
}

impl Client {
    async fn call(&mut self, number: u64, message: &[u8]) -> Rpc<Bytes> {
        let calling = async {
            let connection = match &mut self.connection {
                Some(connection) => connection,
                None => self.connection.insert(PeerConnection::open(&self.to).await?),
            };
            connection.send(number, message).await?;
            connection.receive().await
        };
        let answer: io::Result<Bytes> = calling.await;
        answer.map_err(|error| {
            self.connection = None;
            RPCError::Unreachable(Unreachable::new(&error))
        })
    }
}

fn broken(error: io::Error) -> RPCError<Types> {
    RPCError::Network(NetworkError::new(&error))
}

impl RaftNetworkV2<Types> for Client {
    type SnapshotData = ();

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        _option: RPCOption,
    ) -> Rpc<AppendEntriesResponse<Types>> {
        let mut message = Vec::new();
        wire::put_append(&mut message, &rpc);
        self.call(wire::APPEND, &message).await?;
        Ok(AppendEntriesResponse::Success)
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Rpc<BoxStream<'s, Rpc<StreamAppendResult<Types>>>>>
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + Send + Unpin + 'static,
    {
        if !self.streams {
            return stream_append_sequential(self, input, option);
        }
        Box::pin(async move {
            let connection = PeerConnection::open(&self.to).await;
            let connection = connection.map_err(|error| RPCError::Unreachable(Unreachable::new(&error)))?;
            let appends = Appends {
                connection,
                input: Some(input),
                acks: self.acks.clone(),
                in_flight: 0,
                committed: 0,
                answered: false,
            };
            let answers = stream::unfold(Some(appends), |appends| async move {
                let mut appends = appends?;
                match appends.next_answer().await {
                    Ok(Some(last)) => Some((Ok(Ok(last)), Some(appends))),
                    Ok(None) => None,
                    Err(error) => Some((Err(broken(error)), None)),
                }
            });
            let answers: BoxStream<'s, _> = Box::pin(answers);
            Ok(answers)
        })
    }

    async fn vote(&mut self, rpc: VoteRequest<Types>, _option: RPCOption) -> Rpc<VoteResponse<Types>> {
        let mut message = Vec::new();
        wire::put_vote(&mut message, &rpc.vote);
        wire::put_log_id(&mut message, rpc.last_log_id.as_ref());
        let mut answer = self.call(wire::VOTE, &message).await?;
        let vote = wire::take_vote(&mut answer).map_err(broken)?;
        let last = wire::take_log_id(&mut answer).map_err(broken)?;
        Ok(VoteResponse::new(vote, last, !answer.is_empty()))
    }

    async fn full_snapshot(
        &mut self,
        _vote: Vote,
        _snapshot: SnapshotOf<Types, ()>,
        _cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let error = io::Error::other("this server has no snapshots");
        Err(StreamingError::Unreachable(Unreachable::new(&error)))
    }
}

/// Entries in flight to a follower. Responses arrive in order.
struct Appends<S> {
    connection: PeerConnection,
    input: Option<S>,
    acks: Acks,
    /// Number of requests without a response.
    in_flight: usize,
    /// Highest index that openraft knows to be committed.
    committed: u64,
    answered: bool,
}

impl<S: Stream<Item = AppendEntriesRequest<Types>> + Unpin> Appends<S> {
    /// Sends pending entries until a response arrives that reports progress.
    async fn next_answer(&mut self) -> io::Result<Option<Option<LogId>>> {
        loop {
            let is_answered = self.in_flight == 0;
            if self.input.is_none() && is_answered {
                return Ok(None);
            }
            tokio::select! {
                biased;
                frame = self.connection.receive(), if !is_answered => {
                    let mut frame = frame?;
                    self.in_flight -= 1;
                    let last = wire::take_log_id(&mut frame)?;
                    let index = last.as_ref().map_or(0, |last| last.index);
                    if self.answered && index <= self.committed {
                        // The next response reports at least as much.
                        continue;
                    }
                    self.answered = true;
                    self.acks.answered(index);
                    return Ok(Some(last));
                }
                request = next_of(&mut self.input), if self.input.is_some() => match request {
                    Some(request) => {
                        self.committed = request.leader_commit.as_ref().map_or(0, |commit| commit.index);
                        // The follower does not need a commit index without entries.
                        if !self.answered || !request.entries.is_empty() {
                            self.connection.append(&request).await?;
                            self.in_flight += 1;
                        }
                    }
                    None => self.input = None,
                },
            }
        }
    }
}

async fn next_of<S: Stream + Unpin>(input: &mut Option<S>) -> Option<S::Item> {
    match input {
        Some(input) => input.next().await,
        None => None,
    }
}
