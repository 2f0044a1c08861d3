//! Locks: exclusive, shared and semaphores. Clients open sessions, acquire, hold for a while, and release,
//! close or crash. The complete record of holders by the servers is checked, and so are the beliefs of the
//! clients.

mod accounts;
mod client;
mod gaps;
mod mix;
mod permits;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockgate_check::holds::{self, Mode};
use lockgate_check::{ClientId, Nanos, Verdict, client_view};
use parking_lot::Mutex;
use serde::Serialize;

use self::gaps::Gaps;
use super::highlights::Highlights;
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

    /// Checks the servers' record of holds. For gaps in all records only the clients' beliefs count, provided
    /// that the gaps are not most of the run; the checker's name says how long they are.
    fn check_holds(world: &World, history: &holds::History, gaps: &Gaps) -> (String, Verdict) {
        match gaps.of_run_ms(world) {
            0 => ("holds".to_owned(), holds::check(history)),
            missing if gaps.leave_enough(world) => (
                format!("holds, except for {missing} ms without a history on any node"),
                holds::check_known(history),
            ),
            missing => {
                let why = format!("no node has a history for {missing} ms");
                let verdict = holds::check_known(history).and(Verdict::Undecided(why));
                ("holds".to_owned(), verdict)
            }
        }
    }

    /// Checks that every grant that a client received is in the servers' record.
    fn unrecorded_grants(&self, world: &World, history: &holds::History, gaps: &Gaps) -> Verdict {
        let recorded: std::collections::HashSet<_> = history
            .holds
            .iter()
            .map(|hold| (hold.lock.as_str(), hold.contender.as_str(), hold.token))
            .collect();
        let beliefs = self.beliefs.lock();
        let missing = beliefs.iter().filter(|belief| {
            let lock = self.mix.lock_name(belief.lock);
            !recorded.contains(&(lock.as_str(), belief.holder.as_str(), belief.token))
                && !gaps.excuse(world, belief)
        });
        let lines = missing.map(|belief| {
            format!(
                "client {} was granted lock {} as {} with token {}, which no server has recorded",
                belief.client, belief.lock, belief.holder, belief.token
            )
        });
        Verdict::of(lines.collect())
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
            let left = accounts::all_free(world, &names).await?;
            let accounts = accounts::of_all_nodes(world, &names).await?;
            let lost = permits::lost(world, self.mix, &names).await?;
            let (history, differences) = holds::merge(&accounts);
            let gaps = Gaps::of(&history);
            let verdicts = vec![
                Self::check_holds(world, &history, &gaps),
                ("accounts agree".to_owned(), Verdict::of(differences)),
                ("no conflicting beliefs".to_owned(), self.check_beliefs()),
                (
                    "grants are in the log".to_owned(),
                    self.unrecorded_grants(world, &history, &gaps),
                ),
                (
                    "holds last until released".to_owned(),
                    Verdict::of(self.contradictions.lock().clone()),
                ),
                ("all locks free at the end".to_owned(), Verdict::of(left)),
                ("no permit lost".to_owned(), Verdict::of(lost)),
            ];
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
