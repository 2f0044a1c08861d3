//! Connections that stay open until the server closes them: silent ones, and ones that send a byte per
//! second.

use std::io;
use std::time::Duration;

use cli_support::http_client::host_of;
use futures_util::FutureExt as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use transport_security::{ClientTls, Stream};

use super::{AttackContext, AttackOutcome};

/// Interval between two bytes.
const DRIP_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of connections that are being opened.
const MAX_OPENING: usize = 64;

/// Timeout for connecting. A server that does not answer in this time has no room in its backlog.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Listener of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    Http,
    ZooKeeper,
    Peers,
}

/// Opens `connections` of them, spread over the nodes and `ports`, sends `prefix`, and stays silent. The bytes
/// are the first on the connection, without a TLS handshake.
pub async fn hold_bare(
    context: &AttackContext,
    ports: &[Port],
    prefix: &'static [u8],
) -> anyhow::Result<AttackOutcome> {
    occupy(context, ports, prefix, None, None).await
}

/// Opens connections at one port and stays silent after `prefix`. If the port uses TLS with clients, a TLS
/// handshake precedes `prefix`.
pub async fn hold(
    context: &AttackContext,
    port: Port,
    prefix: &'static [u8],
) -> anyhow::Result<AttackOutcome> {
    occupy(context, &[port], prefix, tls_of(context, port), None).await
}

/// Like [`hold`], but sends a byte at intervals.
pub async fn drip(
    context: &AttackContext,
    port: Port,
    prefix: &'static [u8],
) -> anyhow::Result<AttackOutcome> {
    occupy(
        context,
        &[port],
        prefix,
        tls_of(context, port),
        Some(DRIP_INTERVAL),
    )
    .await
}

/// TLS configuration for a port. The peer port has none, because it accepts only nodes.
fn tls_of(context: &AttackContext, port: Port) -> Option<&ClientTls> {
    match port {
        Port::Http | Port::ZooKeeper => context.callers.credentials().tls.as_ref(),
        Port::Peers => None,
    }
}

async fn occupy(
    context: &AttackContext,
    ports: &[Port],
    prefix: &'static [u8],
    tls: Option<&ClientTls>,
    drip: Option<Duration>,
) -> anyhow::Result<AttackOutcome> {
    let mut addresses = Vec::new();
    for node in &context.nodes {
        for port in ports {
            addresses.extend(match port {
                Port::Http => Some(node.http.clone()),
                Port::ZooKeeper => node.zookeeper.clone(),
                Port::Peers => Some(node.peer.clone()),
            });
        }
    }
    let mut outcome = AttackOutcome::default();
    let mut held = JoinSet::new();
    let mut opening = JoinSet::new();
    let mut stop = false;
    for address in addresses.iter().cycle().take(context.connections) {
        if opening.len() >= MAX_OPENING
            && let Some(opened) = opening.join_next().await
        {
            hold_opened(opened?, &mut held, &mut outcome, drip, &context.stop);
        }
        stop = context.stop.is_cancelled();
        if stop {
            break;
        }
        outcome.attempts += 1;
        opening.spawn_local(open(address.clone(), prefix, tls.cloned()).boxed_local());
    }
    while let Some(opened) = opening.join_next().await {
        hold_opened(opened?, &mut held, &mut outcome, drip, &context.stop);
    }
    if !stop {
        context.stop.cancelled().await;
    }
    while let Some(ended) = held.join_next().await {
        match ended? {
            ConnectionEnd::Held => outcome.accepted += 1,
            ConnectionEnd::Closed(what) => outcome.answer(what),
        }
    }
    Ok(outcome)
}

async fn open(address: String, prefix: &'static [u8], tls: Option<ClientTls>) -> io::Result<Stream> {
    let connected = async {
        let socket = TcpStream::connect(&address).await?;
        match tls {
            None => Ok::<_, io::Error>(Stream::Plain(socket)),
            Some(tls) => Ok(tls.connect(host_of(&address), socket).await?),
        }
    };
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connected).await;
    let mut stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    stream.write_all(prefix).await?;
    stream.flush().await?;
    Ok(stream)
}

fn hold_opened(
    opened: io::Result<Stream>,
    held: &mut JoinSet<ConnectionEnd>,
    outcome: &mut AttackOutcome,
    drip: Option<Duration>,
    stop: &CancellationToken,
) {
    match opened {
        Ok(stream) => {
            held.spawn_local(hold_until_end(stream, drip, stop.clone()).boxed_local());
        }
        Err(error) => outcome.answer(format!("not connected: {}", error.kind())),
    }
}

/// Fate of a connection.
enum ConnectionEnd {
    /// It was open until the attack ended.
    Held,
    /// The server closed it.
    Closed(String),
}

async fn hold_until_end(
    mut stream: Stream,
    drip: Option<Duration>,
    stop: CancellationToken,
) -> ConnectionEnd {
    let mut received = Vec::new();
    loop {
        let pause = async {
            match drip {
                Some(every) => tokio::time::sleep(every).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => return ConnectionEnd::Held,
            read = stream.read_buf(&mut received) => match read {
                Ok(0) | Err(_) => return ConnectionEnd::Closed(response_summary(&received)),
                Ok(_) => {}
            },
            () = pause => {
                let sent = async {
                    stream.write_all(b"a").await?;
                    stream.flush().await
                };
                if sent.await.is_err() {
                    return ConnectionEnd::Closed(response_summary(&received));
                }
            }
        }
    }
}

/// Summary of the server's response: the status if it was HTTP.
fn response_summary(received: &[u8]) -> String {
    let received = String::from_utf8_lossy(received);
    match received.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)) {
        Some(status) => status.to_owned(),
        None if received.is_empty() => "closed".to_owned(),
        None => "closed with an answer".to_owned(),
    }
}
