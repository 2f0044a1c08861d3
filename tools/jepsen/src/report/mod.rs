//! What is told of a run: every cell with its verdict, its faults with their evidence, and the history drawn as bars.
//!
//! These types are `report.json`, and what the page is made of.

pub mod html;
pub mod recovery;

use std::collections::BTreeMap;
use std::path::PathBuf;

use lockgate_check::{Nanos, Verdict};
use serde::{Deserialize, Serialize};

use crate::mutants::Found;
use crate::workloads::Span;
use recovery::Recovery;

/// A run of one or more cells.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// What was asked for: `matrix gate`, `exclusive x kill-leader`.
    pub title: String,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// The program under test.
    pub program: String,
    /// What the machine allowed: namespaces, disk images.
    pub machine: String,
    /// What all seeds of the cells were drawn from.
    pub seed: u64,
    /// How long it took, in seconds.
    pub took_seconds: f64,
    /// The cells in the order in which they were planned.
    pub cells: Vec<CellReport>,
    /// How long it took until calls succeeded again, for each kind of fault.
    pub recoveries: Vec<Recovery>,
    /// Which bugs on purpose were seen, if such were planted. The cells above are those that looked for them.
    pub mutants: Vec<Found>,
}

/// One workload under one nemesis.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CellReport {
    /// What clients did.
    pub workload: String,
    /// What happened to the nodes.
    pub nemesis: String,
    /// What was under test.
    pub system: String,
    /// What every random choice was drawn from.
    pub seed: u64,
    /// For how long there were faults, in seconds.
    pub seconds: u64,
    /// How many nodes there were at the beginning.
    pub nodes: usize,
    /// How it ended.
    pub outcome: Outcome,
    /// Why, if it did not pass: one line for each reason.
    pub reasons: Vec<String>,
    /// What each checker said.
    pub checks: Vec<Check>,
    /// Successful calls per second before the first fault.
    pub rate_before: f64,
    /// Calls that succeeded, from the first to the last.
    pub succeeded: u64,
    /// Calls that certainly failed.
    pub failed: u64,
    /// Calls without a known outcome.
    pub unknown: u64,
    /// Successful calls in each tenth of a second since the run began.
    #[serde(default)]
    pub rate: Vec<u32>,
    /// Why calls failed or have no known outcome, and how often.
    #[serde(default)]
    pub call_errors: BTreeMap<String, u64>,
    /// The longest time in which no call succeeded.
    pub longest_silence_ms: f64,
    /// All faults, in order of time.
    pub faults: Vec<Fault>,
    /// The history for people.
    pub timeline: Vec<Span>,
    /// How long the cell took with start and checks, in seconds.
    pub took_seconds: f64,
    /// Where the nodes' logs and the raw history are, if they were kept.
    pub kept: Option<PathBuf>,
    /// The command that does it again.
    pub reproduce: String,
}

/// How many of these moments lie in each tenth of a second.
pub fn rate(succeeded: &[Nanos]) -> Vec<u32> {
    const TENTH: Nanos = 100_000_000;
    let mut rate = Vec::new();
    for at in succeeded {
        let tenth = usize::try_from(at / TENTH).expect("a run does not last for centuries");
        if rate.len() <= tenth {
            rate.resize(tenth + 1, 0);
        }
        rate[tenth] += 1;
    }
    rate
}

/// What one checker said.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    /// Which.
    pub name: String,
    /// What.
    pub verdict: Verdict,
}

/// How a cell ended, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Everything that was checked holds, and there was something to check.
    Passed,
    /// It cannot be run here. Says nothing about the system.
    Skipped,
    /// Too little happened, or a fault had no effect: nothing can be concluded.
    Invalid,
    /// A checker could not decide.
    Undecided,
    /// The harness itself failed.
    Error,
    /// The system did what it must not do.
    Violated,
}

impl Outcome {
    /// Whether a run with this cell may end well. What is skipped is told, and is no failure.
    pub fn is_fine(self) -> bool {
        matches!(self, Self::Passed | Self::Skipped)
    }

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Skipped => "skipped",
            Self::Invalid => "invalid",
            Self::Undecided => "undecided",
            Self::Error => "error",
            Self::Violated => "violated",
        }
    }
}

/// One fault, from its beginning until it was healed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fault {
    /// Which nemesis: with `chaos` several overlap.
    pub nemesis: String,
    /// What it did to whom.
    pub what: String,
    /// When it began to be brought about.
    pub begin: Nanos,
    /// When it had been healed.
    pub end: Nanos,
    /// What shows that it took effect; `None`: nothing does.
    pub evidence: Option<String>,
    /// From its beginning to the end of the longest silence of all clients that followed.
    pub recovery_ms: Option<f64>,
    /// From the moment at which healing was begun to the end of the longest silence that followed.
    pub heal_recovery_ms: Option<f64>,
    /// When healing was begun.
    pub healing: Nanos,
}

impl CellReport {
    /// `exclusive x kill-leader`.
    pub fn name(&self) -> String {
        format!("{} x {}", self.workload, self.nemesis)
    }

    /// One line for the terminal.
    pub fn line(&self) -> String {
        let effective = self
            .faults
            .iter()
            .filter(|fault| fault.evidence.is_some())
            .count();
        format!(
            "{:<9} {:<40} seed {:<20} {:>7} ok {:>5} unknown {:>6.0}/s before, {:>2} faults, longest silence {:.2} s, {:.0} s",
            self.outcome.word(),
            self.name(),
            self.seed,
            self.succeeded,
            self.unknown,
            self.rate_before,
            effective,
            self.longest_silence_ms / 1000.0,
            self.took_seconds,
        )
    }
}

impl Report {
    /// Whether nothing was found, and nothing was left open. Of bugs on purpose: whether all were found.
    pub fn is_fine(&self) -> bool {
        if !self.mutants.is_empty() {
            return self.mutants.iter().all(|found| found.caught_by.is_some());
        }
        self.cells.iter().all(|cell| cell.outcome.is_fine())
            && self.cells.iter().any(|cell| cell.outcome == Outcome::Passed)
    }
}
