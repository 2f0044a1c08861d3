//! Connections that are held for as long as the server lets them: silent ones, and such as send a byte now and then.

use std::io;
use std::time::Duration;

use cli_support::http_client::host_of;
use futures_util::FutureExt as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use transport_security::{ClientTls, Stream};

use super::{Got, Means};

/// So long there is between two bytes.
const DRIP_EVERY: Duration = Duration::from_secs(1);

/// Connections are opened so many at a time.
const AT_A_TIME: usize = 64;

/// A server that neither accepts nor refuses for so long has no room in its backlog.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a node listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    Http,
    ZooKeeper,
    Peers,
}

/// Opens as many connections as there are means for, spread over nodes and ports, says something, and is silent. What is said
/// comes first of all, before any handshake of TLS.
pub async fn hold_bare(means: &Means, ports: &[Port], said: &'static [u8]) -> anyhow::Result<Got> {
    occupy(means, ports, said, None, None).await
}

/// The same at one port, after a handshake where the port speaks TLS with anybody.
pub async fn hold(means: &Means, port: Port, said: &'static [u8]) -> anyhow::Result<Got> {
    occupy(means, &[port], said, tls_of(means, port), None).await
}

/// The same with a byte now and then.
pub async fn drip(means: &Means, port: Port, said: &'static [u8]) -> anyhow::Result<Got> {
    occupy(means, &[port], said, tls_of(means, port), Some(DRIP_EVERY)).await
}

/// What strangers need to be heard at a port. Among nodes only nodes are, and these are strangers.
fn tls_of(means: &Means, port: Port) -> Option<&ClientTls> {
    match port {
        Port::Http | Port::ZooKeeper => means.callers.credentials().tls.as_ref(),
        Port::Peers => None,
    }
}

async fn occupy(
    means: &Means,
    ports: &[Port],
    said: &'static [u8],
    tls: Option<&ClientTls>,
    drip: Option<Duration>,
) -> anyhow::Result<Got> {
    let mut addresses = Vec::new();
    for node in &means.nodes {
        for port in ports {
            addresses.extend(match port {
                Port::Http => Some(node.http.clone()),
                Port::ZooKeeper => node.zookeeper.clone(),
                Port::Peers => Some(node.peer.clone()),
            });
        }
    }
    let mut got = Got::default();
    let mut held = JoinSet::new();
    let mut opening = JoinSet::new();
    let mut over = false;
    for address in addresses.iter().cycle().take(means.connections) {
        if opening.len() >= AT_A_TIME
            && let Some(opened) = opening.join_next().await
        {
            keep(opened?, &mut held, &mut got, drip, &means.over);
        }
        over = means.over.is_cancelled();
        if over {
            break;
        }
        got.tried += 1;
        opening.spawn_local(open(address.clone(), said, tls.cloned()).boxed_local());
    }
    while let Some(opened) = opening.join_next().await {
        keep(opened?, &mut held, &mut got, drip, &means.over);
    }
    if !over {
        means.over.cancelled().await;
    }
    while let Some(ended) = held.join_next().await {
        match ended? {
            Ended::Held => got.let_in += 1,
            Ended::Closed(what) => got.answer(what),
        }
    }
    Ok(got)
}

async fn open(address: String, said: &'static [u8], tls: Option<ClientTls>) -> io::Result<Stream> {
    let connected = async {
        let socket = TcpStream::connect(&address).await?;
        match tls {
            None => Ok::<_, io::Error>(Stream::Plain(socket)),
            Some(tls) => Ok(tls.connect(host_of(&address), socket).await?),
        }
    };
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connected).await;
    let mut stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    stream.write_all(said).await?;
    stream.flush().await?;
    Ok(stream)
}

fn keep(
    opened: io::Result<Stream>,
    held: &mut JoinSet<Ended>,
    got: &mut Got,
    drip: Option<Duration>,
    over: &CancellationToken,
) {
    match opened {
        Ok(stream) => {
            held.spawn_local(stay(stream, drip, over.clone()).boxed_local());
        }
        Err(error) => got.answer(format!("not connected: {}", error.kind())),
    }
}

/// What became of a connection.
enum Ended {
    /// It was there for as long as the attack.
    Held,
    /// The server ended it.
    Closed(String),
}

async fn stay(mut stream: Stream, drip: Option<Duration>, over: CancellationToken) -> Ended {
    let mut told = Vec::new();
    loop {
        let pause = async {
            match drip {
                Some(every) => tokio::time::sleep(every).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = over.cancelled() => return Ended::Held,
            read = stream.read_buf(&mut told) => match read {
                Ok(0) | Err(_) => return Ended::Closed(word(&told)),
                Ok(_) => {}
            },
            () = pause => {
                let sent = async {
                    stream.write_all(b"a").await?;
                    stream.flush().await
                };
                if sent.await.is_err() {
                    return Ended::Closed(word(&told));
                }
            }
        }
    }
}

/// What the server said, in short: the status if it spoke HTTP.
fn word(told: &[u8]) -> String {
    let told = String::from_utf8_lossy(told);
    match told.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)) {
        Some(status) => status.to_owned(),
        None if told.is_empty() => "closed".to_owned(),
        None => "closed with an answer".to_owned(),
    }
}
