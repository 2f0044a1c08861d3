//! Workloads: the actions of clients and the checks of their results, one file each.

mod access;
mod all;
mod contenders;
mod disturbances;
mod exactly_once;
mod fenced;
mod leases;
mod lock_history;
mod locks;
mod highlights;
mod queued;
mod recipe;
mod redis;
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

use crate::client::{CallResult, Caller};
use crate::systems::System;
use crate::world::World;

pub use all::{all, named};

/// Work of clients on a cluster during faults, with a check of the results afterwards.
/// One value is one run, and records its own history. The harness calls `prepare` once, then every `client`
/// concurrently, and counts [`Workload::progress`] before and between faults. Then it cancels `world.stop`,
/// waits for the clients, heals everything, and calls `check` once all nodes serve again.
pub trait Workload: Send + Sync {
    /// Returns the number of clients.
    fn clients(&self) -> usize;

    /// Creates what the clients need. The cluster is healthy.
    fn prepare<'a>(&'a self, world: &'a World) -> BoxFuture<'a, anyhow::Result<()>>;

    /// Runs one client, from 0 to `clients() - 1`, until `world.stop`.
    fn client(self: Arc<Self>, world: World, number: usize) -> BoxFuture<'static, ()>;

    /// Returns the times of the successful calls so far, from which the rate and the longest silence of a run
    /// are computed.
    fn progress(&self) -> Progress;

    /// Returns the reasons of calls that failed or have no known outcome, with their numbers.
    fn reasons(&self) -> BTreeMap<String, u64>;

    /// Makes the final reads of a healed cluster, and returns every checker's verdict with its name.
    fn check<'a>(&'a self, world: &'a World) -> BoxFuture<'a, anyhow::Result<Vec<(String, Verdict)>>>;

    /// Returns the history for the report.
    fn timeline(&self) -> Vec<Span>;

    /// Writes the whole recorded history, one JSON document a line, for the investigation of a failure.
    fn write_history(&self, to: &mut dyn Write) -> io::Result<()>;
}

/// Results of the calls so far.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Times at which the successful calls returned, in order.
    pub succeeded: Vec<Nanos>,
    /// Number of calls that certainly failed.
    pub failed: u64,
    /// Number of calls without a known outcome.
    pub unknown: u64,
}

impl Progress {
    /// Combines two counts.
    fn and(mut self, other: Self) -> Self {
        self.succeeded.extend(other.succeeded);
        self.succeeded.sort_unstable();
        self.failed += other.failed;
        self.unknown += other.unknown;
        self
    }
}

/// Bar of a report's timeline.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Span {
    /// Row: a lock, a client, a register.
    pub row: String,
    /// Short description.
    pub label: String,
    /// Begin.
    pub begin: Nanos,
    /// End.
    pub end: Nanos,
    /// Result, which determines the colour.
    pub tone: Tone,
}

/// Colour class of a bar.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tone {
    /// A successful call or hold.
    Ok,
    /// A rejection.
    Failed,
    /// An unknown outcome.
    Unknown,
    /// A contradiction, if a checker names this bar.
    Violation,
}

/// Creates keys before a run.
async fn fill(system: System, world: &World, keys: Vec<String>, value: &str) -> Result<()> {
    match system.store(world, 0).create_all(&keys, value).await {
        CallResult::Ok(()) => Ok(()),
        CallResult::Failed(why) | CallResult::Unknown(why) => {
            bail!("the initial keys cannot be created: {why}")
        }
    }
}

/// Time limit of a final read of a healed cluster, with its retries.
const FINAL_READS_WITHIN: Duration = Duration::from_secs(20);

/// Retry loop of a final read: a cluster that was healed a moment ago may still reject a call or two.
struct FinalRead {
    what: String,
    give_up: Instant,
}

impl FinalRead {
    /// Starts the time limit of a read of `what`.
    fn about(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            give_up: Instant::now() + FINAL_READS_WITHIN,
        }
    }

    /// Returns the value; `None` after a pause if the read is to be repeated; an error after the time limit.
    async fn accept<T>(&self, answer: CallResult<T>) -> Result<Option<T>> {
        match answer {
            CallResult::Ok(value) => return Ok(Some(value)),
            CallResult::Failed(why) | CallResult::Unknown(why) if Instant::now() > self.give_up => {
                bail!("{}: {why}", self.what)
            }
            CallResult::Failed(_) | CallResult::Unknown(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        Ok(None)
    }
}

/// Makes a final `GET`, with retries.
async fn final_get(caller: &mut Caller, path: &str) -> Result<Value> {
    let again = FinalRead::about(path);
    loop {
        let answer = caller.get(path).await.done();
        if let Some(document) = again.accept(answer).await? {
            return Ok(document);
        }
    }
}

/// Returns the generator of a client's random choices.
fn rng(world: &World, number: usize) -> fastrand::Rng {
    // Spreads the seeds, so that no two clients of two successive seeds draw the same.
    let number = u64::try_from(number).expect("there are few clients");
    fastrand::Rng::with_seed(world.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number << 32))
}

/// Returns a generator of numbers that are unique in a run: a million for each client.
fn unique_numbers(number: usize) -> impl FnMut() -> u64 + Send {
    const EACH: u64 = 1_000_000;
    let mut next = (1 + u64::try_from(number).expect("there are few clients")) * EACH;
    move || {
        next += 1;
        next
    }
}
