//! `lockgate events`: the event feed of a node, one event on each line.

use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use cli_support::api_client::CallError;
use cli_support::exit_code::UNAVAILABLE;
use cli_support::format::Output;
use cli_support::http_client::{encode_query, stream_lines};
use cli_support::output::shown;
use cli_support::signals;
use serde_json::Value;

use super::exit::Failure;
use super::servers::Servers;

/// Time without a message after which a node has sent all its past events.
const QUIET: Duration = Duration::from_millis(500);

/// `lockgate events`
#[derive(Debug, Args)]
pub struct Arguments {
    /// Only events of locks whose names have this prefix
    prefix: Option<String>,
    /// Stay connected, and print events as they happen
    #[arg(short, long)]
    follow: bool,
    /// Number of past events to print first
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(..=1000))]
    last: u32,
    /// Also print events of the cluster: changes of the leader and of the members, alarms
    #[arg(long)]
    cluster: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// Runs `lockgate events`. With `--follow` it goes on at the next server when one ends its stream.
pub async fn events(arguments: Arguments) -> Result<(), Failure> {
    tokio::select! {
        done = follow(&arguments) => done,
        interrupted = signals::interrupted() => Ok(interrupted?),
    }
}

async fn follow(arguments: &Arguments) -> Result<(), Failure> {
    let connection = arguments.servers.connection()?;
    let (mut failures, mut after): (Vec<String>, Option<String>) = (Vec::new(), None);
    for node in connection.servers.iter().cycle() {
        let mut path = format!("/v1/events?cluster={}", arguments.cluster);
        match &after {
            Some(id) => path.push_str(&format!("&zxid={}", encode_query(id))),
            None => path.push_str(&format!("&last={}", arguments.last)),
        }
        if let Some(prefix) = &arguments.prefix {
            path.push_str(&format!("&prefix={}", encode_query(prefix)));
        }
        let mut has_reader = true;
        let stream = stream_lines(node, &connection.credentials, &path, |line| {
            if let Some(id) = line.strip_prefix("id: ") {
                after = Some(id.to_owned());
            }
            if let Some(data) = line.strip_prefix("data: ") {
                has_reader = print(&serde_json::from_str(data)?, arguments.output)?;
                return Ok(has_reader && arguments.follow);
            }
            Ok(true)
        });
        let ended = match arguments.follow {
            true => stream.await,
            // A node without past events sends nothing.
            false => match tokio::time::timeout(QUIET, stream).await {
                Ok(ended) => ended,
                Err(_) => return Ok(()),
            },
        };
        match ended {
            Ok(response) if response.status == 200 => {
                if !has_reader || !arguments.follow {
                    return Ok(());
                }
                failures.clear();
            }
            Ok(response) if response.status == 503 || response.status == 429 => {
                failures.push(format!(
                    "{node}: {}",
                    response.json()["detail"].as_str().unwrap_or_default()
                ));
            }
            Ok(response) => {
                let (status, code) = (response.status, response.code());
                let detail = response.json()["detail"].as_str().unwrap_or_default().to_owned();
                return Err(CallError::Rejected { status, code, detail }.into());
            }
            Err(error) => failures.push(format!("{node}: {error}")),
        }
        if failures.len() >= connection.servers.len() {
            let why = shown(&failures.join("; "));
            return Err(Failure::new(
                UNAVAILABLE,
                anyhow!("no server sends events: {why}"),
            ));
        }
    }
    Ok(())
}

/// Prints the events of one message. Returns whether the output still has a reader.
fn print(message: &Value, output: Output) -> anyhow::Result<bool> {
    let of = |list: &str| message[list].as_array().cloned().unwrap_or_default();
    for event in of("cluster").into_iter().chain(of("events")) {
        if !output.say_next(&event, || line(&event))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns an event as a line: time and event, then the other fields.
fn line(event: &Value) -> String {
    let text = |name: &str| event[name].as_str().unwrap_or("?").to_owned();
    let mut line = format!("{}  {:<17}", text("at"), text("event"));
    for (name, value) in event.as_object().into_iter().flatten() {
        let value = match value {
            Value::Null => continue,
            Value::String(text) if text.is_empty() => continue,
            Value::String(text) => shown(text),
            other => other.to_string(),
        };
        if !matches!(name.as_str(), "at" | "event" | "id") {
            line.push_str(&format!("  {name}={value}"));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn event_is_one_line_without_control_characters() {
        let event = json!({
            "id": "7.1", "event": "granted", "at": "T", "lock": "a", "note": "x\n\u{1b}", "owner": "", "limit": null, "permits": 1,
        });
        assert_eq!(
            line(&event),
            "T  granted            lock=a  note=x\\n\\u{1b}  permits=1"
        );
    }
}
