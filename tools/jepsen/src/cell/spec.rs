//! What a cell is to do, as it is handed to its process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::cluster::lockgate::Lockgate;
use crate::cluster::software::Software;
use crate::inside::Isolation;
use crate::report::{CellReport, Outcome};
use crate::systems::{Etcd, System, ZooKeeper};

/// A cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// What clients do.
    pub workload: String,
    /// What happens to the nodes.
    pub nemesis: String,
    /// What is under test.
    pub system: System,
    /// For how long there are faults.
    pub seconds: u64,
    /// For how long there are none before.
    pub quiet_seconds: f64,
    /// What every choice is drawn from.
    pub seed: u64,
    /// Fewer successful calls per second before the faults make the run invalid.
    pub least_rate: f64,
    /// So many faults, however long that takes.
    pub faults: Option<usize>,
    /// The program under test, if that is Lockgate.
    pub program: PathBuf,
    /// More variables of the nodes' environment.
    pub environment: Vec<(String, String)>,
    /// What separates the cell from the machine.
    pub isolation: Isolation,
    /// Where its files are.
    pub dir: PathBuf,
}

impl Spec {
    /// Reads what [`Spec::write`] has written.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        serde_json::from_str(&text).with_context(|| file.display().to_string())
    }

    /// Writes it into the cell's directory; gives the file.
    pub fn write(&self) -> anyhow::Result<PathBuf> {
        let file = self.dir.join("spec.json");
        let text = serde_json::to_string_pretty(self).context("a spec as JSON")?;
        std::fs::write(&file, text).with_context(|| file.display().to_string())?;
        Ok(file)
    }

    /// Where the cell's process leaves its report.
    pub fn report_file(&self) -> PathBuf {
        self.dir.join("cell.json")
    }

    /// How its nodes are started and asked.
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

    /// As on the command line.
    pub fn system_name(&self) -> String {
        let value = self.system.to_possible_value();
        value.expect("no system is hidden").get_name().to_owned()
    }

    /// The command that does it again.
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

    /// A report of a cell in which nothing has happened.
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

    /// The report of a cell that could not be run to its end.
    pub fn failed(&self, why: String) -> CellReport {
        CellReport {
            reasons: vec![why],
            ..self.empty_report()
        }
    }

    /// The report of a cell that cannot be run here.
    pub fn skipped(&self, why: String) -> CellReport {
        CellReport {
            outcome: Outcome::Skipped,
            ..self.failed(why)
        }
    }
}
