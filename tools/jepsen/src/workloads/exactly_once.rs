//! Repeated requests: each creates one sequential znode under a request id. Clients close the connection
//! after sending, repeat a request on another node, repeat it after its response, or send it to two nodes at
//! once. Each id may create at most one znode, and all its responses must be the same.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper::Method;
use lockgate_check::exactly_once::{self, Applied};
use lockgate_check::{ClientId, Verdict};
use serde_json::{Value, json};

use super::highlights::Highlights;
use super::{FinalRead, Progress, Span, Workload, fill, final_get};
use crate::client::{CallResult, Caller, Session, TIMEOUT};
use crate::pace::Pace;
use crate::record::{Recorder, bar};
use crate::systems::{System, caller};
use crate::world::World;

const CLIENTS: usize = 20;

/// Requests of all clients per second; most are sent more than once.
const PER_SECOND: f64 = 260.0;

/// Number of znodes created below one parent before the next one is used, so that the final reads stay short.
const PER_PARENT: u64 = 1000;

/// Number of parents: enough for a quarter of an hour.
const PARENTS: u64 = 250;

/// Limit of attempts of a request until there is a response.
const MAX_ATTEMPTS: usize = 12;

/// Percentage of requests outside of a session.
const SESSIONLESS_PERCENT: u32 = 30;

const TTL: Duration = Duration::from_secs(10);

const PAGE: usize = 1000;

/// Limit of reads in one request.
const READS: usize = 100;

const PARENT: &str = "/jepsen/once";

/// The workload.
pub struct ExactlyOnce {
    attempts: Recorder<String, String>,
    next_request: AtomicU64,
    highlights: Highlights,
}

/// Repetition of a request.
#[derive(Clone, Copy)]
enum RepeatMode {
    /// Repeats until there is a response.
    Plain,
    /// Closes the connection after this time, then repeats on another node.
    Disconnect(Duration),
    /// Repeats once more on another node after the response.
    Again,
    /// Sends to two nodes at the same time.
    Both,
}

struct Request {
    id: String,
    path: String,
    body: Value,
}

impl ExactlyOnce {
    /// Creates a run.
    pub fn new() -> Self {
        Self {
            attempts: Recorder::default(),
            next_request: AtomicU64::new(0),
            highlights: Highlights::default(),
        }
    }

    fn request(&self, session: Option<&Session>, id: String) -> Request {
        let parent = self.next_request.fetch_add(1, Ordering::Relaxed) / PER_PARENT % PARENTS;
        let mut body = json!({"mode": "persistent_sequential", "data": id, "request_id": id});
        if let Some(session) = session {
            body["session"] = json!(session.id());
        }
        Request {
            path: format!("/v1/znodes{PARENT}/{parent}/n-"),
            id,
            body,
        }
    }

    async fn attempt(
        &self,
        world: &World,
        me: &mut ClientId,
        caller: &mut Caller,
        request: &Request,
    ) -> bool {
        let call = async {
            let reply = caller.call(Method::POST, &request.path, Some(&request.body), TIMEOUT);
            // The whole document is compared: even its stat must be that of the moment of the first
            // execution.
            reply.await.done().map(|document| document.to_string())
        };
        let answer = self.attempts.call(world, me, request.id.clone(), call).await;
        answer.ok().is_some()
    }

    async fn disconnect(
        &self,
        world: &World,
        me: &mut ClientId,
        caller: &mut Caller,
        request: &Request,
        after: Duration,
    ) {
        let call = async {
            let call = caller.call(Method::POST, &request.path, Some(&request.body), TIMEOUT);
            match tokio::time::timeout(after, call).await {
                Ok(reply) => reply.done().map(|document| document.to_string()),
                Err(_) => CallResult::Unknown("connection closed by the client".to_owned()),
            }
        };
        self.attempts.call(world, me, request.id.clone(), call).await;
        caller.switch_node();
    }

    async fn send(
        &self,
        world: &World,
        me: &mut ClientId,
        callers: &mut [Caller; 2],
        request: &Request,
        mode: RepeatMode,
    ) {
        let [first, second] = callers;
        match mode {
            RepeatMode::Disconnect(after) => self.disconnect(world, me, first, request, after).await,
            RepeatMode::Both => {
                let mut other = *me + SECOND_CALLER;
                tokio::join!(
                    self.attempt(world, me, first, request),
                    self.attempt(world, &mut other, second, request)
                );
            }
            RepeatMode::Plain | RepeatMode::Again => {}
        }
        for _ in 0..MAX_ATTEMPTS {
            if self.attempt(world, me, first, request).await {
                break;
            }
            // An election takes a while, and the outcome of this request has to be determined.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        if matches!(mode, RepeatMode::Again) {
            self.attempt(world, me, second, request).await;
        }
    }

    async fn applied(&self, world: &World) -> Result<Applied> {
        let mut reader = caller(world, 0);
        let mut times: BTreeMap<String, u64> = BTreeMap::new();
        let mut counter = 0;
        let used = (self.next_request.load(Ordering::Relaxed) / PER_PARENT + 1).min(PARENTS);
        for parent in 0..used {
            let parent = format!("{PARENT}/{parent}");
            let address = format!("/v1/znodes{parent}?linearizable=true");
            let document = final_get(&mut reader, &address).await?;
            let made = document["stat"]["cversion"].as_u64();
            counter += made.context("a parent without a cversion")?;
            let names = children(&mut reader, &parent).await?;
            for names in names.chunks(READS) {
                for id in contents(&mut reader, &parent, names).await? {
                    *times.entry(id).or_default() += 1;
                }
            }
        }
        Ok(Applied {
            times,
            counter: Some(counter),
        })
    }
}

/// Returns the data of these children.
async fn contents(reader: &mut Caller, parent: &str, names: &[String]) -> Result<Vec<String>> {
    let get = |name: &String| json!({"get": {"path": format!("{parent}/{name}")}});
    let body = json!({"reads": names.iter().map(get).collect::<Vec<_>>()});
    let path = "/v1/read?linearizable=true";
    let again = FinalRead::about(parent);
    let document = loop {
        let answer = reader.post(path, &body).await.done();
        if let Some(document) = again.accept(answer).await? {
            break document;
        }
    };
    let results = document["results"].as_array().context("reads without results")?;
    let id = |result: &Value| Some(result["get"]["data"].as_str()?.to_owned());
    let ids = results
        .iter()
        .map(|result| id(result).with_context(|| result.to_string()));
    ids.collect()
}

/// Offset of the client number under which a client's simultaneous second attempt is recorded.
const SECOND_CALLER: ClientId = 500;

async fn children(reader: &mut Caller, parent: &str) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    loop {
        let mut address = format!("/v1/znodes{parent}?children=true&limit={PAGE}&linearizable=true");
        if let Some(last) = names.last() {
            address.push_str(&format!("&cursor={last}"));
        }
        let page = final_get(reader, &address).await?;
        for child in page["children"].as_array().context("no children in the answer")? {
            names.push(
                child["name"]
                    .as_str()
                    .context("a child without a name")?
                    .to_owned(),
            );
        }
        if page["next_cursor"].is_null() {
            return Ok(names);
        }
    }
}

fn draw(rng: &mut Rng) -> RepeatMode {
    match rng.u32(0..10) {
        0..3 => RepeatMode::Plain,
        3..6 => RepeatMode::Disconnect(Duration::from_micros(rng.u64(200..6000))),
        6..8 => RepeatMode::Again,
        _ => RepeatMode::Both,
    }
}

impl Workload for ExactlyOnce {
    fn clients(&self) -> usize {
        CLIENTS
    }

    fn prepare<'a>(&'a self, world: &'a World) -> BoxFuture<'a, Result<()>> {
        let parents = (0..PARENTS).map(|parent| format!("{PARENT}/{parent}")).collect();
        fill(System::Lockgate, world, parents, "").boxed()
    }

    fn client(self: Arc<Self>, world: World, number: usize) -> BoxFuture<'static, ()> {
        async move {
            let mut callers = [caller(&world, number), caller(&world, number + 1)];
            let mut pace = Pace::new(&world, number, CLIENTS, PER_SECOND);
            let mut rng = super::rng(&world, number);
            let mut me = ClientId::try_from(number).expect("there are few clients");
            let mut ids = super::unique_numbers(number);
            let mut session: Option<Session> = None;
            while pace.next().await {
                session = session.filter(Session::is_alive);
                if session.is_none() {
                    session = Session::open(&world, number, &mut callers[0], TTL).await.ok();
                }
                let sessionless = rng.u32(0..100) < SESSIONLESS_PERCENT;
                let owner = session.as_ref().filter(|_| !sessionless);
                let request = self.request(owner, format!("r{}", ids()));
                self.send(&world, &mut me, &mut callers, &request, draw(&mut rng))
                    .await;
            }
        }
        .boxed()
    }

    fn progress(&self) -> Progress {
        self.attempts.tally().progress()
    }

    fn reasons(&self) -> BTreeMap<String, u64> {
        self.attempts.tally().reasons()
    }

    fn check<'a>(&'a self, world: &'a World) -> BoxFuture<'a, Result<Vec<(String, Verdict)>>> {
        async move {
            let applied = self.applied(world).await?;
            let verdict = exactly_once::check(&self.attempts.calls(), &applied);
            let verdicts = vec![("exactly once".to_owned(), verdict)];
            self.highlights.record(&verdicts);
            Ok(verdicts)
        }
        .boxed()
    }

    fn timeline(&self) -> Vec<Span> {
        let attempts = self.attempts.calls().into_iter().map(|call| {
            let label = format!("{} → {:?}", call.input, call.outcome);
            self.highlights.call(bar(label, &call), &call)
        });
        attempts.collect()
    }

    fn write_history(&self, to: &mut dyn Write) -> io::Result<()> {
        self.attempts.write(to)
    }
}
