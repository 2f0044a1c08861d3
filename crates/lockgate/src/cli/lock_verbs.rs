//! `lockgate lock VERB`: commands on locks, behind their noun.

use std::process::ExitCode;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use cli_support::format::Output;
use cli_support::http_client::{encode_path, encode_query};
use cli_support::output::shown;
use serde_json::Value;

use super::api::Api;
use super::exit::Failure;
use super::servers::Servers;
use super::table::table;
use super::{history, lock_command, locks};

/// Commands on locks.
#[derive(Debug, Subcommand)]
pub enum LockVerb {
    /// Run a command while holding locks (`lockgate lock NAME -- COMMAND`)
    Run(Box<lock_command::Arguments>),
    /// List the locks (`lockgate locks`)
    List(locks::List),
    /// Show the holders and the waiters of a lock (`lockgate show`)
    Show(locks::Show),
    /// Take a lock from its holder by force; the holder may still act as if it held it (`lockgate break`)
    Break(locks::Break),
    /// Ask the holders of a lock to release it (`lockgate request-release`)
    RequestRelease(locks::RequestRelease),
    /// Stop new grants of a lock, and new waiters (`lockgate drain`)
    Drain(locks::Drain),
    /// Set the number of permits of a semaphore (`lockgate limit`)
    Limit(locks::Limit),
    /// Show the past and present holders of a lock, from the history of a node (`lockgate history`)
    History(history::Arguments),
    /// Show the wait-for graph: each waiter, with the holders and waiters ahead of it
    Graph(Graph),
    /// Check whether a lock is held with this fencing token; the exit code is 1 if it is not
    Check(Check),
}

/// `lockgate lock graph`
#[derive(Debug, Args)]
pub struct Graph {
    /// Only locks whose names have this prefix
    #[arg(default_value = "")]
    prefix: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate lock check`
#[derive(Debug, Args)]
pub struct Check {
    /// Name of the lock
    name: String,
    /// Fencing token of the grant
    token: u64,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// Runs a command.
pub async fn run(verb: LockVerb) -> Result<ExitCode, Failure> {
    let done = match verb {
        LockVerb::Run(arguments) => return lock_command::run(*arguments).await,
        LockVerb::List(arguments) => locks::list(arguments).await,
        LockVerb::Show(arguments) => locks::show(arguments).await,
        LockVerb::Break(arguments) => locks::break_lock(arguments).await,
        LockVerb::RequestRelease(arguments) => locks::request_release(arguments).await,
        LockVerb::Drain(arguments) => locks::drain(arguments).await,
        LockVerb::Limit(arguments) => locks::limit(arguments).await,
        LockVerb::History(arguments) => history::history(arguments).await,
        LockVerb::Graph(arguments) => graph(arguments).await,
        LockVerb::Check(arguments) => check(arguments).await,
    };
    done.map(|()| ExitCode::SUCCESS)
}

async fn graph(arguments: Graph) -> Result<(), Failure> {
    let prefix = encode_query(&arguments.prefix);
    let path = format!("{GRAPH_PATH}?linearizable=true&prefix={prefix}");
    let document = Api::of(&arguments.servers)?.get(&path).await?;
    Ok(arguments.output.say(&document, || graph_text(&document))?)
}

/// Path of the wait graph.
const GRAPH_PATH: &str = "/v1/lock-graph";

/// Returns the graph as a table: a row for each pair of a waiter and a party that it waits for.
fn graph_text(document: &Value) -> String {
    let party = |party: &Value| {
        let text = |field: &str| party[field].as_str().unwrap_or_default().to_owned();
        let mut text_of = text("session");
        for (before, field) in [(" ", "session_name"), ("/", "owner")] {
            if !text(field).is_empty() {
                text_of.push_str(&format!("{before}{}", text(field)));
            }
        }
        text_of
    };
    let mut rows = Vec::new();
    for wait in document["waits"].as_array().into_iter().flatten() {
        let lock = wait["lock"].as_str().unwrap_or_default().to_owned();
        let others = wait["waits_for"].as_array().cloned().unwrap_or_default();
        if others.is_empty() {
            let closed = "drained or closed".to_owned();
            rows.push([lock.clone(), party(&wait["waiter"]), closed, String::new()]);
        }
        for other in &others {
            let standing = other["standing"].as_str().unwrap_or_default().to_owned();
            rows.push([lock.clone(), party(&wait["waiter"]), party(other), standing]);
        }
        if wait["more"] == true {
            rows.push([
                lock,
                party(&wait["waiter"]),
                "and others".to_owned(),
                String::new(),
            ]);
        }
    }
    let mut text = match rows.is_empty() {
        true => "There are no waiters.".to_owned(),
        false => table(["LOCK", "WAITER", "WAITS FOR", "WHICH"], &rows),
    };
    if document["complete"] == false {
        text.push_str("\nNot all waits are shown: there are too many.");
    }
    text
}

async fn check(arguments: Check) -> Result<(), Failure> {
    let (name, token) = (encode_path(&arguments.name), arguments.token);
    let path = format!("/v1/locks/{name}/check?fencing_token={token}");
    let document = Api::of(&arguments.servers)?.get(&path).await?;
    let is_held = document["held"] == true;
    let shown_name = shown(&arguments.name);
    if !is_held {
        if arguments.output.is_document() {
            arguments.output.say(&document, String::new)?;
        }
        return Err(anyhow!("the lock {shown_name} is not held with the token {token}").into());
    }
    let text = || format!("the lock {shown_name} is held with the token {token}");
    Ok(arguments.output.say(&document, text)?)
}
