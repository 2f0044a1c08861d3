//! One call of `acquire`, from the first try to its end: under one request id, at one server after the other. However
//! it ends without a lock in its caller's hands, it takes back what it may stand for in the cluster.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::Method;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::encode;
use crate::error::{Error, Loss};
use crate::http::Call;
use crate::servers::{Pauses, Verdict, read, request_id};
use crate::session::{Core, millis};

/// The longest wait that the API takes as a number: seven days.
const LONGEST_WAIT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How a lock is held together with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// One holder.
    Exclusive,
    /// Any number of holders, none of them exclusive.
    Shared,
    /// Holders whose permits add up to at most a limit.
    Semaphore,
}

/// How long a call waits for its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Try,
    For(Duration),
    Forever,
}

/// How a lock is wanted. Unless something else is said, a call waits until the lock is granted, and a second acquire of the
/// same session waits for the end of the first one like anybody else's.
#[derive(Debug, Clone)]
pub struct AcquireOptions {
    wait: Wait,
    /// What the API is told beside the session, the wait and the request id.
    wishes: Map<String, Value>,
}

impl AcquireOptions {
    /// One holder.
    pub fn exclusive() -> Self {
        Self::in_mode("exclusive")
    }

    /// Any number of holders, none of them exclusive.
    pub fn shared() -> Self {
        Self::in_mode("shared")
    }

    /// One of `limit` permits. All who use a semaphore name the same limit.
    pub fn semaphore(limit: u32) -> Self {
        let mut options = Self::in_mode("semaphore").with("limit", limit);
        options.wishes.remove("reentrant");
        options
    }

    fn in_mode(mode: &str) -> Self {
        let options = Self {
            wait: Wait::Forever,
            wishes: Map::new(),
        };
        options.with("mode", mode).with("reentrant", false)
    }

    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.wishes.insert(name.to_owned(), value.into());
        self
    }

    /// So many permits of a semaphore, all at once.
    pub fn permits(self, permits: u32) -> Self {
        self.with("permits", permits)
    }

    /// Gives up at once if the lock is not free.
    pub fn try_only(mut self) -> Self {
        self.wait = Wait::Try;
        self
    }

    /// Gives up after so long; at most seven days.
    pub fn wait_at_most(mut self, time: Duration) -> Self {
        self.wait = Wait::For(time.min(LONGEST_WAIT));
        self
    }

    /// Enters again at once where the same session holds the lock (exclusive or shared) in the scope `owner` already.
    /// Each acquire is a guard of its own, and the lock is free when the last of them is released.
    pub fn reentrant(self, owner: &str) -> Self {
        self.with("owner", owner).with("reentrant", true)
    }

    /// A text for whoever looks at the lock.
    pub fn note(self, note: &str) -> Self {
        self.with("note", note)
    }
}

/// What was granted.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Grant {
    pub(crate) lock: String,
    pub(crate) mode: Mode,
    pub(crate) holder: String,
    pub(crate) fencing_token: u64,
    pub(crate) holds: u32,
    pub(crate) permits: u32,
}

/// One call.
pub(crate) struct Acquire {
    core: Arc<Core>,
    request: Request,
    give_up_at: Option<Instant>,
    /// Tries that were left without an answer. Their connections stay open to the end: a server that finds its caller
    /// gone would take it out of the queue, perhaps before the next try has taken its place.
    unanswered: Vec<Try>,
    /// Whether the cluster may have heard of it.
    in_doubt: bool,
}

/// What is sent, again and again.
#[derive(Clone)]
struct Request {
    lock: String,
    wishes: Map<String, Value>,
    /// When the wait is over; for a call that may wait.
    until: Option<Instant>,
    wait: Wait,
    /// How often it was sent.
    sent: u16,
}

/// One try at one server. While it lives the session is renewed there, too.
struct Try {
    core: Arc<Core>,
    server: usize,
    verdict: Pin<Box<dyn Future<Output = Verdict> + Send>>,
}

impl Try {
    fn new(core: &Arc<Core>, server: usize, call: Call) -> Self {
        core.waits[server].fetch_add(1, Ordering::Relaxed);
        let servers = core.servers.clone();
        Self {
            core: core.clone(),
            server,
            verdict: Box::pin(async move { servers.send(server, &call).await }),
        }
    }
}

impl Drop for Try {
    fn drop(&mut self) {
        self.core.waits[self.server].fetch_sub(1, Ordering::Relaxed);
    }
}

impl Request {
    /// The next copy of it, and its number. It waits for what is left of the time.
    fn next(&mut self) -> Call {
        let wait_ms = match (self.wait, self.until) {
            (Wait::Try, _) => Value::from(0),
            (Wait::Forever, None) => Value::Null,
            (_, until) => {
                let left = until.map_or(Duration::ZERO, |until| {
                    until.saturating_duration_since(Instant::now())
                });
                millis(left).into()
            }
        };
        self.wishes.insert("wait_ms".to_owned(), wait_ms);
        self.wishes.insert("retry".to_owned(), self.sent.into());
        self.sent = self.sent.saturating_add(1);
        let path = format!("/v1/locks/{}/acquire", encode::segment(&self.lock));
        Call::with(Method::POST, path, &Value::Object(self.wishes.clone()))
    }
}

impl Acquire {
    pub(crate) fn new(core: Arc<Core>, lock: &str, options: AcquireOptions) -> Self {
        let AcquireOptions { wait, mut wishes } = options;
        wishes.insert("session".to_owned(), core.id.clone().into());
        wishes.insert("request_id".to_owned(), request_id().into());
        let (now, patience) = (Instant::now(), core.servers.patience.total);
        let (until, give_up_at) = match wait {
            Wait::Try => (None, Some(now + patience)),
            Wait::For(time) => (Some(now + time), Some(now + time + patience)),
            // As long as the session lives.
            Wait::Forever => (None, None),
        };
        Self {
            core,
            request: Request {
                lock: lock.to_owned(),
                wishes,
                until,
                wait,
                sent: 0,
            },
            give_up_at,
            unanswered: Vec::new(),
            in_doubt: false,
        }
    }

    /// Goes on until there is a definite answer, or no hope of one.
    pub(crate) async fn run(mut self) -> Result<Grant, Error> {
        let mut pauses = Pauses::new();
        loop {
            if let Some(loss) = self.core.life.loss() {
                return Err(Error::Lost(loss));
            }
            let why = match self.attempt().await {
                Ok(Verdict::Done(body)) => {
                    let grant: Grant = read(&body)?;
                    self.settle();
                    // A session that is lost holds nothing, whatever was granted to it.
                    return match self.core.life.loss() {
                        None => Ok(grant),
                        Some(loss) => Err(Error::Lost(loss)),
                    };
                }
                Ok(Verdict::Refused(refusal)) => {
                    self.settle();
                    return Err(self.core.refused(refusal.into()));
                }
                Ok(Verdict::NotDone(why) | Verdict::InDoubt(why)) => why,
                Err(loss) => return Err(Error::Lost(loss)),
            };
            let pause = pauses.next();
            if self.give_up_at.is_some_and(|at| Instant::now() + pause >= at) {
                return Err(match self.in_doubt {
                    true => Error::Unknown(why),
                    false => Error::Unavailable(why),
                });
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// One try: until it is answered, the server is silent, or the session is lost.
    async fn attempt(&mut self) -> Result<Verdict, Loss> {
        let servers = self.core.servers.clone();
        let server = servers.current();
        let mut suspicions = servers.suspicions(server);
        let doubted_before = std::mem::replace(&mut self.in_doubt, true);
        // From now on, dropped or not, the cluster may hear of it.
        let call = self.request.next();
        self.unanswered.push(Try::new(&self.core, server, call));
        let current = self.unanswered.last_mut().expect("it was just pushed");
        let verdict = tokio::select! {
            biased;
            verdict = &mut current.verdict => verdict,
            loss = self.core.life.lost() => return Err(loss),
            // The session's heartbeats go to the servers at which it waits, so a silence is noticed however long the
            // wait is. An error means that the servers are gone, which lives as long as the session.
            _ = suspicions.changed() => {
                servers.turn_away(server);
                return Ok(Verdict::InDoubt("the server is silent".to_owned()));
            }
        };
        self.unanswered.pop();
        match &verdict {
            Verdict::NotDone(_) => {
                self.in_doubt = doubted_before;
                servers.turn_away(server);
            }
            Verdict::InDoubt(_) => servers.turn_away(server),
            Verdict::Done(_) | Verdict::Refused(_) => {}
        }
        Ok(verdict)
    }

    /// The cluster has given its answer: there is nothing to take back.
    fn settle(&mut self) {
        self.in_doubt = false;
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if !self.in_doubt || self.core.life.loss().is_some() {
            return;
        }
        // Without a runtime the connections are closed, and the servers do it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let (core, request) = (self.core.clone(), self.request.clone());
        let unanswered = std::mem::take(&mut self.unanswered);
        runtime.spawn(async move {
            take_back(&core, request).await;
            drop(unanswered);
        });
    }
}

/// Ends a call whose caller has gone. The same request, sent once more, stands in its place, wherever the earlier copies
/// have come to; as it does not wait, it is answered at once that its time is over, or that it holds what is then released.
async fn take_back(core: &Core, mut request: Request) {
    request.wait = Wait::Try;
    let mut pauses = Pauses::new();
    while core.life.loss().is_none() {
        let (server, call) = (core.servers.current(), request.next());
        let verdict =
            tokio::time::timeout(core.servers.patience.answer, core.servers.send(server, &call)).await;
        match verdict {
            Ok(Verdict::Done(body)) => {
                match read::<Grant>(&body) {
                    Ok(grant) => drop(release(core, &grant, &request_id()).await.inspect_err(|error| {
                        tracing::warn!(lock = grant.lock, %error, "a grant that nobody waited for was not given back");
                    })),
                    Err(error) => tracing::warn!(lock = request.lock, %error, "a call was not taken back"),
                }
                return;
            }
            Ok(Verdict::Refused(_)) => return,
            Ok(Verdict::NotDone(_) | Verdict::InDoubt(_)) | Err(_) => core.servers.turn_away(server),
        }
        tokio::time::sleep(pauses.next()).await;
    }
}

/// Gives one hold back, and tries for as long as the session surely lives; once, if it does not. Returns how many holds are
/// left. However often it is called with one `request_id`, it gives back one hold.
pub(crate) async fn release(core: &Core, grant: &Grant, request_id: &str) -> Result<u32, Error> {
    #[derive(Deserialize)]
    struct Released {
        holds: u32,
    }
    let body = serde_json::json!({ "session": core.id, "holder": grant.holder, "request_id": request_id });
    let path = format!("/v1/locks/{}/release", encode::segment(&grant.lock));
    let call = Call::with(Method::POST, path, &body);
    let left = match core.life.loss() {
        None => core.ttl,
        Some(_) => Duration::ZERO,
    };
    let answered = core
        .servers
        .call_within(&call, left, core.servers.patience.answer)
        .await;
    let released: Released = read(&answered.map_err(|error| core.refused(error))?)?;
    Ok(released.holds)
}
