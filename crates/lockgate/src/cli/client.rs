//! Commands that call a running cluster, as any program can: nouns with verbs behind them, and short forms.

use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use cli_support::usage::UsageError;

use super::exit::Failure;
use super::lock_verbs::LockVerb;
use super::{
    access, election, events, history, lease, lock_command, lock_verbs, locks, namespace, policy, sessions,
    status, token, znodes,
};

/// Commands of a client.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show a cluster at a glance; the exit code is 1 if something is wrong
    Status(status::Arguments),
    /// Run a command while holding locks: `lockgate lock run`; or show, break or configure locks
    #[command(override_usage = "\
lockgate lock [OPTIONS] <NAME>... -- <COMMAND>...
       lockgate lock <VERB> ...")]
    Lock(lock_command::Arguments),
    /// Acquire a lock for a time, and renew or release it by another command
    Lease {
        #[command(subcommand)]
        command: lease::Command,
    },
    /// Run a command while its candidate leads; show, observe or replace the leader
    Election {
        #[command(subcommand)]
        command: election::Command,
    },
    /// Acquire a lock for a time: `lockgate lease acquire`
    Acquire(lease::Acquire),
    /// Renew a lease: `lockgate lease renew`
    Renew(lease::Renew),
    /// Release a lease: `lockgate lease release`
    Release(lease::Release),
    /// List, show or end sessions
    Session {
        #[command(subcommand)]
        command: sessions::Command,
    },
    /// Read, write and watch znodes
    Znode {
        #[command(subcommand)]
        command: znodes::Command,
    },
    /// Secure a cluster; create tokens; define roles
    Auth {
        #[command(subcommand)]
        command: Auth,
    },
    /// Bound the usage of tenants: list, show, set and delete quotas of namespaces
    Namespace {
        #[command(subcommand)]
        command: namespace::Command,
    },
    /// Serve locks to an AI agent: a server of the Model Context Protocol on standard input and output
    #[cfg(feature = "mcp")]
    Mcp(super::mcp::Arguments),
    /// Print what happens to locks and sessions
    Events(events::Arguments),
    /// List the locks: `lockgate lock list`
    Locks(locks::List),
    /// Show the holders and the waiters of a lock: `lockgate lock show`
    Show(locks::Show),
    /// Take a lock from its holder by force: `lockgate lock break`
    Break(locks::Break),
    /// Ask the holders of a lock to release it: `lockgate lock request-release`
    RequestRelease(locks::RequestRelease),
    /// Former name of `lockgate request-release`
    #[command(hide = true)]
    Revoke {
        /// Arguments of the former command
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Stop new grants of a lock, and new waiters: `lockgate lock drain`
    Drain(locks::Drain),
    /// Set the number of permits of a semaphore: `lockgate lock limit`
    Limit(locks::Limit),
    /// Show the past and present holders of a lock: `lockgate lock history`
    History(history::Arguments),
    /// List the sessions: `lockgate session list`
    Sessions(sessions::List),
    #[command(flatten)]
    ZnodeVerb(znodes::Command),
    #[command(flatten)]
    AuthVerb(Auth),
}

/// Commands on access control.
#[derive(Debug, Subcommand)]
pub enum Auth {
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

/// Short forms of commands behind nouns. Help lists the long forms.
pub const SHORT_FORMS: [&str; 23] = [
    "acquire",
    "renew",
    "release",
    "locks",
    "show",
    "break",
    "request-release",
    "drain",
    "limit",
    "history",
    "sessions",
    "ls",
    "get",
    "set",
    "create",
    "rm",
    "stat",
    "watch",
    "acl",
    "transaction",
    "access",
    "token",
    "policy",
];

/// Runs a command.
pub fn run(command: Command) -> Result<ExitCode, Failure> {
    runtime()?.block_on(async {
        let done = match command {
            Command::Lock(arguments) => return lock_command::run(arguments).await,
            Command::Status(arguments) => return status::run(arguments).await,
            Command::Election { command } => return election::run(command).await,
            Command::Lease { command } => lease::run(command).await,
            Command::Acquire(arguments) => lease::acquire(arguments).await,
            Command::Renew(arguments) => lease::renew(arguments).await,
            Command::Release(arguments) => lease::release(arguments).await,
            Command::Session { command } => sessions::run(command).await,
            Command::Znode { command } | Command::ZnodeVerb(command) => znodes::run(command).await,
            Command::Auth { command } | Command::AuthVerb(command) => match command {
                Auth::Access { command } => access::run(command).await,
                Auth::Token { command } => token::run(command).await,
                Auth::Policy { command } => policy::run(command).await,
            },
            Command::Namespace { command } => namespace::run(command).await,
            #[cfg(feature = "mcp")]
            Command::Mcp(arguments) => super::mcp::run(arguments).await,
            Command::Events(arguments) => events::events(arguments).await,
            Command::Locks(arguments) => locks::list(arguments).await,
            Command::Show(arguments) => locks::show(arguments).await,
            Command::Break(arguments) => locks::break_lock(arguments).await,
            Command::RequestRelease(arguments) => locks::request_release(arguments).await,
            Command::Revoke { .. } => {
                let use_instead = "`lockgate revoke` is `lockgate request-release` now";
                Err(anyhow::Error::from(UsageError(use_instead.to_owned())).into())
            }
            Command::Drain(arguments) => locks::drain(arguments).await,
            Command::Limit(arguments) => locks::limit(arguments).await,
            Command::History(arguments) => history::history(arguments).await,
            Command::Sessions(arguments) => sessions::list(arguments).await,
        };
        done.map(|()| ExitCode::SUCCESS)
    })
}

/// Runs a verb of `lockgate lock`.
pub fn run_lock_verb(verb: LockVerb) -> Result<ExitCode, Failure> {
    runtime()?.block_on(lock_verbs::run(verb))
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("starting the runtime")
}
