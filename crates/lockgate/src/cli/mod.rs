//! Command line of `lockgate`: its commands, their options and their output. The other modules implement
//! them.
//!
//! It is part of the library so that another program can be a node as well: the launcher starts nodes as
//! processes of its own executable, whatever that is.

mod access;
mod cert;
mod client;
mod cluster;
mod config;
#[cfg(test)]
mod documentation;
mod exit;
mod history;
mod lock_command;
mod locks;
mod new_token;
mod policy;
mod servers;
mod table;
mod token;
mod znodes;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::builder::Resettable;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use cli_support::block_on;
use cli_support::output::{say, say_bytes, shown_lines, tell, with_causes};

use crate::snapshot;

/// Lock server without external dependencies
#[derive(Debug, Parser)]
#[command(name = "lockgate", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run one node
    Serve {
        /// The node's configuration file; see cluster/node-1.toml in the sources. Without one, all settings
        /// come from the environment (LOCKGATE_NODE_ID, LOCKGATE_MEMBERS, …).
        #[arg(long, value_name = "FILE", env = "LOCKGATE_CONFIG")]
        config: Option<PathBuf>,
        /// Start without TLS even at addresses that other machines can reach: every caller can do everything
        #[arg(long)]
        insecure: bool,
    },
    /// Check or reload a node's configuration, or print the reference of all settings
    Config {
        #[command(subcommand)]
        command: config::Command,
    },
    /// Start, stop and kill the nodes of a cluster on this machine; change the membership of any cluster
    Cluster {
        #[command(subcommand)]
        command: cluster::Command,
    },
    /// Save, inspect and restore backups
    Snapshot {
        #[command(subcommand)]
        command: snapshot::Command,
    },
    /// Create certificates for TLS: a small authority, and the certificates that it signs
    Cert {
        #[command(subcommand)]
        command: cert::Command,
    },
    /// Measure a running cluster, or its failover
    #[cfg(feature = "bench")]
    Bench {
        #[command(subcommand)]
        command: load_generator::Command,
    },
    /// Copy the tree of a running ZooKeeper ensemble, and move its clients when both sides are equal
    #[cfg(feature = "migrate")]
    Migrate(Box<migration::Arguments>),
    #[command(flatten)]
    Client(client::Command),
    /// Print the HTTP API as an OpenAPI document, which every node serves at /v1/openapi.json
    Openapi,
    /// Print the completions of a shell: `lockgate completions bash > /etc/bash_completion.d/lockgate`
    Completions {
        /// Name of the shell
        shell: clap_complete::Shell,
    },
}

/// Runs the command of this process's arguments.
pub fn main() -> ExitCode {
    let matches =
        without_empty_variables(Cli::command()).get_matches_from(normalized(std::env::args_os().collect()));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let done = match cli.command {
        Command::Client(command) => client::run(command),
        Command::Config { command } => block_on(config::run(command)).map_err(exit::Failure::from),
        #[cfg(feature = "migrate")]
        Command::Migrate(arguments) => migration::run(*arguments).map_err(exit::Failure::from),
        other => run(other)
            .map(|()| ExitCode::SUCCESS)
            .map_err(exit::Failure::from),
    };
    done.unwrap_or_else(|failure| {
        // One line: causes are joined by colons. (A configuration has all its errors, each on a line of its
        // own.)
        tell(shown_lines(&format!("lockgate: {}", with_causes(&failure.error))));
        failure.code
    })
}

/// Returns the command, which then ignores empty variables of the environment.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |argument: &clap::Arg| {
        let value = argument.get_env().and_then(std::env::var_os);
        value.is_some_and(|value| value.is_empty())
    };
    command
        .mut_args(|argument| match is_empty(&argument) {
            true => argument.env(Resettable::Reset),
            false => argument,
        })
        .mut_subcommands(without_empty_variables)
}

/// Rewrites `lockgate lock show NAME` to `lockgate show NAME`. A lock may still be called `show`: running a
/// command under it takes a `--` before the command.
fn normalized(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let shows = matches!(&arguments[..], [_, lock, show, ..] if lock == "lock" && show == "show");
    if shows && !arguments.iter().any(|argument| argument == "--") {
        arguments.remove(1);
    }
    arguments
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Serve { config, insecure } => crate::serve::serve(config.as_deref(), insecure),
        Command::Config { .. } => unreachable!("it has exit codes of its own, and has run before"),
        Command::Cluster { command } => block_on(cluster::run(command)),
        Command::Snapshot { command } => block_on(snapshot::run(command)),
        Command::Cert { command } => cert::run(command),
        #[cfg(feature = "bench")]
        Command::Bench { command } => load_generator::run(command),
        Command::Client(_) => unreachable!("it has exit codes of its own, and has run before"),
        #[cfg(feature = "migrate")]
        Command::Migrate(_) => unreachable!("it has exit codes of its own, and has run before"),
        Command::Openapi => {
            let document = serde_json::to_string_pretty(lock_api::http::openapi());
            say(document.context("the document as JSON")?)
        }
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "lockgate", &mut text);
            say_bytes(&text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_show_is_an_alias_and_a_lock_may_be_called_show() {
        let normalized = |line: &str| {
            let arguments = normalized(line.split(' ').map(OsString::from).collect());
            arguments
                .join(std::ffi::OsStr::new(" "))
                .into_string()
                .expect("text")
        };
        assert_eq!(
            normalized("lockgate lock show a --json"),
            "lockgate show a --json"
        );
        for other in [
            "lockgate lock show -- true",
            "lockgate lock a -- show",
            "lockgate show lock",
        ] {
            assert_eq!(normalized(other), other);
        }
    }

    #[test]
    fn the_commands_are_well_defined() {
        Cli::command().debug_assert();
    }
}
