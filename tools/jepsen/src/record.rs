//! Who called what, when, and what came of it: the history of a run, for checkers and for people.

use std::collections::BTreeMap;
use std::io::{self, Write};

use lockgate_check::{Call, ClientId, Nanos};
use parking_lot::Mutex;
use serde::Serialize;

use crate::client::Answer;
use crate::workloads::{Progress, Span, Tone};
use crate::world::World;

/// A client that got no answer goes on under a number that is larger by this: no run has as many clients, so the remainder
/// tells which one it is.
pub const SUCCESSOR: ClientId = 1000;

/// All calls of one kind.
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
    /// Carries a call out and remembers it. If its outcome is unknown, `client` goes on under a new number.
    pub async fn call(
        &self,
        world: &World,
        client: &mut ClientId,
        input: I,
        call: impl Future<Output = Answer<O>>,
    ) -> Answer<O> {
        let invoked = world.now();
        let answer = call.await;
        self.add(world, client, invoked, input, &answer);
        answer
    }

    /// Remembers a call that has just returned.
    pub fn add(&self, world: &World, client: &mut ClientId, invoked: Nanos, input: I, answer: &Answer<O>) {
        let returned = world.now();
        self.tally.count(returned, answer);
        self.calls.lock().push(Call {
            client: *client,
            invoked,
            returned,
            input,
            outcome: answer.outcome(),
        });
        if matches!(answer, Answer::Unknown(_)) {
            *client += SUCCESSOR;
        }
    }

    /// All of them, in the order of their returns.
    pub fn calls(&self) -> Vec<Call<I, O>> {
        self.calls.lock().clone()
    }

    /// How calls went so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }
}

impl<I: Serialize, O: Serialize> Recorder<I, O> {
    /// Writes them down, one a line.
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        self.calls.lock().iter().try_for_each(|call| write_line(to, call))
    }
}

/// One line of JSON.
pub fn write_line(to: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *to, value)?;
    to.write_all(b"\n")
}

/// How calls went, whatever they were.
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
    pub fn count<T>(&self, returned: Nanos, answer: &Answer<T>) {
        let mut counts = self.counts.lock();
        let why = match answer {
            Answer::Ok(_) => {
                counts.progress.succeeded.push(returned);
                return;
            }
            Answer::Failed(why) => {
                counts.progress.failed += 1;
                why
            }
            Answer::Unknown(why) => {
                counts.progress.unknown += 1;
                why
            }
        };
        *counts.reasons.entry(why.clone()).or_default() += 1;
    }

    /// In order of time.
    pub fn progress(&self) -> Progress {
        let mut progress = self.counts.lock().progress.clone();
        // They are counted a moment after the clock was read.
        progress.succeeded.sort_unstable();
        progress
    }

    /// Why calls failed, and how often.
    pub fn reasons(&self) -> BTreeMap<String, u64> {
        self.counts.lock().reasons.clone()
    }
}

/// The same call with its input in other words.
pub fn in_words<I, J, O>(call: Call<I, O>, words: impl FnOnce(I) -> J) -> Call<J, O> {
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

/// A call as a bar in its client's row.
pub fn bar<I, O>(label: String, call: &Call<I, O>) -> Span {
    Span {
        row: format!("client {}", call.client % SUCCESSOR),
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
