//! Connection to one server of the source ensemble. It pipelines requests, receives their responses in order,
//! and collects watch notifications meanwhile. A task of its own keeps the session alive; it ends when this
//! value is dropped or the connection is lost.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};
use transport_security::{ClientTls, Stream};
use zk_wire::{
    ConnectRequest, ConnectResponse, ErrorCode, Notification, Outcome, Reader, Reply, ReplyHeader, Request,
    frame, xid,
};

/// Requested session timeout: long enough that an election of the ensemble does not end the session.
/// ZooKeeper grants up to 40 s by default.
const SESSION_TIMEOUT_MS: i32 = 30_000;

/// Number of pings within a session timeout.
const PINGS: u32 = 3;

/// Time without a response to a pending request after which the server is pinged, repeatedly: an operator who
/// waits during a freeze needs to know, and a server that has overlooked a request may process it when it
/// receives something.
const NUDGE_AFTER: Duration = Duration::from_secs(1);

/// Timeout for opening a session.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of pipelined requests. ZooKeeper stops reading at a thousand.
const WINDOW: usize = 512;

/// Maximum size of a response in bytes: it may contain the names of all children of a znode, or the data of
/// many.
const MAX_ANSWER_BYTES: usize = 1 << 30;

/// Error context for a failed TLS handshake: servers of ZooKeeper before 3.9 use only TLS 1.2 unless
/// configured otherwise.
const SPEAKS: &str = "TLS handshake with the source, which has to support TLS 1.3, or 1.2 with a cipher suite with ECDHE and GCM (see \
                      docs/operate/migrate-from-zookeeper.md)";

/// Number of bytes to reserve for one read.
const ROOM: usize = 64 * 1024;

/// Credentials for the source: certificates and `addauth` entries.
#[derive(Debug, Clone, Default)]
pub struct SourceCredentials {
    /// TLS configuration; `None` for servers without TLS.
    pub tls: Option<ClientTls>,
    /// Scheme and credentials, as `addauth` takes them: `digest` and `user:password`.
    pub auth: Vec<(String, String)>,
}

/// Connection to one server of the source. See the module.
pub struct Connection {
    server: String,
    calls: mpsc::Sender<Call>,
    notifications: Arc<PendingNotifications>,
    /// `None` after the task has ended and its error was returned.
    task: Option<JoinHandle<anyhow::Result<()>>>,
}

/// Paths of watch notifications that the mirror has not processed yet.
#[derive(Default)]
struct PendingNotifications {
    paths: Mutex<(BTreeSet<String>, Option<Instant>)>,
    available: Notify,
    /// Longest time without a response to a pending request, in milliseconds.
    silence_ms: AtomicU64,
}

impl PendingNotifications {
    fn record_silence(&self, silence: Duration) {
        let silence_ms = u64::try_from(silence.as_millis()).unwrap_or(u64::MAX);
        self.silence_ms.fetch_max(silence_ms, Relaxed);
    }
}

struct Call {
    requests: Vec<Request>,
    answer: oneshot::Sender<(Vec<Outcome>, i64)>,
}

impl Connection {
    /// Opens a session at `server` (`host:port`) and sends the credentials.
    pub async fn open(server: &str, credentials: &SourceCredentials) -> anyhow::Result<Self> {
        let opened = tokio::time::timeout(HANDSHAKE_TIMEOUT, Wire::open(server, credentials)).await;
        let mut wire = opened
            .map_err(anyhow::Error::from)
            .flatten()
            .with_context(|| format!("opening a session at {server}"))?;
        let (calls, inbox) = mpsc::channel(1);
        let notifications = Arc::new(PendingNotifications::default());
        wire.notifications = notifications.clone();
        let task = tokio::spawn(wire.run(inbox));
        Ok(Self {
            server: server.to_owned(),
            calls,
            notifications,
            task: Some(task),
        })
    }

    /// Returns the address of the server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Sends requests, and returns their outcomes in the same order, with the zxid in the last response.
    pub async fn call_all(&mut self, requests: Vec<Request>) -> anyhow::Result<(Vec<Outcome>, i64)> {
        let (answer, answered) = oneshot::channel();
        let call = Call { requests, answer };
        if self.calls.send(call).await.is_ok()
            && let Ok(outcomes) = answered.await
        {
            return Ok(outcomes);
        }
        let server = self.server.clone();
        Err(self.lost().await.context(format!("requests to {server}")))
    }

    /// Returns the error that ended the connection.
    async fn lost(&mut self) -> anyhow::Error {
        // The error is returned once; a finished task must not be awaited again.
        match self.task.take() {
            Some(task) => why(task.await),
            None => anyhow::anyhow!("the connection has ended"),
        }
    }

    /// Sends one request. An error code in its response is an outcome, too.
    pub async fn call(&mut self, request: Request) -> anyhow::Result<(Outcome, i64)> {
        let (mut outcomes, zxid) = self.call_all(vec![request]).await?;
        Ok((outcomes.pop().context("one request has one response")?, zxid))
    }

    /// Takes the notified paths since the last call, and the time of the first notification among them.
    pub fn take_notifications(&self) -> (BTreeSet<String>, Option<Instant>) {
        let mut pending = self.notifications.paths.lock();
        (std::mem::take(&mut pending.0), pending.1.take())
    }

    /// Returns the number of notified paths that were not taken yet.
    pub fn pending_notifications(&self) -> usize {
        self.notifications.paths.lock().0.len()
    }

    /// Returns the longest time without a response to a pending request since the last call.
    pub fn take_silence(&self) -> Duration {
        Duration::from_millis(self.notifications.silence_ms.swap(0, Relaxed))
    }

    /// Waits for a notification; returns an error if the connection is lost before.
    pub async fn wait_notification(&mut self) -> anyhow::Result<()> {
        while self.pending_notifications() == 0 {
            let Some(task) = &mut self.task else {
                return Err(self.lost().await);
            };
            let ended = tokio::select! {
                () = self.notifications.available.notified() => continue,
                ended = task => ended,
            };
            self.task = None;
            return Err(why(ended).context(format!("following {}", self.server)));
        }
        Ok(())
    }
}

/// Returns the error that ended a connection's task.
fn why(ended: Result<anyhow::Result<()>, JoinError>) -> anyhow::Error {
    match ended {
        Ok(Err(error)) => error,
        Ok(Ok(())) => anyhow::anyhow!("the connection has ended"),
        Err(error) => error.into(),
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Protocol state of the connection, owned by its task.
struct Wire {
    stream: Stream,
    inbox: BytesMut,
    out: BytesMut,
    next_xid: i32,
    /// Session timeout as granted by the server.
    session: Duration,
    notifications: Arc<PendingNotifications>,
}

impl Wire {
    async fn open(server: &str, credentials: &SourceCredentials) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(server).await?;
        socket.set_nodelay(true)?;
        let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
        let stream = match &credentials.tls {
            Some(tls) => tls.connect(host, socket).await.context(SPEAKS)?,
            None => Stream::Plain(socket),
        };
        let mut wire = Self {
            stream,
            inbox: BytesMut::new(),
            out: BytesMut::new(),
            next_xid: 1,
            session: Duration::from_millis(SESSION_TIMEOUT_MS.unsigned_abs().into()),
            notifications: Arc::default(),
        };
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: SESSION_TIMEOUT_MS,
            session_id: 0,
            password: Some(Bytes::from_static(&[0; 16])),
            // A server that is cut off from its ensemble may have old data.
            read_only: Some(false),
        };
        request.write_frame(&mut wire.out);
        wire.send().await?;
        let answer = ConnectResponse::decode(&mut Reader::new(wire.receive().await?))?;
        ensure!(
            answer.session_id != 0 && answer.timeout_ms > 0,
            "the server grants no session"
        );
        wire.session = Duration::from_millis(answer.timeout_ms.unsigned_abs().into());
        for (scheme, auth) in &credentials.auth {
            let request = Request::Auth {
                kind: 0,
                scheme: scheme.clone(),
                auth: Some(Bytes::copy_from_slice(auth.as_bytes())),
            };
            request.write_frame(xid::AUTH, &mut wire.out);
            wire.send().await?;
            let header = ReplyHeader::decode(&mut Reader::new(wire.receive().await?))?;
            ensure!(
                header.xid == xid::AUTH && header.err == ErrorCode::OK,
                "the server does not take the {scheme} credentials: {}",
                header.err
            );
        }
        Ok(wire)
    }

    /// Processes calls until the [`Connection`] is dropped.
    async fn run(mut self, mut calls: mpsc::Receiver<Call>) -> anyhow::Result<()> {
        let ping_every = self.session / PINGS;
        let mut pings = interval_at(Instant::now() + ping_every, ping_every);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut current: Option<Current> = None;
        // A whole session timeout without a byte counts as a lost connection.
        let mut silent = 0;
        let mut nudged = Instant::now();
        loop {
            if let Some(call) = &mut current {
                call.write(&mut self.next_xid, &mut self.out);
                if call.is_done() {
                    let call = current.take().context("the current call exists")?;
                    self.notifications.record_silence(call.silence);
                    // The caller may have been cancelled.
                    call.answer.send((call.outcomes, call.zxid)).ok();
                }
            }
            if !self.out.is_empty() {
                self.send().await?;
            }
            while let Some(body) = frame::take(&mut self.inbox, MAX_ANSWER_BYTES)? {
                self.take(body, &mut current)?;
            }
            if current
                .as_ref()
                .is_some_and(|call| call.is_done() || call.has_room())
            {
                continue;
            }
            self.inbox.reserve(ROOM);
            let nudge_at = current.as_ref().map(|call| call.heard.max(nudged) + NUDGE_AFTER);
            tokio::select! {
                received = self.stream.read_buf(&mut self.inbox) => {
                    if received.context("receiving")? == 0 {
                        bail!("the server hung up");
                    }
                    silent = 0;
                }
                call = calls.recv(), if current.is_none() => match call {
                    Some(call) => current = Some(Current::new(call)),
                    None => return Ok(()),
                },
                () = sleep_until(nudge_at.unwrap_or(nudged)), if nudge_at.is_some() => {
                    nudged = Instant::now();
                    let silence = current.as_ref().map_or(Duration::ZERO, |call| nudged - call.heard);
                    self.notifications.record_silence(silence);
                    // The server may still respond to pings alone.
                    ensure!(silence < self.session, "no response to a request for a whole session timeout");
                    Request::Ping.write_frame(xid::PING, &mut self.out);
                }
                _ = pings.tick() => {
                    silent += 1;
                    ensure!(silent <= PINGS, "no response for a whole session timeout");
                    Request::Ping.write_frame(xid::PING, &mut self.out);
                }
            }
        }
    }

    /// Processes a frame from the server.
    fn take(&mut self, body: Bytes, current: &mut Option<Current>) -> anyhow::Result<()> {
        let mut from = Reader::new(body);
        let header = ReplyHeader::decode(&mut from)?;
        match header.xid {
            xid::PING => Ok(()),
            xid::NOTIFICATION => {
                let Notification { path, .. } = Notification::decode(&mut from)?;
                let mut pending = self.notifications.paths.lock();
                pending.0.insert(path);
                pending.1.get_or_insert_with(Instant::now);
                self.notifications.available.notify_one();
                Ok(())
            }
            _ => match current {
                Some(call) => call.take(header, &mut from),
                None => bail!("a response to request {}, which is not pending", header.xid),
            },
        }
    }

    async fn send(&mut self) -> anyhow::Result<()> {
        self.stream.write_all(&self.out).await.context("sending")?;
        self.stream.flush().await.context("sending")?;
        self.out.clear();
        Ok(())
    }

    /// Receives the next frame during the handshake.
    async fn receive(&mut self) -> anyhow::Result<Bytes> {
        loop {
            if let Some(body) = frame::take(&mut self.inbox, MAX_ANSWER_BYTES)? {
                return Ok(body);
            }
            self.inbox.reserve(ROOM);
            if self.stream.read_buf(&mut self.inbox).await.context("receiving")? == 0 {
                bail!("the server hung up");
            }
        }
    }
}

/// Call in progress.
struct Current {
    requests: Vec<Request>,
    /// Number of sent requests.
    sent: usize,
    /// Pending requests as pairs of xid and index, the oldest first.
    under_way: VecDeque<(i32, usize)>,
    outcomes: Vec<Outcome>,
    zxid: i64,
    /// Time of the last response, or of the begin of the call.
    heard: Instant,
    /// Longest time without a response.
    silence: Duration,
    answer: oneshot::Sender<(Vec<Outcome>, i64)>,
}

impl Current {
    fn new(call: Call) -> Self {
        Self {
            outcomes: Vec::with_capacity(call.requests.len()),
            requests: call.requests,
            sent: 0,
            under_way: VecDeque::new(),
            zxid: 0,
            heard: Instant::now(),
            silence: Duration::ZERO,
            answer: call.answer,
        }
    }

    fn is_done(&self) -> bool {
        self.outcomes.len() == self.requests.len()
    }

    /// Returns whether more requests may be sent, and enough of them to be worth a write.
    fn has_room(&self) -> bool {
        self.sent < self.requests.len() && self.under_way.len() <= WINDOW / 2
    }

    fn write(&mut self, next_xid: &mut i32, out: &mut BytesMut) {
        while self.sent < self.requests.len() && self.under_way.len() < WINDOW {
            let xid = *next_xid;
            // Negative numbers are reserved.
            *next_xid = xid.checked_add(1).unwrap_or(1);
            self.requests[self.sent].write_frame(xid, out);
            self.under_way.push_back((xid, self.sent));
            self.sent += 1;
        }
    }

    fn take(&mut self, header: ReplyHeader, from: &mut Reader) -> anyhow::Result<()> {
        let (xid, index) = self
            .under_way
            .pop_front()
            .context("a response without a pending request")?;
        ensure!(
            header.xid == xid,
            "the response to request {xid} has number {}",
            header.xid
        );
        let now = Instant::now();
        self.silence = self.silence.max(now - self.heard);
        self.heard = now;
        self.zxid = header.zxid;
        self.outcomes.push(match header.err {
            ErrorCode::OK => Ok(Reply::decode(&self.requests[index], from)?),
            code => Err(code),
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Serves one client: grants a session with this timeout, and responds to pings. It responds to other
    /// requests together with the next ping, or never.
    async fn serve(listener: TcpListener, timeout_ms: i32, answers: bool) -> anyhow::Result<()> {
        let (stream, _) = listener.accept().await?;
        let mut wire = Wire {
            stream: Stream::Plain(stream),
            inbox: BytesMut::new(),
            out: BytesMut::new(),
            next_xid: 1,
            session: Duration::MAX,
            notifications: Arc::default(),
        };
        ConnectRequest::decode(&mut Reader::new(wire.receive().await?))?;
        let welcome = ConnectResponse {
            protocol_version: 0,
            timeout_ms,
            session_id: 1,
            password: Some(Bytes::from_static(&[0; 16])),
            read_only: Some(false),
        };
        welcome.write_frame(&mut wire.out);
        wire.send().await?;
        let mut asked = Vec::new();
        loop {
            let xid = Reader::new(wire.receive().await?).int()?;
            if xid != xid::PING {
                asked.push(xid);
                continue;
            }
            for xid in asked.drain(..).filter(|_| answers) {
                let err = ErrorCode::NO_NODE;
                ReplyHeader { xid, zxid: 7, err }.write_frame(None, &mut wire.out);
            }
            let err = ErrorCode::OK;
            ReplyHeader { xid, zxid: 7, err }.write_frame(None, &mut wire.out);
            wire.send().await?;
        }
    }

    async fn connected(timeout_ms: i32, answers: bool) -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap().to_string();
        tokio::spawn(serve(listener, timeout_ms, answers));
        let credentials = SourceCredentials::default();
        Connection::open(&server, &credentials).await.unwrap()
    }

    fn sync() -> Request {
        Request::Sync {
            path: "/a".to_owned(),
        }
    }

    #[tokio::test]
    async fn silent_server_is_pinged_and_its_silence_measured() {
        // The session alone needs no ping for days.
        let mut connection = connected(i32::MAX, true).await;
        let called = tokio::time::timeout(HANDSHAKE_TIMEOUT, connection.call(sync()));
        let (outcome, zxid) = called.await.unwrap().unwrap();
        assert_eq!((outcome, zxid), (Err(ErrorCode::NO_NODE), 7));
        assert!(connection.take_silence() >= NUDGE_AFTER);
        assert_eq!(connection.take_silence(), Duration::ZERO);
    }

    #[tokio::test]
    async fn server_that_only_answers_pings_is_dropped_after_the_session_timeout() {
        let mut connection = connected(3_000, false).await;
        let called = tokio::time::timeout(HANDSHAKE_TIMEOUT, connection.call(sync()));
        let error = called.await.unwrap().unwrap_err();
        assert!(
            format!("{error:#}").contains("no response to a request"),
            "{error:#}"
        );
        assert!(connection.take_silence() >= Duration::from_secs(3));
    }
}
