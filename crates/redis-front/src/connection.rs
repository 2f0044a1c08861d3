//! One connection: reads requests, executes them one after the other, and sends the replies.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use listener::Socket;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use transport_security::{HandshakeError, Stream};

use crate::client::Client;
use crate::commands::{self, Next};
use crate::config::{FIRST_COMMAND_TIMEOUT, Protection, REQUEST_TIMEOUT, SEND_AT_BYTES};
use crate::front::Front;
use crate::metrics::Running;
use crate::reply::Reply;
use crate::request::{self, MAX_REQUEST_BYTES, ProtocolError};
use crate::signals::Wait;

/// Reason for which a connection ended.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] HandshakeError),
    #[error("the client closed the connection")]
    Closed,
    #[error("the client sent no complete command in time")]
    Silent,
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error("{0}")]
    Aborted(String),
    #[error("the node is stopping")]
    Stopping,
}

/// Serves a connection from its first byte to its last.
pub(crate) async fn serve(
    front: Front,
    address: SocketAddr,
    socket: Socket,
    protection: Protection,
    stop: CancellationToken,
) {
    let metrics = front.metrics().clone();
    let Err(end) = run(front, address, socket, protection, &stop).await else {
        return;
    };
    let message = match &end {
        End::Protocol(_) => "connection from a program that is not a Redis client",
        End::Tls(error) if error.is_refusal() => "client rejected",
        _ => return debug!(%address, %end, "Redis front end: connection ended"),
    };
    if let Some(others_left_out) = metrics.admit_line(address.ip()) {
        info!(%address, %end, others_left_out, "Redis front end: {message}");
    }
}

async fn run(
    front: Front,
    address: SocketAddr,
    socket: Socket,
    protection: Protection,
    stop: &CancellationToken,
) -> Result<(), End> {
    let (mut stream, certificate) = match &protection {
        Protection::Tls(tls) => {
            let tls = tls.clone();
            let handshake = socket.handshake(
                async move |socket| tls.accept(socket).await,
                |(stream, _)| stream.socket_mut(),
            );
            tokio::select! {
                accepted = handshake => accepted?,
                () = stop.cancelled() => return Err(End::Stopping),
            }
        }
        Protection::Trusted | Protection::Exposed => (Stream::Plain(socket), None),
    };
    let mut client = Client::new(front, address, certificate.as_ref(), &protection);
    let (mut inbox, mut out) = (BytesMut::new(), BytesMut::new());
    // For the first command, and later for the rest of a command that has begun to arrive.
    let mut deadline = Some(Instant::now() + FIRST_COMMAND_TIMEOUT);
    loop {
        match request::take(&mut inbox) {
            Ok(Some(request)) => {
                deadline = None;
                let running = Running::begin(&request, client.front.config().tracing.as_ref());
                let next = match running.execute(commands::run(&mut client, request)).await {
                    Next::Wait(wait) => {
                        stream.write_all(&out).await?;
                        stream.flush().await?;
                        out.clear();
                        waited(&client, &wait, &mut stream, &mut inbox, stop).await?
                    }
                    next => next,
                };
                running.end(client.front.command_metrics(), next.code());
                if matches!(next.code(), "NOAUTH" | "NOPERM" | "WRONGPASS") {
                    client.pace_refusal().await;
                }
                match next {
                    Next::Wait(_) => unreachable!("the wait is over"),
                    Next::Reply(reply) => reply.encode(client.protocol, &mut out),
                    Next::Replies(replies) => {
                        replies
                            .iter()
                            .for_each(|reply| reply.encode(client.protocol, &mut out));
                    }
                    Next::Quit(reply) => {
                        reply.encode(client.protocol, &mut out);
                        stream.write_all(&out).await?;
                        return Ok(stream.shutdown().await?);
                    }
                    // As if the server was lost: the client must not take an error for "nothing was done".
                    Next::Abort(reason) => return Err(End::Aborted(reason)),
                }
                if out.len() >= SEND_AT_BYTES {
                    stream.write_all(&out).await?;
                    out.clear();
                }
            }
            Ok(None) => {
                if !out.is_empty() {
                    stream.write_all(&out).await?;
                    stream.flush().await?;
                }
                // An idle connection holds no buffers.
                out = BytesMut::new();
                if inbox.is_empty() {
                    inbox = BytesMut::new();
                } else {
                    deadline.get_or_insert_with(|| Instant::now() + REQUEST_TIMEOUT);
                }
                tokio::select! {
                    received = receive(&mut stream, &mut inbox) => received?,
                    wake = client.subscriptions.next() => {
                        let messages = client.messages(&wake);
                        messages.iter().for_each(|message| message.encode(client.protocol, &mut out));
                    }
                    () = until(deadline) => return Err(End::Silent),
                    () = stop.cancelled() => return Err(End::Stopping),
                }
            }
            Err(error) => {
                Reply::Error(format!("ERR {error}")).encode(client.protocol, &mut out);
                stream.write_all(&out).await?;
                stream.shutdown().await?;
                return Err(error.into());
            }
        }
    }
}

/// Polls until a wait is over, or the client has closed its connection. Further commands that it sends meanwhile stay in `inbox`.
async fn waited(
    client: &Client,
    wait: &Wait,
    stream: &mut (impl AsyncRead + Unpin),
    inbox: &mut BytesMut,
    stop: &CancellationToken,
) -> Result<Next, End> {
    let config = client.front.config();
    loop {
        if let Some(outcome) = wait.poll(&client.keys(&config)).await.transpose() {
            return Ok(outcome.into());
        }
        let has_room = inbox.len() < MAX_REQUEST_BYTES;
        tokio::select! {
            received = receive(stream, inbox), if has_room => received?,
            () = tokio::time::sleep_until(wait.next_look()) => {}
            () = stop.cancelled() => return Err(End::Stopping),
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Waits for bytes and appends them to `inbox`. They are first read into a buffer on the stack, so that an idle connection holds none.
async fn receive(stream: &mut (impl AsyncRead + Unpin), inbox: &mut BytesMut) -> Result<(), End> {
    /// Far larger than most commands.
    const ROOM: usize = 4 * 1024;
    let read = |context: &mut Context<'_>| {
        let mut room = [const { MaybeUninit::uninit() }; ROOM];
        let mut room = ReadBuf::uninit(&mut room);
        ready!(Pin::new(&mut *stream).poll_read(context, &mut room))?;
        inbox.extend_from_slice(room.filled());
        Poll::Ready(io::Result::Ok(room.filled().len()))
    };
    match poll_fn(read).await? {
        0 => Err(End::Closed),
        _ => Ok(()),
    }
}
