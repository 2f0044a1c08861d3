//! One client: it opens a session, makes ephemeral znodes, lives for some seconds, and closes its session or falls silent;
//! meanwhile and afterwards it looks at its own and others'.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use hyper::Method;
use lockgate_check::Nanos;
use lockgate_check::sessions::Fact;
use serde_json::{Value, json};

use super::{CLIENTS, Index, PARENT, Sessions};
use crate::client::{Answer, Caller, Reply, nanos};
use crate::pace::Pace;
use crate::systems::caller;
use crate::world::World;

/// Calls of all clients together in a second.
const PER_SECOND: f64 = 450.0;

/// What sessions ask for; the server gives no less than the first.
const TTLS_MS: [u64; 3] = [2000, 2500, 4000];

/// How long sessions are kept alive.
const LIFE_MS: std::ops::Range<u64> = 500..6000;

/// Of a hundred sessions so many are closed; the others fall silent.
const CLOSED_PERCENT: u32 = 40;

/// How many ephemeral znodes a session has at most.
const EPHEMERALS: u32 = 3;

/// A client that waits for one answer can't send the next heartbeat, so it does not wait for long.
const PATIENCE: Duration = Duration::from_millis(400);

/// How many of the latest sessions are looked at.
const LOOKED_AT: usize = 60;

struct Client {
    run: Arc<Sessions>,
    world: World,
    number: usize,
    caller: Caller,
    /// For looks: through another node than one's own calls.
    observer: Caller,
    pace: Pace,
    rng: Rng,
    made: u64,
}

/// One's own session.
struct Own {
    index: Index,
    id: String,
    ttl: Nanos,
    beat_due: Nanos,
    paths: Vec<String>,
}

/// Lives until the run is over.
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
                if client.live(&mut session).await {
                    own = Some(session);
                } else {
                    // What the dead do must be refused; the call tells whether it is.
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
        let reply = self.caller.call(method, path, body, PATIENCE).await;
        let returned = self.world.now();
        let answer = match &reply {
            // What the ended are told is as good an answer as any.
            Reply::Refused(code, _) if is_over(code) => Answer::Ok(()),
            reply => reply.clone().done().map(drop),
        };
        self.run.tally.count(returned, &answer);
        (invoked, returned, reply)
    }

    async fn open(&mut self) -> Option<Own> {
        let ttl_ms = TTLS_MS[self.rng.usize(0..TTLS_MS.len())];
        let body = json!({"ttl_ms": ttl_ms, "name": format!("client {}", self.number)});
        // A session whose id was not told is nobody's; it ends by itself.
        let (invoked, returned, reply) = self.call(Method::POST, "/v1/sessions", Some(&body)).await;
        let document = reply.done().ok()?;
        let id = document["session"].as_str()?.to_owned();
        let ttl = Duration::from_millis(document["ttl_ms"].as_u64()?);
        let index = self.run.opened(&id, ttl);
        self.run.learn(index, invoked, returned, Fact::Confirmed);
        Some(Own {
            index,
            id,
            ttl: nanos(ttl),
            beat_due: invoked + nanos(ttl) / 4,
            paths: Vec::new(),
        })
    }

    /// One step of a session that is kept alive; whether it is.
    async fn live(&mut self, own: &mut Own) -> bool {
        if self.world.now() >= own.beat_due {
            return self.beat(own).await;
        }
        match self.rng.u32(0..10) {
            0 if own.paths.len() < EPHEMERALS as usize => self.create(own).await,
            0..5 => {
                self.look_at_path(own).await;
                true
            }
            _ => {
                self.look_around().await;
                true
            }
        }
    }

    async fn beat(&mut self, own: &mut Own) -> bool {
        let path = format!("/v1/sessions/{}/heartbeat", own.id);
        let (invoked, returned, reply) = self.call(Method::POST, &path, None).await;
        own.beat_due = invoked + own.ttl / 4;
        let (fact, lives) = match reply {
            Reply::Done(_) => (Fact::Confirmed, true),
            Reply::Refused(code, _) if is_over(&code) => (Fact::Ended, false),
            // It may have been counted; and the next one is due at once, elsewhere.
            Reply::Refused(..) | Reply::NotDone(_) | Reply::Unknown(_) => {
                own.beat_due = returned;
                (Fact::Attempted, true)
            }
        };
        self.run.learn(own.index, invoked, returned, fact);
        lives
    }

    async fn create(&mut self, own: &mut Own) -> bool {
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
            Reply::Refused(code, _) if is_over(&code) => (Fact::Ended, false),
            Reply::Refused(..) | Reply::NotDone(_) | Reply::Unknown(_) => (Fact::Attempted, true),
        };
        self.run.learn(own.index, invoked, returned, fact);
        lives
    }

    async fn look_at_path(&mut self, own: &Own) {
        let Some(path) = self.rng.choice(&own.paths).cloned() else {
            return self.look_around().await;
        };
        let address = format!("/v1/znodes{path}?linearizable=true");
        let invoked = self.world.now();
        let reply = self.observer.get(&address).await;
        let returned = self.world.now();
        let (fact, answer) = match reply {
            Reply::Done(_) => (Some(Fact::SeenThere(path)), Answer::Ok(())),
            Reply::Refused(code, _) if code == "no_node" => (Some(Fact::SeenGone(path)), Answer::Ok(())),
            reply => (None, reply.done().map(drop)),
        };
        self.run.tally.count(returned, &answer);
        if let Some(fact) = fact {
            self.run.learn(own.index, invoked, returned, fact);
        }
    }

    /// Looks at one of the latest sessions, anybody's.
    async fn look_around(&mut self) {
        let latest = self.run.known.lock().len();
        if latest > 0 {
            let session = self.rng.usize(latest.saturating_sub(LOOKED_AT)..latest);
            self.run.look(&self.world, &mut self.observer, session).await;
        }
    }

    async fn end(&mut self, own: Own) {
        if self.rng.u32(0..100) < CLOSED_PERCENT {
            self.close(own).await;
        }
        // Else nothing is sent any more: others will see when it is over.
    }

    async fn close(&mut self, own: Own) {
        let path = format!("/v1/sessions/{}", own.id);
        let (invoked, returned, reply) = self.call(Method::DELETE, &path, None).await;
        let fact = match reply {
            Reply::Done(_) => Fact::Closed,
            Reply::Refused(code, _) if is_over(&code) => Fact::Ended,
            Reply::Refused(..) | Reply::NotDone(_) | Reply::Unknown(_) => Fact::MayClose,
        };
        self.run.learn(own.index, invoked, returned, fact);
    }
}

fn is_over(code: &str) -> bool {
    code == "session_expired" || code == "no_session"
}
