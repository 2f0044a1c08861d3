//! Acquire and release as fast as the cluster answers: closed loops, each client on its own connection.

use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;
use tokio::task::LocalSet;
use tokio::time::Instant;

use super::nodes::Nodes;
use super::report::{Durations, LoadReport};
use crate::api_client::{KeptSession, request_id};
use crate::http_client::Connection;

/// Long enough that a heartbeat every third of it costs nothing, short enough that an aborted run's locks are
/// soon gone.
const SESSION_TTL: Duration = Duration::from_secs(30);

/// How long a node may refuse before the run is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which locks the clients take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Each its own: nobody waits.
    Lock,
    /// All the same: all but one wait.
    Contended,
}

/// A load to put on a cluster.
#[derive(Debug, Clone)]
pub struct Load {
    /// Which locks.
    pub workload: Workload,
    /// Where the nodes serve HTTP; clients are spread over them.
    pub nodes: Nodes,
    /// How many clients.
    pub clients: usize,
    /// How long to run before measuring.
    pub warmup: Duration,
    /// How long to measure.
    pub measured: Duration,
}

/// What one client saw.
#[derive(Default)]
struct Seen {
    cycles: Durations,
    acquires: Durations,
    errors: u64,
}

#[derive(Deserialize)]
struct Granted<'a> {
    #[serde(borrow)]
    holder: &'a str,
}

impl Load {
    /// Runs it. All clients share this thread: it has to do less per request than the nodes.
    pub async fn run(&self) -> anyhow::Result<LoadReport> {
        LocalSet::new().run_until(self.run_here()).await
    }

    /// The same for who has a `LocalSet` already.
    pub async fn run_here(&self) -> anyhow::Result<LoadReport> {
        // A name of its own for every run: what an aborted one left behind does not matter.
        let run = request_id();
        let mut clients = Vec::new();
        for number in 0..self.clients {
            let mut api = self.nodes.client(number, PATIENCE);
            let session = KeptSession::open(&mut api, SESSION_TTL, "lockgate bench")
                .await
                .with_context(|| format!("opening a session at {}", api.node()))?;
            let connection = self.nodes.connect(number).await?;
            let lock = match self.workload {
                Workload::Lock => format!("bench/{run}/{number}"),
                Workload::Contended => format!("bench/{run}/all"),
            };
            clients.push((api, session, connection, lock));
        }
        let begin = Instant::now() + self.warmup;
        let end = begin + self.measured;
        let mut loops = Vec::new();
        let mut sessions = Vec::new();
        for (api, session, connection, lock) in clients {
            let cycle = Rc::new(Requests::new(&lock, session.id()));
            loops.push(tokio::task::spawn_local(client(connection, cycle, begin, end)));
            sessions.push((api, session));
        }
        let mut seen = Seen::default();
        for client in loops {
            let client = client.await.context("a client of the load")?;
            seen.cycles.add(&client.cycles);
            seen.acquires.add(&client.acquires);
            seen.errors += client.errors;
        }
        for (mut api, session) in sessions {
            seen.errors += u64::from(session.is_lost());
            api.close_session(session.id())
                .await
                .context("closing a session")?;
        }
        let cycle = seen.cycles.percentiles();
        Ok(LoadReport {
            workload: match self.workload {
                Workload::Lock => "lock",
                Workload::Contended => "contended",
            },
            clients: self.clients,
            nodes: self.nodes.count(),
            seconds: self.measured.as_secs_f64(),
            cycles_per_second: cycle.count as f64 / self.measured.as_secs_f64(),
            cycle,
            acquire: seen.acquires.percentiles(),
            errors: seen.errors,
        })
    }
}

/// What a client sends over and over; written once.
struct Requests {
    acquire_path: String,
    acquire_body: String,
    release_path: String,
    session: String,
}

impl Requests {
    fn new(lock: &str, session: &str) -> Self {
        Self {
            acquire_path: format!("/v1/locks/{lock}/acquire"),
            acquire_body: format!("{{\"session\":\"{session}\",\"wait_ms\":null}}"),
            release_path: format!("/v1/locks/{lock}/release"),
            session: session.to_owned(),
        }
    }
}

/// One client. A failed request is counted and ends it: what follows would not be comparable.
async fn client(mut connection: Connection, requests: Rc<Requests>, begin: Instant, end: Instant) -> Seen {
    let mut seen = Seen::default();
    let mut release_body = String::new();
    loop {
        let start = Instant::now();
        if start >= end {
            return seen;
        }
        let acquired = connection
            .send("POST", &requests.acquire_path, &requests.acquire_body)
            .await;
        let granted = Instant::now();
        let holder = match &acquired {
            Ok(response) if response.status == 200 => serde_json::from_slice::<Granted>(&response.body)
                .ok()
                .map(|granted| granted.holder),
            _ => None,
        };
        let Some(holder) = holder else {
            seen.errors += 1;
            tracing::warn!(?acquired, "an acquire failed");
            return seen;
        };
        release_body.clear();
        release_body.push_str("{\"session\":\"");
        release_body.push_str(&requests.session);
        release_body.push_str("\",\"holder\":\"");
        release_body.push_str(holder);
        release_body.push_str("\"}");
        let released = connection
            .send("POST", &requests.release_path, &release_body)
            .await;
        let now = Instant::now();
        if !released.as_ref().is_ok_and(|response| response.status == 200) {
            seen.errors += 1;
            tracing::warn!(?released, "a release failed");
            return seen;
        }
        // Cycles count where they end: what began in the warm-up and ended after it had its work measured.
        if (begin..end).contains(&now) {
            seen.cycles.record(now - start);
            seen.acquires.record(granted - start);
        }
    }
}
