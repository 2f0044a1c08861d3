//! One attack while it runs: its target and size, and the counts of its attempts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use anyhow::Context;
use cli_support::http_client::{Connection, Response};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;
use local_cluster::LocalNode;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::held::Port;
use crate::nodes::Nodes;

/// Pause after a failed attempt. It avoids a busy loop if the server is down.
pub const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// TTL of the sessions of an attack: the longest, since nobody sends heartbeats. They are closed when the attack ends.
pub const SESSION_TTL_MS: u64 = 300_000;

/// Sessions that are closed concurrently at the end of an attack.
const CLOSED_AT_ONCE: usize = 16;

/// Outcome of an attack.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AttackOutcome {
    /// Attempts: connections, requests or watches.
    #[serde(rename = "tried")]
    pub attempts: u64,
    /// Accepted attempts: connections and waits that are open at the end, requests and watches that succeeded.
    #[serde(rename = "let_in")]
    pub accepted: u64,
    /// Number of each response: an HTTP status, or the name of an error.
    pub answers: BTreeMap<String, u64>,
}

/// Target and size of an attack, and its outcome so far.
pub struct AttackContext {
    pub nodes: Vec<LocalNode>,
    /// Addresses and credentials of the attacker.
    pub callers: Nodes,
    /// Addresses and credentials of the administrator, who prepares what the attacker abuses.
    pub admin: Nodes,
    pub connections: usize,
    pub watches: usize,
    /// Cancelled when the attack is to end.
    pub stop: CancellationToken,
    pub outcome: RefCell<AttackOutcome>,
    /// Sessions to close at the end.
    pub sessions: RefCell<Vec<String>>,
}

/// Answer to a batch. Other members are skipped.
#[derive(Deserialize)]
struct BatchAnswer {
    results: Vec<BatchResult>,
}

#[derive(Deserialize)]
struct BatchResult {
    status: u16,
}

impl AttackContext {
    /// Runs attempts concurrently, for each number below `count`, again and again until the attack ends. An error of an attempt is
    /// counted, and a pause precedes the next one.
    pub async fn repeat(
        &self,
        count: usize,
        pause: Duration,
        attempt: impl AsyncFn(usize) -> anyhow::Result<()>,
    ) {
        let attempts = (0..count).map(async |number| {
            while !self.stop.is_cancelled() {
                if let Err(error) = attempt(number).await {
                    self.rejected(error_name(&error));
                    tokio::time::sleep(pause).await;
                }
            }
        });
        tokio::select! {
            _ = join_all(attempts) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// Opens a session, which is closed when the attack ends.
    pub async fn open_session(&self, connection: &mut Connection) -> anyhow::Result<String> {
        let body = format!("{{\"ttl_ms\": {SESSION_TTL_MS}, \"name\": \"lockgate bench attack\"}}");
        let answer = connection.send("POST", "/v1/sessions", &body).await?;
        let opened = answer.json();
        let session = opened["session"].as_str();
        let session = session.with_context(|| format!("no session: {}", answer.status))?;
        self.sessions.borrow_mut().push(session.to_owned());
        Ok(session.to_owned())
    }

    /// Closes the sessions of the attack. Those that have ended already answer 404 or 410.
    pub async fn close_sessions(&self) -> anyhow::Result<()> {
        let sessions = self.sessions.take();
        let batches = sessions.chunks(sessions.len().div_ceil(CLOSED_AT_ONCE).max(1));
        let closed = stream::iter(batches.enumerate()).map(async |(number, sessions)| {
            let mut connection = self.admin.connect_patiently(number).await?;
            for session in sessions {
                connection
                    .send("DELETE", &format!("/v1/sessions/{session}"), "")
                    .await?;
            }
            anyhow::Ok(())
        });
        let closed: Vec<_> = closed.buffer_unordered(CLOSED_AT_ONCE).collect().await;
        closed.into_iter().collect::<anyhow::Result<()>>()
    }

    /// Returns the addresses of the nodes at these ports, if they listen there.
    pub fn addresses(&self, ports: &[Port]) -> Vec<(String, Port)> {
        let of = |node: &LocalNode, port| match port {
            Port::Http => Some(node.http.clone()),
            Port::ZooKeeper => node.zookeeper.clone(),
            Port::Redis => node.redis.clone(),
            Port::Peers => Some(node.peer.clone()),
        };
        let every = self
            .nodes
            .iter()
            .flat_map(|node| ports.iter().map(move |port| (of(node, *port), *port)));
        every
            .filter_map(|(address, port)| Some((address?, port)))
            .collect()
    }

    /// Counts a response: each result of a batch.
    pub fn answered(&self, answer: &Response) {
        match serde_json::from_slice::<BatchAnswer>(&answer.body) {
            Ok(batch) if answer.status == 200 => {
                for result in batch.results {
                    self.answered_with(result.status);
                }
            }
            _ => self.answered_with(answer.status),
        }
    }

    fn answered_with(&self, status: u16) {
        match status {
            ..300 => self.accepted(),
            _ => self.outcome.borrow_mut().attempts += 1,
        }
        self.answer(status.to_string());
    }

    /// Counts an accepted attempt.
    pub fn accepted(&self) {
        self.accepted_many(1);
    }

    /// Counts accepted attempts.
    pub fn accepted_many(&self, count: u64) {
        let mut outcome = self.outcome.borrow_mut();
        outcome.attempts += count;
        outcome.accepted += count;
    }

    /// Counts an attempt that was rejected.
    pub fn rejected(&self, what: String) {
        self.outcome.borrow_mut().attempts += 1;
        self.answer(what);
    }

    /// Corrects the count of accepted attempts by some that ended before the attack.
    pub fn ended(&self, count: u64) {
        let mut outcome = self.outcome.borrow_mut();
        outcome.attempts -= count;
        outcome.accepted -= count;
    }

    /// Counts a response or an error by its name.
    pub fn answer(&self, what: String) {
        *self.outcome.borrow_mut().answers.entry(what).or_default() += 1;
    }
}

/// Short name of an error, so that equal errors are counted together.
fn error_name(error: &anyhow::Error) -> String {
    match error.root_cause().downcast_ref::<io::Error>() {
        Some(error) => error.kind().to_string(),
        None => error.root_cause().to_string(),
    }
}
