//! Locks: exclusive, shared and semaphores. Clients open sessions, acquire, hold for a while, and release,
//! close or crash. The complete record of holders by the servers is checked, and so are the beliefs of the
//! clients.

mod client;
mod mix;
mod permits;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockgate_check::holds::Mode;
use lockgate_check::{ClientId, Nanos, Verdict, client_view};
use parking_lot::Mutex;
use serde::Serialize;

use super::highlights::Highlights;
use super::lock_history::{self, KnownGrant};
use super::{Progress, Span, Tone, Workload};
use crate::client::Liveness;
use crate::record::{Recorder, write_line};
use crate::world::World;

pub use mix::Mix;

const CLIENTS: usize = 32;

/// Acquires of all clients per second; each makes at least two calls.
const PER_SECOND: f64 = 320.0;

/// Session TTL: the shortest that a server grants.
const TTL: Duration = Duration::from_secs(2);

/// The workload.
pub struct Locks {
    mix: Mix,
    calls: Recorder<LockCall, LockCallResult>,
    beliefs: Mutex<Vec<Belief>>,
    /// Responses that no correct server gives, detected by clients.
    contradictions: Mutex<Vec<String>>,
    highlights: Highlights,
}

/// Input of a call.
#[derive(Clone, Debug, Serialize)]
enum LockCall {
    Acquire {
        lock: usize,
        mode: Mode,
        wait: String,
        session: String,
    },
    Release {
        lock: usize,
        holder: String,
        session: String,
    },
}

/// Result of a call.
#[derive(Clone, Debug, Serialize)]
enum LockCallResult {
    Granted { holder: String, token: u64 },
    Released,
    NotHolder,
}

/// Belief of a client that it holds a lock.
#[derive(Clone, Debug)]
struct Belief {
    client: usize,
    lock: usize,
    holder: String,
    mode: Mode,
    token: u64,
    /// Time at which the grant was received.
    begin: Nanos,
    /// Time of the release, if there was one; the client may have stopped believing before.
    released: Option<Nanos>,
    life: Arc<Liveness>,
}

impl Belief {
    fn end(&self) -> Nanos {
        let believed = self.life.believed_until();
        self.released.map_or(believed, |released| released.min(believed))
    }
}

impl Locks {
    /// Creates a run.
    pub fn new(mix: Mix) -> Self {
        Self {
            mix,
            calls: Recorder::default(),
            beliefs: Mutex::default(),
            contradictions: Mutex::default(),
            highlights: Highlights::default(),
        }
    }

    /// Checks that no two clients believed at the same time in holds that exclude each other.
    fn check_beliefs(&self) -> Verdict {
        let beliefs = self.beliefs.lock();
        let beliefs: Vec<_> = beliefs
            .iter()
            .map(|belief| client_view::Belief {
                lock: self.mix.lock_name(belief.lock),
                client: ClientId::try_from(belief.client).expect("there are few clients"),
                mode: belief.mode,
                token: belief.token,
                granted: belief.begin,
                released: belief.released,
                deadline: belief.life.believed_until(),
            })
            .collect();
        client_view::check(&beliefs)
    }

    /// Returns the grants that clients received.
    fn known_grants(&self) -> Vec<KnownGrant> {
        let beliefs = self.beliefs.lock();
        let grants = beliefs.iter().map(|belief| KnownGrant {
            client: format!("client {}", belief.client),
            lock: self.mix.lock_name(belief.lock),
            holder: belief.holder.clone(),
            token: belief.token,
            begin: belief.begin,
            released: belief.released,
        });
        grants.collect()
    }
}

impl Workload for Locks {
    fn clients(&self) -> usize {
        CLIENTS
    }

    fn prepare<'a>(&'a self, _world: &'a World) -> BoxFuture<'a, Result<()>> {
        // A lock is created by its first acquire.
        async { Ok(()) }.boxed()
    }

    fn client(self: Arc<Self>, world: World, number: usize) -> BoxFuture<'static, ()> {
        client::run(self, world, number).boxed()
    }

    fn progress(&self) -> Progress {
        self.calls.tally().progress()
    }

    fn reasons(&self) -> BTreeMap<String, u64> {
        self.calls.tally().reasons()
    }

    fn check<'a>(&'a self, world: &'a World) -> BoxFuture<'a, Result<Vec<(String, Verdict)>>> {
        async move {
            let names: Vec<_> = (0..mix::LOCKS).map(|lock| self.mix.lock_name(lock)).collect();
            let mut verdicts = lock_history::check(world, &names, &self.known_grants()).await?;
            let lost = permits::lost(world, self.mix, &names).await?;
            verdicts.extend([
                ("no conflicting beliefs".to_owned(), self.check_beliefs()),
                (
                    "holds last until released".to_owned(),
                    Verdict::of(self.contradictions.lock().clone()),
                ),
                ("no permit lost".to_owned(), Verdict::of(lost)),
            ]);
            self.highlights.record(&verdicts);
            Ok(verdicts)
        }
        .boxed()
    }

    fn timeline(&self) -> Vec<Span> {
        let beliefs = self.beliefs.lock();
        let held = beliefs.iter().map(|belief| {
            let span = Span {
                row: format!("lock {}", belief.lock),
                label: format!(
                    "client {} · {:?} · token {}",
                    belief.client, belief.mode, belief.token
                ),
                begin: belief.begin,
                end: belief.end(),
                tone: Tone::Ok,
            };
            let lock = self.mix.lock_name(belief.lock);
            self.highlights
                .bar(span, &[&lock, &format!("token {}", belief.token)])
        });
        held.collect()
    }

    fn write_history(&self, to: &mut dyn Write) -> io::Result<()> {
        self.calls.write(to)?;
        for belief in self.beliefs.lock().iter() {
            let line = serde_json::json!({
                "belief": {
                    "client": belief.client,
                    "lock": belief.lock,
                    "holder": belief.holder,
                    "token": belief.token,
                    "begin": belief.begin,
                    "let_go": belief.released,
                    "end": belief.end(),
                }
            });
            write_line(to, &line)?;
        }
        Ok(())
    }
}
