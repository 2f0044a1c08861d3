//! Growing sets: elements are appended to the text of a key by conditional writes. No acknowledged element
//! may be missing at the end, on any node.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockgate_check::{Call, ClientId, Verdict, set};
use serde::Serialize;

use super::highlights::Highlights;
use super::{FinalRead, Progress, Span, Workload, fill};
use crate::client::{CallResult, Freshness, Store, Versioned};
use crate::pace::Pace;
use crate::record::{Recorder, SUCCESSOR_OFFSET, bar, map_input};
use crate::systems::System;
use crate::world::World;

const CLIENTS: usize = 20;

/// Appends of all clients per second; each makes at least a read and a write.
const PER_SECOND: f64 = 250.0;

/// Number of sets that grow at a time, so that two clients compete for each.
const SETS_AT_A_TIME: u64 = 10;

/// Number of elements of one set; each append writes all of it.
const ELEMENTS: u64 = 200;

/// Number of sets: enough for a quarter of an hour.
const SETS: u64 = 1200;

/// Attempts of an append. A client that loses every race gives the element up, which was then certainly not
/// appended.
const MAX_ATTEMPTS: usize = 10;

/// Client number of the final reads.
const READER: ClientId = 999;

const PARENT: &str = "/jepsen/set";

/// The workload.
pub struct Set {
    system: System,
    appends: Recorder<Append, ()>,
    reads: Recorder<Read, Vec<u64>>,
    next_call: AtomicU64,
    highlights: Highlights,
}

#[derive(Clone, Debug, Serialize)]
struct Read {
    set: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Append {
    set: u64,
    element: u64,
}

impl Set {
    /// Creates a run.
    pub fn new(system: System) -> Self {
        Self {
            system,
            appends: Recorder::default(),
            reads: Recorder::default(),
            next_call: AtomicU64::new(0),
            highlights: Highlights::default(),
        }
    }

    fn next_set(&self) -> Option<u64> {
        let next_call = self.next_call.fetch_add(1, Ordering::Relaxed);
        let window = next_call / (SETS_AT_A_TIME * ELEMENTS);
        let set = window * SETS_AT_A_TIME + next_call % SETS_AT_A_TIME;
        (set < SETS).then_some(set)
    }

    /// Reads a set; returns its text and version.
    async fn read(
        &self,
        world: &World,
        store: &mut dyn Store,
        reader: ClientId,
        set: u64,
    ) -> CallResult<Versioned> {
        let invoked = world.now();
        let read = store.get(&path(set), Freshness::Linearizable).await;
        // A set that is missing, or is not a list of numbers, counts as empty or as garbage, so that the
        // checker finds the loss.
        let found = read.map(|found| found.unwrap_or(GONE));
        let elements = found.clone().map(|found| elements(&found.value));
        let mut reader = reader;
        self.reads
            .add(world, &mut reader, invoked, Read { set }, &elements);
        found
    }

    async fn append(
        &self,
        world: &World,
        store: &mut dyn Store,
        reader: ClientId,
        append: &Append,
    ) -> CallResult<()> {
        let path = path(append.set);
        for _ in 0..MAX_ATTEMPTS {
            let found = match self.read(world, store, reader, append.set).await {
                CallResult::Ok(found) => found,
                CallResult::Failed(why) | CallResult::Unknown(why) => return CallResult::Failed(why),
            };
            let longer = format!("{} {}", found.value, append.element);
            match store.set(&path, &longer, Some(found.version)).await {
                CallResult::Ok(Some(_)) => return CallResult::Ok(()),
                CallResult::Ok(None) => {}
                CallResult::Failed(why) => return CallResult::Failed(why),
                CallResult::Unknown(why) => return CallResult::Unknown(why),
            }
        }
        CallResult::Failed("lost every race against other clients".to_owned())
    }

    /// Reads every set through every node.
    async fn read_all(&self, world: &World) -> Result<()> {
        let used = self.next_call.load(Ordering::Relaxed) / (SETS_AT_A_TIME * ELEMENTS) + 1;
        for node in 0..world.endpoints.len() {
            let mut store = self.system.store(world, node);
            for set in 0..(used * SETS_AT_A_TIME).min(SETS) {
                let again = FinalRead::about(format!("the final read of set {set}"));
                loop {
                    let read = self.read(world, &mut *store, READER, set).await;
                    if again.accept(read).await?.is_some() {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn judge(&self) -> Verdict {
        let mut sets: BTreeMap<u64, (Vec<_>, Vec<_>)> = BTreeMap::new();
        for call in self.appends.calls() {
            let (additions, _) = sets.entry(call.input.set).or_default();
            additions.push(map_input(call, |append| append.element));
        }
        // For a system with stale reads only the final reads can prove a loss.
        let judged = |call: &Call<Read, _>| {
            self.system.reads_are_linearizable() || call.client % SUCCESSOR_OFFSET == READER
        };
        for call in self.reads.calls().into_iter().filter(judged) {
            let (_, reads) = sets.entry(call.input.set).or_default();
            reads.push(map_input(call, drop));
        }
        sets.into_iter()
            .map(|(set, (additions, reads))| set::check(&additions, &reads).about(format_args!("set {set}")))
            .fold(Verdict::Valid, Verdict::and)
    }
}

/// Value of a set that does not exist.
const GONE: Versioned = Versioned {
    value: String::new(),
    version: u64::MAX,
};

fn elements(text: &str) -> Vec<u64> {
    // A word that is not a number was never added.
    text.split_whitespace()
        .map(|word| word.parse().unwrap_or(u64::MAX))
        .collect()
}

fn path(set: u64) -> String {
    format!("{PARENT}/{set}")
}

impl Workload for Set {
    fn clients(&self) -> usize {
        CLIENTS
    }

    fn prepare<'a>(&'a self, world: &'a World) -> BoxFuture<'a, Result<()>> {
        fill(self.system, world, (0..SETS).map(path).collect(), "").boxed()
    }

    fn client(self: Arc<Self>, world: World, number: usize) -> BoxFuture<'static, ()> {
        async move {
            let mut store = self.system.store(&world, number);
            let mut pace = Pace::new(&world, number, CLIENTS, PER_SECOND);
            let mut me = ClientId::try_from(number).expect("there are few clients");
            let mut elements = super::unique_numbers(number);
            while pace.next().await {
                let Some(set) = self.next_set() else {
                    return;
                };
                let element = elements();
                let append = Append { set, element };
                let call = self.append(&world, &mut *store, me, &append);
                let answer = self.appends.call(&world, &mut me, append.clone(), call).await;
                if answer.ok().is_none() {
                    pace.back_off().await;
                }
            }
        }
        .boxed()
    }

    fn progress(&self) -> Progress {
        self.appends.tally().progress().and(self.reads.tally().progress())
    }

    fn reasons(&self) -> BTreeMap<String, u64> {
        self.appends.tally().reasons()
    }

    fn check<'a>(&'a self, world: &'a World) -> BoxFuture<'a, Result<Vec<(String, Verdict)>>> {
        async move {
            self.read_all(world).await?;
            let verdicts = vec![("no element lost or invented".to_owned(), self.judge())];
            self.highlights.record(&verdicts);
            Ok(verdicts)
        }
        .boxed()
    }

    fn timeline(&self) -> Vec<Span> {
        let appends = self.appends.calls().into_iter().map(|call| {
            let label = format!("{:?} → {:?}", call.input, call.outcome);
            self.highlights.call(bar(label, &call), &call)
        });
        appends.collect()
    }

    fn write_history(&self, to: &mut dyn Write) -> io::Result<()> {
        self.appends.write(to)?;
        self.reads.write(to)
    }
}
