//! The commands that ask a running cluster, as any program could: what can be said, and to which servers.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use cli_support::connection_options::ConnectionOptions;
use cli_support::credentials::Credentials;
use lock_client::LockClient;

use super::exit::Failure;
use super::{access, history, locks, policy, run, token, znodes};

/// The nodes of `lockgate cluster up`.
const LOCAL_SERVERS: &str = "127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403";

/// Which servers are asked.
#[derive(Debug, Args)]
pub struct Servers {
    /// Addresses (host:port) of some servers of the cluster; one that does not serve is passed over
    #[arg(
        long = "server",
        value_name = "ADDRESS",
        env = "LOCKGATE_SERVERS",
        value_delimiter = ',',
        default_value = LOCAL_SERVERS,
        hide_default_value = true
    )]
    servers: Vec<String>,
    /// For how long a request is tried at all of them
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = humantime::parse_duration)]
    patience: Duration,
    #[command(flatten)]
    secured: ConnectionOptions,
}

impl Servers {
    /// A client of them.
    pub fn client(&self) -> anyhow::Result<LockClient> {
        let Credentials { tls, token, insecure } = self.credentials()?;
        let mut builder = LockClient::builder(&self.servers).patience(self.patience);
        if let Some(tls) = tls {
            builder = builder.tls(tls);
        }
        if let Some(token) = token {
            ensure!(
                !token.is_operators() || self.servers.len() == 1,
                "an operator's token counts at its own node alone: name that one with --server"
            );
            builder = builder.token(token).insecure(insecure);
        }
        builder.build().context("--server")
    }

    /// What protects connections to them, and what is shown over them.
    pub fn credentials(&self) -> anyhow::Result<Credentials> {
        self.secured.credentials()
    }
}

/// The commands of a client.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command while holding a lock
    Lock(run::Arguments),
    /// List the locks
    Locks(locks::List),
    /// Show who holds a lock, and who waits for it
    Show(locks::Show),
    /// Take a lock away from its holder, whatever that still does under it
    Break(locks::Break),
    /// Ask the holders of a lock to give it up
    Revoke(locks::Revoke),
    /// Let nobody new in to a lock, nor into its queue
    Drain(locks::Drain),
    /// Set how many permits a semaphore has
    Limit(locks::Limit),
    /// List the sessions
    Sessions(locks::Sessions),
    /// Show who held a lock and who holds it, as a node remembers it
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
    /// Show all that is known of a znode but its data
    Stat(znodes::Stat),
    /// Wait for changes of a znode
    Watch(znodes::Watch),
    /// Secure a cluster, or see whether it is
    Access {
        #[command(subcommand)]
        command: access::Command,
    },
    /// Make, list and revoke tokens
    Token {
        #[command(subcommand)]
        command: token::Command,
    },
    /// Say what roles allow, and which certificates have one
    Policy {
        #[command(subcommand)]
        command: policy::Command,
    },
}

/// Does what is asked for.
pub fn carry_out(command: Command) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("starting the runtime")?.block_on(async {
        let done = match command {
            Command::Lock(arguments) => return run::run(arguments).await,
            Command::Locks(arguments) => locks::list(arguments).await,
            Command::Show(arguments) => locks::show(arguments).await,
            Command::Break(arguments) => locks::take_away(arguments).await,
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
