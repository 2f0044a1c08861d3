//! Locks of Redis clients, as libraries take them: `SET NX PX` with a value of its own for each attempt, renewal and release by scripts that
//! compare the value. Clients go from node to node. Some holders renew, some crash, and some are late: they release after their time to live,
//! when another client may hold the lock.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockgate_check::client_view::{self, Belief};
use lockgate_check::holds::Mode;
use lockgate_check::{ClientId, Verdict};
use parking_lot::Mutex;

use super::highlights::Highlights;
use super::{Progress, Span, Tone, Workload};
use crate::client::{CallResult, RedisClient, RedisReply, nanos};
use crate::pace::Pace;
use crate::record::{Recorder, write_line};
use crate::world::World;

const CLIENTS: usize = 24;

/// Few, so that a late release finds another holder.
const LOCKS: usize = 12;

/// Attempts of all clients per second.
const PER_SECOND: f64 = 200.0;

/// Time to live of a lock.
const TTL: Duration = Duration::from_millis(2_000);

/// One in this number of holders crashes, and one is late.
const CRASHES_ONE_IN: u32 = 400;
const LATE_ONE_IN: u32 = 80;

/// Scripts of redis-py: deletes a key with this value; gives it a time to live.
const DELETE_IF_EQUAL: &str = "c3f8721cbb97f72bc19e972846bd7aaf91901658";
const EXPIRE_IF_EQUAL: &str = "1cac51482acf5858da00f6d685d68f886cd6b6b2";

/// The workload.
pub struct RedisLocks {
    calls: Recorder<RedisCall, ()>,
    beliefs: Mutex<Vec<Belief>>,
    highlights: Highlights,
}

#[derive(Clone, Debug, serde::Serialize)]
enum RedisCall {
    Set { lock: usize, value: String },
    Renew { lock: usize, value: String },
    Delete { lock: usize, value: String },
}

/// One client of the run.
struct Locker<'w> {
    world: &'w World,
    redis: RedisClient,
    me: ClientId,
    number: usize,
    attempts: u64,
    rng: Rng,
}

impl RedisLocks {
    /// Creates a run.
    pub fn new() -> Self {
        Self {
            calls: Recorder::default(),
            beliefs: Mutex::default(),
            highlights: Highlights::default(),
        }
    }

    /// Sends a command and records it. Any reply but `expected` is a failure.
    async fn call(
        &self,
        locker: &mut Locker<'_>,
        call: RedisCall,
        words: &[&str],
        expected: RedisReply,
    ) -> CallResult<()> {
        let redis = &mut locker.redis;
        let sent = async {
            match redis.call(words).await {
                CallResult::Ok(reply) if reply == expected => CallResult::Ok(()),
                CallResult::Ok(reply) => CallResult::Failed(format!("answered {reply:?}")),
                CallResult::Failed(why) => CallResult::Failed(why),
                CallResult::Unknown(why) => CallResult::Unknown(why),
            }
        };
        self.calls.call(locker.world, &mut locker.me, call, sent).await
    }

    async fn delete(&self, locker: &mut Locker<'_>, lock: usize, value: &str) -> CallResult<()> {
        let call = RedisCall::Delete {
            lock,
            value: value.to_owned(),
        };
        let name = name(lock);
        let words = ["EVALSHA", DELETE_IF_EQUAL, "1", &name, value];
        self.call(locker, call, &words, RedisReply::Integer(1)).await
    }

    /// Tries to acquire a lock, and holds it for a while. Returns whether all commands had their effect.
    async fn attempt(&self, locker: &mut Locker<'_>) -> bool {
        let world = locker.world;
        let lock = locker.rng.usize(0..LOCKS);
        let name = name(lock);
        locker.attempts += 1;
        let value = format!("client-{:04}-attempt-{:08}", locker.number, locker.attempts);
        let ttl = TTL.as_millis().to_string();
        if locker.rng.u32(0..8) == 0 {
            locker.redis.move_on();
        }
        let mut deadline = world.now() + nanos(TTL);
        let call = RedisCall::Set {
            lock,
            value: value.clone(),
        };
        let words = ["SET", &name, &value, "NX", "PX", &ttl];
        let ok = RedisReply::Status("OK".to_owned());
        match self.call(locker, call, &words, ok).await {
            CallResult::Ok(()) => {}
            CallResult::Failed(why) => return why.starts_with("answered"),
            // As a library does that does not know whether it has the lock.
            CallResult::Unknown(_) => {
                self.delete(locker, lock, &value).await;
                return false;
            }
        }
        let granted = world.now();
        let token = locker.redis.call(&["LOCKGATE.TOKEN", &name]).await;
        let (CallResult::Ok(RedisReply::Integer(token)), true) = (token, world.now() < deadline) else {
            self.delete(locker, lock, &value).await;
            return false;
        };
        let is_late = locker.rng.u32(0..LATE_ONE_IN) == 0;
        let crashes = locker.rng.u32(0..CRASHES_ONE_IN) == 0;
        match is_late {
            // Late, and so is its release. It does not believe for longer than its time to live.
            true => {
                tokio::time::sleep(TTL + Duration::from_millis(locker.rng.u64(200..1_000))).await;
            }
            false => {
                tokio::time::sleep(Duration::from_millis(locker.rng.u64(0..20))).await;
                let sent = world.now();
                if locker.rng.u32(0..4) == 0 {
                    let call = RedisCall::Renew {
                        lock,
                        value: value.clone(),
                    };
                    let words = ["EVALSHA", EXPIRE_IF_EQUAL, "1", &name, &value, &ttl];
                    let renewed = self.call(locker, call, &words, RedisReply::Integer(1)).await;
                    if renewed == CallResult::Ok(()) {
                        deadline = sent + nanos(TTL);
                    }
                    tokio::time::sleep(Duration::from_millis(locker.rng.u64(0..20))).await;
                }
            }
        }
        self.beliefs.lock().push(Belief {
            lock: name,
            client: ClientId::try_from(locker.number).expect("there are few clients"),
            mode: Mode::Exclusive,
            token: token.unsigned_abs(),
            granted,
            released: (!crashes).then(|| world.now()),
            deadline,
        });
        if crashes {
            return true;
        }
        // A late client finds its key gone, or with the value of another.
        let deleted = self.delete(locker, lock, &value).await;
        is_late || deleted.ok().is_some()
    }
}

/// Returns the key of a lock.
fn name(lock: usize) -> String {
    format!("jepsen/redis/{lock}")
}

impl Workload for RedisLocks {
    fn clients(&self) -> usize {
        CLIENTS
    }

    fn prepare<'a>(&'a self, _world: &'a World) -> BoxFuture<'a, Result<()>> {
        // A lock is created by its first acquire.
        async { Ok(()) }.boxed()
    }

    fn client(self: Arc<Self>, world: World, number: usize) -> BoxFuture<'static, ()> {
        async move {
            let mut pace = Pace::new(&world, number, CLIENTS, PER_SECOND);
            let mut locker = Locker {
                world: &world,
                redis: RedisClient::new(&world, number),
                me: ClientId::try_from(number).expect("there are few clients"),
                number,
                attempts: 0,
                rng: super::rng(&world, number),
            };
            while pace.next().await {
                if !self.attempt(&mut locker).await {
                    pace.back_off().await;
                }
            }
        }
        .boxed()
    }

    fn progress(&self) -> Progress {
        self.calls.tally().progress()
    }

    fn reasons(&self) -> BTreeMap<String, u64> {
        self.calls.tally().reasons()
    }

    fn check<'a>(&'a self, _world: &'a World) -> BoxFuture<'a, Result<Vec<(String, Verdict)>>> {
        async move {
            let verdict = client_view::check(&self.beliefs.lock());
            let verdicts = vec![("no conflicting beliefs".to_owned(), verdict)];
            self.highlights.record(&verdicts);
            Ok(verdicts)
        }
        .boxed()
    }

    fn timeline(&self) -> Vec<Span> {
        let beliefs = self.beliefs.lock();
        let spans = beliefs.iter().map(|belief| {
            let end = belief.released.unwrap_or(belief.deadline).min(belief.deadline);
            let span = Span {
                row: belief.lock.clone(),
                label: format!("client {} · token {}", belief.client, belief.token),
                begin: belief.granted,
                end: end.max(belief.granted),
                tone: Tone::Ok,
            };
            self.highlights
                .bar(span, &[&belief.lock, &format!("token {}", belief.token)])
        });
        spans.collect()
    }

    fn write_history(&self, to: &mut dyn Write) -> io::Result<()> {
        self.calls.write(to)?;
        self.beliefs
            .lock()
            .iter()
            .try_for_each(|belief| write_line(to, belief))
    }
}
