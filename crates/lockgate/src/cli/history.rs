//! `lockgate history`: the history of a lock, from a node over HTTP, as a table or as JSON.

use anyhow::anyhow;
use clap::Args;
use cli_support::exit_code::{NOT_ALLOWED, UNAVAILABLE};
use cli_support::format::Output;
use cli_support::http_client::{self, encode_path};
use cli_support::output::shown;
use serde_json::Value;

use super::exit::Failure;
use super::servers::Servers;
use super::table::table as format_table;

/// `lockgate history`
#[derive(Debug, Args)]
pub struct Arguments {
    /// Name of the lock
    name: String,
    /// Maximum number of holds to show
    #[arg(long, value_name = "N", alias = "count", default_value_t = 20)]
    limit: usize,
    /// Continue behind the hold with this fencing token: show those with smaller ones
    #[arg(long, value_name = "TOKEN", alias = "before")]
    cursor: Option<u64>,
    #[command(flatten)]
    output: Output,
    /// Each node keeps its own history: the first that answers is shown
    #[command(flatten)]
    servers: Servers,
}

/// Runs `lockgate history`.
pub async fn history(arguments: Arguments) -> Result<(), Failure> {
    let document = ask(&arguments).await?;
    Ok(arguments.output.say(&document, || table(&document))?)
}

async fn ask(arguments: &Arguments) -> Result<Value, Failure> {
    let connection = arguments.servers.connection()?;
    let mut path = format!(
        "/v1/locks/{}/history?limit={}",
        encode_path(&arguments.name),
        arguments.limit
    );
    if let Some(cursor) = arguments.cursor {
        path.push_str(&format!("&cursor={cursor}"));
    }
    let (mut silent, mut code) = (Vec::new(), UNAVAILABLE);
    for node in connection.servers {
        match http_client::request_as(&node, &connection.credentials, "GET", &path, "").await {
            Ok(response) if response.status == 200 => return Ok(response.json()),
            Ok(response) => {
                let document = response.json();
                let detail = document["detail"].as_str().unwrap_or("no reason was given");
                silent.push(format!("{node}: {}", shown(detail)));
                match response.code().as_str() {
                    // The index is still being opened, or the node's disk is full.
                    "unavailable" => {}
                    // Another node may have a history if this one has none.
                    "no_history" => code = 1,
                    "unauthenticated" | "forbidden" => {
                        return Err(Failure::new(NOT_ALLOWED, anyhow!("{}", shown(detail))));
                    }
                    _ => return Err(anyhow!("{}", shown(detail)).into()),
                }
            }
            Err(error) => silent.push(format!("{node}: {error}")),
        }
    }
    let error = anyhow!("no node has a history of this lock: {}", silent.join("; "));
    Err(Failure::new(code, error))
}

/// Returns the history as a table.
fn table(document: &Value) -> String {
    let mut text = String::new();
    let entries = document["history"].as_array().cloned().unwrap_or_default();
    if entries.is_empty() {
        text.push_str("The history has no holds of this lock.");
    } else {
        let rows: Vec<[String; 7]> = entries.iter().map(row).collect();
        let head = ["TOKEN", "FROM", "UNTIL", "ENDED", "MODE", "WHO", "NOTE"];
        text.push_str(&format_table(head, &rows));
    }
    for gap in document["gaps"].as_array().into_iter().flatten() {
        let (from, until) = (plain(&gap["from_at"]), plain(&gap["until_at"]));
        text.push_str(&format!("\nHolds may be missing from {from} to {until}."));
    }
    if let Some(since) = document["since_at"].as_str() {
        text.push_str(&format!("\nHolds that ended before {since} are no longer kept."));
    }
    if let Some(cursor) = document["next_cursor"].as_str() {
        text.push_str(&format!("\nThere is more: --cursor {cursor}"));
    }
    text
}

fn row(entry: &Value) -> [String; 7] {
    let until = match entry["ended"].as_str() {
        None => "holds".to_owned(),
        Some("unknown") => format!(
            "{} .. {}",
            plain(&entry["last_held_at"]),
            plain(&entry["gone_at"])
        ),
        Some(_) => plain(&entry["until_at"]),
    };
    let mut ended = match entry["ended"].as_str() {
        None => "-".to_owned(),
        Some(word) => word.replace('_', " "),
    };
    if let Some(reason) = entry["reason"].as_str() {
        ended.push_str(&format!(" ({})", shown(reason)));
    }
    if let Some(by) = entry["by"].as_str() {
        ended.push_str(&format!(" by {}", shown(by)));
    }
    let mode = match (entry["limit"].as_u64(), &entry["permits"]) {
        (Some(limit), permits) => format!("{permits} of {limit}"),
        (None, _) => plain(&entry["mode"]),
    };
    let mut who = plain(&entry["session"]);
    for (before, field) in [
        (" ", "session_name"),
        ("/", "owner"),
        (" at ", "address"),
        (" in trace ", "trace_id"),
    ] {
        match entry[field].as_str() {
            None | Some("") => {}
            Some(text) => who.push_str(&format!("{before}{}", shown(text))),
        }
    }
    [
        entry["fencing_token"].to_string(),
        plain(&entry["from_at"]),
        until,
        ended,
        mode,
        who,
        shown(entry["note"].as_str().unwrap_or_default()),
    ]
}

/// Returns a text of the server; a question mark if it is unknown.
fn plain(value: &Value) -> String {
    value.as_str().unwrap_or("?").to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn history_is_shown_as_a_table() {
        let session = "5d996fd7c6557613";
        let entry = |token: u64, rest: Value| {
            let mut entry = json!({
                "fencing_token": token, "session": session, "session_name": "worker", "owner": "", "note": "a\u{1b}[2Jb",
                "address": "", "mode": "exclusive", "limit": null, "permits": 1,
                "from_at": "2026-01-01T00:00:00.000Z", "until_at": null, "ended": null,
            });
            for (field, value) in rest.as_object().unwrap() {
                entry[field] = value.clone();
            }
            entry
        };
        let document = json!({
            "history": [
                entry(9, json!({})),
                entry(7, json!({"ended": "broken", "reason": "stuck", "by": "ip:10.0.0.9", "until_at": "2026-01-01T00:00:01.000Z"})),
                entry(5, json!({"ended": "unknown", "last_held_at": "T1", "gone_at": "T2", "from_at": null, "limit": 4, "permits": 2})),
            ],
            "gaps": [{"from_at": "T1", "until_at": "T2"}],
            "since_at": null,
            "next_cursor": "5",
        });
        assert_eq!(
            table(&document),
            "TOKEN  FROM                      UNTIL                     ENDED                          MODE       WHO                      NOTE\n\
             9      2026-01-01T00:00:00.000Z  holds                     -                              exclusive  5d996fd7c6557613 worker  a\\u{1b}[2Jb\n\
             7      2026-01-01T00:00:00.000Z  2026-01-01T00:00:01.000Z  broken (stuck) by ip:10.0.0.9  exclusive  5d996fd7c6557613 worker  a\\u{1b}[2Jb\n\
             5      ?                         T1 .. T2                  unknown                        2 of 4     5d996fd7c6557613 worker  a\\u{1b}[2Jb\n\
             Holds may be missing from T1 to T2.\n\
             There is more: --cursor 5"
        );
        assert_eq!(
            table(&json!({"history": [], "gaps": [], "since_at": "T", "next_cursor": null})),
            "The history has no holds of this lock.\nHolds that ended before T are no longer kept."
        );
    }
}
