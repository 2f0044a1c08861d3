//! Session with one server over one connection: sends requests and receives their replies. The module knows
//! nothing of measurements.
//!
//! Its costs are minimal, because on a shared machine the servers cannot use its CPU time: one buffer for
//! each direction, one write for each request, and one read for each reply.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::{Bytes, BytesMut};
use cli_support::credentials::Credentials;
use cli_support::http_client::host_of;
use lock_client::Token;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use transport_security::Stream;
use zk_wire::{
    ConnectRequest, ConnectResponse, ErrorCode, Notification, Outcome, Reader, Reply, ReplyHeader, Request,
    frame, xid,
};

use crate::nodes::Nodes;

/// Requested session timeout: within ZooKeeper's default limits (4 to 40 s), and long enough that an election
/// does not end a measurement.
const SESSION_TIMEOUT_MS: i32 = 30_000;

/// Number of pings within a session timeout, regardless of other requests.
const PINGS: u32 = 3;

/// Number of pings without a reply to a pending request after which the connection is dropped: the session
/// timeout.
const SILENT_PINGS: u32 = PINGS;

/// Timeout for opening a session, including retries.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause before the next attempt.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Number of pipelined requests where nothing is measured; ZooKeeper stops reading at a thousand.
const WINDOW: usize = 256;

/// Maximum size of a reply: it may contain the names of all znodes that a measurement has created.
const MAX_REPLY_BYTES: usize = 1 << 30;

/// Bytes to reserve for one read; most replies are far shorter.
const ROOM: usize = 4 * 1024;

/// Session with one server. See the module.
pub(crate) struct Session {
    stream: Stream,
    inbox: BytesMut,
    out: BytesMut,
    next_xid: i32,
    pings: Interval,
    /// Notifications that arrived while a reply was awaited.
    fired: VecDeque<Notification>,
}

impl Session {
    /// Opens a session at the server for the client with this number. A server without a leader, or an
    /// overloaded one, closes the connection: then it retries.
    pub async fn open(servers: &Nodes, number: usize) -> anyhow::Result<Self> {
        let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
        loop {
            match Self::open_once(servers, number).await {
                Err(_) if Instant::now() < deadline => tokio::time::sleep(RETRY_PAUSE).await,
                other => return other,
            }
        }
    }

    /// Opens a session without retries.
    pub async fn open_once(servers: &Nodes, number: usize) -> anyhow::Result<Self> {
        let server = servers.address(number);
        let connecting = Self::connect(server, servers.source(number), servers.credentials());
        tokio::time::timeout(HANDSHAKE_TIMEOUT, connecting)
            .await
            .map_err(anyhow::Error::from)
            .flatten()
            .with_context(|| format!("opening a session at {server}"))
    }

    async fn connect(
        server: &str,
        source: Option<IpAddr>,
        credentials: &Credentials,
    ) -> anyhow::Result<Self> {
        let token = credentials.token_for(server)?;
        let socket = match source {
            Some(source) => connect_from(source, server).await?,
            None => TcpStream::connect(server).await?,
        };
        // Requests are single small writes; Nagle's algorithm would delay each until the previous one is
        // acknowledged.
        socket.set_nodelay(true)?;
        let stream = match &credentials.tls {
            Some(tls) => tls.connect(host_of(server), socket).await?,
            None => Stream::Plain(socket),
        };
        let mut session = Self {
            stream,
            inbox: BytesMut::new(),
            out: BytesMut::new(),
            next_xid: 1,
            pings: pings(SESSION_TIMEOUT_MS),
            fired: VecDeque::new(),
        };
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: SESSION_TIMEOUT_MS,
            session_id: 0,
            password: Some(Bytes::from_static(&[0; 16])),
            read_only: Some(false),
        };
        request.write_frame(&mut session.out);
        session.send().await?;
        let response = ConnectResponse::decode(&mut Reader::new(session.receive().await?))?;
        ensure!(
            response.session_id != 0 && response.timeout_ms > 0,
            "the server grants no session"
        );
        session.pings = pings(response.timeout_ms);
        if let Some(token) = token {
            session.authenticate(token).await?;
        }
        Ok(session)
    }

    /// Authenticates with a token at a secured cluster.
    async fn authenticate(&mut self, token: &Token) -> anyhow::Result<()> {
        let request = Request::Auth {
            kind: 0,
            scheme: "token".into(),
            auth: Some(Bytes::copy_from_slice(token.expose().as_bytes())),
        };
        request.write_frame(xid::AUTH, &mut self.out);
        self.send().await?;
        let reply = self.reply(xid::AUTH, &request).await?;
        reply
            .map(drop)
            .or_else(refused)
            .context("authenticating with the token")
    }

    /// Sends one request and waits for its reply.
    pub async fn call(&mut self, request: &Request) -> anyhow::Result<Outcome> {
        let xid = self.write(request);
        self.send().await?;
        self.reply(xid, request).await
    }

    /// Pipelines many requests, and returns their outcomes in the same order.
    pub async fn call_all(&mut self, requests: &[Request]) -> anyhow::Result<Vec<Outcome>> {
        let mut outcomes = Vec::with_capacity(requests.len());
        for some in requests.chunks(WINDOW) {
            let xids: Vec<i32> = some.iter().map(|request| self.write(request)).collect();
            self.send().await?;
            for (xid, request) in xids.into_iter().zip(some) {
                outcomes.push(self.reply(xid, request).await?);
            }
        }
        Ok(outcomes)
    }

    /// Returns the next notification, which may have arrived earlier.
    pub async fn notified(&mut self) -> anyhow::Result<Notification> {
        if let Some(notification) = self.fired.pop_front() {
            return Ok(notification);
        }
        loop {
            let mut from = Reader::new(self.receive().await?);
            match ReplyHeader::decode(&mut from)?.xid {
                xid::NOTIFICATION => return Ok(Notification::decode(&mut from)?),
                xid::PING => {}
                other => bail!("unexpected reply to request {other}"),
            }
        }
    }

    /// Keeps the session alive by pings. Returns the reason when it has ended. Cancel-safe: pings are so
    /// short that they are sent at once.
    pub async fn idle(&mut self) -> anyhow::Error {
        match self.notified().await {
            Ok(fired) => anyhow::anyhow!("unexpected notification {fired:?} without a watch"),
            Err(error) => error,
        }
    }

    /// Closes the session, which deletes its ephemeral znodes.
    pub async fn close(mut self) -> anyhow::Result<()> {
        let closed = self.call(&Request::CloseSession).await;
        closed?.map(drop).or_else(refused).context("closing a session")
    }

    /// Appends a request to the buffer, and returns its xid.
    fn write(&mut self, request: &Request) -> i32 {
        let xid = self.next_xid;
        // Negative numbers are reserved.
        self.next_xid = xid.checked_add(1).unwrap_or(1);
        request.write_frame(xid, &mut self.out);
        xid
    }

    async fn send(&mut self) -> anyhow::Result<()> {
        self.stream.write_all(&self.out).await.context("sending")?;
        self.stream.flush().await.context("sending")?;
        self.out.clear();
        Ok(())
    }

    async fn reply(&mut self, xid: i32, request: &Request) -> anyhow::Result<Outcome> {
        loop {
            let mut from = Reader::new(self.receive().await?);
            let header = ReplyHeader::decode(&mut from)?;
            if header.xid == xid {
                return Ok(match header.err {
                    ErrorCode::OK => Ok(Reply::decode(request, &mut from)?),
                    code => Err(code),
                });
            }
            match header.xid {
                xid::PING => {}
                // It was sent before the reply, and is processed after it.
                xid::NOTIFICATION => self.fired.push_back(Notification::decode(&mut from)?),
                other => bail!("unexpected reply to request {other} instead of {xid}"),
            }
        }
    }

    /// Waits for a notification for this znode. Notifications for other znodes are queued.
    pub async fn wait_for(&mut self, path: &str) -> anyhow::Result<()> {
        let before = self.fired.len();
        self.fired.retain(|fired| fired.path != path);
        if self.fired.len() < before {
            return Ok(());
        }
        loop {
            let mut from = Reader::new(self.receive().await?);
            match ReplyHeader::decode(&mut from)?.xid {
                xid::PING => {}
                xid::NOTIFICATION => match Notification::decode(&mut from)? {
                    fired if fired.path == path => return Ok(()),
                    other => self.fired.push_back(other),
                },
                other => bail!("unexpected reply to request {other}"),
            }
        }
    }

    /// Drops the queued notifications.
    pub fn forget_fired(&mut self) {
        self.fired.clear();
    }

    /// Receives the next frame, and sends pings meanwhile.
    async fn receive(&mut self) -> anyhow::Result<Bytes> {
        let mut silent = 0;
        loop {
            if let Some(body) = frame::take(&mut self.inbox, MAX_REPLY_BYTES)? {
                return Ok(body);
            }
            self.inbox.reserve(ROOM);
            tokio::select! {
                biased;
                received = self.stream.read_buf(&mut self.inbox) => {
                    if received.context("receiving")? == 0 {
                        bail!("the server hung up");
                    }
                }
                _ = self.pings.tick() => {
                    silent += 1;
                    ensure!(silent <= SILENT_PINGS, "no reply for a whole session timeout");
                    Request::Ping.write_frame(xid::PING, &mut self.out);
                    self.send().await?;
                }
            }
        }
    }
}

/// Connects from one of this machine's addresses.
async fn connect_from(source: IpAddr, server: &str) -> anyhow::Result<TcpStream> {
    let mut found = lookup_host(server).await?;
    let address = found.find(|address| address.is_ipv4() == source.is_ipv4());
    let address =
        address.with_context(|| format!("the server has no address that can be reached from {source}"))?;
    let socket = match source {
        IpAddr::V4(_) => TcpSocket::new_v4()?,
        IpAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket
        .bind((source, 0).into())
        .with_context(|| format!("connecting from {source}"))?;
    Ok(socket.connect(address).await?)
}

fn pings(timeout_ms: i32) -> Interval {
    let period = Duration::from_millis(timeout_ms.max(1).unsigned_abs().into()) / PINGS;
    let mut pings = interval_at(Instant::now() + period, period);
    // After a delay a single ping suffices, instead of one for each missed tick.
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings
}

/// Converts an error code to an error.
pub(crate) fn refused<T>(code: ErrorCode) -> anyhow::Result<T> {
    bail!("the server returned {code}")
}
