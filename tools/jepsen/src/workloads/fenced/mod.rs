//! Register outside of the cluster, changed by the holder of its lock: read, compute, write. Some clients are
//! paused in between for longer than their session lives, and write late. A register that checks fencing
//! tokens loses no update; one that does not, in the control workload, does.

mod client;
mod storage;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockgate_check::fenced;
use lockgate_check::{Nanos, Verdict};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::json;

use super::highlights::Highlights;
use super::{Progress, Span, Tone, Workload};
use crate::record::{Recorder, write_line};
use crate::world::World;
pub use storage::{Fences, Storage};

const CLIENTS: usize = 32;

/// Updates of all clients per second; each makes two calls.
const PER_SECOND: f64 = 320.0;

const TTL: Duration = Duration::from_secs(2);

/// Number of registers, each with a lock.
const REGISTERS: usize = 32;

/// One in this number of updates is paused between its read and its write.
const PAUSED_ONE_IN: u32 = 400;

/// Duration of a pause beyond the session's TTL: longer than the next holder needs to write.
const PAUSE_BEYOND_TTL: Duration = Duration::from_millis(800);

/// Maximum wait for a lock.
const WAIT: Duration = Duration::from_millis(400);

/// Initial value of the registers.
const FIRST_VALUE: u64 = 0;

/// The workload.
pub struct Fenced {
    fences: Fences,
    registers: Vec<Mutex<Storage>>,
    calls: Recorder<FencedCall, u64>,
    updates: Mutex<Vec<Update>>,
    highlights: Highlights,
}

#[derive(Clone, Debug, Serialize)]
enum FencedCall {
    Acquire { register: usize },
    Release { register: usize, token: u64 },
}

/// Update, for the report.
struct Update {
    client: usize,
    register: usize,
    token: u64,
    begin: Nanos,
    end: Nanos,
    paused: bool,
    taken: bool,
}

impl Fenced {
    /// Creates a run.
    pub fn new(fences: Fences) -> Self {
        Self {
            fences,
            registers: (0..REGISTERS)
                .map(|_| Mutex::new(Storage::holding(FIRST_VALUE)))
                .collect(),
            calls: Recorder::default(),
            updates: Mutex::default(),
            highlights: Highlights::default(),
        }
    }
}

impl Workload for Fenced {
    fn clients(&self) -> usize {
        CLIENTS
    }

    fn prepare<'a>(&'a self, _world: &'a World) -> BoxFuture<'a, Result<()>> {
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

    fn check<'a>(&'a self, _world: &'a World) -> BoxFuture<'a, Result<Vec<(String, Verdict)>>> {
        async move {
            let verdicts = self
                .registers
                .iter()
                .map(|register| fenced::check(FIRST_VALUE, &register.lock().writes));
            let verdict = verdicts.fold(Verdict::Valid, Verdict::and);
            let late = self.updates.lock().iter().filter(|update| update.paused).count();
            let tried = match late {
                0 => Verdict::Undecided("no client was paused between its read and its write".to_owned()),
                _ => Verdict::Valid,
            };
            let verdicts = vec![("no lost update".to_owned(), verdict.and(tried))];
            self.highlights.record(&verdicts);
            Ok(verdicts)
        }
        .boxed()
    }

    fn timeline(&self) -> Vec<Span> {
        let updates = self.updates.lock();
        let spans = updates.iter().map(|update| {
            let span = Span {
                row: format!("register {}", update.register),
                label: format!(
                    "client {} · token {}{}{}",
                    update.client,
                    update.token,
                    if update.paused { " · paused" } else { "" },
                    if update.taken {
                        ""
                    } else {
                        " · rejected by the register"
                    },
                ),
                begin: update.begin,
                end: update.end,
                tone: match (update.taken, update.paused) {
                    (false, _) => Tone::Failed,
                    (true, true) => Tone::Unknown,
                    (true, false) => Tone::Ok,
                },
            };
            self.highlights.bar(
                span,
                &[
                    &format!("client {}", update.client),
                    &format!("token {}", update.token),
                ],
            )
        });
        spans.collect()
    }

    fn write_history(&self, to: &mut dyn io::Write) -> io::Result<()> {
        self.calls.write(to)?;
        for (register, storage) in self.registers.iter().enumerate() {
            for write in &storage.lock().writes {
                write_line(to, &json!({"register": register, "write": write}))?;
            }
        }
        Ok(())
    }
}
