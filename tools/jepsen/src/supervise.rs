//! Execution of cells from outside: each in a process of its own, with a time limit, and with a directory
//! that is removed unless it is needed for an investigation.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use tokio::process::Command;

use crate::cell::Spec;
use crate::isolation::Isolation;
use crate::report::CellReport;
use crate::{nemesis, workloads};

/// Time limit of a cell beside its faults: start, healing, final reads and checks together.
const BESIDES_FAULTS: Duration = Duration::from_secs(500);

/// Name prefix of run directories; the id of the owning process and a random part follow.
pub const PREFIX: &str = "lockgate-jepsen-";

/// Name of the file that marks a directory to be kept after its owner has ended.
pub const KEPT: &str = "KEPT";

/// Option that starts a cell's process.
pub const INSIDE: &str = "--inside";

/// Executor of cells.
#[derive(Clone, Debug)]
pub struct Supervisor {
    /// Directory in which run directories are created.
    pub dir: PathBuf,
    /// Isolation that the machine allows.
    pub isolation: Isolation,
    /// True if a cell's process prints its progress on the terminal.
    pub verbose: bool,
    /// True if files are kept after every outcome.
    pub keep: bool,
}

impl Supervisor {
    /// Runs a cell to its end. Fills in the spec's directory and isolation.
    pub async fn run(&self, mut spec: Spec) -> CellReport {
        spec.isolation = self.isolation;
        let able = workloads::named(&spec.workload).is_some_and(|kind| kind.systems.contains(&spec.system));
        if !able {
            return spec.skipped(format!("{} does not support this workload", spec.system_name()));
        }
        if let Some(why) = spec.system.missing() {
            return spec.skipped(why);
        }
        match nemesis::find(&spec.nemesis) {
            Ok(kind) => {
                if let Some(why) = kind.impossible(self.isolation, spec.system) {
                    return spec.skipped(why);
                }
            }
            Err(error) => return spec.failed(error.to_string()),
        }
        match self.run_in_process(&mut spec).await {
            Ok(report) => report,
            Err(error) => spec.failed(format!("{error:#}")),
        }
    }

    async fn run_in_process(&self, spec: &mut Spec) -> anyhow::Result<CellReport> {
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let dir = tempfile::Builder::new().prefix(&prefix).tempdir_in(&self.dir);
        let dir = dir.with_context(|| self.dir.display().to_string())?;
        // The directory is not removed when this future is dropped, since the cell's processes may still run
        // then. See `leftovers`.
        let dir = dir.keep();
        spec.dir.clone_from(&dir);
        let file = spec.write()?;
        let log_file = dir.join("harness.log");
        let executable = std::env::current_exe().context("this program")?;
        let mut command = Command::from(self.isolation.command(&executable));
        command
            .arg(INSIDE)
            .arg(&file)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        if !self.verbose {
            let log = std::fs::File::create(&log_file).with_context(|| log_file.display().to_string())?;
            command.stdout(log.try_clone()?).stderr(log);
        }
        let mut child = command.spawn().context("starting the cell's process")?;
        let timeout = Duration::from_secs(spec.seconds) + BESIDES_FAULTS;
        let ended = tokio::time::timeout(timeout, child.wait()).await;
        let mut report = match ended {
            Err(_) => {
                child.kill().await.context("ending the cell's process")?;
                spec.failed(format!("the cell did not end within {} s", timeout.as_secs()))
            }
            Ok(status) => {
                let status = status.context("waiting for the cell's process")?;
                match std::fs::read_to_string(spec.report_file()) {
                    Ok(text) => serde_json::from_str(&text).context("the cell's report")?,
                    Err(_) => spec.failed(format!(
                        "the cell's process ended ({status}): {}",
                        tail(&log_file)
                    )),
                }
            }
        };
        if self.keep || !report.outcome.is_fine() {
            keep(&dir)?;
            report.kept = Some(dir);
        } else {
            std::fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
        }
        Ok(report)
    }
}

/// Marks the directory to be kept, and removes large files of no use.
fn keep(dir: &Path) -> anyhow::Result<()> {
    std::fs::write(dir.join(KEPT), "").context("keeping a directory")?;
    let entries = std::fs::read_dir(dir).context("keeping a directory")?;
    for entry in entries.flatten() {
        if entry
            .path()
            .extension()
            .is_some_and(|extension| extension == "img")
        {
            std::fs::remove_file(entry.path()).context("removing an image")?;
        }
    }
    Ok(())
}

fn tail(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(10).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
