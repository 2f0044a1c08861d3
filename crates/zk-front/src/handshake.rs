//! Beginning of a connection: answers a four-letter word, or opens or resumes a session.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use listener::{ConnectionMetrics, Socket};
use lock_node::{Node, OpenSessionError, ProposeError, fail_step};
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use transport_security::{ClientCertificate, HandshakeError};
use zk_wire::{ConnectRequest, ConnectResponse, DecodeError, ErrorCode, FrameError, Reader, frame, op_code};
use znode_store::{Command, Identities, Password, Refusal, Reply, Request, SessionId, Zxid};

use crate::auth::ClientIdentities;
use crate::connection::{Connection, End, Session};
use crate::four_letter_word::FourLetterWord;
use crate::four_letter_words;
use crate::front::{Client, Front, RegisteredClient};
use crate::protection::Protection;
use crate::request_metrics::Received;
use crate::socket::{self, ReceiveError, Stream};
use crate::trace::Traced;

/// Name of the sessions of ZooKeeper clients, as their protocol has none.
const SESSION_NAME: &str = "zookeeper client";

/// Maximum time for which the connection of an answered four-letter word stays open: far longer than the
/// answer takes, and too short for many connections to accumulate.
const LINGER: Duration = Duration::from_secs(1);

/// Maximum size of a connect request in bytes: a few numbers and a password of sixteen bytes. A client that
/// has not authenticated gets no more memory.
const MAX_CONNECT_BYTES: usize = 1024;

/// Xid that is shown for the connect request, which has none. As in ZooKeeper.
const FIRST_XID: i32 = 0;

/// Connection with a session, and its stream.
struct Established {
    connection: Connection,
    stream: Stream,
}

/// Reason why a connection was not established.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] HandshakeError),
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("the client sent no request in time")]
    Silent,
    #[error("the client has seen zxid {seen}, but this node is only at {at}")]
    Behind { seen: Zxid, at: Zxid },
    #[error("{0}")]
    Unavailable(String),
    #[error("{0}")]
    NotAuthenticated(Refusal),
    #[error("this node is cut off: it knows no leader")]
    CutOff,
    #[error("the node is stopping")]
    Stopping,
}

/// Serves a connection from its first byte to its last.
///
/// This future is all that an idle connection consists of, beside [`Established`]: values that it captures or
/// that live across a wait exist ten thousand times. Therefore state that only the beginning needs is part of
/// the beginning's box and freed with it.
pub(crate) fn serve(
    front: Front,
    client: RegisteredClient,
    socket: Socket,
    protection: Protection,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send + 'static {
    // The beginning needs five times the memory of the rest, and frees it.
    let (peer, stopping, metrics) = (client.0.clone(), stop.clone(), front.metrics().clone());
    let established = Box::pin(async move {
        let (stream, certificate) = accept_tls(socket, &protection, &stopping).await?;
        let identities = ClientIdentities::new(peer.address.ip(), certificate.as_ref(), &protection);
        establish(&front, &peer, stream, identities, &stopping).await
    });
    async move {
        let mut established = match established.await {
            Ok(Some(established)) => established,
            // A four-letter word.
            Ok(None) => return,
            Err(error) => return log_connect_error(&metrics, &client.0, &error),
        };
        let ended = established.connection.serve(&mut established.stream, &stop).await;
        log_end(&client.0, ended.unwrap_or_else(End::from));
    }
}

fn log_end(client: &Client, end: End) {
    let address = client.address;
    match end {
        End::Orderly => debug!(%address, "ZooKeeper front end: client closed its session"),
        End::Early(why) => debug!(%address, why, "ZooKeeper front end: connection ended"),
    }
}

fn log_connect_error(metrics: &ConnectionMetrics, client: &Client, error: &ConnectError) {
    let address = client.address;
    let message = match error {
        ConnectError::Frame(_) | ConnectError::Decode(_) => {
            "connection from a program that is not a ZooKeeper client"
        }
        ConnectError::Tls(error) if error.is_refusal() => "client rejected",
        ConnectError::NotAuthenticated(_) => "client rejected",
        _ => return debug!(%address, %error, "ZooKeeper front end: client not served"),
    };
    if let Some(others_left_out) = metrics.admit_line(address.ip()) {
        info!(%address, %error, others_left_out, "ZooKeeper front end: {message}");
    }
}

/// Performs the TLS handshake, which has a deadline of its own, if the port uses TLS.
async fn accept_tls(
    socket: Socket,
    protection: &Protection,
    stop: &CancellationToken,
) -> Result<(Stream, Option<ClientCertificate>), ConnectError> {
    let Protection::Tls(tls) = protection else {
        return Ok((Stream::Plain(socket), None));
    };
    let tls = tls.clone();
    let handshake = socket.handshake(
        async move |socket| tls.accept(socket).await,
        |(stream, _)| stream.socket_mut(),
    );
    tokio::select! {
        accepted = handshake => Ok(accepted?),
        () = stop.cancelled() => Err(ConnectError::Stopping),
    }
}

async fn establish(
    front: &Front,
    client: &Arc<Client>,
    mut stream: Stream,
    identities: ClientIdentities,
    stop: &CancellationToken,
) -> Result<Option<Box<Established>>, ConnectError> {
    let mut inbox = BytesMut::new();
    let first = async {
        loop {
            if let Some(word) = four_letter_words::take(&mut inbox) {
                return Ok(First::Word(word));
            }
            if let Some(body) = frame::take(&mut inbox, MAX_CONNECT_BYTES)? {
                return Ok(First::Connect(ConnectRequest::decode(&mut Reader::new(body))?));
            }
            socket::receive(&mut stream, &mut inbox).await?;
        }
    };
    let first = tokio::select! {
        first = tokio::time::timeout(front.config().handshake_timeout, first) => first.map_err(|_| ConnectError::Silent)?,
        () = stop.cancelled() => return Err(ConnectError::Stopping),
    };
    let request = match first {
        Err(error) => {
            // Shut down first: closing a socket with unread data would reset the connection.
            stream.shutdown().await?;
            return Err(error);
        }
        Ok(First::Word(word)) => {
            answer(front, client, word, &mut stream).await?;
            return Ok(None);
        }
        Ok(First::Connect(request)) => request,
    };
    let since = Instant::now();
    client.received(FIRST_XID, op_code::CREATE_SESSION);
    let mut traced = Traced::of(front.config().tracing.as_ref(), op_code::CREATE_SESSION);
    let scope = traced.as_ref().and_then(|traced| traced.scope());
    let opening = session(front, client, identities.all().clone(), &request);
    let opening = async {
        match scope {
            Some(scope) => scope.run(opening).await,
            None => opening.await,
        }
    };
    let session = tokio::select! {
        session = opening => session?,
        // The client can connect to another node before its session expires.
        () = front.node().cut_off() => return Err(ConnectError::CutOff),
        () = stop.cancelled() => return Err(ConnectError::Stopping),
    };
    let connected = session.and_then(|session| {
        let watches = front
            .node()
            .connect_session(session.id, session.since, identities.all().clone());
        match watches {
            Ok(watches) => Some((session, watches)),
            // The session has already ended, or was resumed at another node at the same moment.
            Err(lost) => {
                debug!(session = %session.id, %lost, "ZooKeeper front end: session lost before its connection was served");
                None
            }
        }
    });
    let Some((session, watches)) = connected else {
        // The response of ZooKeeper to an unknown session: the client learns that its session has expired.
        let refusal = ConnectResponse {
            protocol_version: 0,
            timeout_ms: 0,
            session_id: 0,
            password: Some(Bytes::from_static(&[0; 16])),
            read_only: request.read_only.map(|_| false),
        };
        let mut out = BytesMut::new();
        refusal.write_frame(&mut out);
        stream.write_all(&out).await?;
        stream.shutdown().await?;
        return Ok(None);
    };
    client
        .session
        .store(session.id.0.cast_signed(), Ordering::Relaxed);
    let timeout_ms = i32::try_from(session.timeout.as_millis()).unwrap_or(i32::MAX);
    client.timeout_ms.store(timeout_ms, Ordering::Relaxed);
    let granted = ConnectResponse {
        protocol_version: 0,
        timeout_ms,
        session_id: session.id.0.cast_signed(),
        password: Some(Bytes::copy_from_slice(&session.password.0)),
        read_only: request.read_only.map(|_| false),
    };
    client.sent(session.since.0.cast_signed());
    if let Some(traced) = &mut traced {
        traced.about(session.id, None);
    }
    let received = Received {
        at: since,
        op: op_code::CREATE_SESSION,
        traced,
    };
    client.answered(received, ErrorCode::OK);
    let connection = Connection::new(front, client, session, identities, watches, inbox, &granted);
    Ok(Some(Box::new(Established { connection, stream })))
}

/// Answers a four-letter word, and closes the connection as the client expects.
async fn answer(
    front: &Front,
    client: &Arc<Client>,
    word: FourLetterWord,
    stream: &mut Stream,
) -> Result<(), ConnectError> {
    client.count_received();
    let (front, peer) = (front.clone(), client.clone());
    // Some words read the disk, or the whole state.
    let answer = tokio::task::spawn_blocking(move || four_letter_words::answer(&front, &peer, word)).await;
    let answer = answer.map_err(|error| ConnectError::Unavailable(error.to_string()))?;
    client.count_sent();
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // Bytes after the word, such as a line end, may still arrive. Closing a socket with unread data would
    // reset the connection, and the client might lose the answer.
    let mut rest = BytesMut::new();
    let hung_up = async {
        while socket::receive(stream, &mut rest).await.is_ok() {
            rest.clear();
        }
    };
    // A client that does not close its connection in time does not matter.
    let _ = tokio::time::timeout(LINGER, hung_up).await;
    Ok(())
}

enum First {
    Word(FourLetterWord),
    Connect(ConnectRequest),
}

/// Opens the session that the client requests, or resumes its session. Returns `None` if that session does
/// not exist any more.
async fn session(
    front: &Front,
    client: &Arc<Client>,
    caller: Identities,
    request: &ConnectRequest,
) -> Result<Option<Session>, ConnectError> {
    let node = front.node();
    fail_step!(async "zookeeper::before_session", ConnectError::Io);
    let seen = Zxid(request.last_zxid_seen.max(0).cast_unsigned());
    caught_up(node, seen).await?;
    match request.session_id {
        0 => open(node, client, caller, request).await.map(Some),
        id => resume(node, SessionId(id.cast_unsigned()), caller, request).await,
    }
}

/// Waits until this node has applied what the client has seen, since a client must never see an older state.
async fn caught_up(node: &Node, seen: Zxid) -> Result<(), ConnectError> {
    node.serving()
        .map_err(|unavailable| ConnectError::Unavailable(unavailable.reason))?;
    let at = || node.read_facts(|store| store.zxid());
    if at() < seen {
        node.read_barrier()
            .await
            .map_err(|unavailable| ConnectError::Unavailable(unavailable.reason))?;
    }
    match at() {
        at if at < seen => Err(ConnectError::Behind { seen, at }),
        _ => Ok(()),
    }
}

async fn open(
    node: &Node,
    client: &Arc<Client>,
    caller: Identities,
    request: &ConnectRequest,
) -> Result<Session, ConnectError> {
    let timeout = Duration::from_millis(request.timeout_ms.max(0).cast_unsigned().into());
    let address = client.address.to_string();
    let opened = node
        .open_session_of(caller, Some(timeout), SESSION_NAME, &address, None)
        .await;
    let opened = opened.map_err(|error| match error {
        OpenSessionError::Refused(refusal @ Refusal::Unauthenticated(_)) => {
            ConnectError::NotAuthenticated(refusal)
        }
        error => ConnectError::Unavailable(error.to_string()),
    })?;
    let known = node.read(|store| {
        let password = store.session_password(opened.session)?;
        Some((password, store.session(opened.session)?.connected_at))
    });
    let (password, since) =
        known.ok_or_else(|| ConnectError::Unavailable("the session has ended already".to_owned()))?;
    Ok(Session {
        id: opened.session,
        password,
        timeout: opened.timeout,
        since,
    })
}

async fn resume(
    node: &Node,
    id: SessionId,
    caller: Identities,
    request: &ConnectRequest,
) -> Result<Option<Session>, ConnectError> {
    let Some(password) = request
        .password
        .as_deref()
        .and_then(|bytes| bytes.try_into().ok())
    else {
        return Ok(None);
    };
    let password = Password(password);
    let command = Command::Reconnect {
        session: id,
        password,
    };
    let request = Request {
        session: Some(id),
        caller,
        ..Request::anonymous(command)
    };
    let applied = node
        .propose(request)
        .await
        .map_err(|error: ProposeError| ConnectError::Unavailable(error.to_string()))?;
    match applied.outcome {
        Ok(Reply::Reconnected { timeout_ms }) => Ok(Some(Session {
            id,
            password,
            timeout: Duration::from_millis(timeout_ms.into()),
            since: applied.zxid,
        })),
        Err(
            Refusal::SessionEnded(_)
            | Refusal::NoSession(_)
            | Refusal::WrongPassword(_)
            | Refusal::NotYourSession(_),
        ) => Ok(None),
        Err(refusal @ Refusal::Unauthenticated(_)) => Err(ConnectError::NotAuthenticated(refusal)),
        other => unreachable!("unexpected reply to a reconnect: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Size class of the allocator for the larger of an idle connection's two allocations; the next size
    /// class is a quarter larger. A fail point adds a wait to the function.
    const ROOM_BYTES: usize = if cfg!(feature = "failpoints") { 768 } else { 512 };

    /// Returns the size of the value that such a function returns.
    fn size_of_result<A, B, C, D, E, Output>(_: impl Fn(A, B, C, D, E) -> Output) -> usize {
        size_of::<Output>()
    }

    #[test]
    fn idle_connection_stays_small() {
        let bytes = size_of_result(serve);
        assert!(bytes <= ROOM_BYTES, "a connection's future takes {bytes} bytes");
        let bytes = size_of::<Established>();
        assert!(bytes <= ROOM_BYTES, "its state takes {bytes} bytes");
    }
}
