//! Attack in which one caller acquires and releases many locks, so that each node records many holds and events.

use anyhow::Context;
use cli_support::http_client::Connection;
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::floods::{error_name, sum_outcomes};
use super::{AttackContext, AttackOutcome};
use crate::nodes::Nodes;

/// Locks per request, which is the limit.
const LOCKS_PER_REQUEST: usize = 64;

/// Number of connections, with a session each.
const CONNECTIONS: usize = 3;

/// Acquires and releases locks on several connections until the attack ends.
pub async fn cycle(context: &AttackContext) -> anyhow::Result<AttackOutcome> {
    let mut callers = JoinSet::new();
    for number in 0..CONNECTIONS {
        let (nodes, stop) = (context.callers.clone(), context.stop.clone());
        callers.spawn_local(
            async move {
                let mut outcome = AttackOutcome::default();
                let cycled = tokio::select! {
                    cycled = cycle_on_connection(&nodes, number, &mut outcome) => cycled,
                    () = stop.cancelled() => Ok(()),
                };
                if let Err(error) = cycled {
                    outcome.answer(error_name(&error));
                }
                outcome
            }
            .boxed_local(),
        );
    }
    sum_outcomes(callers).await
}

/// Acquires and releases locks on one connection. Returns only with an error.
async fn cycle_on_connection(
    nodes: &Nodes,
    number: usize,
    outcome: &mut AttackOutcome,
) -> anyhow::Result<()> {
    let mut connection = nodes.connect(number).await?;
    let opened = connection
        .send("POST", "/v1/sessions", "{\"ttl_ms\": 60000}")
        .await?
        .json();
    let session = opened["session"].as_str().context("the node opened no session")?;
    let lock = |at| json!({ "name": format!("attack-holds/{number}-{at}") });
    let locks: Vec<Value> = (0..LOCKS_PER_REQUEST).map(lock).collect();
    let acquire = json!({ "session": session, "locks": locks }).to_string();
    loop {
        let granted = send(&mut connection, "acquire", &acquire, outcome).await?;
        let held = granted["holders"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let held = held
            .iter()
            .map(|grant| json!({ "lock": grant["lock"], "holder": grant["holder"] }));
        let release = json!({ "session": session, "holders": held.collect::<Vec<_>>() }).to_string();
        send(&mut connection, "release", &release, outcome).await?;
    }
}

async fn send(
    connection: &mut Connection,
    verb: &str,
    body: &str,
    outcome: &mut AttackOutcome,
) -> anyhow::Result<Value> {
    let answer = connection
        .send("POST", &format!("/v1/multilock/{verb}"), body)
        .await?;
    outcome.attempts += 1;
    outcome.accepted += u64::from(answer.status < 300);
    outcome.answer(answer.status.to_string());
    Ok(answer.json())
}
