//! Locks: exclusive, shared and semaphores. Clients open sessions, acquire, hold for a while, and release, close or die. What
//! the servers say of who held what is judged in full, and so is what clients believed.

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
use super::marks::Marks;
use super::{Progress, Span, Tone, Workload};
use crate::client::Life;
use crate::record::{Recorder, write_line};
use crate::world::World;

pub use mix::Mix;

const CLIENTS: usize = 32;

/// How often all clients together take up a lock in a second; each time takes two calls at least.
const PER_SECOND: f64 = 320.0;

/// The shortest time that a server grants to a session.
const TTL: Duration = Duration::from_secs(2);

/// The workload.
pub struct Locks {
    mix: Mix,
    calls: Recorder<Asked, Got>,
    beliefs: Mutex<Vec<Belief>>,
    /// What no correct server says, found by a client itself.
    contradictions: Mutex<Vec<String>>,
    marks: Marks,
}

/// What is asked of a lock.
#[derive(Clone, Debug, Serialize)]
enum Asked {
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

/// What came back.
#[derive(Clone, Debug, Serialize)]
enum Got {
    Granted { holder: String, token: u64 },
    Released,
    NotHolder,
}

/// A client's belief that it holds a lock.
#[derive(Clone, Debug)]
struct Belief {
    client: usize,
    lock: usize,
    holder: String,
    mode: Mode,
    token: u64,
    /// When the grant was received.
    begin: Nanos,
    /// When the client let go, if it did: it may have stopped believing before.
    let_go: Option<Nanos>,
    life: Arc<Life>,
}

impl Belief {
    fn end(&self) -> Nanos {
        let believed = self.life.believed_until();
        self.let_go.map_or(believed, |let_go| let_go.min(believed))
    }
}

impl Locks {
    /// A fresh run.
    pub fn new(mix: Mix) -> Self {
        Self {
            mix,
            calls: Recorder::default(),
            beliefs: Mutex::default(),
            contradictions: Mutex::default(),
            marks: Marks::default(),
        }
    }

    /// Whether no two clients believed at once what excludes each other.
    fn believed(&self) -> Verdict {
        let beliefs = self.beliefs.lock();
        let beliefs: Vec<_> = beliefs
            .iter()
            .map(|belief| client_view::Belief {
                lock: self.mix.lock_name(belief.lock),
                client: ClientId::try_from(belief.client).expect("there are few clients"),
                mode: belief.mode,
                token: belief.token,
                granted: belief.begin,
                released: belief.let_go,
                deadline: belief.life.believed_until(),
            })
            .collect();
        client_view::check(&beliefs)
    }

    /// What the servers' account says of who held. Times that none of them has recorded leave it to clients' beliefs, if they
    /// are not most of the run; the name says how long they are.
    fn held(world: &World, history: &holds::History, gaps: &Gaps) -> (String, Verdict) {
        match gaps.of_run_ms(world) {
            0 => ("holds".to_owned(), holds::check(history)),
            missing if gaps.leave_enough(world) => (
                format!("holds, but for {missing} ms of which no node has a history"),
                holds::check_known(history),
            ),
            missing => {
                let why = format!("no node has a history of {missing} ms");
                let verdict = holds::check_known(history).and(Verdict::Undecided(why));
                ("holds".to_owned(), verdict)
            }
        }
    }

    /// Whether each grant that a client was told is in the servers' account.
    fn untold(&self, world: &World, history: &holds::History, gaps: &Gaps) -> Verdict {
        let told: std::collections::HashSet<_> = history
            .holds
            .iter()
            .map(|hold| (hold.lock.as_str(), hold.contender.as_str(), hold.token))
            .collect();
        let beliefs = self.beliefs.lock();
        let missing = beliefs.iter().filter(|belief| {
            let lock = self.mix.lock_name(belief.lock);
            !told.contains(&(lock.as_str(), belief.holder.as_str(), belief.token))
                && !gaps.excuse(world, belief)
        });
        let lines = missing.map(|belief| {
            format!(
                "client {} was granted lock {} as {} with token {}, of which no server knows",
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
        // Locks come into being when somebody wants them.
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
                Self::held(world, &history, &gaps),
                ("accounts agree".to_owned(), Verdict::of(differences)),
                ("beliefs exclude each other".to_owned(), self.believed()),
                (
                    "grants are in the log".to_owned(),
                    self.untold(world, &history, &gaps),
                ),
                (
                    "kept until let go".to_owned(),
                    Verdict::of(self.contradictions.lock().clone()),
                ),
                ("free in the end".to_owned(), Verdict::of(left)),
                ("no permit is lost".to_owned(), Verdict::of(lost)),
            ];
            self.marks.note(&verdicts);
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
            self.marks.bar(span, &[&lock, &format!("token {}", belief.token)])
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
                    "let_go": belief.let_go,
                    "end": belief.end(),
                }
            });
            write_line(to, &line)?;
        }
        Ok(())
    }
}
