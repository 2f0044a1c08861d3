//! One client: it opens a session, creates ephemeral znodes, lives for some seconds, and closes its session
//! or stops its heartbeats. Meanwhile and afterwards it queries sessions and znodes of its own and of others.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use hyper::Method;
use lockgate_check::Nanos;
use lockgate_check::sessions::Fact;
use serde_json::{Value, json};

use super::{CLIENTS, Index, PARENT, Sessions};
use crate::client::{CallResult, Caller, Reply, nanos};
use crate::pace::Pace;
use crate::systems::caller;
use crate::world::World;

/// Calls of all clients per second.
const PER_SECOND: f64 = 450.0;

/// Requested TTLs; the first is the minimum of the server.
const TTLS_MS: [u64; 3] = [2000, 2500, 4000];

/// Range of the time for which sessions are kept alive.
const LIFE_MS: std::ops::Range<u64> = 500..6000;

/// Percentage of sessions that are closed; the others expire.
const CLOSED_PERCENT: u32 = 40;

/// Maximum number of ephemeral znodes of a session.
const EPHEMERALS: u32 = 3;

/// Timeout of a call. A client that waits for an answer cannot send the next heartbeat, so the timeout is
/// short.
const TIMEOUT: Duration = Duration::from_millis(400);

/// Number of the latest sessions that are queried.
const QUERIED_SESSIONS: usize = 60;

struct Client {
    run: Arc<Sessions>,
    world: World,
    number: usize,
    caller: Caller,
    /// Queries sessions and znodes through another node than `caller`.
    observer: Caller,
    pace: Pace,
    rng: Rng,
    made: u64,
}

/// Session of this client.
struct OwnSession {
    index: Index,
    id: String,
    ttl: Nanos,
    heartbeat_due: Nanos,
    paths: Vec<String>,
}

/// Runs the client until the end of the run.
pub async fn run(run: Arc<Sessions>, world: World, number: usize) {
    let mut client = Client {
        caller: caller(&world, number),
        observer: caller(&world, number + 1),
        pace: Pace::new(&world, number, CLIENTS, PER_SECOND),
        rng: super::super::rng(&world, number),
        made: 0,
        run,
        number,
        world,
    };
    let mut own = None;
    let mut ends = 0;
    while client.pace.next().await {
        match own.take() {
            None => {
                own = client.open().await;
                ends = client.world.now() + nanos(Duration::from_millis(client.rng.u64(LIFE_MS)));
            }
            Some(session) if client.world.now() > ends => client.end(session).await,
            Some(mut session) => {
                if client.step(&mut session).await {
                    own = Some(session);
                } else {
                    // An expired session's requests must be rejected; this call shows whether they are.
                    client.create(&mut session).await;
                }
            }
        }
    }
    if let Some(session) = own {
        client.close(session).await;
    }
}

impl Client {
    async fn call(&mut self, method: Method, path: &str, body: Option<&Value>) -> (Nanos, Nanos, Reply) {
        let invoked = self.world.now();
        let reply = self.caller.call(method, path, body, TIMEOUT).await;
        let returned = self.world.now();
        let answer = match &reply {
            // A rejection because the session has ended is an answer as good as any.
            Reply::Refused(code, _) if means_ended(code) => CallResult::Ok(()),
            reply => reply.clone().done().map(drop),
        };
        self.run.tally.count(returned, &answer);
        (invoked, returned, reply)
    }

    async fn open(&mut self) -> Option<OwnSession> {
        let ttl_ms = TTLS_MS[self.rng.usize(0..TTLS_MS.len())];
        let body = json!({"ttl_ms": ttl_ms, "name": format!("client {}", self.number)});
        // A session whose id did not arrive belongs to no client, and expires.
        let (invoked, returned, reply) = self.call(Method::POST, "/v1/sessions", Some(&body)).await;
        let document = reply.done().ok()?;
        let id = document["session"].as_str()?.to_owned();
        let ttl = Duration::from_millis(document["ttl_ms"].as_u64()?);
        let index = self.run.opened(&id, ttl);
        self.run.learn(index, invoked, returned, Fact::Confirmed);
        Some(OwnSession {
            index,
            id,
            ttl: nanos(ttl),
            heartbeat_due: invoked + nanos(ttl) / 4,
            paths: Vec::new(),
        })
    }

    /// Makes one step of a live session; returns whether the session is still alive.
    async fn step(&mut self, own: &mut OwnSession) -> bool {
        if self.world.now() >= own.heartbeat_due {
            return self.heartbeat(own).await;
        }
        match self.rng.u32(0..10) {
            0 if own.paths.len() < EPHEMERALS as usize => self.create(own).await,
            0..5 => {
                self.query_own_znode(own).await;
                true
            }
            _ => {
                self.query_any_session().await;
                true
            }
        }
    }

    async fn heartbeat(&mut self, own: &mut OwnSession) -> bool {
        let path = format!("/v1/sessions/{}/heartbeat", own.id);
        let (invoked, returned, reply) = self.call(Method::POST, &path, None).await;
        own.heartbeat_due = invoked + own.ttl / 4;
        let (fact, lives) = match reply {
            Reply::Done(_) => (Fact::Confirmed, true),
            Reply::Refused(code, _) if means_ended(&code) => (Fact::Ended, false),
            // The heartbeat may have been counted; the next one is due at once, through another node.
            Reply::Refused(..) | Reply::NotDone(_) | Reply::Unknown(_) => {
                own.heartbeat_due = returned;
                (Fact::Attempted, true)
            }
        };
        self.run.learn(own.index, invoked, returned, fact);
        lives
    }

    async fn create(&mut self, own: &mut OwnSession) -> bool {
        self.made += 1;
        let path = format!("{PARENT}/{}-{}", self.number, self.made);
        let body = json!({"mode": "ephemeral", "session": own.id});
        let address = format!("/v1/znodes{path}");
        let (invoked, returned, reply) = self.call(Method::POST, &address, Some(&body)).await;
        let (fact, lives) = match reply {
            Reply::Done(_) => {
                own.paths.push(path.clone());
                (Fact::Created(path), true)
            }
            Reply::Refused(code, _) if means_ended(&code) => (Fact::Ended, false),
            Reply::Refused(..) | Reply::NotDone(_) | Reply::Unknown(_) => (Fact::Attempted, true),
        };
        self.run.learn(own.index, invoked, returned, fact);
        lives
    }

    async fn query_own_znode(&mut self, own: &OwnSession) {
        let Some(path) = self.rng.choice(&own.paths).cloned() else {
            return self.query_any_session().await;
        };
        let address = format!("/v1/znodes{path}?linearizable=true");
        let invoked = self.world.now();
        let reply = self.observer.get(&address).await;
        let returned = self.world.now();
        let (fact, answer) = match reply {
            Reply::Done(_) => (Some(Fact::SeenThere(path)), CallResult::Ok(())),
            Reply::Refused(code, _) if code == "no_znode" => (Some(Fact::SeenGone(path)), CallResult::Ok(())),
            reply => (None, reply.done().map(drop)),
        };
        self.run.tally.count(returned, &answer);
        if let Some(fact) = fact {
            self.run.learn(own.index, invoked, returned, fact);
        }
    }

    /// Queries one of the latest sessions of any client.
    async fn query_any_session(&mut self) {
        let latest = self.run.known.lock().len();
        if latest > 0 {
            let session = self.rng.usize(latest.saturating_sub(QUERIED_SESSIONS)..latest);
            self.run.query(&self.world, &mut self.observer, session).await;
        }
    }

    async fn end(&mut self, own: OwnSession) {
        if self.rng.u32(0..100) < CLOSED_PERCENT {
            self.close(own).await;
        }
        // Otherwise the client sends nothing more, and other clients will see the expiry.
    }

    async fn close(&mut self, own: OwnSession) {
        let path = format!("/v1/sessions/{}", own.id);
        let (invoked, returned, reply) = self.call(Method::DELETE, &path, None).await;
        let fact = match reply {
            Reply::Done(_) => Fact::Closed,
            Reply::Refused(code, _) if means_ended(&code) => Fact::Ended,
            Reply::Refused(..) | Reply::NotDone(_) | Reply::Unknown(_) => Fact::MayClose,
        };
        self.run.learn(own.index, invoked, returned, fact);
    }
}

fn means_ended(code: &str) -> bool {
    code == "session_expired" || code == "no_session"
}
