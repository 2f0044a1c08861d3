//! One connection to one server of the ensemble that is left: requests go out many at a time, answers come back in order, and
//! what a watch tells meanwhile is collected. A task of its own keeps the session alive whatever else is done; it ends when
//! this value is dropped, or the connection is lost.

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

/// Long enough that an election of the ensemble does not end the session; what ZooKeeper grants by default is up to 40 s.
const SESSION_TIMEOUT_MS: i32 = 30_000;

/// A ping is sent so often within the session's timeout.
const PINGS: u32 = 3;

/// After so long without an answer to what was asked a server is pinged, again and again: whoever waits during a freeze wants to know, and
/// a server that has overlooked something has a reason to look again.
const NUDGE_AFTER: Duration = Duration::from_secs(1);

/// How long a server may take to let a client in.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// So many requests are under way at a time. ZooKeeper stops reading at a thousand.
const WINDOW: usize = 512;

/// An answer may be the names of all children of a znode, or the data of many.
const MAX_ANSWER_BYTES: usize = 1 << 30;

/// What is to be known where no TLS comes about: servers of ZooKeeper before 3.9 speak 1.2 alone unless they are told to.
const SPEAKS: &str = "TLS with the source, which has to speak TLS 1.3 (ZooKeeper before 3.9 does when ssl.protocol=TLSv1.3 is set, and \
                      ssl.enabledProtocols and ssl.ciphersuites allow it: see docs/operate/migrate-from-zookeeper.md)";

/// So much is read at once.
const ROOM: usize = 64 * 1024;

/// What proves who calls, and protects the connection.
#[derive(Debug, Clone, Default)]
pub struct SourceCredentials {
    /// For servers with TLS.
    pub tls: Option<ClientTls>,
    /// Scheme and what belongs to it, as `addauth` takes them: `digest` and `user:password`.
    pub auth: Vec<(String, String)>,
}

/// See the module.
pub struct Connection {
    server: String,
    calls: mpsc::Sender<Call>,
    told: Arc<Told>,
    /// None: it has ended, and that was told.
    task: Option<JoinHandle<anyhow::Result<()>>>,
}

/// Paths that watches have told of and that nobody has looked at since.
#[derive(Default)]
struct Told {
    paths: Mutex<(BTreeSet<String>, Option<Instant>)>,
    some: Notify,
    /// The longest time in which nothing of what was asked was answered, in milliseconds.
    silence_ms: AtomicU64,
}

impl Told {
    fn note_silence(&self, silence: Duration) {
        let silence_ms = u64::try_from(silence.as_millis()).unwrap_or(u64::MAX);
        self.silence_ms.fetch_max(silence_ms, Relaxed);
    }
}

struct Call {
    requests: Vec<Request>,
    answer: oneshot::Sender<(Vec<Outcome>, i64)>,
}

impl Connection {
    /// Opens a session at `server` (`host:port`) and proves who calls.
    pub async fn open(server: &str, credentials: &SourceCredentials) -> anyhow::Result<Self> {
        let opened = tokio::time::timeout(HANDSHAKE_TIMEOUT, Wire::open(server, credentials)).await;
        let mut wire = opened
            .map_err(anyhow::Error::from)
            .flatten()
            .with_context(|| format!("opening a session at {server}"))?;
        let (calls, inbox) = mpsc::channel(1);
        let told = Arc::new(Told::default());
        wire.told = told.clone();
        let task = tokio::spawn(wire.run(inbox));
        Ok(Self {
            server: server.to_owned(),
            calls,
            told,
            task: Some(task),
        })
    }

    /// Which server it is.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Sends requests, and returns their outcomes in the same order, with the position that the last of them tells.
    pub async fn call_all(&mut self, requests: Vec<Request>) -> anyhow::Result<(Vec<Outcome>, i64)> {
        let (answer, answered) = oneshot::channel();
        let call = Call { requests, answer };
        if self.calls.send(call).await.is_ok()
            && let Ok(outcomes) = answered.await
        {
            return Ok(outcomes);
        }
        let server = self.server.clone();
        Err(self.lost().await.context(format!("asking {server}")))
    }

    /// Why the connection is lost, once it is.
    async fn lost(&mut self) -> anyhow::Error {
        // It is told once; a task that has ended must not be waited for again.
        match self.task.take() {
            Some(task) => why(task.await),
            None => anyhow::anyhow!("the connection has ended"),
        }
    }

    /// Sends one request; its refusal is an outcome, too.
    pub async fn call(&mut self, request: Request) -> anyhow::Result<(Outcome, i64)> {
        let (mut outcomes, zxid) = self.call_all(vec![request]).await?;
        Ok((outcomes.pop().context("one request has one answer")?, zxid))
    }

    /// What watches have told of since the last time, and when the first of it came.
    pub fn take_told(&self) -> (BTreeSet<String>, Option<Instant>) {
        let mut told = self.told.paths.lock();
        (std::mem::take(&mut told.0), told.1.take())
    }

    /// How much of that there is.
    pub fn told(&self) -> usize {
        self.told.paths.lock().0.len()
    }

    /// The longest time in which nothing of what was asked was answered, since this was asked last.
    pub fn take_silence(&self) -> Duration {
        Duration::from_millis(self.told.silence_ms.swap(0, Relaxed))
    }

    /// Waits until there is some; an error if the connection is lost before.
    pub async fn wait_told(&mut self) -> anyhow::Result<()> {
        while self.told() == 0 {
            let Some(task) = &mut self.task else {
                return Err(self.lost().await);
            };
            let ended = tokio::select! {
                () = self.told.some.notified() => continue,
                ended = task => ended,
            };
            self.task = None;
            return Err(why(ended).context(format!("following {}", self.server)));
        }
        Ok(())
    }
}

/// Why a connection's task has ended.
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

/// The connection itself.
struct Wire {
    stream: Stream,
    inbox: BytesMut,
    out: BytesMut,
    next_xid: i32,
    /// Its timeout, as it was granted.
    session: Duration,
    told: Arc<Told>,
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
            told: Arc::default(),
        };
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: SESSION_TIMEOUT_MS,
            session_id: 0,
            password: Some(Bytes::from_static(&[0; 16])),
            // What is cut off from its ensemble may be old.
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

    /// Serves calls until nobody can make any.
    async fn run(mut self, mut calls: mpsc::Receiver<Call>) -> anyhow::Result<()> {
        let ping_every = self.session / PINGS;
        let mut pings = interval_at(Instant::now() + ping_every, ping_every);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut current: Option<Current> = None;
        // The session's timeout without a byte is as good as a lost connection.
        let mut silent = 0;
        let mut nudged = Instant::now();
        loop {
            if let Some(call) = &mut current {
                call.write(&mut self.next_xid, &mut self.out);
                if call.is_done() {
                    let call = current.take().context("it is there")?;
                    self.told.note_silence(call.silence);
                    // Whoever asked may have given up.
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
                    self.told.note_silence(silence);
                    // It may go on answering pings alone.
                    ensure!(silence < self.session, "no answer to a request for a whole session timeout");
                    Request::Ping.write_frame(xid::PING, &mut self.out);
                }
                _ = pings.tick() => {
                    silent += 1;
                    ensure!(silent <= PINGS, "no answer for a whole session timeout");
                    Request::Ping.write_frame(xid::PING, &mut self.out);
                }
            }
        }
    }

    /// Takes what the server has sent.
    fn take(&mut self, body: Bytes, current: &mut Option<Current>) -> anyhow::Result<()> {
        let mut from = Reader::new(body);
        let header = ReplyHeader::decode(&mut from)?;
        match header.xid {
            xid::PING => Ok(()),
            xid::NOTIFICATION => {
                let Notification { path, .. } = Notification::decode(&mut from)?;
                let mut told = self.told.paths.lock();
                told.0.insert(path);
                told.1.get_or_insert_with(Instant::now);
                self.told.some.notify_one();
                Ok(())
            }
            _ => match current {
                Some(call) => call.take(header, &mut from),
                None => bail!("an answer to request {}, which nobody sent", header.xid),
            },
        }
    }

    async fn send(&mut self) -> anyhow::Result<()> {
        self.stream.write_all(&self.out).await.context("sending")?;
        self.stream.flush().await.context("sending")?;
        self.out.clear();
        Ok(())
    }

    /// The next frame, while nothing else is going on.
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

/// The call that is being carried out.
struct Current {
    requests: Vec<Request>,
    /// How many were sent.
    sent: usize,
    /// Those that are not answered, the oldest first.
    under_way: VecDeque<(i32, usize)>,
    outcomes: Vec<Outcome>,
    zxid: i64,
    /// When it was begun, or the last answer came.
    heard: Instant,
    /// The longest time without one.
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

    /// Whether more may be sent, and there is enough room for that to be worth it.
    fn has_room(&self) -> bool {
        self.sent < self.requests.len() && self.under_way.len() <= WINDOW / 2
    }

    fn write(&mut self, next_xid: &mut i32, out: &mut BytesMut) {
        while self.sent < self.requests.len() && self.under_way.len() < WINDOW {
            let xid = *next_xid;
            // Negative numbers have meanings of their own.
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
            .context("an answer that nobody waits for")?;
        ensure!(header.xid == xid, "request {xid} was answered by {}", header.xid);
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

    /// Lets one client in, for so long without a ping, and then answers pings. What else it is asked it answers with the next ping, or never.
    async fn serve(listener: TcpListener, timeout_ms: i32, answers: bool) -> anyhow::Result<()> {
        let (stream, _) = listener.accept().await?;
        let mut wire = Wire {
            stream: Stream::Plain(stream),
            inbox: BytesMut::new(),
            out: BytesMut::new(),
            next_xid: 1,
            session: Duration::MAX,
            told: Arc::default(),
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
    async fn a_server_that_does_not_answer_is_pinged_and_told_of() {
        // No ping for the session's sake comes for days.
        let mut connection = connected(i32::MAX, true).await;
        let called = tokio::time::timeout(HANDSHAKE_TIMEOUT, connection.call(sync()));
        let (outcome, zxid) = called.await.unwrap().unwrap();
        assert_eq!((outcome, zxid), (Err(ErrorCode::NO_NODE), 7));
        assert!(connection.take_silence() >= NUDGE_AFTER);
        assert_eq!(connection.take_silence(), Duration::ZERO);
    }

    #[tokio::test]
    async fn a_server_that_answers_pings_alone_is_left_after_a_sessions_timeout() {
        let mut connection = connected(3_000, false).await;
        let called = tokio::time::timeout(HANDSHAKE_TIMEOUT, connection.call(sync()));
        let error = called.await.unwrap().unwrap_err();
        assert!(
            format!("{error:#}").contains("no answer to a request"),
            "{error:#}"
        );
        assert!(connection.take_silence() >= Duration::from_secs(3));
    }
}
