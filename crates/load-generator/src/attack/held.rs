//! Connections that stay open until the server closes them: silent ones, ones that send a byte per second, ones that never read, and
//! streams. A connection that the server closes is opened again.

use std::io;
use std::time::Duration;

use anyhow::{Context, anyhow};
use cli_support::http_client::host_of;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, lookup_host};
use tokio::sync::Semaphore;

use transport_security::{ClientTls, Stream};

use super::AttackContext;

/// Interval between two bytes.
const DRIP_INTERVAL: Duration = Duration::from_secs(1);

/// Pause before a closed connection is opened again.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);

/// Maximum number of connections that are being opened.
const MAX_OPENING: usize = 64;

/// Timeout for connecting. A server that does not answer in this time has no room in its backlog.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Receive buffer of a connection that never reads: about the minimum that Linux grants.
const SMALL_RECEIVE_BUFFER: u32 = 2_048;

/// Requests that are pipelined on a connection that never reads.
const PIPELINED: usize = 20;

/// Bytes of a response up to its status.
const STATUS_BYTES: usize = "HTTP/1.1 200".len();

/// Subscriptions of the event feed: several times what a node admits.
const SUBSCRIPTIONS: usize = 512;

/// Listener of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    Http,
    ZooKeeper,
    Redis,
    Peers,
}

impl Port {
    pub const ALL: [Self; 4] = [Self::Http, Self::ZooKeeper, Self::Redis, Self::Peers];

    /// Returns whether clients use the port. The peer port completes no TLS handshake with them.
    pub fn serves_clients(self) -> bool {
        self != Self::Peers
    }
}

/// Connections of an attack.
pub struct Connections<'a> {
    pub ports: &'a [Port],
    /// The first bytes are those of the attack, without a TLS handshake.
    pub bare: bool,
    /// Send a byte per second after the first bytes.
    pub drip: bool,
    /// Never read, with a small receive buffer.
    pub unread: bool,
}

impl Default for Connections<'_> {
    fn default() -> Self {
        Self {
            ports: &[Port::Http],
            bare: false,
            drip: false,
            unread: false,
        }
    }
}

/// Opens `context.connections` of them, spread over the nodes and ports, and keeps them. Each sends the bytes that `first` returns for its number.
pub async fn hold(
    context: &AttackContext,
    connections: Connections<'_>,
    first: impl AsyncFn(usize) -> anyhow::Result<Vec<u8>>,
) {
    hold_some(context, context.connections, &connections, first).await;
}

/// Opens connections at one port, sends `first`, and then a byte at intervals.
pub async fn drip(context: &AttackContext, port: Port, first: &'static [u8]) {
    let connections = Connections {
        ports: &[port],
        drip: true,
        ..Connections::default()
    };
    hold(context, connections, async |_| Ok(first.to_vec())).await;
}

/// Requests a large page many times on each connection, and reads no response.
pub async fn unread(context: &AttackContext) {
    let connections = Connections {
        unread: true,
        ..Connections::default()
    };
    let requests = b"GET /docs HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(PIPELINED);
    hold(context, connections, async |_| Ok(requests.clone())).await;
}

/// Opens a session for each connection, and streams its events.
pub async fn streams(context: &AttackContext) {
    let first = async |number: usize| {
        let mut connection = context.callers.connect(number).await?;
        let session = context.open_session(&mut connection).await?;
        request(context, &format!("/v1/sessions/{session}/events"))
    };
    hold(context, Connections::default(), first).await;
}

/// Subscribes to the event feed, with the events that a node has kept.
pub async fn feed(context: &AttackContext) {
    let count = SUBSCRIPTIONS.min(context.connections);
    let first = async |_| request(context, "/v1/events?last=1000&locks=true");
    hold_some(context, count, &Connections::default(), first).await;
}

/// Returns the head of a request with the caller's token.
fn request(context: &AttackContext, path: &str) -> anyhow::Result<Vec<u8>> {
    let authorization = match &context.callers.credentials().token {
        Some(token) => format!("authorization: Bearer {}\r\n", token.expose()),
        None => String::new(),
    };
    Ok(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{authorization}\r\n").into_bytes())
}

async fn hold_some(
    context: &AttackContext,
    count: usize,
    connections: &Connections<'_>,
    first: impl AsyncFn(usize) -> anyhow::Result<Vec<u8>>,
) {
    let addresses = context.addresses(connections.ports);
    let opening = Semaphore::new(MAX_OPENING);
    let tls = context.callers.credentials().tls.as_ref();
    context
        .repeat(count, REOPEN_PAUSE, async |number| {
            let (address, port) = &addresses[number % addresses.len()];
            let permit = opening.acquire().await?;
            let bytes = first(number).await?;
            let tls = tls.filter(|_| port.serves_clients() && !connections.bare);
            let buffer = connections.unread.then_some(SMALL_RECEIVE_BUFFER);
            let mut stream = open(address, tls, buffer).await.context("not connected")?;
            drop(permit);
            context.accepted();
            let closed = keep(&mut stream, &bytes, connections).await;
            context.ended(1);
            Err(closed)
        })
        .await;
}

/// Opens a connection, with a TLS handshake if there is a configuration for it.
pub async fn open(
    address: &str,
    tls: Option<&ClientTls>,
    receive_buffer: Option<u32>,
) -> anyhow::Result<Stream> {
    let connected = async {
        let found = lookup_host(address).await?.next();
        let to = found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let socket = if to.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        if let Some(bytes) = receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        let socket = socket.connect(to).await?;
        match tls {
            None => Ok::<_, io::Error>(Stream::Plain(socket)),
            Some(tls) => Ok(tls.connect(host_of(address), socket).await?),
        }
    };
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connected).await;
    Ok(connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??)
}

/// Keeps a connection until the server closes it or rejects the request; returns how.
async fn keep(stream: &mut Stream, first: &[u8], connections: &Connections<'_>) -> anyhow::Error {
    let mut received = Vec::new();
    let kept = async {
        stream.write_all(first).await?;
        stream.flush().await?;
        loop {
            let pause = async {
                match connections.drip {
                    true => tokio::time::sleep(DRIP_INTERVAL).await,
                    false => std::future::pending().await,
                }
            };
            let read = async {
                match connections.unread {
                    true => std::future::pending().await,
                    false => stream.read_buf(&mut received).await,
                }
            };
            let is_due = tokio::select! {
                read = read => match read? {
                    0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                    _ => false,
                },
                () = pause => true,
            };
            if is_due {
                stream.write_all(b"a").await?;
                stream.flush().await?;
            }
            if status_of(&received).is_some_and(|status| status >= 300) {
                return Ok(());
            }
            // Only the status is of interest.
            received.truncate(STATUS_BYTES);
        }
    };
    let ended: io::Result<()> = kept.await;
    match (status_of(&received), ended) {
        (Some(status), _) => anyhow!("{status}"),
        (None, Err(_)) if received.is_empty() => anyhow!("closed"),
        (None, _) => anyhow!("closed with an answer"),
    }
}

/// Returns the status of a response, if its beginning was received.
fn status_of(received: &[u8]) -> Option<u16> {
    let status = received.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    std::str::from_utf8(status).ok()?.parse().ok()
}
