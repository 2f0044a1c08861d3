//! Specification of a cell, passed to its process as a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::cluster::lockgate::Lockgate;
use crate::cluster::software::Software;
use crate::isolation::Isolation;
use crate::report::{CellReport, Outcome};
use crate::systems::{Etcd, System, ZooKeeper};

/// Specification of one cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// Name of the workload.
    pub workload: String,
    /// Name of the nemesis.
    pub nemesis: String,
    /// System under test.
    pub system: System,
    /// Duration of the faults, in seconds.
    pub seconds: u64,
    /// Duration of the phase without faults before them, in seconds.
    pub quiet_seconds: f64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Minimum of successful calls per second before the faults; below it the run is invalid.
    pub least_rate: f64,
    /// Number of faults to inject; replaces the duration if it is set.
    pub faults: Option<usize>,
    /// Program under test, if the system is Lockgate.
    pub program: PathBuf,
    /// Additional environment variables of the nodes.
    pub environment: Vec<(String, String)>,
    /// Isolation of the cell from the machine.
    pub isolation: Isolation,
    /// Directory for the cell's files.
    pub dir: PathBuf,
}

impl Spec {
    /// Reads a spec written by [`Spec::write`].
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        serde_json::from_str(&text).with_context(|| file.display().to_string())
    }

    /// Writes the spec into the cell's directory; returns the file's path.
    pub fn write(&self) -> anyhow::Result<PathBuf> {
        let file = self.dir.join("spec.json");
        let text = serde_json::to_string_pretty(self).context("a spec as JSON")?;
        std::fs::write(&file, text).with_context(|| file.display().to_string())?;
        Ok(file)
    }

    /// Returns the path of the report that the cell's process writes.
    pub fn report_file(&self) -> PathBuf {
        self.dir.join("cell.json")
    }

    /// Returns the [`Software`] that starts and queries the cell's nodes.
    pub fn software(&self) -> Arc<dyn Software> {
        match self.system {
            System::Lockgate | System::LockgateZookeeper => Arc::new(Lockgate {
                program: self.program.clone(),
                environment: self.environment.clone(),
            }),
            System::Zookeeper => Arc::new(ZooKeeper),
            System::Etcd => Arc::new(Etcd),
        }
    }

    /// Returns the system's name as on the command line.
    pub fn system_name(&self) -> String {
        let value = self.system.to_possible_value();
        value.expect("no system is hidden").get_name().to_owned()
    }

    /// Returns the command that repeats this cell.
    pub fn reproduce(&self) -> String {
        let planted = self
            .environment
            .iter()
            .map(|(name, value)| format!("{name}={value} "));
        format!(
            "{}cargo run -p lockgate-jepsen -- --workload {} --nemesis {} --system {} --seconds {} --seed {} --program {}",
            planted.collect::<String>(),
            self.workload,
            self.nemesis,
            self.system_name(),
            self.seconds,
            self.seed,
            self.program.display()
        )
    }

    /// Returns a report of this cell without any results.
    pub fn empty_report(&self) -> CellReport {
        CellReport {
            workload: self.workload.clone(),
            nemesis: self.nemesis.clone(),
            system: self.system_name(),
            seed: self.seed,
            seconds: self.seconds,
            nodes: 0,
            outcome: Outcome::Error,
            reasons: Vec::new(),
            checks: Vec::new(),
            rate_before: 0.0,
            succeeded: 0,
            failed: 0,
            unknown: 0,
            rate: Vec::new(),
            call_errors: BTreeMap::new(),
            longest_silence_ms: 0.0,
            faults: Vec::new(),
            timeline: Vec::new(),
            took_seconds: 0.0,
            kept: None,
            reproduce: self.reproduce(),
        }
    }

    /// Returns the report of a cell that could not be completed.
    pub fn failed(&self, why: String) -> CellReport {
        CellReport {
            reasons: vec![why],
            ..self.empty_report()
        }
    }

    /// Returns the report of a cell that this machine cannot run.
    pub fn skipped(&self, why: String) -> CellReport {
        CellReport {
            outcome: Outcome::Skipped,
            ..self.failed(why)
        }
    }
}
