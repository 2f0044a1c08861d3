//! Servers of a cluster, and requests that survive the loss of some of them. `acquire.rs` adds what an acquire needs; sessions are not
//! known here.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span, debug_span, field};

use crate::background::Background;
use crate::error::{Error, Refusal};
use crate::http::{ApiRequest, Http, Opened, SendError};
use crate::stats::Counts;

/// First pause between two attempts. A failed connection is detected at once, and the next server can serve.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// Longest pause between two attempts, unless all servers name a longer one (`Retry-After`). An election takes some hundred milliseconds, so
/// a longer pause would lengthen every failover.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Minimum time for an answer or a connection of one server, however little of the total is left. A healthy server needs less, and a
/// request that is dropped too early has an unknown outcome.
pub(crate) const SHORTEST_TRY: Duration = Duration::from_millis(500);

/// Maximum number of requests in a batch, as servers accept it.
const MAX_BATCH_REQUESTS: usize = 128;

/// Change that is sent together with others.
#[derive(Debug, Clone)]
pub(crate) struct BatchRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Map<String, Value>,
}

impl BatchRequest {
    pub(crate) fn new(method: Method, path: String, body: Map<String, Value>) -> Self {
        Self { method, path, body }
    }

    /// Returns the request for a batch. An acquire has the number of its attempt.
    fn document(&self, attempt: u16) -> Value {
        let mut body = self.body.clone();
        if let Some(retry) = body.get_mut("retry") {
            *retry = attempt.into();
        }
        match self.method {
            Method::DELETE => json!({ "method": "DELETE", "path": self.path }),
            _ => json!({ "path": self.path, "body": body }),
        }
    }
}

/// Time limits of a client.
#[derive(Debug, Clone)]
pub(crate) struct Patience {
    /// Total time of a call at all servers.
    pub(crate) total: Duration,
    /// Time for the answer of one server.
    pub(crate) answer: Duration,
    /// Time for a connection.
    pub(crate) connect: Duration,
}

/// Servers of a cluster, with the one that gets the next request.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) patience: Patience,
    /// Runtime of connections and of the tasks of sessions.
    pub(crate) background: Background,
    pub(crate) counts: Arc<Counts>,
    /// Cancelled when the client is shut down.
    stopped: CancellationToken,
    http: Http,
    servers: Vec<Server>,
    current: AtomicUsize,
    /// `true` if sessions prefer the leader, as soon as it is known.
    at_leader: bool,
}

#[derive(Debug)]
struct Server {
    /// `host:port`.
    address: String,
    /// Number of heartbeats that the server left without an answer.
    suspicions: watch::Sender<u64>,
    /// Time before which the server wants no more requests (`Retry-After`).
    not_before: Mutex<Instant>,
}

impl Server {
    fn new(address: String) -> Self {
        Self {
            address,
            suspicions: watch::Sender::new(0),
            not_before: Mutex::new(Instant::now()),
        }
    }

    fn not_before(&self) -> Instant {
        *self.not_before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the server wants no more requests for this time.
    fn leave_for(&self, time: Duration) {
        *self.not_before.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + time;
    }
}

/// Outcome of one attempt at one server.
#[derive(Clone)]
pub(crate) enum Outcome {
    /// The request was executed.
    Executed(Bytes),
    /// The cluster refused it.
    Refused(Refusal),
    /// This attempt executed nothing.
    NotExecuted(String),
    /// This attempt may have executed it.
    Uncertain(String),
    /// The client was shut down.
    Stopped,
}

impl Outcome {
    /// Returns the word for traces.
    fn word(&self) -> &str {
        match self {
            Self::Executed(_) => "ok",
            Self::Refused(refusal) => refusal.code.word(),
            Self::NotExecuted(_) => "unavailable",
            Self::Uncertain(_) | Self::Stopped => "unknown",
        }
    }
}

/// Knowledge about a request after some attempts.
struct Progress {
    changes: bool,
    /// `true` if an attempt may have executed it.
    in_doubt: bool,
    /// Reason why the last attempt was not definite.
    why: String,
}

impl Progress {
    fn of(method: &Method) -> Self {
        Self {
            changes: *method != Method::GET,
            in_doubt: false,
            why: String::new(),
        }
    }

    /// Takes the outcome of an attempt. Returns the result of the request if it is definite.
    fn take(&mut self, outcome: Outcome) -> Option<Result<Bytes, Error>> {
        match outcome {
            Outcome::Executed(body) => return Some(Ok(body)),
            // The caller may have had the right when an earlier attempt was executed, and may have lost it since.
            Outcome::Refused(refusal) if self.in_doubt && self.changes && refusal.is_of_the_caller() => {
                return Some(Err(Error::Unknown(refusal.detail)));
            }
            Outcome::Refused(refusal) => return Some(Err(refusal.into())),
            Outcome::Stopped => return Some(Err(Error::Stopped)),
            Outcome::NotExecuted(why) => self.why = why,
            Outcome::Uncertain(why) => (self.in_doubt, self.why) = (true, why),
        }
        None
    }

    /// Returns the error of a request that is not sent again.
    fn given_up(self) -> Error {
        match self.in_doubt && self.changes {
            true => Error::Unknown(self.why),
            false => Error::Unavailable(self.why),
        }
    }
}

/// Growing pauses with jitter: clients that lost the same server should not return at the same moment.
pub(crate) struct Pauses(Duration);

impl Pauses {
    pub(crate) fn new() -> Self {
        Self(FIRST_PAUSE)
    }

    /// Returns the next pause.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST_PAUSE);
        let mut bits = [0; 1];
        getrandom::fill(&mut bits).expect("the operating system has random numbers");
        pause / 2 + pause / 2 * u32::from(bits[0]) / 255
    }
}

impl Servers {
    /// `addresses` (`host:port`) is not empty.
    pub(crate) fn new(
        addresses: Vec<String>,
        patience: Patience,
        http: Http,
        at_leader: bool,
        background: Background,
        stopped: CancellationToken,
    ) -> Self {
        // Clients with the same list begin at different servers.
        let mut bits = [0; 8];
        getrandom::fill(&mut bits).expect("the operating system has random numbers");
        let first = usize::from_le_bytes(bits) % addresses.len();
        Self {
            http,
            background,
            counts: Arc::default(),
            stopped,
            patience,
            servers: addresses.into_iter().map(Server::new).collect(),
            current: AtomicUsize::new(first),
            at_leader,
        }
    }

    /// Returns the same servers for a session. It keeps the current token, because no other token may use the session.
    pub(crate) fn for_session(self: &Arc<Self>) -> Result<Arc<Self>, Error> {
        let no_token = |error| Error::Unavailable(format!("there is no token to show: {error}"));
        let Some(http) = self.http.pinned().map_err(no_token)? else {
            return Ok(self.clone());
        };
        Ok(Arc::new(Self {
            http,
            background: self.background.clone(),
            counts: self.counts.clone(),
            stopped: self.stopped.clone(),
            patience: self.patience.clone(),
            servers: self.addresses().into_iter().map(Server::new).collect(),
            current: AtomicUsize::new(self.current()),
            at_leader: self.at_leader,
        }))
    }

    /// Returns the addresses.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.address.clone()).collect()
    }

    /// Returns the number of servers.
    pub(crate) fn count(&self) -> usize {
        self.servers.len()
    }

    /// Returns the server that gets the next request.
    pub(crate) fn current(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    /// Returns whether sessions prefer the leader.
    pub(crate) fn is_at_leader(&self) -> bool {
        self.at_leader
    }

    /// Makes this server the next one.
    pub(crate) fn turn_to(&self, server: usize) {
        self.current.store(server, Ordering::Relaxed);
    }

    /// Makes another server the next one, unless another call has done so: the following one, or the first one after it that takes requests
    /// again.
    pub(crate) fn turn_away(&self, from: usize) {
        let (now, count) = (Instant::now(), self.count());
        let others = (1..=count).map(|step| (from + step) % count);
        let next = others.min_by_key(|server| self.servers[*server].not_before().max(now));
        let next = next.expect("there is a server");
        // It does not matter which call did it.
        let _ = self
            .current
            .compare_exchange(from, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns the pause before the next attempt: the next of `pauses`, or longer if no server takes requests before.
    pub(crate) fn pause(&self, pauses: &mut Pauses) -> Duration {
        let left = self.servers[self.current()].not_before() - Instant::now();
        pauses.next().max(left)
    }

    /// Waits before a call is sent again.
    pub(crate) async fn pause_before_retry(&self, pause: Duration) {
        tokio::time::sleep(pause).await;
        self.counts.add(|stats| stats.retries += 1);
    }

    /// Notifies the calls that wait at this server that it left a heartbeat without an answer, and changes to another server.
    pub(crate) fn suspect(&self, server: usize) {
        self.servers[server].suspicions.send_modify(|count| *count += 1);
        self.turn_away(server);
    }

    /// Returns a receiver of suspicions of this server.
    pub(crate) fn suspicions(&self, server: usize) -> watch::Receiver<u64> {
        self.servers[server].suspicions.subscribe()
    }

    /// Makes one attempt at one server. The future is boxed, so that the HTTP client is compiled in this crate, and not in each crate that
    /// awaits a request.
    #[inline(never)]
    pub(crate) fn send<'a>(&'a self, server: usize, call: &'a ApiRequest) -> BoxFuture<'a, Outcome> {
        let at = &self.servers[server];
        let span = match call.in_background {
            true => Span::none(),
            false => debug_span!(
                "lockgate.request",
                otel.kind = "client",
                operation = call.operation(),
                server.address = at.address,
                outcome = field::Empty
            ),
        };
        let attempt = async move {
            let mut attempt = self.counts.attempt();
            let sent = tokio::select! {
                biased;
                () = self.stopped.cancelled() => return Outcome::Stopped,
                sent = self.http.send(&at.address, call) => sent,
            };
            let outcome = match sent {
                Ok(answer) => {
                    let retry_after = answer.retry_after;
                    let outcome = judge(&at.address, answer.status, answer.body);
                    if let (Outcome::NotExecuted(_), Some(time)) = (&outcome, retry_after) {
                        at.leave_for(time);
                    }
                    outcome
                }
                Err(SendError::NotSent(why) | SendError::NoDescriptor(why)) => Outcome::NotExecuted(why),
                Err(SendError::Broken(why)) => Outcome::Uncertain(why),
            };
            attempt.outcome = match &outcome {
                Outcome::Executed(_) => |_| {},
                Outcome::Refused(_) => |stats| stats.requests_refused += 1,
                Outcome::NotExecuted(_) => |stats| stats.requests_unavailable += 1,
                Outcome::Uncertain(_) | Outcome::Stopped => |stats| stats.requests_unknown += 1,
            };
            outcome
        };
        let recorded = span.clone();
        let attempt = attempt.inspect(move |outcome| {
            recorded.record("outcome", outcome.word());
        });
        Box::pin(attempt.instrument(span))
    }

    /// Waits until a request finds no file descriptor for a connection.
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

    /// Sends an idempotent request until a server gives a definite answer.
    pub(crate) async fn call(&self, call: &ApiRequest) -> Result<Bytes, Error> {
        self.call_within(call, self.patience.total, self.patience.answer)
            .await
    }

    /// The same within `total`, with the time for the answer of one server. If `answer` is longer, it is sent once.
    pub(crate) async fn call_within(
        &self,
        call: &ApiRequest,
        total: Duration,
        answer: Duration,
    ) -> Result<Bytes, Error> {
        self.call_copies(|| call.clone(), total, answer).await
    }

    /// The same with another copy of the request for each attempt.
    pub(crate) async fn call_copies(
        &self,
        mut copy: impl FnMut() -> ApiRequest,
        total: Duration,
        answer: Duration,
    ) -> Result<Bytes, Error> {
        let mut call = copy();
        let deadline = Instant::now() + total;
        let (mut pauses, mut progress) = (Pauses::new(), Progress::of(&call.method));
        let mut within = answer;
        loop {
            let server = self.current();
            let outcome = self.send_within(within, server, &call).await;
            if let Some(result) = progress.take(outcome) {
                return result;
            }
            match self.next_attempt(server, &mut pauses, deadline).await {
                Some(left) => (within, call) = (answer.min(left), copy()),
                None => return Err(progress.given_up()),
            }
        }
    }

    /// Makes one attempt at one server, and waits at most this time for the answer.
    async fn send_within(&self, time: Duration, server: usize, call: &ApiRequest) -> Outcome {
        let sent = tokio::time::timeout(time, self.send(server, call)).await;
        let address = &self.servers[server].address;
        sent.unwrap_or_else(|_| Outcome::Uncertain(format!("{address}: no answer in {time:?}")))
    }

    /// Waits before the next attempt, which goes to another server. Returns the time for it; `None` if no time is left.
    async fn next_attempt(&self, server: usize, pauses: &mut Pauses, deadline: Instant) -> Option<Duration> {
        self.turn_away(server);
        let pause = self.pause(pauses);
        if Instant::now() + pause >= deadline {
            return None;
        }
        self.pause_before_retry(pause).await;
        Some(
            deadline
                .saturating_duration_since(Instant::now())
                .max(SHORTEST_TRY),
        )
    }

    /// Sends idempotent changes together, until each has a definite answer: after each attempt those without one again, as if they were
    /// sent alone. The results are in the order of the changes.
    pub(crate) async fn batch(&self, changes: &[BatchRequest]) -> Vec<Result<Bytes, Error>> {
        let mut results = Vec::with_capacity(changes.len());
        for changes in changes.chunks(MAX_BATCH_REQUESTS) {
            results.extend(self.batch_part(changes).await);
        }
        results
    }

    async fn batch_part(&self, changes: &[BatchRequest]) -> Vec<Result<Bytes, Error>> {
        let deadline = Instant::now() + self.patience.total;
        let (mut pauses, mut within) = (Pauses::new(), self.patience.answer);
        let mut progress: Vec<_> = changes
            .iter()
            .map(|change| Progress::of(&change.method))
            .collect();
        let mut results: Vec<_> = changes.iter().map(|_| None).collect();
        for attempt in 0.. {
            let open: Vec<usize> = (0..changes.len()).filter(|&at| results[at].is_none()).collect();
            let requests: Vec<Value> = open.iter().map(|&at| changes[at].document(attempt)).collect();
            let call = ApiRequest::with(
                Method::POST,
                "/v1/batch".to_owned(),
                &json!({ "requests": requests }),
            );
            let server = self.current();
            let outcome = self.send_within(within, server, &call).await;
            let outcomes = split(&self.servers[server].address, outcome, open.len());
            for (&at, outcome) in open.iter().zip(outcomes) {
                results[at] = progress[at].take(outcome);
            }
            if results.iter().all(Option::is_some) {
                break;
            }
            match self.next_attempt(server, &mut pauses, deadline).await {
                Some(left) => within = self.patience.answer.min(left),
                None => break,
            }
        }
        let given_up = results.into_iter().zip(progress);
        let results = given_up.map(|(result, progress)| result.unwrap_or_else(|| Err(progress.given_up())));
        results.collect()
    }

    /// Sends a request that is not idempotent: to the next server only if the attempt executed nothing.
    pub(crate) async fn ask_once<T: DeserializeOwned>(&self, call: &ApiRequest) -> Result<T, Error> {
        let deadline = Instant::now() + self.patience.total;
        let mut pauses = Pauses::new();
        loop {
            let server = self.current();
            let why = match self.send_within(self.patience.answer, server, call).await {
                Outcome::Executed(body) => return read(&body),
                Outcome::Refused(refusal) => return Err(refusal.into()),
                Outcome::Uncertain(why) => return Err(Error::Unknown(why)),
                Outcome::Stopped => return Err(Error::Stopped),
                Outcome::NotExecuted(why) => why,
            };
            if self.next_attempt(server, &mut pauses, deadline).await.is_none() {
                return Err(Error::Unavailable(why));
            }
        }
    }

    /// Sends an idempotent request, and reads the document of its answer.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, call: &ApiRequest) -> Result<T, Error> {
        read(&self.call(call).await?)
    }
}

/// Returns the outcomes of the requests of a batch.
fn split(address: &str, outcome: Outcome, count: usize) -> Vec<Outcome> {
    #[derive(Deserialize)]
    struct BatchAnswer {
        results: Vec<BatchResult>,
    }
    #[derive(Deserialize)]
    struct BatchResult {
        status: u16,
        body: Option<Value>,
        problem: Option<Value>,
    }
    let Outcome::Executed(body) = &outcome else {
        return vec![outcome; count];
    };
    match read::<BatchAnswer>(body) {
        Ok(BatchAnswer { results }) if results.len() == count => {
            let judged = results.into_iter().map(
                |BatchResult {
                     status,
                     body,
                     problem,
                 }| {
                    let document = problem
                        .or(body)
                        .map_or_else(Bytes::new, |document| document.to_string().into());
                    judge(address, status, document)
                },
            );
            judged.collect()
        }
        Ok(_) => vec![Outcome::Uncertain("an answer to another number of requests".to_owned()); count],
        Err(error) => vec![Outcome::Uncertain(error.to_string()); count],
    }
}

/// Reads the document of an answer. An unreadable answer leaves the outcome unknown, because a server sent it.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body)
        .map_err(|error| Error::Unknown(format!("an answer that makes no sense: {error}")))
}

fn judge(address: &str, status: u16, body: Bytes) -> Outcome {
    if (200..300).contains(&status) {
        return Outcome::Executed(body);
    }
    let Some(refusal) = Refusal::read(status, &body) else {
        // Its body is no text for people: proxies send a page of HTML.
        let status =
            StatusCode::from_u16(status).map_or_else(|_| status.to_string(), |status| status.to_string());
        return Outcome::Uncertain(format!(
            "{address}: {status}, not from a Lockgate server: a proxy may have sent it"
        ));
    };
    let why = format!("{address}: {}", refusal.detail);
    match (status, refusal.code.word()) {
        // Also if only this server is overloaded.
        (_, "unavailable" | "read_only" | "request_timeout" | "too_many_requests") => {
            Outcome::NotExecuted(why)
        }
        (400..500, _) => Outcome::Refused(refusal),
        _ => Outcome::Uncertain(why),
    }
}

impl ApiRequest {
    fn new(method: Method, path: String, body: Bytes) -> Self {
        Self {
            method,
            path,
            body,
            in_background: false,
        }
    }

    /// Request that changes nothing.
    pub(crate) fn get(path: String) -> Self {
        Self::new(Method::GET, path, Bytes::new())
    }

    /// Request that deletes.
    pub(crate) fn delete(path: String) -> Self {
        Self::new(Method::DELETE, path, Bytes::new())
    }

    /// Request with a document.
    pub(crate) fn with(method: Method, path: String, body: &Value) -> Self {
        Self::new(method, path, body.to_string().into())
    }

    /// The same for a request that no caller waits for.
    pub(crate) fn in_background(self) -> Self {
        Self {
            in_background: true,
            ..self
        }
    }

    /// Returns the name of the call for traces, without names of locks and znodes, and without ids, which may be secret.
    fn operation(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        let parts: Vec<_> = path.split('/').skip(2).collect();
        let route = match *parts {
            [kind @ ("locks" | "sessions" | "leases"), _, verb, ..] => format!("{kind}/{verb}"),
            ["multilock", verb] => format!("multilock/{verb}"),
            [kind, ..] => kind.to_owned(),
            [] => String::new(),
        };
        format!("{} {route}", self.method)
    }
}

/// Returns a new request id.
pub(crate) fn request_id() -> String {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).expect("the operating system has random numbers");
    format!("{:032x}", u128::from_le_bytes(bits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Endpoint;

    fn outcome(status: u16, body: &str) -> &'static str {
        let body = Bytes::copy_from_slice(body.as_bytes());
        match judge("s:1", status, body) {
            Outcome::Executed(_) => "done",
            Outcome::Refused(_) => "refused",
            Outcome::NotExecuted(_) => "not done",
            Outcome::Uncertain(_) => "in doubt",
            Outcome::Stopped => "stopped",
        }
    }

    #[test]
    fn an_answer_is_definite_only_if_a_server_of_the_cluster_says_so() {
        assert_eq!(outcome(204, ""), "done");
        assert_eq!(outcome(409, r#"{"code": "lock_busy"}"#), "refused");
        assert_eq!(outcome(410, r#"{"code": "session_expired"}"#), "refused");
        assert_eq!(outcome(408, r#"{"code": "request_timeout"}"#), "not done");
        assert_eq!(outcome(429, r#"{"code": "too_many_requests"}"#), "not done");
        assert_eq!(outcome(503, r#"{"code": "unavailable"}"#), "not done");
        assert_eq!(outcome(507, r#"{"code": "read_only"}"#), "not done");
        assert_eq!(outcome(504, r#"{"code": "outcome_unknown"}"#), "in doubt");
        assert_eq!(outcome(500, r#"{"code": "internal"}"#), "in doubt");
        // Answers of proxies are not definite.
        assert_eq!(outcome(404, "<html>nginx</html>"), "in doubt");
        assert_eq!(outcome(502, ""), "in doubt");
        assert_eq!(outcome(503, ""), "in doubt");
        assert_eq!(outcome(504, "<html>"), "in doubt");
    }

    #[test]
    fn each_request_of_a_batch_has_an_outcome_of_its_own() {
        let answer = br#"{"results": [
            {"status": 200, "body": {"expires_in_ms": 1000}},
            {"status": 409, "problem": {"code": "lock_busy", "detail": "it is held"}},
            {"status": 503, "problem": {"code": "unavailable", "detail": "no leader"}},
            {"status": 504, "problem": {"code": "outcome_unknown", "detail": "perhaps"}}
        ]}"#;
        let answered = |count| split("s:1", Outcome::Executed(Bytes::from_static(answer)), count);
        let words: Vec<String> = answered(4)
            .iter()
            .map(|outcome| outcome.word().to_owned())
            .collect();
        assert_eq!(words, ["ok", "lock_busy", "unavailable", "unknown"]);
        // Answers of another number cannot be assigned.
        let words: Vec<String> = answered(2)
            .iter()
            .map(|outcome| outcome.word().to_owned())
            .collect();
        assert_eq!(words, ["unknown"; 2]);
    }

    #[test]
    fn acquires_of_a_batch_count_their_attempts() {
        let body = |text| serde_json::from_str(text).unwrap();
        let acquire = BatchRequest::new(
            Method::POST,
            "/v1/locks/a/acquire".to_owned(),
            body(r#"{"retry": 0}"#),
        );
        assert_eq!(
            acquire.document(2),
            json!({ "path": "/v1/locks/a/acquire", "body": { "retry": 2 } })
        );
        let release = BatchRequest::new(Method::DELETE, "/v1/leases/ls_1".to_owned(), body("{}"));
        assert_eq!(
            release.document(2),
            json!({ "method": "DELETE", "path": "/v1/leases/ls_1" })
        );
    }

    #[test]
    fn server_that_named_a_time_comes_last() {
        let addresses = ["a:1", "b:1", "c:1"].map(str::to_owned).to_vec();
        let patience = Patience {
            total: Duration::from_secs(9),
            answer: Duration::from_secs(1),
            connect: Duration::from_secs(1),
        };
        let http = Http::new(
            patience.connect,
            Endpoint::Network(None),
            None,
            None,
            Background::own(),
        );
        let stopped = CancellationToken::new();
        let servers = Servers::new(addresses, patience, http, false, Background::own(), stopped);
        servers.turn_to(0);
        servers.servers[1].leave_for(Duration::from_secs(2));
        servers.turn_away(0);
        assert_eq!(servers.current(), 2, "the following one is left");
        servers.servers[0].leave_for(Duration::from_secs(3));
        servers.servers[2].leave_for(Duration::from_secs(5));
        servers.turn_away(2);
        assert_eq!(servers.current(), 1, "it takes requests first");
        let pause = servers.pause(&mut Pauses::new());
        assert!((1_500..=2_000).contains(&pause.as_millis()), "{pause:?}");
        servers.servers[1].leave_for(Duration::ZERO);
        assert!(servers.pause(&mut Pauses::new()) <= FIRST_PAUSE);
    }

    #[test]
    fn answer_of_a_proxy_is_reported_by_its_status_without_its_page() {
        for (status, body, reported) in [
            (
                502,
                "<html><h1>Bad gateway, says nginx</h1></html>",
                "s:1: 502 Bad Gateway,",
            ),
            (599, "", "s:1: 599 <unknown status code>,"),
        ] {
            let body = Bytes::copy_from_slice(body.as_bytes());
            let Outcome::Uncertain(why) = judge("s:1", status, body) else {
                panic!("{status} is definite");
            };
            let rest = " not from a Lockgate server: a proxy may have sent it";
            assert_eq!(why, format!("{reported}{rest}"));
        }
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
