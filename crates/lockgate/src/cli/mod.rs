//! Command line of `lockgate`: its commands, their options and their output. The other modules implement
//! them.
//!
//! It is part of the library so that another program can be a node as well: the launcher starts nodes as
//! processes of its own executable, whatever that is.

mod access;
mod acl;
mod api;
mod cert;
mod client;
#[cfg(test)]
mod command_reference;
mod config;
mod context;
#[cfg(test)]
mod conventions;
mod dev;
#[cfg(test)]
mod documentation;
mod election;
mod events;
mod exit;
mod guarded_command;
mod history;
mod lease;
mod lock_command;
mod lock_verbs;
mod locks;
#[cfg(feature = "mcp")]
mod mcp;
mod member;
mod namespace;
mod new_token;
mod policy;
mod servers;
mod sessions;
mod status;
mod table;
mod token;
mod transaction;
mod znodes;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

use anyhow::Context;
use clap::builder::Resettable;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use cli_support::block_on;
use cli_support::output::{say, say_bytes, shown_lines, tell, with_causes};

use self::lock_verbs::LockVerb;
use crate::snapshot;

/// Version of this program, and the commit that it was built from. Builds of releases set LOCKGATE_COMMIT
/// (tools/release). No other build knows its commit, because the crate would then be compiled anew for each one.
static VERSION: LazyLock<String> = LazyLock::new(|| match option_env!("LOCKGATE_COMMIT") {
    Some(commit) => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
    None => env!("CARGO_PKG_VERSION").to_owned(),
});

/// Lock server without external dependencies
#[derive(Debug, Parser)]
#[command(name = "lockgate", version = VERSION.as_str(), max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start, stop and kill the nodes of a cluster on this machine
    Dev {
        #[command(subcommand)]
        command: dev::Command,
    },
    #[command(flatten)]
    Client(Box<client::Command>),
    /// List, show and choose the named clusters of your configuration file
    Context {
        #[command(subcommand)]
        command: context::Command,
    },
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
    /// Show and change the members of a cluster
    Member {
        #[command(subcommand)]
        command: member::Command,
    },
    /// The commands of `dev` and `member` under one name
    #[command(hide = true)]
    Cluster {
        #[command(subcommand)]
        command: ClusterAlias,
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
    /// Print the HTTP API as an OpenAPI document, which every node serves at /v1/openapi.json
    Openapi,
    /// Print the completions of a shell: `lockgate completions bash > /etc/bash_completion.d/lockgate`
    Completions {
        /// Name of the shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands into a directory: `lockgate man /usr/local/share/man/man1`
    Man {
        /// Existing directory for lockgate.1, lockgate-lock.1, …
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// Commands of `lockgate cluster`, the short form of `dev` and `member`.
#[derive(Debug, Subcommand)]
enum ClusterAlias {
    #[command(flatten)]
    Dev(dev::Command),
    #[command(flatten)]
    Member(member::Command),
}

/// Runs the command of this process's arguments.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let matches = without_empty_variables(program(&arguments)).get_matches_from(&arguments);
    let done = match lock_verb(&matches) {
        Some(verb) => client::run_lock_verb(verb.unwrap_or_else(|error| error.exit())),
        None => match Cli::from_arg_matches(&matches)
            .unwrap_or_else(|error| error.exit())
            .command
        {
            Command::Client(command) => client::run(*command),
            Command::Context { command } => context::run(command).map(|()| ExitCode::SUCCESS),
            Command::Config { command } => block_on(config::run(command)).map_err(exit::Failure::from),
            #[cfg(feature = "migrate")]
            Command::Migrate(arguments) => migration::run(*arguments).map_err(exit::Failure::from),
            other => run(other)
                .map(|()| ExitCode::SUCCESS)
                .map_err(exit::Failure::from),
        },
    };
    done.unwrap_or_else(|failure| {
        // One line: causes are joined by colons. (A configuration has all its errors, each on a line of its
        // own.)
        tell(shown_lines(&format!("lockgate: {}", with_causes(&failure.error))));
        failure.code
    })
}

/// Returns the program's command line for these arguments: `lockgate lock` runs a command if there is a `--`, and
/// otherwise has verbs. A lock may be called as a verb, except `run` as the first word.
fn program(arguments: &[OsString]) -> clap::Command {
    let is_word = |at: usize, word: &str| arguments.get(at).is_some_and(|given| given == word);
    let is_run = is_word(1, "lock") && !is_word(2, "run") && arguments.iter().any(|word| word == "--");
    Cli::command().mut_subcommands(|command| match command.get_name() {
        "lock" if !is_run => {
            let about = command.get_about().cloned();
            LockVerb::augment_subcommands(command)
                .about(about.unwrap_or_default())
                .subcommand_required(false)
                .arg_required_else_help(false)
                .args_conflicts_with_subcommands(true)
                .subcommand_negates_reqs(true)
        }
        name if client::SHORT_FORMS.contains(&name) => command.hide(true),
        _ => command,
    })
}

/// Returns the verb of `lockgate lock`, if there is one.
fn lock_verb(matches: &clap::ArgMatches) -> Option<Result<LockVerb, clap::Error>> {
    let (_, lock) = matches.subcommand().filter(|(noun, _)| *noun == "lock")?;
    lock.subcommand_name()?;
    Some(LockVerb::from_arg_matches(lock))
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

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Serve { config, insecure } => crate::serve::serve(config.as_deref(), insecure),
        Command::Context { .. } | Command::Config { .. } => {
            unreachable!("it has exit codes of its own, and has run before")
        }
        Command::Dev { command }
        | Command::Cluster {
            command: ClusterAlias::Dev(command),
        } => block_on(dev::run(command)),
        Command::Member { command }
        | Command::Cluster {
            command: ClusterAlias::Member(command),
        } => block_on(member::run(command)),
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
            clap_complete::generate(shell, &mut program(&[]), "lockgate", &mut text);
            say_bytes(&text)
        }
        Command::Man { directory } => clap_mangen::generate_to(program(&[]), &directory)
            .with_context(|| format!("cannot write the manual pages to {}", directory.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_has_verbs_and_a_lock_may_be_called_as_one() {
        let parsed = |line: &str| {
            let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            program(&arguments).try_get_matches_from(&arguments)
        };
        for (line, is_verb) in [
            ("lockgate lock show a --json", true),
            ("lockgate lock list", true),
            ("lockgate lock run a b --shared -- true", true),
            ("lockgate lock run run -- true", true),
            ("lockgate lock a run -- true", false),
            ("lockgate lock show -- true", false),
            ("lockgate lock a --note show -- show", false),
            ("lockgate lock a b -- true", false),
            ("lockgate show lock", false),
        ] {
            let matches = parsed(line).expect(line);
            let verb = lock_verb(&matches);
            assert_eq!(verb.is_some(), is_verb, "{line}");
            match verb {
                Some(verb) => drop(verb.expect(line)),
                None => drop(Cli::from_arg_matches(&matches).expect(line)),
            }
        }
        for line in [
            "lockgate lock",
            "lockgate lock a",
            "lockgate lock show",
            "lockgate lock -- true",
            "lockgate lock run -- true",
            "lockgate lock run a",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_commands_are_well_defined() {
        program(&[]).debug_assert();
        Cli::command().debug_assert();
    }
}
