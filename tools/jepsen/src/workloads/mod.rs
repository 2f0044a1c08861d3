//! What clients do, and what must be true of it: one file for each workload.

mod access;
mod all;
mod exactly_once;
mod fenced;
mod locks;
mod marks;
mod recipe;
mod register;
mod sessions;
mod set;
mod unique_ids;
mod watches;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures_util::future::BoxFuture;
use lockgate_check::{Nanos, Verdict};
use serde_json::Value;

use crate::client::{Answer, Caller};
use crate::systems::System;
use crate::world::World;

pub use all::{all, named};

/// Something that clients do to a cluster while faults happen, and that can be checked afterwards.
///
/// One value is one run: it keeps its own history. The harness calls `prepare` once, then every `client` at once, counts
/// [`Workload::progress`] before and between faults, cancels `world.stop`, waits for the clients, heals everything, and
/// calls `check` when all nodes serve again.
pub trait Workload: Send + Sync {
    /// How many clients there are.
    fn clients(&self) -> usize;

    /// Whatever has to be there before clients begin. The cluster is healthy.
    fn prepare<'a>(&'a self, world: &'a World) -> BoxFuture<'a, anyhow::Result<()>>;

    /// One client, from 0 to `clients() - 1`, until `world.stop`.
    fn client(self: Arc<Self>, world: World, number: usize) -> BoxFuture<'static, ()>;

    /// The moments at which calls succeeded so far: what a run's rate and its longest silence are made of.
    fn progress(&self) -> Progress;

    /// Why calls failed or have no known outcome, and how often.
    fn reasons(&self) -> BTreeMap<String, u64>;

    /// Final reads of a healed cluster, and every checker's verdict under its name.
    fn check<'a>(&'a self, world: &'a World) -> BoxFuture<'a, anyhow::Result<Vec<(String, Verdict)>>>;

    /// The history for the report.
    fn timeline(&self) -> Vec<Span>;

    /// The whole history as it was recorded, one JSON document a line, for whoever looks into a failure.
    fn write_history(&self, to: &mut dyn Write) -> io::Result<()>;
}

/// How calls went so far.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// When each successful call returned, in order of time.
    pub succeeded: Vec<Nanos>,
    /// How many certainly failed.
    pub failed: u64,
    /// How many had no known outcome.
    pub unknown: u64,
}

impl Progress {
    /// Both together.
    fn and(mut self, other: Self) -> Self {
        self.succeeded.extend(other.succeeded);
        self.succeeded.sort_unstable();
        self.failed += other.failed;
        self.unknown += other.unknown;
        self
    }
}

/// One bar of a report's timeline.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Span {
    /// In which row: a lock, a client, a register.
    pub row: String,
    /// What it was, in a few words.
    pub label: String,
    /// From when.
    pub begin: Nanos,
    /// Until when.
    pub end: Nanos,
    /// How it went, which gives the bar its colour.
    pub tone: Tone,
}

/// How a bar is drawn.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tone {
    /// A call or hold that went well.
    Ok,
    /// A refusal.
    Failed,
    /// No known outcome.
    Unknown,
    /// A contradiction, if a checker names this bar.
    Violation,
}

/// Makes keys before a run.
async fn fill(system: System, world: &World, keys: Vec<String>, value: &str) -> Result<()> {
    match system.store(world, 0).create_all(&keys, value).await {
        Answer::Ok(()) => Ok(()),
        Answer::Failed(why) | Answer::Unknown(why) => bail!("the first keys cannot be made: {why}"),
    }
}

/// How long the final reads of a healed cluster are tried again.
const FINAL_READS_WITHIN: Duration = Duration::from_secs(20);

/// A question that is asked again until there is an answer: a cluster that was healed a moment ago may still refuse a call
/// or two.
struct Persistence {
    what: String,
    give_up: Instant,
}

impl Persistence {
    /// About what; from now on.
    fn about(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            give_up: Instant::now() + FINAL_READS_WITHIN,
        }
    }

    /// What was answered; `None`: it is to be asked again.
    async fn heed<T>(&self, answer: Answer<T>) -> Result<Option<T>> {
        match answer {
            Answer::Ok(value) => return Ok(Some(value)),
            Answer::Failed(why) | Answer::Unknown(why) if Instant::now() > self.give_up => {
                bail!("{}: {why}", self.what)
            }
            Answer::Failed(_) | Answer::Unknown(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        Ok(None)
    }
}

/// A final `GET`.
async fn last_look(caller: &mut Caller, path: &str) -> Result<Value> {
    let again = Persistence::about(path);
    loop {
        let answer = caller.get(path).await.done();
        if let Some(document) = again.heed(answer).await? {
            return Ok(document);
        }
    }
}

/// A client's random choices.
fn rng(world: &World, number: usize) -> fastrand::Rng {
    // Far apart, so that no two clients of two seeds that follow each other draw alike.
    let number = u64::try_from(number).expect("there are few clients");
    fastrand::Rng::with_seed(world.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number << 32))
}

/// Numbers of which each is drawn once in a run: a million times the client's number and on.
fn unique_numbers(number: usize) -> impl FnMut() -> u64 + Send {
    const EACH: u64 = 1_000_000;
    let mut next = (1 + u64::try_from(number).expect("there are few clients")) * EACH;
    move || {
        next += 1;
        next
    }
}
