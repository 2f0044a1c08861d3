//! Report of a run: every cell with its verdict, its faults with their evidence, and its history as bars.
//! These types are the schema of `report.json` and the source of the page.

pub mod html;
pub mod recovery;

use std::collections::BTreeMap;
use std::path::PathBuf;

use lockgate_check::{Nanos, Verdict};
use serde::{Deserialize, Serialize};

use crate::mutants::SearchResult;
use crate::workloads::Span;
use recovery::Recovery;

/// Run of one or more cells.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The request: `matrix gate`, `exclusive x kill-leader`.
    pub title: String,
    /// Start of the run, RFC 3339.
    pub started_at: String,
    /// Program under test.
    pub program: String,
    /// Isolation that the machine allowed: namespaces, disk images.
    pub machine: String,
    /// Seed of the run, from which the cells' seeds derive.
    pub seed: u64,
    /// Duration in seconds.
    pub took_seconds: f64,
    /// Cells in the order in which they were planned.
    pub cells: Vec<CellReport>,
    /// Recovery times for each kind of fault.
    pub recoveries: Vec<Recovery>,
    /// Results of the search for planted bugs, if there was one. The cells above are those of the search.
    pub mutants: Vec<SearchResult>,
}

/// One workload under one nemesis.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CellReport {
    /// Workload of the clients.
    pub workload: String,
    /// Nemesis.
    pub nemesis: String,
    /// System under test.
    pub system: String,
    /// Seed of all random choices.
    pub seed: u64,
    /// Duration of the faults in seconds.
    pub seconds: u64,
    /// Number of nodes at the beginning.
    pub nodes: usize,
    /// Outcome.
    pub outcome: Outcome,
    /// Reasons of an outcome other than a pass, one a line.
    pub reasons: Vec<String>,
    /// Results of the checkers.
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
    /// Reasons of calls that failed or have no known outcome, with their numbers.
    #[serde(default)]
    pub call_errors: BTreeMap<String, u64>,
    /// Longest time in which no call succeeded.
    pub longest_silence_ms: f64,
    /// All faults, in order of time.
    pub faults: Vec<Fault>,
    /// History for readers.
    pub timeline: Vec<Span>,
    /// Duration of the cell in seconds, with start and checks.
    pub took_seconds: f64,
    /// Directory of the nodes' logs and the raw history, if they were kept.
    pub kept: Option<PathBuf>,
    /// Command that repeats the cell.
    pub reproduce: String,
}

/// Counts the given moments in each tenth of a second.
pub fn rate(succeeded: &[Nanos]) -> Vec<u32> {
    const TENTH: Nanos = 100_000_000;
    let mut rate = Vec::new();
    for at in succeeded {
        let tenth = usize::try_from(at / TENTH).expect("a run lasts less than 2^32 tenths of a second");
        if rate.len() <= tenth {
            rate.resize(tenth + 1, 0);
        }
        rate[tenth] += 1;
    }
    rate
}

/// Result of one checker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    /// Name of the checker.
    pub name: String,
    /// Verdict.
    pub verdict: Verdict,
}

/// Outcome of a cell, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All checks hold, and there was something to check.
    Passed,
    /// The cell cannot run on this machine. Says nothing about the system.
    Skipped,
    /// Too few calls succeeded, or a fault had no effect: no conclusion is possible.
    Invalid,
    /// A checker could not decide.
    Undecided,
    /// The harness itself failed.
    Error,
    /// The system violated a guarantee.
    Violated,
}

impl Outcome {
    /// Returns whether a run with this cell can count as a success. A skipped cell is reported, and is no
    /// failure.
    pub fn is_fine(self) -> bool {
        matches!(self, Self::Passed | Self::Skipped)
    }

    /// Returns the word for the outcome.
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
    /// Nemesis; with `chaos` several overlap.
    pub nemesis: String,
    /// Description of the fault and its targets.
    pub what: String,
    /// Time at which the fault began.
    pub begin: Nanos,
    /// Time at which the fault had been healed.
    pub end: Nanos,
    /// Evidence of an effect; `None` if there is none.
    pub evidence: Option<String>,
    /// Time from the fault's beginning to the end of the longest silence of all clients that followed.
    pub recovery_ms: Option<f64>,
    /// Time from the start of the healing to the end of the longest silence that followed.
    pub heal_recovery_ms: Option<f64>,
    /// Time at which healing began.
    pub healing: Nanos,
}

impl CellReport {
    /// Returns the name: `exclusive x kill-leader`.
    pub fn name(&self) -> String {
        format!("{} x {}", self.workload, self.nemesis)
    }

    /// Formats the cell as one line for the terminal.
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
    /// Returns whether no violation was found and no check is undecided. In a search for planted bugs:
    /// whether all were caught.
    pub fn is_fine(&self) -> bool {
        if !self.mutants.is_empty() {
            return self.mutants.iter().all(|found| found.caught_by.is_some());
        }
        self.cells.iter().all(|cell| cell.outcome.is_fine())
            && self.cells.iter().any(|cell| cell.outcome == Outcome::Passed)
    }
}
