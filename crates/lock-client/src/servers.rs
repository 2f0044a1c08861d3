//! The servers of a cluster, and requests that survive the loss of some of them. What an acquire does beyond that
//! stands in `acquire.rs`; sessions are not known here.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hyper::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::background::Background;
use crate::error::{Error, Refusal};
use crate::http::{Answer, Call, Http, Opened, Place, SendError};
use crate::token::TokenProvider;

/// The first pause between two tries. A server that has died is noticed at once, and the next one can serve.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// The longest pause between two tries. An election takes some hundred milliseconds: a longer pause would add to every
/// failover, and so would what `Retry-After` says, which counts in seconds.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// How long a server may take for an answer or a connection at least, however little time is left for all of them: one that is well takes
/// less, wherever it is, and a request that is given up too early has an unknown outcome.
pub(crate) const SHORTEST_TRY: Duration = Duration::from_millis(500);

/// How a client behaves when servers do not.
#[derive(Debug, Clone)]
pub(crate) struct Patience {
    /// How long a call is tried at all servers before it fails.
    pub(crate) total: Duration,
    /// How long one server may take for an answer.
    pub(crate) answer: Duration,
    /// How long a connection may take.
    pub(crate) connect: Duration,
}

/// All servers, and which of them is asked.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) patience: Patience,
    /// Where connections and the tasks of sessions run.
    pub(crate) background: Background,
    /// Cancelled when the client is shut down.
    stopped: CancellationToken,
    http: Http,
    servers: Vec<Server>,
    current: AtomicUsize,
    /// Whether the one that leads is to be asked, as soon as it is known.
    at_leader: bool,
}

#[derive(Debug)]
struct Server {
    /// `host:port`.
    address: String,
    /// Counts how often it left a heartbeat without an answer.
    suspicions: watch::Sender<u64>,
}

/// What one server said to one request.
pub(crate) enum Verdict {
    /// It was done.
    Done(Bytes),
    /// The cluster has decided against it.
    Refused(Refusal),
    /// By this try nothing was done.
    NotDone(String),
    /// Perhaps it was.
    InDoubt(String),
    /// The client was shut down meanwhile.
    Stopped,
}

/// Pauses that grow, with chance in them: clients that lost the same server must not come back all at once.
pub(crate) struct Pauses(Duration);

impl Pauses {
    pub(crate) fn new() -> Self {
        Self(FIRST_PAUSE)
    }

    /// The next pause.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST_PAUSE);
        let mut bits = [0; 1];
        getrandom::fill(&mut bits).expect("the operating system has random numbers");
        pause / 2 + pause / 2 * u32::from(bits[0]) / 255
    }
}

impl Servers {
    /// `addresses` (`host:port`) has at least one.
    pub(crate) fn new(
        addresses: Vec<String>,
        patience: Patience,
        place: Place,
        token: Option<Arc<dyn TokenProvider>>,
        at_leader: bool,
        background: Background,
        stopped: CancellationToken,
    ) -> Self {
        // Clients that were given the same list begin at different servers.
        let mut bits = [0; 8];
        getrandom::fill(&mut bits).expect("the operating system has random numbers");
        let first = usize::from_le_bytes(bits) % addresses.len();
        let server = |address| Server {
            address,
            suspicions: watch::Sender::new(0),
        };
        Self {
            http: Http::new(patience.connect, place, token, background.clone()),
            background,
            stopped,
            patience,
            servers: addresses.into_iter().map(server).collect(),
            current: AtomicUsize::new(first),
            at_leader,
        }
    }

    /// The same servers for a session, which keeps the token that it was opened with: it would not be let use it with another.
    pub(crate) fn for_session(self: &Arc<Self>) -> Result<Arc<Self>, Error> {
        let no_token = |error| Error::Unavailable(format!("there is no token to show: {error}"));
        let Some(http) = self.http.pinned().map_err(no_token)? else {
            return Ok(self.clone());
        };
        let server = |server: &Server| Server {
            address: server.address.clone(),
            suspicions: watch::Sender::new(0),
        };
        Ok(Arc::new(Self {
            http,
            background: self.background.clone(),
            stopped: self.stopped.clone(),
            patience: self.patience.clone(),
            servers: self.servers.iter().map(server).collect(),
            current: AtomicUsize::new(self.current()),
            at_leader: self.at_leader,
        }))
    }

    /// Where they are.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.address.clone()).collect()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.servers.len()
    }

    /// The one that is asked next.
    pub(crate) fn current(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    /// Whether the leader is to be looked for.
    pub(crate) fn is_at_leader(&self) -> bool {
        self.at_leader
    }

    /// Turns to this one.
    pub(crate) fn turn_to(&self, server: usize) {
        self.current.store(server, Ordering::Relaxed);
    }

    /// Turns to the next one, unless somebody has turned away from this one already.
    pub(crate) fn turn_away(&self, from: usize) {
        let next = (from + 1) % self.count();
        // That somebody else was faster is as good.
        let _ = self
            .current
            .compare_exchange(from, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Tells those who wait for this server that it has left a heartbeat without an answer, and turns away from it.
    pub(crate) fn suspect(&self, server: usize) {
        self.servers[server].suspicions.send_modify(|count| *count += 1);
        self.turn_away(server);
    }

    /// Tells when this server is suspected from now on.
    pub(crate) fn suspicions(&self, server: usize) -> watch::Receiver<u64> {
        self.servers[server].suspicions.subscribe()
    }

    /// Sends a request to one server, once. The future is boxed, so that the HTTP client is compiled in this crate and not in each crate that
    /// awaits a request.
    #[inline(never)]
    pub(crate) fn send<'a>(&'a self, server: usize, call: &'a Call) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            let address = &self.servers[server].address;
            let sent = tokio::select! {
                biased;
                () = self.stopped.cancelled() => return Verdict::Stopped,
                sent = self.http.send(address, call) => sent,
            };
            match sent {
                Ok(answer) => judge(address, answer),
                Err(SendError::NotSent(why) | SendError::NoDescriptor(why)) => Verdict::NotDone(why),
                Err(SendError::Broken(why)) => Verdict::InDoubt(why),
            }
        })
    }

    /// Waits until a request finds no descriptor for a connection.
    pub(crate) async fn descriptor_needed(&self) {
        self.http.descriptor_needed().await;
    }

    /// Opens a stream at one server. Boxed like [`Servers::send`].
    #[inline(never)]
    pub(crate) fn open<'a>(
        &'a self,
        server: usize,
        path: &'a str,
    ) -> BoxFuture<'a, Result<Opened, SendError>> {
        Box::pin(self.http.open(&self.servers[server].address, path))
    }

    /// Sends a request that has the effect of one however often it is sent, until a server gives a definite answer.
    pub(crate) async fn call(&self, call: &Call) -> Result<Bytes, Error> {
        self.call_within(call, self.patience.total, self.patience.answer)
            .await
    }

    /// Likewise, for `total`, and as long as one server may take to answer. If that is longer, the request is sent once.
    pub(crate) async fn call_within(
        &self,
        call: &Call,
        total: Duration,
        answer: Duration,
    ) -> Result<Bytes, Error> {
        let deadline = Instant::now() + total;
        let (mut pauses, mut in_doubt) = (Pauses::new(), false);
        let changes = call.method != Method::GET;
        let mut within = answer;
        loop {
            let server = self.current();
            let sent = tokio::time::timeout(within, self.send(server, call)).await;
            let why = match sent {
                Ok(Verdict::Done(body)) => return Ok(body),
                // Who calls may have had the right when an earlier try was carried out, and has lost it since.
                Ok(Verdict::Refused(refusal)) if in_doubt && changes && refusal.is_of_the_caller() => {
                    return Err(Error::Unknown(refusal.detail));
                }
                Ok(Verdict::Refused(refusal)) => return Err(refusal.into()),
                Ok(Verdict::NotDone(why)) => why,
                Ok(Verdict::InDoubt(why)) => {
                    in_doubt = true;
                    why
                }
                Ok(Verdict::Stopped) => return Err(Error::Stopped),
                Err(_) => {
                    in_doubt = true;
                    format!("{}: no answer in {within:?}", self.servers[server].address)
                }
            };
            self.turn_away(server);
            let pause = pauses.next();
            if Instant::now() + pause >= deadline {
                return Err(match in_doubt && changes {
                    true => Error::Unknown(why),
                    false => Error::Unavailable(why),
                });
            }
            tokio::time::sleep(pause).await;
            let left = deadline.saturating_duration_since(Instant::now());
            within = answer.min(left.max(SHORTEST_TRY));
        }
    }

    /// Sends a request that must not be carried out twice, until it may have been done: to the next server only as long as
    /// nothing was.
    pub(crate) async fn ask_once<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Error> {
        let deadline = Instant::now() + self.patience.total;
        let mut pauses = Pauses::new();
        loop {
            let server = self.current();
            let why = match tokio::time::timeout(self.patience.answer, self.send(server, call)).await {
                Ok(Verdict::Done(body)) => return read(&body),
                Ok(Verdict::Refused(refusal)) => return Err(refusal.into()),
                Ok(Verdict::NotDone(why)) => why,
                Ok(Verdict::InDoubt(why)) => return Err(Error::Unknown(why)),
                Ok(Verdict::Stopped) => return Err(Error::Stopped),
                Err(_) => {
                    let address = &self.servers[server].address;
                    return Err(Error::Unknown(format!(
                        "{address}: no answer in {:?}",
                        self.patience.answer
                    )));
                }
            };
            self.turn_away(server);
            let pause = pauses.next();
            if Instant::now() + pause >= deadline {
                return Err(Error::Unavailable(why));
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// [`Servers::call`], with the answer's document.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Error> {
        read(&self.call(call).await?)
    }
}

/// The document of an answer. What cannot be read was said by a server, so it may have been done.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body)
        .map_err(|error| Error::Unknown(format!("an answer that makes no sense: {error}")))
}

fn judge(address: &str, Answer { status, body }: Answer) -> Verdict {
    if (200..300).contains(&status) {
        return Verdict::Done(body);
    }
    let Some(refusal) = Refusal::read(status, &body) else {
        let text = String::from_utf8_lossy(&body);
        let beginning: String = text.chars().take(80).collect();
        return Verdict::InDoubt(format!("{address}: {status} {beginning}"));
    };
    let why = format!("{address}: {}", refusal.detail);
    match (status, refusal.code.word()) {
        // Also when it is only this server that has too much to do.
        (_, "unavailable" | "read_only" | "request_timeout" | "too_many_requests") => Verdict::NotDone(why),
        (400..500, _) => Verdict::Refused(refusal),
        _ => Verdict::InDoubt(why),
    }
}

impl Call {
    /// A request that changes nothing.
    pub(crate) fn get(path: String) -> Self {
        Self {
            method: Method::GET,
            path,
            body: Bytes::new(),
        }
    }

    /// A request with a document.
    pub(crate) fn with(method: Method, path: String, body: &Value) -> Self {
        Self {
            method,
            path,
            body: body.to_string().into(),
        }
    }
}

/// A fresh request id.
pub(crate) fn request_id() -> String {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).expect("the operating system has random numbers");
    format!("{:032x}", u128::from_le_bytes(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(status: u16, body: &str) -> &'static str {
        let body = Bytes::copy_from_slice(body.as_bytes());
        match judge("s:1", Answer { status, body }) {
            Verdict::Done(_) => "done",
            Verdict::Refused(_) => "refused",
            Verdict::NotDone(_) => "not done",
            Verdict::InDoubt(_) => "in doubt",
            Verdict::Stopped => "stopped",
        }
    }

    #[test]
    fn an_answer_is_definite_only_if_a_server_of_the_cluster_says_so() {
        assert_eq!(verdict(204, ""), "done");
        assert_eq!(verdict(409, r#"{"code": "lock_busy"}"#), "refused");
        assert_eq!(verdict(410, r#"{"code": "session_expired"}"#), "refused");
        assert_eq!(verdict(408, r#"{"code": "request_timeout"}"#), "not done");
        assert_eq!(verdict(429, r#"{"code": "too_many_requests"}"#), "not done");
        assert_eq!(verdict(503, r#"{"code": "unavailable"}"#), "not done");
        assert_eq!(verdict(503, r#"{"code": "outcome_unknown"}"#), "in doubt");
        assert_eq!(verdict(500, r#"{"code": "internal"}"#), "in doubt");
        // Whatever stands between client and server has no say.
        assert_eq!(verdict(404, "<html>nginx</html>"), "in doubt");
        assert_eq!(verdict(502, ""), "in doubt");
    }

    #[test]
    fn pauses_grow_to_their_bound() {
        let mut pauses = Pauses::new();
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            last = pauses.next();
            assert!(last <= LONGEST_PAUSE);
        }
        assert!(last >= LONGEST_PAUSE / 2);
    }
}
