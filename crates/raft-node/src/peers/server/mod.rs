//! Server side of peer connections: accepts peers, checks their identity, and serves each connection for its
//! purpose.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use openraft::raft::TransferLeaderRequest;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transport_security::{HandshakeLimiter, HandshakeLimits, PeerName};

use super::entries::answers;
use super::peer_connection::CONNECT_TIMEOUT;
use super::peer_registry::{HandshakeError, PeerRegistry};
use super::snapshots::{self, SnapshotTraffic};
use super::stream::{PeerListener, PeerStream, Protected, ReadHalf, WriteHalf, protect_incoming};
use super::wire::{
    FrameReader, Hello, HelloReply, HelloStart, PeerRequest, PeerResponse, Purpose, WireAppendResult,
    decode_frame, put_frame, send_frames,
};
use crate::application::Application;
use crate::audit::Audit;
use crate::batcher::ProposalQueue;
use crate::codec;
use crate::disk_health::DiskHealth;
use crate::fast_failover::FastFailover;
use crate::ids::NodeId;
use crate::membership::change::MembershipLeader;
use crate::panics::PanicGuard;
use crate::snapshot_file::blocking;
use crate::state_machine::Raft;
use crate::storage::Storage;
use fault_injection::fail_step;

/// Maximum number of connections of peers: four purposes per peer of a large cluster, and a few that are
/// being replaced. Other callers cannot exhaust the node's file descriptors.
const MAX_CONNECTIONS: usize = 256;

/// Maximum number of callers that have sent no hello. One more replaces the oldest, so that silent callers
/// cannot take more than half of the connections. A peer sends its hello within a round trip.
const MAX_HANDSHAKES: usize = 128;

/// Maximum number of answers queued for one peer; above it no requests are read.
const MAX_ANSWERS_QUEUED: usize = 1024;

/// Id of a caller whose hello this program cannot decode.
const UNKNOWN_NODE: NodeId = 0;
/// Time for which a removed node still gets answers: the answer to its removal is sent when the removal is
/// applied, which is also when it takes effect.
const PARTING_GRACE: Duration = Duration::from_millis(200);

/// Components that answer the requests of peers.
#[derive(Clone)]
pub struct Services {
    /// Raft.
    pub raft: Raft,
    /// Queue of forwarded commands.
    pub proposal_queue: ProposalQueue,
    /// Sessions and reads.
    pub application: Arc<dyn Application>,
    /// Changes of the membership.
    pub membership: Arc<MembershipLeader>,
    /// Storage of received snapshots, and of the cluster's id once it is known.
    pub storage: Arc<Storage>,
    /// Health of the disks.
    pub disks: Arc<DiskHealth>,
    /// Snapshots that are being sent.
    pub traffic: Arc<SnapshotTraffic>,
    /// Failover: gets the leader's signs of life, and their end.
    pub fast_failover: Arc<FastFailover>,
    /// Comparison of this node's state with that of other members.
    pub audit: Arc<Audit>,
}

/// Accepts peers until `stop`. Returns when all their connections are closed.
pub async fn serve(
    listener: PeerListener,
    registry: Arc<PeerRegistry>,
    services: Services,
    stop: CancellationToken,
) {
    let connections = TaskTracker::new();
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let crowd = HandshakeLimiter::new(HandshakeLimits {
        timeout: CONNECT_TIMEOUT,
        at_once: MAX_HANDSHAKES,
    });
    loop {
        let permit = room
            .clone()
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Most likely out of file descriptors, until other connections are closed.
                tracing::warn!(%error, "peers: a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (registry, services, stop, crowd) =
            (registry.clone(), services.clone(), stop.clone(), crowd.clone());
        connections.spawn(async move {
            let _guard = PanicGuard::new(registry.failure(), "the connection of a peer");
            let served = async {
                let (hello, reader, writer) =
                    handshake(stream, &from.to_string(), &registry, &services.storage, &crowd).await?;
                let conversation = async {
                    match hello.purpose {
                        Purpose::Control | Purpose::Traffic => {
                            answer(hello.from, reader, writer, &registry, &services).await
                        }
                        Purpose::Append => {
                            let version = registry.wire_version_with(hello.from);
                            answers::serve(version, reader, writer, &services).await
                        }
                        Purpose::Snapshot => snapshots::receive(reader, writer, &services).await,
                    }
                };
                let ended = tokio::select! {
                    ended = conversation => ended,
                    // The caller connects again and then learns the reason.
                    why = wait_for_removal(&registry, &hello) => Err(io::Error::other(why)),
                };
                services.fast_failover.connection_lost(hello.from);
                ended
            };
            let ended = tokio::select! {
                ended = served => ended,
                () = stop.cancelled() => Ok(()),
            };
            if let Err(error) = ended {
                tracing::debug!(%from, %error, "peers: the connection of a peer ended");
            }
            drop(permit);
        });
    }
    connections.close();
    connections.wait().await;
}

/// Completes when a caller is no longer a member, after a grace period in which its answers are sent: it may
/// have requested its own removal.
async fn wait_for_removal(registry: &PeerRegistry, hello: &Hello) -> HandshakeError {
    let why = registry.until_rejected(hello).await;
    tokio::time::sleep(PARTING_GRACE).await;
    why
}

/// Performs the handshake. An error means that the connection must be closed, whatever the reason.
///
/// A node without a cluster joins that of the first caller that has one, permanently.
async fn handshake(
    stream: PeerStream,
    from: &str,
    registry: &PeerRegistry,
    storage: &Arc<Storage>,
    crowd: &Arc<HandshakeLimiter>,
) -> io::Result<(Hello, FrameReader<ReadHalf>, WriteHalf)> {
    let shake = async {
        fail_step!(async "peer::before_greeting", |error| error);
        stream.set_nodelay(true)?;
        let (stream, proven) = secure(stream, registry, from).await?;
        let (reader, mut writer) = stream.into_split();
        let mut reader = FrameReader::for_handshake(reader);
        let frame = reader.next().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let hello = read_hello(registry, from, &frame, &mut writer).await?;
        if let (Some(tls), Some(proven)) = (registry.tls(), &proven)
            && let Err(refused) = tls.check(proven, hello.from)
        {
            if let Some(others_left_out) = registry.admit_line(from) {
                tracing::warn!(from, %refused, others_left_out, "peers: rejected a peer");
            }
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, refused));
        }
        let reply = registry.check_hello(&hello);
        if let (HelloReply::Welcome { .. }, None, Some(id)) =
            (&reply, registry.cluster_id(), hello.cluster_id)
        {
            // Durable before the answer, because the caller relies on it.
            let storage = storage.clone();
            blocking(move || Ok(storage.set_cluster_id(id.0)?)).await?;
            registry.set_cluster_id(id);
            tracing::info!(cluster = %id, by = hello.from, "peers: joined the cluster");
        }
        let mut reply = reply;
        if let HelloReply::Welcome { .. } = &reply
            && let Err(error) = registry
                .record_start(hello.from, hello.from_disk, &hello.extensions)
                .await
        {
            // Checked again: a reason to reject the caller is known now. Otherwise this node could not record
            // the start, and the peer retries.
            reply = registry.check_hello(&hello);
            if let HelloReply::Welcome { .. } = &reply {
                return Err(error);
            }
        }
        let mut out = BytesMut::new();
        put_frame(&mut out, &reply);
        send_frames(&mut writer, &out).await?;
        fail_step!(async "peer::after_greeting", |error| error);
        match reply {
            HelloReply::Welcome { .. } => {
                reader.allow_large_frames();
                Ok((hello, reader, writer))
            }
            HelloReply::Refused { reason, .. } => {
                if registry.is_new_reason(hello.from, &reason)
                    && let Some(others_left_out) = registry.admit_line(from)
                {
                    tracing::warn!(
                        node = hello.from,
                        reason,
                        others_left_out,
                        "peers: rejected a peer"
                    );
                }
                Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
            }
        }
    };
    match crowd.limit(shake).await {
        Ok(shaken) => shaken,
        Err(cut) => Err(cut.into()),
    }
}

/// Accepts a connection. Returns the protected stream, and the node of the caller's certificate.
async fn secure(
    stream: PeerStream,
    registry: &PeerRegistry,
    from: &str,
) -> io::Result<(Protected, Option<PeerName>)> {
    let protected = protect_incoming(stream, registry.tls()).await;
    protected.map_err(|refused| {
        if refused.is_refusal()
            && let Some(others_left_out) = registry.admit_line(from)
        {
            tracing::warn!(from, %refused, others_left_out, "peers: rejected a peer");
        }
        refused.into()
    })
}

/// Reads a caller's hello. A caller that shares no version gets that as the reason, whatever else its hello
/// contains.
async fn read_hello(
    registry: &PeerRegistry,
    caller: &str,
    frame: &[u8],
    writer: &mut WriteHalf,
) -> io::Result<Hello> {
    let bad = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let start = codec::decode_start::<HelloStart>(frame).map_err(bad)?;
    let decoded = codec::decode::<Hello>(frame);
    let from = decoded.as_ref().map_or(UNKNOWN_NODE, |hello| hello.from);
    if let Err((cause, reason)) = registry.negotiate(&start, from) {
        if let Some(others_left_out) = registry.admit_line(caller) {
            tracing::warn!(from = caller, reason, others_left_out, "peers: rejected a peer");
        }
        let mut out = BytesMut::new();
        put_frame(
            &mut out,
            &HelloReply::Refused {
                reason: reason.clone(),
                cause,
                formed: false,
            },
        );
        send_frames(writer, &out).await?;
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    decoded.map_err(bad)
}

/// Answers the requests of the peer `from` as their results become available. Commands are queued in the order
/// of arrival.
async fn answer(
    from: NodeId,
    mut reader: FrameReader<ReadHalf>,
    mut writer: WriteHalf,
    registry: &Arc<PeerRegistry>,
    services: &Services,
) -> io::Result<()> {
    let (answers, mut answered) = mpsc::channel::<(u64, PeerResponse)>(MAX_ANSWERS_QUEUED);
    let write = async move {
        let mut out = BytesMut::new();
        while let Some(first) = answered.recv().await {
            put_frame(&mut out, &first);
            while let Ok(more) = answered.try_recv() {
                put_frame(&mut out, &more);
            }
            fail_step!(async "peer::before_reply", |error| error);
            send_frames(&mut writer, &out).await?;
            fail_step!(async "peer::after_reply", |error| error);
            out.clear();
        }
        Ok(())
    };
    let read = async move {
        let pending = TaskTracker::new();
        while let Some(frame) = reader.next().await? {
            let (id, mut request): (u64, PeerRequest) = decode_frame(&frame)?;
            if let PeerRequest::Append(append) = request {
                let append = append.validated().map_err(bad_data)?;
                services.fast_failover.record_leader_message(&append.vote);
                request = PeerRequest::Append(append);
            }
            #[cfg(feature = "failpoints")]
            crate::peers::fail_points::after_request(&request).await?;
            // The request takes its place in the queue here, in order; answers may be sent in any order.
            let answer = begin(from, request, services.clone()).await;
            let answers = answers.clone();
            let guard = PanicGuard::new(registry.failure(), "the answer to a peer");
            pending.spawn(async move {
                let _guard = guard;
                // A closed connection needs no answer.
                let _ = answers.send((id, answer.await)).await;
            });
        }
        Ok(())
    };
    tokio::select! {
        ended = read => ended,
        ended = write => ended,
    }
}

/// Performs the part of a request that must run in order. Returns the rest.
async fn begin(
    from: NodeId,
    request: PeerRequest,
    services: Services,
) -> futures_util::future::BoxFuture<'static, PeerResponse> {
    let (term, envelopes, mut traces) = match request {
        PeerRequest::Forward { term, envelopes } => (term, envelopes, Vec::new()),
        PeerRequest::ForwardTraced {
            term,
            envelopes,
            traces,
        } => (term, envelopes, traces),
        request => return Box::pin(finish(from, request, services)),
    };
    let received = (!traces.is_empty()).then(Instant::now);
    let done = services.proposal_queue.enqueue(term, envelopes).await;
    Box::pin(async move {
        let outcome = done.await;
        if let (Some(received), Ok(Ok(declined))) = (received, &outcome) {
            traces.retain(|traced| !declined.places.contains(&traced.place));
            services.application.led(&traces, received);
        }
        match outcome {
            Ok(outcome) => PeerResponse::Forward(outcome),
            Err(_) => PeerResponse::Failed("the proposal was dropped with its term".into()),
        }
    })
}

async fn finish(from: NodeId, request: PeerRequest, services: Services) -> PeerResponse {
    let failed = |what: &dyn std::fmt::Display| PeerResponse::Failed(what.to_string());
    match request {
        PeerRequest::Vote(request) => match services.raft.vote(request.into()).await {
            Ok(response) => PeerResponse::Vote((&response).into()),
            Err(error) => failed(&error),
        },
        PeerRequest::PreVote(request) => match services.fast_failover.refuse_pre_vote() {
            Some(refused) => PeerResponse::Vote(refused),
            None => match services.raft.pre_vote(request.into()).await {
                Ok(response) => PeerResponse::Vote((&response).into()),
                Err(error) => failed(&error),
            },
        },
        PeerRequest::Append(append) => {
            let request = openraft::raft::AppendEntriesRequest::from(append);
            let (prev, last) = (
                request.prev_log_id,
                request.entries.last().map(|entry| entry.log_id),
            );
            match services.raft.append_entries(request).await {
                Ok(response) => {
                    let result = response.into_stream_result(prev, last.or(prev));
                    PeerResponse::Append(WireAppendResult::from(result))
                }
                Err(error) => failed(&error),
            }
        }
        PeerRequest::TransferLeader { .. } if services.audit.has_wrong_state() => {
            PeerResponse::TransferLeader(Err("its state differs from that of the other members".to_owned()))
        }
        PeerRequest::TransferLeader { from, to, last } => {
            let request = TransferLeaderRequest::new(from.into(), to, last.map(Into::into));
            match services.raft.handle_transfer_leader(request).await {
                Ok(Ok(())) => PeerResponse::TransferLeader(Ok(())),
                Ok(Err(refused)) => PeerResponse::TransferLeader(Err(refused.to_string())),
                Err(error) => failed(&error),
            }
        }
        PeerRequest::Touch { sessions } => {
            let arrived = Instant::now();
            let beats = sessions.into_iter().map(|session| (session, arrived)).collect();
            PeerResponse::Touch(services.application.touch(beats).await)
        }
        PeerRequest::Heartbeats {
            seen,
            within_ms,
            sessions,
        } => {
            let within = Duration::from_millis(u64::from(within_ms));
            PeerResponse::Heartbeats(services.application.take_heartbeats(seen, within, sessions).await)
        }
        PeerRequest::ReadIndex => PeerResponse::ReadIndex(services.application.read_index().await),
        PeerRequest::Disk { view } => {
            if let Some(view) = view {
                services.disks.learn(view);
            }
            PeerResponse::Disk(services.disks.report())
        }
        PeerRequest::ChangeMembership(change) => {
            PeerResponse::ChangeMembership(services.membership.change(&change).await)
        }
        PeerRequest::Members => PeerResponse::Members(services.disks.members(&services.raft)),
        PeerRequest::LeaderLost { term, leader } => {
            PeerResponse::LeaderLost(services.fast_failover.assess_leader(term, leader).await)
        }
        PeerRequest::Audit(question) => PeerResponse::Audit(services.audit.answer(from, *question).await),
        PeerRequest::Forward { .. } | PeerRequest::ForwardTraced { .. } => {
            failed(&"a forwarded batch is handled by begin")
        }
    }
}

/// Returns an error about data that a peer sent.
pub(super) fn bad_data(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests;
