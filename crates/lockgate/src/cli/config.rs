//! `lockgate config`: checks and reloads a configuration, and prints the reference and a sample.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Subcommand, ValueEnum};
use cli_support::format::Output;
use cli_support::output::say;
use local_cluster::process::{claimant, send_signal};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::config::check::{Findings, check};
use crate::config::{ConfigProblem, Source, reference};

/// Commands on a configuration.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Read a configuration as `serve` does, and check the certificates, keys, directories and ports that it
    /// names. The exit status is 1 if a node would not start with it
    Check {
        #[command(flatten)]
        file: ConfigFile,
        #[command(flatten)]
        output: Output,
    },
    /// Check a configuration, and make the node that runs with it reload it; the node's log names the
    /// settings that it applies
    Reload {
        #[command(flatten)]
        file: ConfigFile,
    },
    /// Print every setting with its type, bounds, default and meaning: docs/reference/configuration.md
    Reference {
        /// Format
        #[arg(long, value_enum, default_value_t = Form::Markdown)]
        form: Form,
    },
    /// Print a configuration file that explains every setting: cluster/node-1.toml
    Sample {
        /// Number of the node, of a cluster of three
        #[arg(long, default_value_t = 1)]
        node: u64,
    },
}

/// Place of the configuration.
#[derive(Debug, clap::Args)]
pub struct ConfigFile {
    /// Configuration file of the node. Without one, all settings come from the environment
    #[arg(long, value_name = "FILE", env = "LOCKGATE_CONFIG")]
    config: Option<PathBuf>,
}

/// Format of the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Markdown page
    Markdown,
    /// JSON document
    Json,
}

/// Runs a command.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Check { file, output } => {
            let findings = check(file.config.as_deref()).await;
            output.say(&document(&findings), || text(&findings))?;
            Ok(match findings.is_good() {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            })
        }
        Command::Reload { file } => reload(file).await,
        Command::Reference { form } => {
            say(match form {
                Form::Markdown => reference::markdown().trim_end().to_owned(),
                Form::Json => {
                    serde_json::to_string_pretty(&reference::document()).context("the table as JSON")?
                }
            })?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Sample { node } => {
            if !(1..=3).contains(&node) {
                bail!("there are samples of the nodes 1 to 3");
            }
            say(reference::sample(node).trim_end())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Checks the configuration and sends SIGHUP to the node. Errors are printed here, where the operator waits
/// for them, and not only in the node's log.
async fn reload(file: ConfigFile) -> anyhow::Result<ExitCode> {
    let findings = check(file.config.as_deref()).await;
    if !findings.is_good() {
        say(text(&findings))?;
        bail!("nothing was reloaded");
    }
    let config = crate::config::ServeConfig::load(file.config.as_deref())?.config;
    let Some(pid_file) = config.pid_file else {
        bail!(
            "the configuration has no pid_file, so the process that runs with it is unknown: send SIGHUP to it yourself"
        );
    };
    let runs = claimant(&pid_file).with_context(|| pid_file.display().to_string())?;
    let Some(process) = runs else {
        bail!(
            "no node runs with this configuration (no process has locked {})",
            pid_file.display()
        );
    };
    send_signal(process, Signal::SIGHUP).with_context(|| format!("sending SIGHUP to process {process}"))?;
    say(format!(
        "process {process} reloads its configuration; its log names the settings that it applies, and those that need a restart"
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn text(findings: &Findings) -> String {
    let errors = findings.errors.iter().map(|problem| format!("error: {problem}"));
    let warnings = findings
        .warnings
        .iter()
        .map(|problem| format!("warning: {problem}"));
    let mut lines: Vec<String> = errors.chain(warnings).collect();
    lines.push(match (findings.errors.len(), findings.warnings.len()) {
        (0, 0) => "the configuration is good".to_owned(),
        (0, warnings) => format!("the configuration is good, with {}", counted(warnings, "warning")),
        (errors, 0) => format!("the configuration has {}", counted(errors, "error")),
        (errors, warnings) => {
            format!(
                "the configuration has {} and {}",
                counted(errors, "error"),
                counted(warnings, "warning")
            )
        }
    });
    lines.join("\n")
}

fn counted(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}

fn document(findings: &Findings) -> Value {
    let all = |problems: &[ConfigProblem]| problems.iter().map(one).collect::<Vec<_>>();
    json!({
        "good": findings.is_good(),
        "errors": all(&findings.errors),
        "warnings": all(&findings.warnings),
    })
}

fn one(problem: &ConfigProblem) -> Value {
    let mut document = json!({ "problem": problem.fact });
    if !problem.setting.is_empty() {
        document["setting"] = problem.setting.clone().into();
    }
    if let Some(file) = &problem.file {
        document["file"] = file.display().to_string().into();
    }
    match &problem.source {
        Source::Line(line) => document["line"] = (*line).into(),
        Source::Variable(variable) => document["variable"] = variable.clone().into(),
        Source::Nowhere => {}
    }
    document
}
