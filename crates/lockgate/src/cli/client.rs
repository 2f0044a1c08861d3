//! Commands that call a running cluster with the Rust client, as any program can.

use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;

use super::exit::Failure;
use super::{access, history, lock_command, locks, policy, token, znodes};

/// Commands of a client.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command while holding a lock
    Lock(lock_command::Arguments),
    /// List the locks
    Locks(locks::List),
    /// Show the holders and the waiters of a lock
    Show(locks::Show),
    /// Take a lock from its holder by force; the holder may still act as if it held it
    Break(locks::Break),
    /// Ask the holders of a lock to release it
    Revoke(locks::Revoke),
    /// Stop new grants of a lock, and new waiters
    Drain(locks::Drain),
    /// Set the number of permits of a semaphore
    Limit(locks::Limit),
    /// List the sessions
    Sessions(locks::Sessions),
    /// Show the past and present holders of a lock, from the history of a node
    History(history::Arguments),
    /// List the children of a znode
    Ls(znodes::Ls),
    /// Print the data of a znode
    Get(znodes::Get),
    /// Replace the data of a znode
    Set(znodes::Set),
    /// Create a znode
    Create(znodes::Create),
    /// Delete a znode
    Rm(znodes::Rm),
    /// Show the stat of a znode
    Stat(znodes::Stat),
    /// Wait for changes of a znode
    Watch(znodes::Watch),
    /// Secure a cluster, or show whether it is secured
    Access {
        #[command(subcommand)]
        command: access::Command,
    },
    /// Create, list and revoke tokens
    Token {
        #[command(subcommand)]
        command: token::Command,
    },
    /// Define roles, and assign them to certificates
    Policy {
        #[command(subcommand)]
        command: policy::Command,
    },
}

/// Runs a command.
pub fn run(command: Command) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("starting the runtime")?.block_on(async {
        let done = match command {
            Command::Lock(arguments) => return lock_command::run(arguments).await,
            Command::Locks(arguments) => locks::list(arguments).await,
            Command::Show(arguments) => locks::show(arguments).await,
            Command::Break(arguments) => locks::break_lock(arguments).await,
            Command::Revoke(arguments) => locks::revoke(arguments).await,
            Command::Drain(arguments) => locks::drain(arguments).await,
            Command::Limit(arguments) => locks::limit(arguments).await,
            Command::Sessions(arguments) => locks::sessions(arguments).await,
            Command::History(arguments) => history::history(arguments).await,
            Command::Ls(arguments) => znodes::ls(arguments).await,
            Command::Get(arguments) => znodes::get(arguments).await,
            Command::Set(arguments) => znodes::set(arguments).await,
            Command::Create(arguments) => znodes::create(arguments).await,
            Command::Rm(arguments) => znodes::rm(arguments).await,
            Command::Stat(arguments) => znodes::stat(arguments).await,
            Command::Watch(arguments) => znodes::watch(arguments).await,
            Command::Access { command } => access::run(command).await,
            Command::Token { command } => token::run(command).await,
            Command::Policy { command } => policy::run(command).await,
        };
        done.map(|()| ExitCode::SUCCESS)
    })
}
