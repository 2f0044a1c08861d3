//! History of a run for checkers and readers: the client, time and outcome of every call.

use std::collections::BTreeMap;
use std::io::{self, Write};

use lockgate_check::{Call, ClientId, Nanos};
use parking_lot::Mutex;
use serde::Serialize;

use crate::client::CallResult;
use crate::workloads::{Progress, Span, Tone};
use crate::world::World;

/// Offset of a client's next number after a call without an answer. No run has as many clients, so the
/// remainder identifies the client.
pub const SUCCESSOR_OFFSET: ClientId = 1000;

/// Recorder of all calls of one kind.
pub struct Recorder<I, O> {
    calls: Mutex<Vec<Call<I, O>>>,
    tally: Tally,
}

impl<I, O> Default for Recorder<I, O> {
    fn default() -> Self {
        Self {
            calls: Mutex::default(),
            tally: Tally::default(),
        }
    }
}

impl<I: Clone, O: Clone> Recorder<I, O> {
    /// Executes a call and records it. If its outcome is unknown, `client` continues under a new number.
    pub async fn call(
        &self,
        world: &World,
        client: &mut ClientId,
        input: I,
        call: impl Future<Output = CallResult<O>>,
    ) -> CallResult<O> {
        let invoked = world.now();
        let answer = call.await;
        self.add(world, client, invoked, input, &answer);
        answer
    }

    /// Records a call that has just returned.
    pub fn add(
        &self,
        world: &World,
        client: &mut ClientId,
        invoked: Nanos,
        input: I,
        answer: &CallResult<O>,
    ) {
        let returned = world.now();
        self.tally.count(returned, answer);
        self.calls.lock().push(Call {
            client: *client,
            invoked,
            returned,
            input,
            outcome: answer.outcome(),
        });
        if matches!(answer, CallResult::Unknown(_)) {
            *client += SUCCESSOR_OFFSET;
        }
    }

    /// Returns all calls in the order of their returns.
    pub fn calls(&self) -> Vec<Call<I, O>> {
        self.calls.lock().clone()
    }

    /// Returns the counts of results so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }
}

impl<I: Serialize, O: Serialize> Recorder<I, O> {
    /// Writes all calls, one a line.
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        self.calls.lock().iter().try_for_each(|call| write_line(to, call))
    }
}

/// Writes one line of JSON.
pub fn write_line(to: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *to, value)?;
    to.write_all(b"\n")
}

/// Counts of call results, for calls of all kinds.
#[derive(Default)]
pub struct Tally {
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    progress: Progress,
    reasons: BTreeMap<String, u64>,
}

impl Tally {
    /// Counts a call.
    pub fn count<T>(&self, returned: Nanos, answer: &CallResult<T>) {
        let mut counts = self.counts.lock();
        let why = match answer {
            CallResult::Ok(_) => {
                counts.progress.succeeded.push(returned);
                return;
            }
            CallResult::Failed(why) => {
                counts.progress.failed += 1;
                why
            }
            CallResult::Unknown(why) => {
                counts.progress.unknown += 1;
                why
            }
        };
        *counts.reasons.entry(why.clone()).or_default() += 1;
    }

    /// Returns the counts, with the times of successes in order.
    pub fn progress(&self) -> Progress {
        let mut progress = self.counts.lock().progress.clone();
        // Two calls may be counted in another order than they read the clock.
        progress.succeeded.sort_unstable();
        progress
    }

    /// Returns the reasons of calls that did not succeed, with their numbers.
    pub fn reasons(&self) -> BTreeMap<String, u64> {
        self.counts.lock().reasons.clone()
    }
}

/// Returns the same call with its input converted.
pub fn map_input<I, J, O>(call: Call<I, O>, words: impl FnOnce(I) -> J) -> Call<J, O> {
    let Call {
        client,
        invoked,
        returned,
        input,
        outcome,
    } = call;
    Call {
        client,
        invoked,
        returned,
        input: words(input),
        outcome,
    }
}

/// Returns the bar of a call in its client's row.
pub fn bar<I, O>(label: String, call: &Call<I, O>) -> Span {
    Span {
        row: format!("client {}", call.client % SUCCESSOR_OFFSET),
        label,
        begin: call.invoked,
        end: call.returned,
        tone: match call.outcome {
            lockgate_check::Outcome::Ok(_) => Tone::Ok,
            lockgate_check::Outcome::Failed => Tone::Failed,
            lockgate_check::Outcome::Unknown => Tone::Unknown,
        },
    }
}
