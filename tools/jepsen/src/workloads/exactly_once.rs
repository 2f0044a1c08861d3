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

use super::marks::Marks;
use super::{Persistence, Progress, Span, Workload, fill, last_look};
use crate::client::{Answer, Caller, PATIENCE, Session};
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
const MAX_SENDINGS: usize = 12;

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
    turn: AtomicU64,
    marks: Marks,
}

/// Repetition of a request.
#[derive(Clone, Copy)]
enum Manner {
    /// Repeats until there is a response.
    Plain,
    /// Closes the connection after this time, then repeats on another node.
    HangUp(Duration),
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
            turn: AtomicU64::new(0),
            marks: Marks::default(),
        }
    }

    fn request(&self, session: Option<&Session>, id: String) -> Request {
        let parent = self.turn.fetch_add(1, Ordering::Relaxed) / PER_PARENT % PARENTS;
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

    async fn attempt(&self, world: &World, me: &mut ClientId, caller: &mut Caller, asked: &Request) -> bool {
        let call = async {
            let reply = caller.call(Method::POST, &asked.path, Some(&asked.body), PATIENCE);
            // The whole document is compared: even its stat must be that of the moment of the first
            // execution.
            reply.await.done().map(|document| document.to_string())
        };
        let answer = self.attempts.call(world, me, asked.id.clone(), call).await;
        answer.ok().is_some()
    }

    async fn hang_up(
        &self,
        world: &World,
        me: &mut ClientId,
        caller: &mut Caller,
        asked: &Request,
        after: Duration,
    ) {
        let call = async {
            let call = caller.call(Method::POST, &asked.path, Some(&asked.body), PATIENCE);
            match tokio::time::timeout(after, call).await {
                Ok(reply) => reply.done().map(|document| document.to_string()),
                Err(_) => Answer::Unknown("connection closed by the client".to_owned()),
            }
        };
        self.attempts.call(world, me, asked.id.clone(), call).await;
        caller.move_on();
    }

    async fn ask(
        &self,
        world: &World,
        me: &mut ClientId,
        callers: &mut [Caller; 2],
        asked: &Request,
        manner: Manner,
    ) {
        let [first, second] = callers;
        match manner {
            Manner::HangUp(after) => self.hang_up(world, me, first, asked, after).await,
            Manner::Both => {
                let mut other = *me + OTHER_HAND;
                tokio::join!(
                    self.attempt(world, me, first, asked),
                    self.attempt(world, &mut other, second, asked)
                );
            }
            Manner::Plain | Manner::Again => {}
        }
        for _ in 0..MAX_SENDINGS {
            if self.attempt(world, me, first, asked).await {
                break;
            }
            // An election takes a while, and the outcome of this request has to be determined.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        if matches!(manner, Manner::Again) {
            self.attempt(world, me, second, asked).await;
        }
    }

    async fn applied(&self, world: &World) -> Result<Applied> {
        let mut reader = caller(world, 0);
        let mut times: BTreeMap<String, u64> = BTreeMap::new();
        let mut counter = 0;
        let used = (self.turn.load(Ordering::Relaxed) / PER_PARENT + 1).min(PARENTS);
        for parent in 0..used {
            let parent = format!("{PARENT}/{parent}");
            let look = format!("/v1/znodes{parent}?linearizable=true");
            let document = last_look(&mut reader, &look).await?;
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
    let again = Persistence::about(parent);
    let document = loop {
        let answer = reader.post(path, &body).await.done();
        if let Some(document) = again.heed(answer).await? {
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
const OTHER_HAND: ClientId = 500;

async fn children(reader: &mut Caller, parent: &str) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    loop {
        let mut look = format!("/v1/znodes{parent}?children=true&count={PAGE}&linearizable=true");
        if let Some(last) = names.last() {
            look.push_str(&format!("&after={last}"));
        }
        let page = last_look(reader, &look).await?;
        for child in page["children"].as_array().context("no children in the answer")? {
            names.push(
                child["name"]
                    .as_str()
                    .context("a child without a name")?
                    .to_owned(),
            );
        }
        if page["next_after"].is_null() {
            return Ok(names);
        }
    }
}

fn draw(rng: &mut Rng) -> Manner {
    match rng.u32(0..10) {
        0..3 => Manner::Plain,
        3..6 => Manner::HangUp(Duration::from_micros(rng.u64(200..6000))),
        6..8 => Manner::Again,
        _ => Manner::Both,
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
                session = session.filter(Session::lives);
                if session.is_none() {
                    session = Session::open(&world, number, &mut callers[0], TTL).await.ok();
                }
                let sessionless = rng.u32(0..100) < SESSIONLESS_PERCENT;
                let on_behalf = session.as_ref().filter(|_| !sessionless);
                let asked = self.request(on_behalf, format!("r{}", ids()));
                self.ask(&world, &mut me, &mut callers, &asked, draw(&mut rng))
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
            self.marks.note(&verdicts);
            Ok(verdicts)
        }
        .boxed()
    }

    fn timeline(&self) -> Vec<Span> {
        let attempts = self.attempts.calls().into_iter().map(|call| {
            let label = format!("{} → {:?}", call.input, call.outcome);
            self.marks.call(bar(label, &call), &call)
        });
        attempts.collect()
    }

    fn write_history(&self, to: &mut dyn Write) -> io::Result<()> {
        self.attempts.write(to)
    }
}
