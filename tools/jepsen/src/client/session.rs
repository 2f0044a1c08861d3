//! A session with its heartbeats, and the moment up to which its client may believe that it lives: the time of the last
//! confirmed heartbeat counted from when it was sent, on the run's clock. A client that was too late once has lost it.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use lockgate_check::Nanos;
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use super::answer::Answer;
use super::caller::{Caller, PATIENCE, Reply};
use crate::systems::caller;
use crate::world::World;

/// How many heartbeats fit into a session's time: losing two costs nothing.
const BEATS_PER_TTL: u32 = 4;

/// A session that a client keeps alive.
pub struct Session {
    id: String,
    ttl: Duration,
    life: Arc<Life>,
    beats: Option<AbortOnDropHandle<()>>,
}

/// What a client knows of its session's life.
#[derive(Debug)]
pub struct Life {
    world: World,
    known: Mutex<Known>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    deadline: Nanos,
    /// The deadline was passed, or the server said that it ended; when that was noticed.
    lost: Option<Nanos>,
}

impl Session {
    /// Opens a session for the client of this number, and keeps it alive from a connection of its own.
    pub async fn open(world: &World, number: usize, through: &mut Caller, ttl: Duration) -> Answer<Self> {
        let sent = world.now();
        let body = json!({"ttl_ms": ttl.as_millis(), "name": format!("client {number}")});
        let document = match through.post("/v1/sessions", &body).await.done() {
            Answer::Ok(document) => document,
            Answer::Failed(why) => return Answer::Failed(why),
            Answer::Unknown(why) => return Answer::Unknown(why),
        };
        let (Some(id), Some(ttl_ms)) = (document["session"].as_str(), document["ttl_ms"].as_u64()) else {
            return Answer::Unknown(format!("a session that is none: {document}"));
        };
        let ttl = Duration::from_millis(ttl_ms);
        let life = Arc::new(Life {
            world: world.clone(),
            known: Mutex::new(Known {
                deadline: sent + nanos(ttl),
                ..Known::default()
            }),
        });
        let beats = beat(caller(world, number), id.to_owned(), ttl, life.clone());
        Answer::Ok(Self {
            id: id.to_owned(),
            ttl,
            life,
            beats: Some(AbortOnDropHandle::new(tokio::spawn(beats))),
        })
    }

    /// As requests name it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// As the server granted it.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// What is known of its life, also after its end.
    pub fn life(&self) -> Arc<Life> {
        self.life.clone()
    }

    /// Whether the client may believe that it lives.
    pub fn lives(&self) -> bool {
        self.life.lives()
    }

    /// Sends no heartbeats from now on, as a client that died. One that is under way is not waited for: the server may
    /// have counted it.
    pub fn fall_silent(&mut self) {
        self.beats = None;
    }

    /// Ends it.
    pub async fn close(mut self, through: &mut Caller) -> Answer<()> {
        self.beats = None;
        let path = format!("/v1/sessions/{}", self.id);
        match through.call(Method::DELETE, &path, None, PATIENCE).await {
            Reply::Refused(code, _) if code == "session_expired" => Answer::Ok(()),
            reply => reply.done().map(drop),
        }
    }
}

impl Life {
    /// Whether the client may believe that the session lives. Once not, never again.
    pub fn lives(&self) -> bool {
        let mut known = self.known.lock();
        let now = self.world.now();
        known.notice(now);
        known.lost.is_none()
    }

    /// Up to when the client believed, or will believe without another heartbeat, that the session lives.
    pub fn believed_until(&self) -> Nanos {
        let mut known = self.known.lock();
        let now = self.world.now();
        known.notice(now);
        known.lost.unwrap_or(known.deadline)
    }

    /// Up to when the session was promised to live.
    pub fn deadline(&self) -> Nanos {
        self.known.lock().deadline
    }

    /// A heartbeat was confirmed.
    fn confirmed(&self, sent: Nanos, ttl: Duration) {
        let mut known = self.known.lock();
        let now = self.world.now();
        known.notice(now);
        // Also for one that is lost to its client: the server has promised it all the same.
        known.deadline = known.deadline.max(sent + nanos(ttl));
    }

    /// A server has said that the session has ended.
    pub fn ended(&self) {
        let mut known = self.known.lock();
        let now = self.world.now();
        known.notice(now);
        known.lost.get_or_insert(now);
    }
}

impl Known {
    fn notice(&mut self, now: Nanos) {
        if now >= self.deadline {
            self.lost.get_or_insert(self.deadline);
        }
    }
}

/// A duration on the run's clock.
pub fn nanos(time: Duration) -> Nanos {
    u64::try_from(time.as_nanos()).expect("no time of a run lasts for centuries")
}

/// Sends heartbeats until the session has ended.
async fn beat(mut caller: Caller, id: String, ttl: Duration, life: Arc<Life>) {
    let path = format!("/v1/sessions/{id}/heartbeat");
    let period = ttl / BEATS_PER_TTL;
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let sent = life.world.now();
        match caller.call(Method::POST, &path, None, period).await {
            Reply::Done(document) => {
                if let Some(ttl_ms) = document["ttl_ms"].as_u64() {
                    life.confirmed(sent, Duration::from_millis(ttl_ms));
                }
            }
            Reply::Refused(code, _) if code == "session_expired" || code == "no_session" => {
                life.ended();
                return;
            }
            // The next one goes to another node.
            Reply::Refused(..) | Reply::NotDone(_) | Reply::Unknown(_) => {}
        }
    }
}
