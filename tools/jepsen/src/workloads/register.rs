//! Registers: reads, writes and conditional writes by many clients, at a few keys at a time. Each key gets
//! some hundred calls, then others are used, so that the search for an order of its calls stays short.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, bail};
use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockgate_check::register::{self, Input, Output, Register as Model};
use lockgate_check::{Call, ClientId, Verdict};
use serde::Serialize;

use super::highlights::Highlights;
use super::{FinalRead, Progress, Span, Workload, fill};
use crate::client::{CallResult, Freshness, Store};
use crate::pace::Pace;
use crate::record::{Recorder, bar, map_input};
use crate::systems::System;
use crate::world::World;

const CLIENTS: usize = 20;

/// Calls of all clients per second.
const PER_SECOND: f64 = 700.0;

/// Number of keys in use at a time.
const KEYS_AT_A_TIME: u64 = 10;

/// Calls per key. The search is exponential in the number of concurrent calls, and a call with an unknown
/// outcome stays concurrent for the rest of a key's life.
const CALLS_PER_KEY: u64 = 240;

/// Successive calls to one key, so that they are concurrent.
const CALLS_IN_A_ROW: u64 = 4;

/// Initial value of the keys. Clients write larger numbers.
const FIRST_VALUE: u64 = 0;

/// Number of keys: enough for a quarter of an hour. A longer run has to omit calls.
const KEYS: u64 = 2600;

/// Client number of the final reads.
const READER: ClientId = 999;

const PARENT: &str = "/jepsen/register";

/// The workload.
pub struct Register {
    system: System,
    freshness: Freshness,
    recorder: Recorder<KeyedInput<Input>, Output>,
    /// Latest known version of each key, which clients expect in conditional writes.
    seen: Vec<AtomicU64>,
    first_version: AtomicU64,
    next_call: AtomicU64,
    highlights: Highlights,
}

/// Input of a call with its key.
#[derive(Clone, Debug, Serialize)]
struct KeyedInput<I> {
    key: u64,
    input: I,
}

impl Register {
    /// Creates a run whose reads have this consistency.
    pub fn new(system: System, freshness: Freshness) -> Self {
        Self {
            system,
            freshness,
            recorder: Recorder::default(),
            seen: (0..KEYS).map(|_| AtomicU64::new(0)).collect(),
            first_version: AtomicU64::new(0),
            next_call: AtomicU64::new(0),
            highlights: Highlights::default(),
        }
    }

    /// Returns the key of the next call, or `None` if all keys are used up.
    fn next_key(&self) -> Option<u64> {
        let next_call = self.next_call.fetch_add(1, Ordering::Relaxed);
        let window = next_call / (KEYS_AT_A_TIME * CALLS_PER_KEY);
        let key = window * KEYS_AT_A_TIME + next_call / CALLS_IN_A_ROW % KEYS_AT_A_TIME;
        (key < KEYS).then_some(key)
    }

    async fn step(&self, store: &mut dyn Store, key: u64, input: &Input) -> CallResult<Output> {
        let path = path(key);
        match input {
            Input::Read => match store.get(&path, self.freshness).await {
                CallResult::Ok(Some(found)) => match found.value.parse() {
                    Ok(value) => CallResult::Ok(Output::Is {
                        value,
                        version: found.version,
                    }),
                    Err(_) => CallResult::Ok(impossible_value()),
                },
                // The key was created before the run, and no client deletes it.
                CallResult::Ok(None) => CallResult::Ok(impossible_value()),
                CallResult::Failed(why) | CallResult::Unknown(why) => CallResult::Failed(why),
            },
            Input::Write(value) => store.set(&path, &value.to_string(), None).await.map(written),
            Input::Cas { expected, value } => store
                .set(&path, &value.to_string(), Some(*expected))
                .await
                .map(written),
        }
    }

    fn record_version(&self, key: u64, output: &Output) {
        if let Output::Is { version, .. } | Output::Written { version } = output {
            self.seen[index(key)].fetch_max(*version, Ordering::Relaxed);
        }
    }

    fn draw(&self, rng: &mut Rng, key: u64, value: u64) -> Input {
        match rng.u32(0..10) {
            0..4 => Input::Read,
            4..6 => Input::Write(value),
            _ => Input::Cas {
                expected: self.seen[index(key)].load(Ordering::Relaxed),
                value,
            },
        }
    }
}

fn path(key: u64) -> String {
    format!("{PARENT}/{key}")
}

fn index(key: u64) -> usize {
    usize::try_from(key).expect("there are few keys")
}

fn written(version: Option<u64>) -> Output {
    match version {
        Some(version) => Output::Written { version },
        None => Output::Refused,
    }
}

/// Returns a value that no register ever held, for a read that fits into no order.
fn impossible_value() -> Output {
    Output::Is {
        value: u64::MAX - 1,
        version: u64::MAX - 1,
    }
}

impl Workload for Register {
    fn clients(&self) -> usize {
        CLIENTS
    }

    fn prepare<'a>(&'a self, world: &'a World) -> BoxFuture<'a, Result<()>> {
        async move {
            let keys = (0..KEYS).map(path).collect();
            fill(self.system, world, keys, &FIRST_VALUE.to_string()).await?;
            let first = self
                .system
                .store(world, 0)
                .get(&path(0), Freshness::Linearizable)
                .await;
            let CallResult::Ok(Some(first)) = first else {
                bail!("a new key cannot be read: {first:?}")
            };
            self.first_version.store(first.version, Ordering::Relaxed);
            for seen in &self.seen {
                seen.store(first.version, Ordering::Relaxed);
            }
            Ok(())
        }
        .boxed()
    }

    fn client(self: Arc<Self>, world: World, number: usize) -> BoxFuture<'static, ()> {
        async move {
            let mut store = self.system.store(&world, number);
            let mut pace = Pace::new(&world, number, CLIENTS, PER_SECOND);
            let mut rng = super::rng(&world, number);
            let mut me = ClientId::try_from(number).expect("there are few clients");
            let mut values = super::unique_numbers(number);
            while pace.next().await {
                let Some(key) = self.next_key() else {
                    return;
                };
                let input = self.draw(&mut rng, key, values());
                let call = self.step(&mut *store, key, &input);
                let input = KeyedInput {
                    key,
                    input: input.clone(),
                };
                match self.recorder.call(&world, &mut me, input, call).await {
                    CallResult::Ok(output) => self.record_version(key, &output),
                    CallResult::Failed(_) | CallResult::Unknown(_) => {
                        pace.back_off().await;
                    }
                }
            }
        }
        .boxed()
    }

    fn progress(&self) -> Progress {
        self.recorder.tally().progress()
    }

    fn reasons(&self) -> BTreeMap<String, u64> {
        self.recorder.tally().reasons()
    }

    fn check<'a>(&'a self, world: &'a World) -> BoxFuture<'a, Result<Vec<(String, Verdict)>>> {
        async move {
            // The final reads of the last keys through every node are part of the history like any other
            // reads.
            let last = self.next_call.load(Ordering::Relaxed) / (KEYS_AT_A_TIME * CALLS_PER_KEY);
            let mut me = READER;
            for number in 0..world.endpoints.len() {
                let mut store = self.system.store(world, number);
                for key in last * KEYS_AT_A_TIME..((last + 1) * KEYS_AT_A_TIME).min(KEYS) {
                    let again = FinalRead::about(format!("the last read of key {key}"));
                    loop {
                        let call = self.step(&mut *store, key, &Input::Read);
                        let input = KeyedInput {
                            key,
                            input: Input::Read,
                        };
                        let read = self.recorder.call(world, &mut me, input, call).await;
                        if again.accept(read).await?.is_some() {
                            break;
                        }
                    }
                }
            }
            let initial = Model {
                value: FIRST_VALUE,
                version: self.first_version.load(Ordering::Relaxed),
            };
            let calls: Vec<_> = self.recorder.calls().into_iter().map(keyed).collect();
            let enough = match last * KEYS_AT_A_TIME < KEYS {
                true => Verdict::Valid,
                false => Verdict::Undecided("the run used up its keys, and clients became idle".to_owned()),
            };
            let verdict = tokio::task::spawn_blocking(move || register::check(&initial, &calls)).await?;
            let verdicts = vec![("linearizable".to_owned(), verdict.and(enough))];
            self.highlights.record(&verdicts);
            Ok(verdicts)
        }
        .boxed()
    }

    fn timeline(&self) -> Vec<Span> {
        let calls = self.recorder.calls().into_iter().map(|call| {
            let KeyedInput { key, input } = &call.input;
            let span = bar(format!("key {key}: {input:?} → {:?}", call.outcome), &call);
            self.highlights.call(span, &call)
        });
        calls.collect()
    }

    fn write_history(&self, to: &mut dyn Write) -> io::Result<()> {
        self.recorder.write(to)
    }
}

fn keyed(call: Call<KeyedInput<Input>, Output>) -> (String, Call<Input, Output>) {
    (key_name(call.input.key), map_input(call, |on| on.input))
}

/// Returns a key's name as checkers print it at the start of a line.
fn key_name(key: u64) -> String {
    format!("key {key}")
}
