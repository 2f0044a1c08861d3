//! `lockgate znode transaction`: several changes of znodes, all or none.

use std::io::Read as _;

use anyhow::Context as _;
use clap::Args;
use cli_support::api_client::request_id;
use cli_support::format::Output;
use cli_support::output::shown;
use cli_support::usage::UsageError;
use serde_json::{Value, json};

use super::api::Api;
use super::exit::Failure;
use super::servers::Servers;

/// `lockgate znode transaction`
#[derive(Debug, Args)]
pub struct Arguments {
    /// Operations in the form of the HTTP API, as a JSON list: `[{"check": {"path": "/a", "version": 3}},
    /// {"set": {"path": "/b", "data": "x"}}]`; `-` reads it from standard input
    operations: String,
    /// Session of ephemeral znodes, and of the locks of `held`
    #[arg(long)]
    session: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// Runs `lockgate znode transaction`.
pub async fn transaction(arguments: Arguments) -> Result<(), Failure> {
    let mut text = arguments.operations;
    if text == "-" {
        text.clear();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("reading standard input")?;
    }
    let operations: Value = serde_json::from_str(&text)
        .map_err(|error| anyhow::Error::from(UsageError(format!("the operations are not JSON: {error}"))))?;
    let mut body = json!({ "ops": operations, "request_id": request_id() });
    if let Some(session) = arguments.session {
        body["session"] = session.into();
    }
    let document = Api::of(&arguments.servers)?
        .call("POST", "/v1/txn", &body)
        .await?;
    let lines = || {
        let results = document["results"].as_array().into_iter().flatten();
        let lines: Vec<String> = results.map(|result| shown(&result.to_string())).collect();
        lines.join("\n")
    };
    Ok(arguments.output.say(&document, lines)?)
}
