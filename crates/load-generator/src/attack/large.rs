//! Attacks in which one caller creates something large and then sends requests whose cost grows with its
//! size.

use anyhow::{Context, ensure};
use cli_support::http_client::Connection;
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::floods::{error_name, sum_outcomes};
use super::{AttackContext, AttackOutcome};

/// Locks per request, which is the limit.
const LOCKS_PER_REQUEST: usize = 64;

/// Locks that a session acquires: most of the 100,000 ephemeral znodes that it may have.
const LOCKS: usize = 96_000;

/// Number of connections that read concurrently.
const READERS: usize = 8;

/// Session that holds many locks, with a connection of its own.
struct Large {
    connection: Connection,
    session: String,
}

impl Large {
    async fn open(context: &AttackContext) -> anyhow::Result<Self> {
        let mut connection = context.callers.connect(0).await?;
        let answer = connection
            .send("POST", "/v1/sessions", "{\"ttl_ms\": 60000}")
            .await?;
        let opened = answer.json();
        let session = opened["session"].as_str().context("the node opened no session")?;
        Ok(Self {
            session: session.to_owned(),
            connection,
        })
    }

    /// Acquires locks until the session holds [`LOCKS`] or the attack ends.
    async fn acquire_locks(
        &mut self,
        context: &AttackContext,
        outcome: &mut AttackOutcome,
    ) -> anyhow::Result<()> {
        for call in 0..LOCKS / LOCKS_PER_REQUEST {
            if context.stop.is_cancelled() {
                return Ok(());
            }
            let lock = |number| json!({ "name": format!("attack/{call}-{number}") });
            let locks: Vec<Value> = (0..LOCKS_PER_REQUEST).map(lock).collect();
            let body = json!({ "session": self.session, "locks": locks }).to_string();
            self.call("POST", "/v1/multilock/acquire", &body, outcome).await?;
        }
        Ok(())
    }

    async fn call(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
        outcome: &mut AttackOutcome,
    ) -> anyhow::Result<()> {
        outcome.attempts += 1;
        let answer = self.connection.send(method, path, body).await?;
        if answer.status < 300 {
            outcome.accepted += 1;
        }
        outcome.answer(answer.status.to_string());
        Ok(())
    }

    fn path(&self) -> String {
        format!("/v1/sessions/{}", self.session)
    }
}

/// Opens a session, acquires locks, reads the session on several connections, and closes it; repeats that
/// until the attack ends.
pub async fn session(context: &AttackContext) -> anyhow::Result<AttackOutcome> {
    let mut outcome = AttackOutcome::default();
    while !context.stop.is_cancelled() {
        let mut large = Large::open(context).await?;
        large.acquire_locks(context, &mut outcome).await?;
        let path = large.path();
        let paths = vec![
            path.clone(),
            format!("{path}/ephemerals"),
            "/v1/sessions".to_owned(),
        ];
        let mut readers = JoinSet::new();
        for number in 0..READERS {
            readers.spawn_local(read_repeatedly(context, number, paths.clone(), Some(6)).boxed_local());
        }
        outcome.add(sum_outcomes(readers).await?);
        large.call("DELETE", &path, "", &mut outcome).await?;
    }
    Ok(outcome)
}

/// Acquires locks, and reads small pages of the lists until the attack ends.
pub async fn lists(context: &AttackContext) -> anyhow::Result<AttackOutcome> {
    let mut outcome = AttackOutcome::default();
    let mut large = Large::open(context).await?;
    large.acquire_locks(context, &mut outcome).await?;
    let paths = ["/v1/locks?limit=1", "/v1/sessions?limit=1", "/v1/lock-graph"].map(str::to_owned);
    let mut readers = JoinSet::new();
    for number in 0..READERS {
        readers.spawn_local(read_repeatedly(context, number, paths.to_vec(), None).boxed_local());
    }
    outcome.add(sum_outcomes(readers).await?);
    let path = large.path();
    large.call("DELETE", &path, "", &mut outcome).await?;
    Ok(outcome)
}

/// Requests the paths in turn, `times` times or until the attack ends.
fn read_repeatedly(
    context: &AttackContext,
    number: usize,
    paths: Vec<String>,
    times: Option<usize>,
) -> impl Future<Output = AttackOutcome> + use<> {
    let (nodes, stop) = (context.callers.clone(), context.stop.clone());
    async move {
        let mut outcome = AttackOutcome::default();
        let mut connection = match nodes.connect(number).await {
            Ok(connection) => connection,
            Err(error) => {
                outcome.answer(error_name(&error));
                return outcome;
            }
        };
        for path in paths.iter().cycle().take(times.unwrap_or(usize::MAX)) {
            let answer = tokio::select! {
                answer = connection.send("GET", path, "") => answer,
                () = stop.cancelled() => return outcome,
            };
            outcome.attempts += 1;
            match answer {
                Ok(answer) => {
                    outcome.accepted += u64::from(answer.status < 300);
                    outcome.answer(answer.status.to_string());
                }
                Err(error) => {
                    outcome.answer(error_name(&error.into()));
                    return outcome;
                }
            }
        }
        outcome
    }
}

/// Sends write requests without a session, each with a new request ID that the server has to store.
pub async fn request_ids(context: &AttackContext) -> anyhow::Result<AttackOutcome> {
    let mut outcome = AttackOutcome::default();
    let mut connection = context.callers.connect(0).await?;
    let mut number = 0_u64;
    while !context.stop.is_cancelled() {
        let body = json!({ "data": "x", "request_id": format!("attack-{number}") }).to_string();
        let path = match number {
            0 => "/v1/znodes/attack-request-ids",
            _ => "/v1/znodes/attack-request-ids?version=-1",
        };
        let method = if number == 0 { "POST" } else { "PUT" };
        let answer = connection.send(method, path, &body).await?;
        outcome.attempts += 1;
        outcome.accepted += u64::from(answer.status < 300);
        outcome.answer(answer.status.to_string());
        number += 1;
    }
    let answer = connection
        .send("DELETE", "/v1/znodes/attack-request-ids", "")
        .await?;
    ensure!(answer.status < 300, "cannot delete the znode of the attack");
    Ok(outcome)
}
