//! Well-behaved clients that overload and attacks must not affect. They acquire and release locks, or hold a
//! session and send heartbeats. The module also measures the cluster's term and the memory of its nodes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, ensure};
use cli_support::api_client::{ApiClient, request_id};
use cli_support::http_client::Connection;
use futures_util::FutureExt as _;
use local_cluster::LocalCluster;
use lock_node::admission::BUSY_RETRY;
use nix::unistd::Pid;
use serde::Serialize;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::nodes::Nodes;
use super::processes;
use super::report::{Durations, Percentiles};

/// Number of heartbeats within a session's TTL, as in the client library.
const HEARTBEATS_PER_TTL: u32 = 3;

/// Time for which a rejected call at the start is retried, and the timeout of a lock cycle.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Observations of the bystanders within an interval.
#[derive(Debug, Clone, Serialize)]
pub struct BystanderReport {
    /// Durations of lock cycles, from the first byte of the acquire to the last byte of the release's
    /// response.
    pub cycle: Percentiles,
    /// Durations of confirmed heartbeats.
    pub heartbeat: Percentiles,
    /// Number of locks that were not granted or could not be released.
    pub errors: u64,
    /// Text of the first error.
    pub first_error: Option<String>,
    /// Number of acquires that were rejected by load shedding and retried.
    pub refused: u64,
    /// Number of heartbeats that were not confirmed and retried.
    pub heartbeats_again: u64,
    /// Number of sessions that expired, or whose heartbeats were not confirmed for a whole TTL.
    pub lost_sessions: u64,
}

#[derive(Default)]
struct Counters {
    cycles: RefCell<Durations>,
    heartbeats: RefCell<Durations>,
    errors: Cell<u64>,
    refused: Cell<u64>,
    first_error: RefCell<Option<String>>,
    heartbeats_again: Cell<u64>,
    lost_sessions: Cell<u64>,
    stop: Cell<bool>,
}

/// Clients that run until they are stopped. They need a `LocalSet`.
pub struct Bystanders {
    counters: Rc<Counters>,
    tasks: Vec<JoinHandle<()>>,
    sessions: Vec<(ApiClient, String)>,
}

impl Bystanders {
    /// Starts clients, spread over the nodes, each with a session of this TTL and its heartbeats. With
    /// `lock`, each client also acquires and releases a lock of its own, with this pause in between.
    pub async fn start(
        nodes: &Nodes,
        clients: usize,
        ttl: Duration,
        lock: Option<Duration>,
    ) -> anyhow::Result<Self> {
        let counters = Rc::new(Counters::default());
        let run = request_id();
        let (mut tasks, mut sessions) = (Vec::new(), Vec::new());
        for number in 0..clients {
            let mut api = nodes.client(number, CALL_TIMEOUT);
            let session = api.open_session(ttl, "lockgate bench: a bystander").await;
            let session = session.with_context(|| format!("opening a session at {}", api.node()))?;
            let connector = Connector {
                nodes: nodes.clone(),
                number,
            };
            tasks.push(tokio::task::spawn_local(send_heartbeats(
                connector.clone(),
                session.clone(),
                ttl,
                counters.clone(),
            )));
            if let Some(pause) = lock {
                let lock = format!("bench/{run}/bystander-{number}");
                let locker = Locker {
                    connector,
                    session: session.clone(),
                    lock,
                    pause,
                };
                tasks.push(tokio::task::spawn_local(
                    locker.run(counters.clone()).boxed_local(),
                ));
            }
            sessions.push((api, session));
        }
        Ok(Self {
            counters,
            tasks,
            sessions,
        })
    }

    /// Returns the observations since the last call.
    pub fn take_report(&self) -> BystanderReport {
        BystanderReport {
            cycle: self.counters.cycles.take().percentiles(),
            heartbeat: self.counters.heartbeats.take().percentiles(),
            errors: self.counters.errors.take(),
            refused: self.counters.refused.take(),
            first_error: self.counters.first_error.take(),
            heartbeats_again: self.counters.heartbeats_again.take(),
            lost_sessions: self.counters.lost_sessions.take(),
        }
    }

    /// Stops all clients and closes their sessions.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.counters.stop.set(true);
        for task in self.tasks {
            task.await.context("a bystander")?;
        }
        for (mut api, session) in self.sessions {
            api.close_session(&session).await.context("closing a session")?;
        }
        Ok(())
    }
}

/// Node that a client connects to.
#[derive(Clone)]
struct Connector {
    nodes: Nodes,
    number: usize,
}

/// Sends the heartbeats of one session, on a connection of their own.
async fn send_heartbeats(connector: Connector, session: String, ttl: Duration, counters: Rc<Counters>) {
    let path = format!("/v1/sessions/{session}/heartbeat");
    let mut connection = None;
    let mut confirmed = Instant::now();
    while !counters.stop.get() {
        let sent = Instant::now();
        match send(&mut connection, &connector, "POST", &path, "", ttl).await {
            Ok(200) => {
                counters.heartbeats.borrow_mut().record(sent.elapsed());
                confirmed = sent;
                tokio::time::sleep(ttl / HEARTBEATS_PER_TTL).await;
                continue;
            }
            // The session has ended.
            Ok(404 | 410) => {
                counters.lost_sessions.set(counters.lost_sessions.get() + 1);
                tracing::warn!(
                    session,
                    "bench: the session of a client with heartbeats has ended"
                );
                return;
            }
            Ok(_) | Err(_) => counters.heartbeats_again.set(counters.heartbeats_again.get() + 1),
        }
        if confirmed.elapsed() >= ttl {
            counters.lost_sessions.set(counters.lost_sessions.get() + 1);
            tracing::warn!(session, "bench: no heartbeat was confirmed for a whole TTL");
            return;
        }
        tokio::time::sleep(ttl / HEARTBEATS_PER_TTL / 10).await;
    }
}

struct Locker {
    connector: Connector,
    session: String,
    lock: String,
    pause: Duration,
}

impl Locker {
    async fn run(self, counters: Rc<Counters>) {
        let acquire_path = format!("/v1/locks/{}/acquire", self.lock);
        let acquire_body = format!("{{\"session\":\"{}\",\"wait_ms\":null}}", self.session);
        let release_path = format!("/v1/locks/{}/release", self.lock);
        let mut connection = None;
        while !counters.stop.get() {
            let begin = Instant::now();
            let cycle = async {
                let connection = connected(&mut connection, &self.connector).await?;
                let granted = loop {
                    let granted = connection.send("POST", &acquire_path, &acquire_body).await?;
                    if granted.code() != "unavailable" {
                        break granted;
                    }
                    // The client retries as the response demands. The whole time counts as not served.
                    counters.refused.set(counters.refused.get() + 1);
                    tokio::time::sleep(BUSY_RETRY).await;
                };
                let holder = granted.json()["holder"].as_str().unwrap_or_default().to_owned();
                ensure!(granted.status == 200, "acquire: {}", granted.json());
                let body = format!("{{\"session\":\"{}\",\"holder\":\"{holder}\"}}", self.session);
                let released = connection.send("POST", &release_path, &body).await?;
                ensure!(released.status == 200, "release: {}", released.json());
                anyhow::Ok(())
            };
            match tokio::time::timeout(CALL_TIMEOUT, cycle)
                .await
                .map_err(anyhow::Error::from)
                .flatten()
            {
                Ok(()) => counters.cycles.borrow_mut().record(begin.elapsed()),
                Err(error) => {
                    tracing::warn!(%error, "bench: a well-behaved client was not served");
                    counters
                        .first_error
                        .borrow_mut()
                        .get_or_insert_with(|| error.to_string());
                    counters.errors.set(counters.errors.get() + 1);
                    connection = None;
                }
            }
            tokio::time::sleep(self.pause).await;
        }
    }
}

async fn connected<'c>(
    connection: &'c mut Option<Connection>,
    connector: &Connector,
) -> anyhow::Result<&'c mut Connection> {
    if connection.is_none() {
        *connection = Some(connector.nodes.connect(connector.number).await?);
    }
    Ok(connection.as_mut().expect("it was connected just now"))
}

/// Sends one request with a timeout and returns the response's status.
async fn send(
    connection: &mut Option<Connection>,
    connector: &Connector,
    method: &str,
    path: &str,
    body: &str,
    within: Duration,
) -> anyhow::Result<u16> {
    let request = async {
        Ok(connected(connection, connector)
            .await?
            .send(method, path, body)
            .await?
            .status)
    };
    let response = tokio::time::timeout(within, request)
        .await
        .map_err(anyhow::Error::from)
        .flatten();
    if response.is_err() {
        *connection = None;
    }
    response
}

/// Returns the highest term that a node reports. A higher one later means that there was an election. Nodes that are busy with the end of an
/// attack are asked again.
pub async fn term(cluster: &LocalCluster) -> anyhow::Result<u64> {
    let deadline = Instant::now() + CALL_TIMEOUT;
    loop {
        let mut term = 0;
        for id in cluster.ids() {
            let view = cluster.view_of(id).await?;
            term = term.max(view.map_or(0, |view| view.term));
        }
        if term > 0 {
            return Ok(term);
        }
        ensure!(Instant::now() < deadline, "no node reports the cluster's term");
    }
}

/// Returns the resident memory of each process in bytes.
pub fn memory(pids: &[Pid]) -> anyhow::Result<Vec<u64>> {
    pids.iter().map(|pid| processes::memory(*pid)).collect()
}

/// Returns the peak resident memory of each process in bytes.
pub fn peak_memory(pids: &[Pid]) -> anyhow::Result<Vec<u64>> {
    pids.iter().map(|pid| processes::peak_memory(*pid)).collect()
}
