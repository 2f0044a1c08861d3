//! `lockgate status`: a cluster at a glance, from all of its members that answer.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, stdout};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use cli_support::api_client::CallError;
use cli_support::connection_options::Connection;
use cli_support::credentials::Credentials;
use cli_support::exit_code::UNAVAILABLE;
use cli_support::format::{Format, Output};
use cli_support::http_client;
use cli_support::output::{say_to_reader, shown};
use serde_json::{Value, json};

use super::exit::Failure;
use super::servers::Servers;
use super::table::table;

/// Time for the answer of one node. A live node answers at once.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// `lockgate status`
#[derive(Debug, Args)]
pub struct Arguments {
    /// Show the status again and again, until the command is interrupted
    #[arg(short, long)]
    watch: bool,
    /// Time between two looks with --watch
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = humantime::parse_duration)]
    every: Duration,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// Runs `lockgate status`.
pub async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let connection = arguments.servers.connection()?;
    loop {
        let document = look(&connection).await?;
        let has_reader = match (arguments.watch, arguments.output.format()) {
            (false, _) => {
                arguments.output.say(&document, || text(&document))?;
                true
            }
            // Clears the terminal, so that the table stays in its place.
            (true, Format::Table) if stdout().is_terminal() => {
                say_to_reader(format!("\x1b[H\x1b[2J{}", text(&document)))?
            }
            (true, Format::Table) => say_to_reader(text(&document))?,
            (true, _) => arguments.output.say_next(&document, String::new)?,
        };
        if !arguments.watch || !has_reader {
            let is_well = document["problems"].as_array().is_some_and(Vec::is_empty);
            return Ok(if is_well {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        }
        tokio::time::sleep(arguments.every).await;
    }
}

/// Asks the given servers and all members that they name.
async fn look(connection: &Connection) -> Result<Value, Failure> {
    let credentials = &connection.credentials;
    let mut views: BTreeMap<u64, Value> = BTreeMap::new();
    let mut silent = Vec::new();
    for (address, answer) in ask_all(&connection.servers, credentials).await {
        match answer {
            Ok(view) => drop(views.insert(view["node_id"].as_u64().unwrap_or_default(), view)),
            Err(Answer::Refused(refused)) => return Err(refused.into()),
            Err(Answer::Silent(why)) => silent.push(format!("{address}: {why}")),
        }
    }
    let Some(view) = best(&views) else {
        let why = shown(&silent.join("; "));
        return Err(Failure::new(UNAVAILABLE, anyhow!("no server answers: {why}")));
    };
    // Members beside the given servers. A member may have another address there than for its clients.
    let others: Vec<(u64, String)> = members(view)
        .filter(|member| !views.contains_key(&id(member)))
        .filter_map(|member| Some((id(member), member["http"].as_str()?.to_owned())))
        .collect();
    let addresses: Vec<String> = others.iter().map(|(_, address)| address.clone()).collect();
    let mut unreachable = BTreeMap::new();
    for ((node, _), (_, answer)) in others.iter().zip(ask_all(&addresses, credentials).await) {
        match answer {
            Ok(view) => drop(views.insert(*node, view)),
            Err(Answer::Refused(refused)) => drop(unreachable.insert(*node, refused.to_string())),
            Err(Answer::Silent(why)) => drop(unreachable.insert(*node, why)),
        }
    }
    Ok(summary(&views, &unreachable))
}

/// Reason why a node has no view.
enum Answer {
    Refused(CallError),
    Silent(String),
}

async fn ask_all(addresses: &[String], credentials: &Credentials) -> Vec<(String, Result<Value, Answer>)> {
    let mut asked = Vec::new();
    for address in addresses {
        let (address, credentials) = (address.clone(), credentials.clone());
        asked.push(tokio::spawn(async move {
            let request = http_client::request_as(&address, &credentials, "GET", "/v1/cluster", "");
            let answer = match tokio::time::timeout(ANSWER_TIMEOUT, request).await {
                Ok(Ok(response)) if response.status == 200 => Ok(response.json()),
                Ok(Ok(response)) => Err(Answer::Refused(CallError::Rejected {
                    status: response.status,
                    code: response.code(),
                    detail: response.json()["detail"].as_str().unwrap_or_default().to_owned(),
                })),
                Ok(Err(error)) => Err(Answer::Silent(error.to_string())),
                Err(_) => Err(Answer::Silent(format!("no answer within {ANSWER_TIMEOUT:?}"))),
            };
            (address, answer)
        }));
    }
    let mut answers = Vec::new();
    for task in asked {
        answers.push(task.await.expect("the task does not panic"));
    }
    answers
}

fn members(view: &Value) -> impl Iterator<Item = &Value> {
    view["members"].as_array().into_iter().flatten()
}

fn id(member: &Value) -> u64 {
    member["node_id"].as_u64().unwrap_or_default()
}

/// Returns the view of the leader, or else of a node that serves, of the latest term.
fn best(views: &BTreeMap<u64, Value>) -> Option<&Value> {
    let rank = |view: &&Value| {
        let is_leader = view["role"] == "leader";
        (view["ready"] == true, view["term"].as_u64(), is_leader)
    };
    views.values().max_by_key(rank)
}

/// Returns the document of the command.
fn summary(views: &BTreeMap<u64, Value>, unreachable: &BTreeMap<u64, String>) -> Value {
    let empty = Value::Null;
    let view = best(views).unwrap_or(&empty);
    let serves = view["ready"] == true;
    let mut problems = Vec::new();
    if !serves {
        let why = view["not_ready_reason"].as_str().unwrap_or("no reason was given");
        problems.push(format!("no node that answers can serve: {why}"));
    } else if view["leader"].is_null() {
        problems.push("no leader is known".to_owned());
    }
    if view["read_only"] == true {
        problems.push("the cluster is read-only: disk space is low".to_owned());
    }
    let mut rows = Vec::new();
    for member in members(view) {
        let node = id(member);
        let own = views.get(&node).unwrap_or(&empty);
        if let Some(why) = unreachable.get(&node) {
            problems.push(format!("node {node} does not answer: {why}"));
        } else if serves && own["ready"] == false {
            let why = own["not_ready_reason"].as_str().unwrap_or("no reason was given");
            problems.push(format!("node {node} cannot serve: {why}"));
        }
        rows.push(json!({
            "node_id": node,
            "role": member["role"],
            "http": member["http"],
            "reachable": own.is_object(),
            "ready": own["ready"],
            // A node without a quorum knows nothing of the progress of the others.
            "lag": if serves { &member["lag"] } else { &empty },
            "applied_index": own["applied_index"],
            "disk": own["disk"],
            "version": match own["version"].is_null() {
                true => &member["versions"]["program"],
                false => &own["version"],
            },
        }));
    }
    for alarm in view["alarms"].as_array().into_iter().flatten() {
        let of = alarm["node_id"]
            .as_u64()
            .map_or("the cluster".to_owned(), |id| format!("node {id}"));
        let text = |field: &str| alarm[field].as_str().unwrap_or_default().to_owned();
        problems.push(format!(
            "alarm {} of {of}: {} {}",
            text("kind"),
            text("detail"),
            text("action")
        ));
    }
    json!({
        "cluster": view["cluster"],
        "cluster_id": view["cluster_id"],
        "leader": if serves { &view["leader"] } else { &empty },
        "term": view["term"],
        "read_only": view["read_only"],
        "counts": view["counts"],
        "members": rows,
        "alarms": view["alarms"],
        "problems": problems,
    })
}

/// Returns the document for people.
fn text(document: &Value) -> String {
    let number = |value: &Value| value.as_u64().map_or("-".to_owned(), |number| number.to_string());
    let megabytes = |value: &Value| {
        value
            .as_u64()
            .map_or("-".to_owned(), |bytes| format!("{} MB", bytes / 1_000_000))
    };
    let mut text = format!(
        "Cluster {}, leader {}, term {}: {} sessions, {} locks in use, {} znodes\n",
        shown(document["cluster"].as_str().unwrap_or("?")),
        number(&document["leader"]),
        number(&document["term"]),
        number(&document["counts"]["sessions"]),
        number(&document["counts"]["locks"]),
        number(&document["counts"]["znodes"]),
    );
    let rows: Vec<_> = document["members"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|member| {
            let state = match (&member["reachable"], &member["ready"]) {
                (Value::Bool(false), _) => "no answer",
                (_, Value::Bool(true)) => "serves",
                _ => "not ready",
            };
            [
                number(&member["node_id"]),
                member["role"].as_str().unwrap_or("?").to_owned(),
                state.to_owned(),
                number(&member["lag"]),
                megabytes(&member["disk"]["free_bytes"]),
                member["version"].as_str().unwrap_or("?").to_owned(),
                member["http"].as_str().unwrap_or_default().to_owned(),
            ]
        })
        .collect();
    let headings = ["NODE", "ROLE", "STATE", "LAG", "DISK FREE", "VERSION", "HTTP"];
    text.push_str(&table(headings, &rows));
    let problems = document["problems"].as_array().into_iter().flatten();
    for problem in problems.filter_map(Value::as_str) {
        write!(text, "\nPROBLEM: {}", shown(problem)).expect("memory takes it");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(node: u64, ready: bool, term: u64) -> Value {
        json!({
            "cluster": "test", "node_id": node, "role": if node == 1 { "leader" } else { "follower" }, "leader": 1, "term": term,
            "ready": ready, "not_ready_reason": "it hears of no leader", "read_only": false, "alarms": [], "version": "0.1.0",
            "counts": { "sessions": 2, "locks": 1, "znodes": 5 }, "disk": { "free_bytes": 7_000_000 },
            "members": [
                { "node_id": 1, "role": "leader", "lag": 0, "http": "a:1" },
                { "node_id": 2, "role": "follower", "lag": 3, "http": "b:1" },
            ],
        })
    }

    #[test]
    fn healthy_cluster_has_no_problems() {
        let views = BTreeMap::from([(1, view(1, true, 4)), (2, view(2, true, 4))]);
        let document = summary(&views, &BTreeMap::new());
        assert_eq!(document["problems"], json!([]));
        assert_eq!(
            text(&document),
            "Cluster test, leader 1, term 4: 2 sessions, 1 locks in use, 5 znodes\n\
             NODE  ROLE      STATE   LAG  DISK FREE  VERSION  HTTP\n\
             1     leader    serves  0    7 MB       0.1.0    a:1\n\
             2     follower  serves  3    7 MB       0.1.0    b:1"
        );
    }

    #[test]
    fn silent_member_is_a_problem() {
        let views = BTreeMap::from([(1, view(1, true, 4))]);
        let silent = BTreeMap::from([(2, "connection refused".to_owned())]);
        let document = summary(&views, &silent);
        assert_eq!(
            document["problems"],
            json!(["node 2 does not answer: connection refused"])
        );
        assert!(
            text(&document).contains("2     follower  no answer"),
            "{}",
            text(&document)
        );
    }

    #[test]
    fn isolated_leader_shows_neither_lag_nor_leader() {
        let views = BTreeMap::from([(1, view(1, false, 4))]);
        let silent = BTreeMap::from([(2, "no answer".to_owned())]);
        let document = summary(&views, &silent);
        assert_eq!(
            (&document["leader"], &document["members"][0]["lag"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(document["problems"].as_array().unwrap().len(), 2);
        // A node of the other side is believed.
        let views = BTreeMap::from([(1, view(1, false, 4)), (2, view(2, true, 5))]);
        let document = summary(&views, &BTreeMap::new());
        assert_eq!(document["term"], 5);
        assert_eq!(
            document["problems"],
            json!(["node 1 cannot serve: it hears of no leader"])
        );
    }
}
