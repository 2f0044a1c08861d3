//! A session with its heartbeats, and the time up to which its client may believe that it is alive. That is
//! the TTL counted from the moment at which the last confirmed heartbeat was sent, on the run's clock. A
//! client that was late once has lost its session.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use lockgate_check::Nanos;
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use super::caller::{Caller, Reply, TIMEOUT};
use super::result::CallResult;
use crate::systems::caller;
use crate::world::World;

/// Heartbeats per TTL: two can be lost without consequences.
const HEARTBEATS_PER_TTL: u32 = 4;

/// Session that is kept alive by a task of its own.
pub struct Session {
    id: String,
    ttl: Duration,
    life: Arc<Liveness>,
    heartbeats: Option<AbortOnDropHandle<()>>,
}

/// Knowledge of a client about whether its session is alive.
#[derive(Debug)]
pub struct Liveness {
    world: World,
    state: Mutex<LivenessState>,
}

#[derive(Clone, Debug, Default)]
struct LivenessState {
    deadline: Nanos,
    /// Time at which the client noticed the loss: the deadline passed, or the server reported the end.
    lost: Option<Nanos>,
}

impl Session {
    /// Opens a session for the client of this number, and sends heartbeats on a connection of its own.
    pub async fn open(world: &World, number: usize, through: &mut Caller, ttl: Duration) -> CallResult<Self> {
        let sent = world.now();
        let body = json!({"ttl_ms": ttl.as_millis(), "name": format!("client {number}")});
        let document = match through.post("/v1/sessions", &body).await.done() {
            CallResult::Ok(document) => document,
            CallResult::Failed(why) => return CallResult::Failed(why),
            CallResult::Unknown(why) => return CallResult::Unknown(why),
        };
        let (Some(id), Some(ttl_ms)) = (document["session"].as_str(), document["ttl_ms"].as_u64()) else {
            return CallResult::Unknown(format!("a malformed session: {document}"));
        };
        let ttl = Duration::from_millis(ttl_ms);
        let life = Arc::new(Liveness {
            world: world.clone(),
            state: Mutex::new(LivenessState {
                deadline: sent + nanos(ttl),
                ..LivenessState::default()
            }),
        });
        let heartbeats = send_heartbeats(caller(world, number), id.to_owned(), ttl, life.clone());
        CallResult::Ok(Self {
            id: id.to_owned(),
            ttl,
            life,
            heartbeats: Some(AbortOnDropHandle::new(tokio::spawn(heartbeats))),
        })
    }

    /// Returns the session id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the TTL that the server granted.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Returns the shared knowledge of the session's life; it remains readable after the session's end.
    pub fn liveness(&self) -> Arc<Liveness> {
        self.life.clone()
    }

    /// Returns whether the client may believe that the session is alive.
    pub fn is_alive(&self) -> bool {
        self.life.is_alive()
    }

    /// Stops the heartbeats, as a crashed client does. A heartbeat in flight is not awaited: the server may
    /// have counted it.
    pub fn stop_heartbeats(&mut self) {
        self.heartbeats = None;
    }

    /// Closes the session.
    pub async fn close(mut self, through: &mut Caller) -> CallResult<()> {
        self.heartbeats = None;
        let path = format!("/v1/sessions/{}", self.id);
        match through.call(Method::DELETE, &path, None, TIMEOUT).await {
            Reply::Refused(code, _) if code == "session_expired" => CallResult::Ok(()),
            reply => reply.done().map(drop),
        }
    }
}

impl Liveness {
    /// Returns whether the client may believe that the session is alive. Once `false`, it stays so.
    pub fn is_alive(&self) -> bool {
        let mut state = self.state.lock();
        let now = self.world.now();
        state.notice(now);
        state.lost.is_none()
    }

    /// Returns the time up to which the client believed, or will believe without another heartbeat, that the
    /// session is alive.
    pub fn believed_until(&self) -> Nanos {
        let mut state = self.state.lock();
        let now = self.world.now();
        state.notice(now);
        state.lost.unwrap_or(state.deadline)
    }

    /// Returns the time up to which the server has promised to keep the session.
    pub fn deadline(&self) -> Nanos {
        self.state.lock().deadline
    }

    /// Records a confirmed heartbeat.
    fn confirmed(&self, sent: Nanos, ttl: Duration) {
        let mut state = self.state.lock();
        let now = self.world.now();
        state.notice(now);
        // Even if the client has lost the session: the server has still made the promise.
        state.deadline = state.deadline.max(sent + nanos(ttl));
    }

    /// Records that a server has reported the session's end.
    pub fn ended(&self) {
        let mut state = self.state.lock();
        let now = self.world.now();
        state.notice(now);
        state.lost.get_or_insert(now);
    }
}

impl LivenessState {
    fn notice(&mut self, now: Nanos) {
        if now >= self.deadline {
            self.lost.get_or_insert(self.deadline);
        }
    }
}

/// Converts a duration to the run's clock.
pub fn nanos(time: Duration) -> Nanos {
    u64::try_from(time.as_nanos()).expect("durations of a run fit into 64 bits of nanoseconds")
}

/// Sends heartbeats until the session has ended.
async fn send_heartbeats(mut caller: Caller, id: String, ttl: Duration, life: Arc<Liveness>) {
    let path = format!("/v1/sessions/{id}/heartbeat");
    let period = ttl / HEARTBEATS_PER_TTL;
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
            // The next heartbeat uses another node.
            Reply::Refused(..) | Reply::NotDone(_) | Reply::Unknown(_) => {}
        }
    }
}
