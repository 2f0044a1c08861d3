//! Checks of the files, directories and ports that a configuration names, as a start would use them. They
//! change nothing: a port is bound for a moment only.

mod files;
mod ports;

use std::path::Path;

use local_cluster::process::claimant;
use raft_log::{DataDir, RealDisk};

use super::problem::{ConfigProblem, Source};
use super::{ConfigErrors, Loaded, ServeConfig};
use crate::serve::open_files;

/// Findings of the checks.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// Errors: a node would not start, or would serve no client.
    pub errors: Vec<ConfigProblem>,
    /// Warnings.
    pub warnings: Vec<ConfigProblem>,
}

impl Findings {
    /// Returns whether a node would start.
    pub fn is_good(&self) -> bool {
        self.errors.is_empty()
    }

    fn error(&mut self, setting: &str, fact: impl Into<String>) {
        self.errors.push(ConfigProblem::new(setting, fact));
    }

    fn warn(&mut self, setting: &str, fact: impl Into<String>) {
        self.warnings.push(ConfigProblem::new(setting, fact));
    }
}

/// Reads a configuration, and checks the files, directories and ports that it names.
pub async fn check(file: Option<&Path>) -> Findings {
    let Loaded { config, warnings, .. } = match ServeConfig::load(file) {
        Ok(loaded) => loaded,
        Err(ConfigErrors(errors)) => {
            return Findings {
                errors,
                warnings: Vec::new(),
            };
        }
    };
    let mut findings = check_all(&config).await;
    // Findings outside of the text have no line, but they belong to the file.
    for problem in findings.errors.iter_mut().chain(&mut findings.warnings) {
        if problem.source == Source::Nowhere {
            problem.file = file.map(Path::to_owned);
        }
    }
    findings.warnings.splice(0..0, warnings);
    findings
}

/// Checks the files, directories and ports that a configuration names.
pub async fn check_all(config: &ServeConfig) -> Findings {
    let mut findings = Findings::default();
    let runs = is_running(config, &mut findings);
    files::check_all(config, &mut findings);
    check_owner(config, &mut findings);
    ports::check_all(config, runs, &mut findings).await;
    if let Err(error) = open_files::check_limit(config) {
        findings.warn(
            "http.max_connections",
            format!("{error:#}: raise the limit (`ulimit -n`, LimitNOFILE=), or allow fewer connections"),
        );
    }
    findings
}

/// Returns whether this node is running, so that it has bound its ports itself.
fn is_running(config: &ServeConfig, findings: &mut Findings) -> bool {
    let Some(path) = &config.pid_file else {
        return false;
    };
    match claimant(path) {
        Ok(runs) => runs.is_some(),
        Err(error) => {
            findings.error("pid_file", format!("{}: {error}", path.display()));
            false
        }
    }
}

/// Checks that the data directory belongs to this node: it belongs to one node only.
fn check_owner(config: &ServeConfig, findings: &mut Findings) {
    let node = &config.node;
    if !node.raft.data_dir.is_dir() {
        return;
    }
    match DataDir::inspect(
        &RealDisk,
        &node.raft.data_dir,
        &node.raft.cluster,
        node.raft.node_id,
    ) {
        Ok(Some(_)) | Ok(None) => {}
        Err(error) => findings.error("data_dir", error.to_string()),
    }
}
