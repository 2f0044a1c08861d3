//! The beginning of a connection: what the client wants, a word or a session, and that it gets it.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use listener::{ConnectionMetrics, Socket};
use raft_node::{Node, OpenSessionError, ProposeError, fail_step};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use transport_security::{ClientCertificate, HandshakeError};
use zk_wire::{ConnectRequest, ConnectResponse, DecodeError, ErrorCode, FrameError, Reader, frame, op_code};
use znode_store::{Command, Identities, Password, Refusal, Reply, Request, SessionId, Zxid};

use crate::auth::Proven;
use crate::connection::{Connection, End};
use crate::front::{Client, Front, Listed};
use crate::requests::Came;
use crate::serve::Protection;
use crate::socket::Stream;
use crate::trace::Traced;
use crate::words;

/// What clients of ZooKeeper call their sessions to people: they have no words of their own for it.
const SESSION_NAME: &str = "zookeeper client";

/// For so long a client that was told its word may leave its connection open: far longer than an answer is under way, and too
/// short for many to wait.
const LINGER: Duration = Duration::from_secs(1);

/// The longest request for a session, in bytes: a few numbers and a password of sixteen. Nobody has shown anything yet that more
/// could be kept for.
const MAX_CONNECT_BYTES: usize = 1024;

/// The number of the request for a session, which has none, where people ask for it: ZooKeeper's.
const FIRST_XID: i32 = 0;

/// A session, as its connection needs it.
pub(crate) struct Session {
    pub id: SessionId,
    pub password: Password,
    pub timeout: Duration,
    /// The position since which this connection is the session's.
    pub since: Zxid,
}

/// A connection with a session, and what it is spoken on.
struct Begun {
    connection: Connection,
    stream: Stream,
}

/// Why there is no connection, or not any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] HandshakeError),
    #[error("the client hung up")]
    HungUp,
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("the client did not say what it wants in time")]
    Silent,
    #[error("the client has seen {seen}, and this node is at {at} only")]
    Behind { seen: Zxid, at: Zxid },
    #[error("{0}")]
    Unavailable(String),
    #[error("{0}")]
    NotLetIn(Refusal),
    #[error("this node is cut off: it knows of no leader")]
    CutOff,
    #[error("the node stops")]
    Stopping,
}

/// Serves a connection from its first byte to its last.
///
/// This future is what an idle connection consists of, beside [`Begun`]: what it has captured or keeps over a wait is there ten
/// thousand times. So what only the beginning needs goes into the beginning's box, and is gone with it.
pub(crate) fn serve(
    front: Front,
    client: Listed,
    socket: Socket,
    protection: Protection,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send + 'static {
    // The beginning needs five times the memory of all that follows, and gives it back.
    let (asker, stopping, meter) = (client.0.clone(), stop.clone(), front.meter().clone());
    let begun = Box::pin(async move {
        let (stream, certificate) = secure(socket, &protection, &stopping).await?;
        let proven = Proven::new(asker.address.ip(), certificate.as_ref(), &protection);
        begin(&front, &asker, stream, proven, &stopping).await
    });
    async move {
        let mut begun = match begun.await {
            Ok(Some(begun)) => begun,
            // It was a word.
            Ok(None) => return,
            Err(refused) => return tell_refused(&meter, &client.0, &refused),
        };
        let ended = begun.connection.serve(&mut begun.stream, &stop).await;
        tell_end(&client.0, ended.unwrap_or_else(End::from));
    }
}

fn tell_end(client: &Client, end: End) {
    let address = client.address;
    match end {
        End::Orderly => debug!(%address, "a client has closed its session"),
        End::Early(why) => debug!(%address, why, "a client's connection has ended"),
    }
}

fn tell_refused(meter: &ConnectionMetrics, client: &Client, refused: &Refused) {
    let address = client.address;
    let what = match refused {
        Refused::Frame(_) | Refused::Decode(_) => "this is no client of ZooKeeper",
        Refused::Tls(error) if error.is_refusal() => "a client was not let in",
        Refused::NotLetIn(_) => "a client was not let in",
        _ => return debug!(%address, %refused, "a client was not served"),
    };
    if let Some(others_left_out) = meter.admit_line(address.ip()) {
        info!(%address, %refused, others_left_out, "{what}");
    }
}

/// What is spoken on: with TLS only what comes out of its handshake, which has a deadline of its own.
async fn secure(
    socket: Socket,
    protection: &Protection,
    stop: &CancellationToken,
) -> Result<(Stream, Option<ClientCertificate>), Refused> {
    let Protection::Tls(tls) = protection else {
        return Ok((Stream::Plain(socket), None));
    };
    tokio::select! {
        accepted = tls.accept(socket) => Ok(accepted?),
        () = stop.cancelled() => Err(Refused::Stopping),
    }
}

async fn begin(
    front: &Front,
    client: &Arc<Client>,
    mut stream: Stream,
    proven: Proven,
    stop: &CancellationToken,
) -> Result<Option<Box<Begun>>, Refused> {
    let mut inbox = BytesMut::new();
    let first = async {
        loop {
            if let Some(word) = words::take(&mut inbox) {
                return Ok(First::Word(word));
            }
            if let Some(body) = frame::take(&mut inbox, MAX_CONNECT_BYTES)? {
                return Ok(First::Connect(ConnectRequest::decode(&mut Reader::new(body))?));
            }
            receive(&mut stream, &mut inbox).await?;
        }
    };
    let first = tokio::select! {
        first = tokio::time::timeout(front.config().handshake_timeout, first) => first.map_err(|_| Refused::Silent)?,
        () = stop.cancelled() => return Err(Refused::Stopping),
    };
    let asked = match first {
        Err(refused) => {
            // What it has sent and nobody has read would else reset the connection.
            stream.shutdown().await?;
            return Err(refused);
        }
        Ok(First::Word(word)) => {
            answer(front, client, word, &mut stream).await?;
            return Ok(None);
        }
        Ok(First::Connect(asked)) => asked,
    };
    let since = Instant::now();
    client.received(FIRST_XID, op_code::CREATE_SESSION);
    let mut traced = Traced::of(front.config().tracing.as_ref(), op_code::CREATE_SESSION);
    let scope = traced.as_ref().and_then(|traced| traced.scope());
    let asking = session(front, client, proven.identities().clone(), &asked);
    let asking = async {
        match scope {
            Some(scope) => scope.run(asking).await,
            None => asking.await,
        }
    };
    let session = tokio::select! {
        session = asking => session?,
        // The client can go to another node before its session ends.
        () = front.node().cut_off() => return Err(Refused::CutOff),
        () = stop.cancelled() => return Err(Refused::Stopping),
    };
    let connected = session.and_then(|session| {
        let watches = front
            .node()
            .connect_session(session.id, session.since, proven.identities().clone());
        match watches {
            Ok(watches) => Some((session, watches)),
            // It is over already, or has come at another node in the same moment.
            Err(lost) => {
                debug!(session = %session.id, %lost, "a session is gone before it was served");
                None
            }
        }
    });
    let Some((session, watches)) = connected else {
        // What ZooKeeper says to whom it does not know: the client learns that its session has expired.
        let refusal = ConnectResponse {
            protocol_version: 0,
            timeout_ms: 0,
            session_id: 0,
            password: Some(Bytes::from_static(&[0; 16])),
            read_only: asked.read_only.map(|_| false),
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
        read_only: asked.read_only.map(|_| false),
    };
    client.sent(session.since.0.cast_signed());
    if let Some(traced) = &mut traced {
        traced.about(session.id, None);
    }
    let came = Came {
        at: since,
        op: op_code::CREATE_SESSION,
        traced,
    };
    client.answered(came, ErrorCode::OK);
    let connection = Connection::new(front, client, session, proven, watches, inbox, &granted);
    Ok(Some(Box::new(Begun { connection, stream })))
}

/// Answers a word, and ends the connection as the client expects it.
async fn answer(
    front: &Front,
    client: &Arc<Client>,
    word: words::FourLetterWord,
    stream: &mut Stream,
) -> Result<(), Refused> {
    client.spoke();
    let (front, asker) = (front.clone(), client.clone());
    // Some words look at the disk, or at everything that there is.
    let answer = tokio::task::spawn_blocking(move || words::answer(&front, &asker, word)).await;
    let answer = answer.map_err(|error| Refused::Unavailable(error.to_string()))?;
    client.told();
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // What comes after the word, as the end of a line, may still be under way. A socket that is closed with something unread in
    // it tells the client that the connection was reset, which can take the answer from it.
    let mut rest = BytesMut::new();
    let hung_up = async {
        while receive(stream, &mut rest).await.is_ok() {
            rest.clear();
        }
    };
    // Who does not hang up does not matter.
    let _ = tokio::time::timeout(LINGER, hung_up).await;
    Ok(())
}

enum First {
    Word(words::FourLetterWord),
    Connect(ConnectRequest),
}

/// Waits for more of what the client says. Given up, it has taken nothing.
pub(crate) async fn receive(
    stream: &mut (impl AsyncRead + Unpin),
    inbox: &mut BytesMut,
) -> Result<(), Refused> {
    /// Most requests are far shorter.
    const ROOM: usize = 4 * 1024;
    // As `AsyncRead`, and not by `try_read`: tokio then concludes from room left over that there is no more, and spares asking
    // the kernel in vain after every request.
    let received = match inbox.is_empty() {
        // Who says nothing keeps no room for what it may say: there is some on the stack for as long as it is looked whether
        // something has come. Of ten thousand idle connections it would be forty megabytes.
        true => {
            let look = |context: &mut Context<'_>| {
                let mut room = [const { MaybeUninit::uninit() }; ROOM];
                let mut room = ReadBuf::uninit(&mut room);
                ready!(Pin::new(&mut *stream).poll_read(context, &mut room))?;
                inbox.extend_from_slice(room.filled());
                Poll::Ready(io::Result::Ok(room.filled().len()))
            };
            poll_fn(look).await?
        }
        // The rest of what has begun is on its way.
        false => {
            inbox.reserve(ROOM);
            stream.read_buf(inbox).await?
        }
    };
    match received {
        0 => Err(Refused::HungUp),
        _ => Ok(()),
    }
}

/// Opens the session that the client asks for, or takes up the one that it has. None: it has none any more.
async fn session(
    front: &Front,
    client: &Arc<Client>,
    caller: Identities,
    asked: &ConnectRequest,
) -> Result<Option<Session>, Refused> {
    let node = front.node();
    fail_step!(async "zookeeper::before_session", Refused::Io);
    let seen = Zxid(asked.last_zxid_seen.max(0).cast_unsigned());
    caught_up(node, seen).await?;
    match asked.session_id {
        0 => open(node, client, caller, asked).await.map(Some),
        id => resume(node, SessionId(id.cast_unsigned()), caller, asked).await,
    }
}

/// Waits until this node has seen what the client has. A client never sees anything older than what it has seen.
async fn caught_up(node: &Node, seen: Zxid) -> Result<(), Refused> {
    node.serving()
        .map_err(|unavailable| Refused::Unavailable(unavailable.reason))?;
    let at = || node.read(|store| store.zxid());
    if at() < seen {
        node.read_barrier()
            .await
            .map_err(|unavailable| Refused::Unavailable(unavailable.reason))?;
    }
    match at() {
        at if at < seen => Err(Refused::Behind { seen, at }),
        _ => Ok(()),
    }
}

async fn open(
    node: &Node,
    client: &Arc<Client>,
    caller: Identities,
    asked: &ConnectRequest,
) -> Result<Session, Refused> {
    let timeout = Duration::from_millis(asked.timeout_ms.max(0).cast_unsigned().into());
    let address = client.address.to_string();
    let opened = node
        .open_session_of(caller, Some(timeout), SESSION_NAME, &address, None)
        .await;
    let opened = opened.map_err(|error| match error {
        OpenSessionError::Refused(refusal @ Refusal::Unauthenticated(_)) => Refused::NotLetIn(refusal),
        error => Refused::Unavailable(error.to_string()),
    })?;
    let known = node.read(|store| {
        let password = store.session_password(opened.session)?;
        Some((password, store.session(opened.session)?.connected_at))
    });
    let (password, since) =
        known.ok_or_else(|| Refused::Unavailable("the session has ended already".to_owned()))?;
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
    asked: &ConnectRequest,
) -> Result<Option<Session>, Refused> {
    let Some(password) = asked.password.as_deref().and_then(|bytes| bytes.try_into().ok()) else {
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
        .map_err(|error: ProposeError| Refused::Unavailable(error.to_string()))?;
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
        Err(refusal @ Refusal::Unauthenticated(_)) => Err(Refused::NotLetIn(refusal)),
        other => unreachable!("a session that is taken up is answered by that, not by {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an allocation has room for that is of the allocator's size of an idle connection's two: the next larger one has a quarter
    /// more. A fail point is a place at which the function can wait.
    const ROOM_BYTES: usize = if cfg!(feature = "failpoints") { 768 } else { 512 };

    /// How much memory the answer of such a function takes.
    fn size_of_answer<A, B, C, D, E, Answer>(_: impl Fn(A, B, C, D, E) -> Answer) -> usize {
        size_of::<Answer>()
    }

    #[test]
    fn an_idle_connection_stays_small() {
        let bytes = size_of_answer(serve);
        assert!(bytes <= ROOM_BYTES, "a connection's future takes {bytes} bytes");
        let bytes = size_of::<Begun>();
        assert!(bytes <= ROOM_BYTES, "what it keeps takes {bytes} bytes");
    }
}
