//! Client side of a connection to a peer: long-lived and pipelined, opened when first needed and again when
//! it breaks.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::FutureExt;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use super::peer_registry::{PeerRegistry, clock_in};
use super::stream::{PeerStream, ReadHalf, WriteHalf, protect_outgoing};
use super::wire::{
    FrameReader, HelloReply, PeerRequest, PeerResponse, Purpose, RefusalCause, decode_frame, put_frame,
    send_frames,
};
use crate::ids::DiskId;
use crate::ids::NodeId;
use crate::panics::PanicGuard;
use crate::versions::OLDEST_WIRE_VERSION;
use fault_injection::fail_step;

/// Maximum time to establish a connection, including the handshake. Peers are a fraction of a millisecond
/// away, or a few hundred milliseconds between continents.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Time without any answer after which a connection is closed, once a request on it has timed out. A peer
/// that is slow for a moment needs no new connection: establishing one would take longer.
const MAX_SILENCE: Duration = Duration::from_millis(300);

/// Capacity of the queue of requests. Callers wait while it is full: the peer does not keep up.
const QUEUE: usize = 1024;

/// Reason for which a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerConnectionError {
    /// The request never left this node.
    #[error("not sent: {0}")]
    NotSent(String),
    /// The request was sent, or may have been; its effect on the peer is unknown.
    #[error("sent, but not answered: {0}")]
    NoAnswer(String),
}

struct PendingRequest {
    request: PeerRequest,
    answer: oneshot::Sender<Result<PeerResponse, PeerConnectionError>>,
}

/// Pipelined connection to one peer. Cheap to clone; closed when the last clone is dropped.
#[derive(Clone)]
pub struct PeerConnection {
    requests: mpsc::Sender<PendingRequest>,
    liveness: Arc<Liveness>,
}

/// Signs of life of the peer.
#[derive(Default)]
struct Liveness {
    /// A request timed out: the connection may be dead without an error.
    suspicion: Notify,
}

impl PeerConnection {
    /// Creates a connection to `to`, which is opened at the first request.
    pub fn new(registry: Arc<PeerRegistry>, to: NodeId, purpose: Purpose) -> Self {
        let (requests, queue) = mpsc::channel(QUEUE);
        let liveness = Arc::new(Liveness::default());
        tokio::spawn(run(registry, to, purpose, queue, liveness.clone()));
        Self { requests, liveness }
    }

    /// Sends a request, in the order of the calls, and waits up to `timeout` for the answer.
    pub async fn request(
        &self,
        request: PeerRequest,
        timeout: Duration,
    ) -> Result<PeerResponse, PeerConnectionError> {
        let answer = self.send(request).await?;
        self.answer(answer, timeout).await
    }

    /// Waits for the answer to a request that was sent.
    pub async fn answer(
        &self,
        answer: oneshot::Receiver<Result<PeerResponse, PeerConnectionError>>,
        timeout: Duration,
    ) -> Result<PeerResponse, PeerConnectionError> {
        match tokio::time::timeout(timeout, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(PeerConnectionError::NoAnswer("the connection was closed".into())),
            Err(_) => {
                self.liveness.suspicion.notify_one();
                Err(PeerConnectionError::NoAnswer(format!(
                    "no answer within {timeout:?}"
                )))
            }
        }
    }

    /// Queues a request. Requests are written in the order in which this returns.
    pub async fn send(
        &self,
        request: PeerRequest,
    ) -> Result<oneshot::Receiver<Result<PeerResponse, PeerConnectionError>>, PeerConnectionError> {
        let (tx, rx) = oneshot::channel();
        let request = PendingRequest { request, answer: tx };
        match self.requests.send(request).await {
            Ok(()) => Ok(rx),
            Err(_) => Err(PeerConnectionError::NotSent("the connection was closed".into())),
        }
    }
}

/// Both halves of an open connection, and the disk of the node at the other end.
pub type OpenConnection = (FrameReader<ReadHalf>, WriteHalf, DiskId);

/// Connects to a peer for `purpose`, at any of its addresses, with a handshake.
pub async fn connect(registry: &PeerRegistry, to: NodeId, purpose: Purpose) -> io::Result<OpenConnection> {
    let mut problem = None;
    for address in registry.peer_addresses(to) {
        match connect_at(registry, to, &address, purpose).await {
            Ok(connection) => {
                registry.record_address(to, &address);
                return Ok(connection);
            }
            // The membership's address is tried first and is more likely correct, so its error is the better
            // message.
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    Err(problem.unwrap_or_else(|| io::Error::other(format!("node {to} has no known address"))))
}

/// Connects to a node at `address`, with a handshake.
pub async fn connect_at(
    registry: &PeerRegistry,
    to: NodeId,
    address: &str,
    purpose: Purpose,
) -> io::Result<OpenConnection> {
    let other = |what: String| io::Error::other(what);
    let shake = async {
        fail_step!(async "peer::before_connect", |error| error);
        let stream = PeerStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (reader, mut writer) = protect_outgoing(stream, to, registry.tls()).await?.into_split();
        let mut reader = FrameReader::new(reader);
        let hello = registry.hello(to, purpose);
        let after_request = Instant::now();
        let mut out = BytesMut::new();
        put_frame(&mut out, &hello);
        send_frames(&mut writer, &out).await?;
        let reply: HelloReply = reader
            .message()
            .await?
            .ok_or_else(|| other("the peer closed the connection during the handshake".to_owned()))?;
        let shown = match &reply {
            HelloReply::Welcome { extensions, .. } => extensions.clone(),
            HelloReply::Refused { reason, cause, .. } => {
                if *cause == RefusalCause::RolledBack {
                    registry.retire_directory(reason.clone()).await;
                }
                Vec::new()
            }
        };
        let disk = registry
            .accept(&hello, reply)
            .map_err(|error| other(error.to_string()))?;
        if let Some(clock_ms) = clock_in(&shown) {
            registry.clock().measured(to, clock_ms, after_request);
        }
        registry.record_start(to, disk, &shown).await?;
        fail_step!(async "peer::after_connect", |error| error);
        Ok((reader, writer, disk))
    };
    match timeout(CONNECT_TIMEOUT, shake).await {
        Ok(connected) => connected,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn run(
    registry: Arc<PeerRegistry>,
    to: NodeId,
    purpose: Purpose,
    mut queue: mpsc::Receiver<PendingRequest>,
    liveness: Arc<Liveness>,
) {
    let _guard = PanicGuard::new(registry.failure(), "a connection to a peer");
    let mut is_lost = false;
    // One line per peer, not one for each of its connections.
    let logs = purpose == Purpose::Control;
    while let Some(first) = queue.recv().await {
        let (reader, writer, _) = match connect(&registry, to, purpose).await {
            Ok(connected) => connected,
            Err(error) => {
                let what = error.to_string();
                match logs && !is_lost {
                    true => tracing::warn!(
                        node = to,
                        error = what,
                        "peers: lost the connection to a peer, which cannot be reached"
                    ),
                    false => tracing::debug!(
                        node = to,
                        ?purpose,
                        error = what,
                        "peers: a peer cannot be reached"
                    ),
                }
                is_lost = true;
                refuse(first, &what);
                // Requests that arrived meanwhile would fail as well.
                while let Ok(request) = queue.try_recv() {
                    refuse(request, &what);
                }
                continue;
            }
        };
        if std::mem::take(&mut is_lost) && logs {
            tracing::info!(node = to, "peers: connected to a lost peer again");
        }
        // A suspicion about the previous connection does not apply to this one.
        let _stale = liveness.suspicion.notified().now_or_never();
        let mut waiting = HashMap::new();
        // The handshake has negotiated a version.
        let version = registry.wire_version_with(to).unwrap_or(OLDEST_WIRE_VERSION);
        let ended = exchange(
            first,
            &mut queue,
            &liveness,
            version,
            reader,
            writer,
            &mut waiting,
        )
        .await;
        if let Err(error) = &ended {
            tracing::debug!(node = to, ?purpose, %error, "peers: a connection to a peer broke");
        }
        let what = ended
            .err()
            .map_or("the peer closed the connection".to_owned(), |error| {
                error.to_string()
            });
        for answer in waiting.into_values() {
            // The waiting task may have ended.
            let _ = answer.send(Err(PeerConnectionError::NoAnswer(what.clone())));
        }
    }
}

fn refuse(request: PendingRequest, what: &str) {
    // The waiting task may have ended.
    let _ = request
        .answer
        .send(Err(PeerConnectionError::NotSent(what.to_owned())));
}

type Waiting = HashMap<u64, oneshot::Sender<Result<PeerResponse, PeerConnectionError>>>;

async fn exchange(
    first: PendingRequest,
    queue: &mut mpsc::Receiver<PendingRequest>,
    liveness: &Liveness,
    version: u16,
    mut reader: FrameReader<ReadHalf>,
    mut writer: WriteHalf,
    waiting: &mut Waiting,
) -> io::Result<()> {
    let mut next_id = 0u64;
    let mut out = BytesMut::new();
    let mut next = Some(first);
    // Time since when requests wait without any answer, and the time at which the connection is then closed.
    let mut quiet_since = Instant::now();
    let mut give_up = None;
    loop {
        if waiting.is_empty() {
            quiet_since = Instant::now();
        }
        // The whole queue is sent in one write.
        while let Some(request) = next.take() {
            let since = request.request.since();
            if since > version {
                let what =
                    format!("the request needs version {since}, and the peer speaks version {version}");
                refuse(request, &what);
                next = queue.try_recv().ok();
                continue;
            }
            put_frame(&mut out, &(next_id, &request.request));
            #[cfg(feature = "failpoints")]
            let after_request = crate::peers::fail_points::before_request(&request.request).await;
            waiting.insert(next_id, request.answer);
            #[cfg(feature = "failpoints")]
            after_request?;
            next_id += 1;
            next = queue.try_recv().ok();
        }
        if !out.is_empty() {
            send_frames(&mut writer, &out).await?;
            fail_step!(async "peer::after_ask", |error| error);
            out.clear();
        }
        tokio::select! {
            biased;
            () = liveness.suspicion.notified() => give_up = Some(quiet_since + MAX_SILENCE),
            frame = reader.next() => match frame? {
                Some(frame) => {
                    let (id, answer): (u64, PeerResponse) = decode_frame(&frame)?;
                    fail_step!(async "peer::after_answer", |error| error);
                    quiet_since = Instant::now();
                    give_up = None;
                    if let Some(caller) = waiting.remove(&id) {
                        // The waiting task may have ended.
                        let _ = caller.send(Ok(answer));
                    }
                }
                None => return Ok(()),
            },
            // Checked after reading what has arrived: this node itself may have stalled.
            () = sleep_until(give_up.unwrap_or_else(Instant::now)), if give_up.is_some() => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "a request timed out"));
            }
            // While the connection is in doubt, a new request may belong on the next one.
            request = queue.recv(), if give_up.is_none() => match request {
                Some(request) => next = Some(request),
                None => return Ok(()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tokio::net::TcpListener;
    use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
    use tokio::sync::watch;

    use super::*;
    use crate::ids::MemberAddress;
    use crate::ids::{ClusterId, DiskId};
    use crate::peers::wire::Hello;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn registry(node: NodeId, peer: &str) -> Arc<PeerRegistry> {
        let address = MemberAddress {
            peer: peer.to_owned(),
            http: String::new(),
        };
        let members = BTreeMap::from([(1, address.clone()), (2, address)]);
        let cluster = Some(ClusterId([7; 16]));
        Arc::new(PeerRegistry::new(
            node,
            "test".into(),
            DiskId([node as u8; 16]),
            cluster,
            members,
            watch::Sender::new(None),
        ))
    }

    /// Node 2: accepts one connection with a handshake.
    async fn accept(
        listener: &TcpListener,
        registry: &PeerRegistry,
    ) -> (FrameReader<OwnedReadHalf>, OwnedWriteHalf) {
        let (stream, _) = listener.accept().await.unwrap();
        let (reader, mut writer) = stream.into_split();
        let mut reader = FrameReader::new(reader);
        let hello: Hello = reader.message().await.unwrap().unwrap();
        let mut out = BytesMut::new();
        put_frame(&mut out, &registry.check_hello(&hello));
        send_frames(&mut writer, &out).await.unwrap();
        (reader, writer)
    }

    async fn answer(writer: &mut OwnedWriteHalf, id: u64, index: u64) {
        let mut out = BytesMut::new();
        put_frame(&mut out, &(id, PeerResponse::ReadIndex(Ok(index))));
        send_frames(writer, &out).await.unwrap();
    }

    async fn next_id(reader: &mut FrameReader<OwnedReadHalf>) -> u64 {
        let (id, _): (u64, PeerRequest) = reader.message().await.unwrap().unwrap();
        id
    }

    #[tokio::test]
    async fn answers_match_their_requests_in_any_order() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let connection = PeerConnection::new(registry(1, &address), 2, Purpose::Control);
        let serve = async {
            let (mut reader, mut writer) = accept(&listener, &registry(2, &address)).await;
            let (a, b) = (next_id(&mut reader).await, next_id(&mut reader).await);
            answer(&mut writer, b, 20).await;
            answer(&mut writer, a, 10).await;
            (reader, writer)
        };
        let request = || connection.request(PeerRequest::ReadIndex, TIMEOUT);
        let (first, second, _connection) = tokio::join!(request(), request(), serve);
        assert_eq!(first, Ok(PeerResponse::ReadIndex(Ok(10))));
        assert_eq!(second, Ok(PeerResponse::ReadIndex(Ok(20))));
    }

    #[tokio::test]
    async fn unsent_requests_are_distinguished_from_unanswered_ones() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let connection = PeerConnection::new(registry(1, &address), 2, Purpose::Traffic);
        let hang_up = async {
            let (mut reader, _writer) = accept(&listener, &registry(2, &address)).await;
            next_id(&mut reader).await;
        };
        let (after_request, ()) = tokio::join!(connection.request(PeerRequest::ReadIndex, TIMEOUT), hang_up);
        assert!(
            matches!(after_request, Err(PeerConnectionError::NoAnswer(_))),
            "{after_request:?}"
        );

        // The connection is opened again automatically.
        let serve = async {
            let (mut reader, mut writer) = accept(&listener, &registry(2, &address)).await;
            let id = next_id(&mut reader).await;
            answer(&mut writer, id, 1).await;
        };
        let (after_request, ()) = tokio::join!(connection.request(PeerRequest::ReadIndex, TIMEOUT), serve);
        assert_eq!(after_request, Ok(PeerResponse::ReadIndex(Ok(1))));

        // The listener is closed; the broken connection may be noticed first.
        drop(listener);
        loop {
            match connection.request(PeerRequest::ReadIndex, TIMEOUT).await {
                Err(PeerConnectionError::NotSent(_)) => break,
                Err(PeerConnectionError::NoAnswer(_)) => {}
                Ok(answer) => panic!("{answer:?}"),
            }
        }
    }

    #[tokio::test]
    async fn silent_connection_is_replaced_by_a_new_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let connection = PeerConnection::new(registry(1, &address), 2, Purpose::Control);
        let node_2 = registry(2, &address);
        let after_request = async {
            let silent = connection
                .request(PeerRequest::ReadIndex, Duration::from_millis(50))
                .await;
            assert!(
                matches!(silent, Err(PeerConnectionError::NoAnswer(_))),
                "{silent:?}"
            );
            connection.request(PeerRequest::ReadIndex, TIMEOUT).await
        };
        let serve = async {
            let _silent = accept(&listener, &node_2).await;
            let (mut reader, mut writer) = accept(&listener, &node_2).await;
            let id = next_id(&mut reader).await;
            answer(&mut writer, id, 3).await;
            (reader, writer)
        };
        let both = async { tokio::join!(after_request, serve) };
        let (answered, _connection) = timeout(TIMEOUT, both).await.expect("every request ends");
        assert_eq!(answered, Ok(PeerResponse::ReadIndex(Ok(3))));
    }
}
