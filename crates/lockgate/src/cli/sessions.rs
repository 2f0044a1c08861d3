//! `lockgate session`: views of sessions, their events, and the end of a session by an operator.

use std::time::Duration;

use clap::{Args, Subcommand};
use cli_support::api_client::request_id;
use cli_support::format::Output;
use cli_support::http_client::{encode_path, encode_query};
use cli_support::output::{say, shown};
use lock_client::SessionView;
use serde_json::Value;

use super::api::Api;
use super::exit::Failure;
use super::servers::Servers;
use super::table::table;

/// Commands on sessions.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the sessions
    List(List),
    /// Show a session with its locks
    Show(Show),
    /// End a session: its locks, waiting contenders and ephemeral znodes are gone
    End(End),
}

/// `lockgate session list`
#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate session show`
#[derive(Debug, Args)]
pub struct Show {
    /// Id of the session
    session: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate session end`
#[derive(Debug, Args)]
pub struct End {
    /// Id of the session
    session: String,
    /// Reason, recorded in the audit log
    #[arg(long, default_value = "")]
    reason: String,
    #[command(flatten)]
    servers: Servers,
}

/// Runs a command.
pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(arguments) => list(arguments).await,
        Command::Show(arguments) => show(arguments).await,
        Command::End(arguments) => {
            let (session, reason) = (encode_path(&arguments.session), encode_query(&arguments.reason));
            let path = format!(
                "/v1/sessions/{session}?reason={reason}&request_id={}",
                request_id()
            );
            Api::of(&arguments.servers)?
                .call("DELETE", &path, &Value::Null)
                .await?;
            Ok(say(format!("session {} has ended", shown(&arguments.session)))?)
        }
    }
}

/// Runs `lockgate session list`.
pub async fn list(arguments: List) -> Result<(), Failure> {
    let sessions = arguments.servers.client()?.sessions().await?;
    let seconds = |ms: u64| humantime::format_duration(Duration::from_secs(ms / 1000)).to_string();
    let row = |session: &SessionView| {
        [
            session.session.clone(),
            session.name.clone(),
            humantime::format_duration(Duration::from_millis(session.ttl_ms)).to_string(),
            seconds(session.age_ms),
            session.address.clone(),
            session.held.len().to_string(),
            session.awaited.len().to_string(),
        ]
    };
    let rows: Vec<_> = sessions.iter().map(row).collect();
    let headings = ["SESSION", "NAME", "TTL", "AGE", "ADDRESS", "HOLDS", "AWAITS"];
    Ok(arguments.output.say(&sessions, || table(headings, &rows))?)
}

async fn show(arguments: Show) -> Result<(), Failure> {
    let path = format!(
        "/v1/sessions/{}?linearizable=true",
        encode_path(&arguments.session)
    );
    let document = Api::of(&arguments.servers)?.get(&path).await?;
    if arguments.output.is_document() {
        return Ok(arguments.output.say(&document, String::new)?);
    }
    let text = |field: &str| shown(document[field].as_str().unwrap_or("-"));
    let ms = |field: &str| {
        let ms = document[field].as_u64().unwrap_or_default();
        humantime::format_duration(Duration::from_millis(ms)).to_string()
    };
    let mut lines = vec![
        format!("session  {}", text("session")),
        format!("name     {}", text("name")),
        format!("address  {}", text("address")),
        format!("ttl      {}", ms("ttl_ms")),
        format!("age      {}", ms("age_ms")),
    ];
    for (field, verb) in [("held", "holds"), ("awaited", "awaits")] {
        for lock in document[field].as_array().into_iter().flatten() {
            let (lock, holder) = (lock["lock"].as_str(), lock["holder"].as_str());
            lines.push(format!(
                "{verb:<7}  {} ({})",
                shown(lock.unwrap_or_default()),
                shown(holder.unwrap_or_default())
            ));
        }
    }
    Ok(say(lines.join("\n"))?)
}
