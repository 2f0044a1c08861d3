//! `lockgate namespace`: quotas and usage of namespaces.

use clap::{Args, Subcommand};
use cli_support::format::Output;
use cli_support::output::{say, shown};
use lock_client::{NamespaceQuotas, NamespaceView};
use znode_store::{BadNamespace, NamespaceName};

use super::exit::Failure;
use super::servers::Servers;
use super::table::table;

/// Parses the name of a namespace.
fn namespace(text: &str) -> Result<String, BadNamespace> {
    NamespaceName::parse(text).map(|_| text.to_owned())
}

/// Commands on namespaces. A namespace is the first component of a lock's name or of a znode's path.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the namespaces with quotas that the caller may see, as USAGE/QUOTA
    List(List),
    /// Show usage and quotas of a namespace
    Show(Show),
    /// Set the quotas of a namespace; quotas without an option are removed
    Set(Set),
    /// Remove the quotas of a namespace; its locks and znodes stay
    Delete(Delete),
}

/// `lockgate namespace list`
#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate namespace show`
#[derive(Debug, Args)]
pub struct Show {
    /// The namespace
    #[arg(value_parser = namespace)]
    name: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate namespace set`
#[derive(Debug, Args)]
pub struct Set {
    /// The namespace
    #[arg(value_parser = namespace)]
    name: String,
    /// Maximum number of sessions and leases with a lock or an ephemeral znode
    #[arg(long, value_name = "N")]
    sessions: Option<u64>,
    /// Maximum number of locks with a holder or a waiter
    #[arg(long, value_name = "N")]
    locks: Option<u64>,
    /// Maximum number of znodes, those of locks and contenders included
    #[arg(long, value_name = "N")]
    znodes: Option<u64>,
    /// Maximum number of bytes of data of these znodes
    #[arg(long, value_name = "N")]
    bytes: Option<u64>,
    /// Maximum rate of changes at each node
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    requests_per_second: Option<u32>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate namespace delete`
#[derive(Debug, Args)]
pub struct Delete {
    /// The namespace
    #[arg(value_parser = namespace)]
    name: String,
    #[command(flatten)]
    servers: Servers,
}

/// Runs a command.
pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(List { output, servers }) => {
            let namespaces = servers.client()?.namespaces().await?;
            let row = |view: &NamespaceView| {
                let [sessions, locks, znodes, bytes, rate] = numbers(view).map(|(_, number)| number);
                [view.namespace.clone(), sessions, locks, znodes, bytes, rate]
            };
            let rows: Vec<_> = namespaces.iter().map(row).collect();
            let headings = ["NAMESPACE", "SESSIONS", "LOCKS", "ZNODES", "BYTES", "REQUESTS/S"];
            Ok(output.say(&namespaces, || table(headings, &rows))?)
        }
        Command::Show(Show {
            name,
            output,
            servers,
        }) => {
            let view = servers.client()?.namespace(&name).await?;
            Ok(output.say(&view, || in_lines(&view))?)
        }
        Command::Set(Set {
            name,
            sessions,
            locks,
            znodes,
            bytes,
            requests_per_second,
            output,
            servers,
        }) => {
            let quotas = NamespaceQuotas {
                sessions,
                locks,
                znodes,
                bytes,
                requests_per_second,
            };
            let view = servers.client()?.set_namespace_quotas(&name, &quotas).await?;
            Ok(output.say(&view, || in_lines(&view))?)
        }
        Command::Delete(Delete { name, servers }) => {
            servers.client()?.delete_namespace(&name).await?;
            Ok(say(format!("namespace {} has no quotas", shown(&name)))?)
        }
    }
}

/// Returns each quantity with its usage and quota: `40/1000`, or `40/-` without a quota. The rate has no usage.
fn numbers(view: &NamespaceView) -> [(&'static str, String); 5] {
    let (usage, quotas) = (&view.usage, &view.quotas);
    let of = |limit: Option<u64>| limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string());
    [
        ("sessions", format!("{}/{}", usage.sessions, of(quotas.sessions))),
        ("locks", format!("{}/{}", usage.locks, of(quotas.locks))),
        ("znodes", format!("{}/{}", usage.znodes, of(quotas.znodes))),
        ("bytes", format!("{}/{}", usage.bytes, of(quotas.bytes))),
        (
            "requests per second",
            of(quotas.requests_per_second.map(u64::from)),
        ),
    ]
}

fn in_lines(view: &NamespaceView) -> String {
    let lines = numbers(view).map(|(what, number)| format!("{what:<19}  {number}"));
    format!(
        "{:<19}  {}\n{}",
        "namespace",
        shown(&view.namespace),
        lines.join("\n")
    )
}
