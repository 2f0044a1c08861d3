//! One-shot watches: some clients write a few znodes, others read them and wait for the next change by long
//! polls that continue at the last position. Each watch fires at most once, only for a change after it was
//! set, and before its node shows that change; no change is missed without notice.

mod evidence;
mod observer;
mod writer;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use anyhow::Result;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockgate_check::Verdict;
use lockgate_check::watches::{self, Connection, Observation};
use parking_lot::Mutex;

use super::highlights::Highlights;
use super::{Progress, Span, Tone, Workload, fill};
use crate::record::{Tally, write_line};
use crate::systems::System;
use crate::world::World;
use evidence::Evidence;

/// Number of writers.
const WRITERS: usize = 4;

/// Number of observers.
const OBSERVERS: usize = 20;

/// Number of znodes. Each has one writer, so that the position of every change with a known outcome is known.
const PATHS: usize = WRITERS * 2;

/// The workload.
pub struct Watches {
    tally: Tally,
    evidence: Evidence,
    connections: Mutex<Vec<Connection>>,
    highlights: Highlights,
}

impl Watches {
    /// Creates a run.
    pub fn new() -> Self {
        Self {
            tally: Tally::default(),
            evidence: Evidence::default(),
            connections: Mutex::default(),
            highlights: Highlights::default(),
        }
    }
}

fn path(number: usize) -> String {
    format!("/jepsen/watches/{number}")
}

impl Workload for Watches {
    fn clients(&self) -> usize {
        WRITERS + OBSERVERS
    }

    fn prepare<'a>(&'a self, world: &'a World) -> BoxFuture<'a, Result<()>> {
        fill(System::Lockgate, world, (0..PATHS).map(path).collect(), "0").boxed()
    }

    fn client(self: Arc<Self>, world: World, number: usize) -> BoxFuture<'static, ()> {
        match number {
            0..WRITERS => writer::run(self, world, number).boxed(),
            _ => observer::run(self, world, number).boxed(),
        }
    }

    fn progress(&self) -> Progress {
        self.tally.progress()
    }

    fn reasons(&self) -> BTreeMap<String, u64> {
        self.tally.reasons()
    }

    fn check<'a>(&'a self, _world: &'a World) -> BoxFuture<'a, Result<Vec<(String, Verdict)>>> {
        async move {
            let connections = self.connections.lock().clone();
            let changes = self.evidence.changes();
            let verdict = watches::check(&connections, &changes);
            let fired = connections.iter().flat_map(|connection| &connection.observations);
            let tried = match fired
                .filter(|(_, observations)| matches!(observations, Observation::Fired { .. }))
                .count()
            {
                0 => Verdict::Undecided("no watch has fired".to_owned()),
                _ => Verdict::Valid,
            };
            let verdicts = vec![("watches".to_owned(), verdict.and(tried))];
            self.highlights.record(&verdicts);
            Ok(verdicts)
        }
        .boxed()
    }

    fn timeline(&self) -> Vec<Span> {
        let connections = self.connections.lock();
        connections
            .iter()
            .flat_map(|connection| spans(connection, &self.highlights))
            .collect()
    }

    fn write_history(&self, to: &mut dyn Write) -> io::Result<()> {
        write_line(to, &self.evidence.changes())?;
        self.connections
            .lock()
            .iter()
            .try_for_each(|connection| write_line(to, connection))
    }
}

/// Returns a bar for each watch, from its setting to its end.
fn spans(connection: &Connection, highlights: &Highlights) -> Vec<Span> {
    let row = connection
        .name
        .split(" at ")
        .next()
        .unwrap_or_default()
        .to_owned();
    let mut spans: Vec<Span> = Vec::new();
    let mut open = None;
    for (at, observations) in &connection.observations {
        let (end, tone) = match observations {
            Observation::Set { path, watch, .. } => {
                open = Some((*at, path, watch));
                continue;
            }
            Observation::Read { .. } => continue,
            Observation::Fired { zxid, .. } => (format!("fired for {zxid:?}"), Tone::Ok),
            Observation::Over { .. } => ("nothing happened".to_owned(), Tone::Failed),
            Observation::Ended => ("connection lost".to_owned(), Tone::Unknown),
        };
        if let Some((begin, path, watch)) = open.take() {
            let span = Span {
                row: row.clone(),
                label: format!("{path}: {end}"),
                begin,
                end: *at,
                tone,
            };
            spans.push(highlights.bar(span, &[&connection.name, &format!("watch {watch}")]));
        }
    }
    spans
}
