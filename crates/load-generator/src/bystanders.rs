//! What overload and attacks must not touch: well-behaved clients that take locks and give them back, or hold one and send
//! heartbeats; the cluster's term; and the memory of its nodes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, ensure};
use cli_support::api_client::{ApiClient, request_id};
use cli_support::http_client::Connection;
use futures_util::FutureExt as _;
use local_cluster::LocalCluster;
use nix::unistd::Pid;
use raft_node::admission::BUSY_RETRY;
use serde::Serialize;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::nodes::Nodes;
use super::processes;
use super::report::{Durations, Percentiles};

/// A heartbeat is sent so often within a session's ttl, as the client library does.
const BEATS: u32 = 3;

/// How long a node may refuse a bystander's session at the beginning.
const PATIENCE: Duration = Duration::from_secs(10);

/// What bystanders have seen in a stretch of time.
#[derive(Debug, Clone, Serialize)]
pub struct Seen {
    /// Locks taken and given back: from the first byte of the acquire to the last of the release's answer.
    pub cycle: Percentiles,
    /// Heartbeats that were confirmed.
    pub heartbeat: Percentiles,
    /// Locks that were not granted, or could not be given back.
    pub errors: u64,
    /// What the first of these was told.
    pub first_error: Option<String>,
    /// Acquires that were told to come again, because the node had enough to do; they did.
    pub refused: u64,
    /// Heartbeats that were not confirmed and had to be tried again.
    pub heartbeats_again: u64,
    /// Sessions whose heartbeats could not be confirmed for their whole time, or that have ended.
    pub lost_sessions: u64,
}

#[derive(Default)]
struct Counted {
    cycles: RefCell<Durations>,
    heartbeats: RefCell<Durations>,
    errors: Cell<u64>,
    refused: Cell<u64>,
    first_error: RefCell<Option<String>>,
    heartbeats_again: Cell<u64>,
    lost_sessions: Cell<u64>,
    stop: Cell<bool>,
}

/// Clients that go on until they are stopped. They need a `LocalSet` around them.
pub struct Bystanders {
    counted: Rc<Counted>,
    tasks: Vec<JoinHandle<()>>,
    sessions: Vec<(ApiClient, String)>,
}

impl Bystanders {
    /// So many clients, spread over the nodes, each with a session of this ttl and heartbeats. Those who `lock` take a lock of
    /// their own and give it back, with a pause between.
    pub async fn start(
        nodes: &Nodes,
        clients: usize,
        ttl: Duration,
        lock: Option<Duration>,
    ) -> anyhow::Result<Self> {
        let counted = Rc::new(Counted::default());
        let run = request_id();
        let (mut tasks, mut sessions) = (Vec::new(), Vec::new());
        for number in 0..clients {
            let mut api = nodes.client(number, PATIENCE);
            let session = api.open_session(ttl, "lockgate bench: a bystander").await;
            let session = session.with_context(|| format!("opening a session at {}", api.node()))?;
            let place = Place {
                nodes: nodes.clone(),
                number,
            };
            tasks.push(tokio::task::spawn_local(beat(
                place.clone(),
                session.clone(),
                ttl,
                counted.clone(),
            )));
            if let Some(pause) = lock {
                let lock = format!("bench/{run}/bystander-{number}");
                let locker = Locker {
                    place,
                    session: session.clone(),
                    lock,
                    pause,
                };
                tasks.push(tokio::task::spawn_local(
                    locker.run(counted.clone()).boxed_local(),
                ));
            }
            sessions.push((api, session));
        }
        Ok(Self {
            counted,
            tasks,
            sessions,
        })
    }

    /// What was seen since the last look.
    pub fn look(&self) -> Seen {
        Seen {
            cycle: self.counted.cycles.take().percentiles(),
            heartbeat: self.counted.heartbeats.take().percentiles(),
            errors: self.counted.errors.take(),
            refused: self.counted.refused.take(),
            first_error: self.counted.first_error.take(),
            heartbeats_again: self.counted.heartbeats_again.take(),
            lost_sessions: self.counted.lost_sessions.get(),
        }
    }

    /// Has all of them end, and closes their sessions.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.counted.stop.set(true);
        for task in self.tasks {
            task.await.context("a bystander")?;
        }
        for (mut api, session) in self.sessions {
            api.close_session(&session).await.context("closing a session")?;
        }
        Ok(())
    }
}

/// Where a client is connected.
#[derive(Clone)]
struct Place {
    nodes: Nodes,
    number: usize,
}

/// Heartbeats of one session, on a connection of their own.
async fn beat(place: Place, session: String, ttl: Duration, counted: Rc<Counted>) {
    let path = format!("/v1/sessions/{session}/heartbeat");
    let mut connection = None;
    let mut confirmed = Instant::now();
    while !counted.stop.get() {
        let sent = Instant::now();
        match ask(&mut connection, &place, "POST", &path, "", ttl).await {
            Ok(200) => {
                counted.heartbeats.borrow_mut().record(sent.elapsed());
                confirmed = sent;
                tokio::time::sleep(ttl / BEATS).await;
                continue;
            }
            // The session is over.
            Ok(404 | 410) => {
                counted.lost_sessions.set(counted.lost_sessions.get() + 1);
                tracing::warn!(session, "a session of a client with heartbeats has ended");
                return;
            }
            Ok(_) | Err(_) => counted.heartbeats_again.set(counted.heartbeats_again.get() + 1),
        }
        if confirmed.elapsed() >= ttl {
            counted.lost_sessions.set(counted.lost_sessions.get() + 1);
            tracing::warn!(session, "no heartbeat was confirmed for a session's whole time");
            return;
        }
        tokio::time::sleep(ttl / BEATS / 10).await;
    }
}

struct Locker {
    place: Place,
    session: String,
    lock: String,
    pause: Duration,
}

impl Locker {
    async fn run(self, counted: Rc<Counted>) {
        let acquire_path = format!("/v1/locks/{}/acquire", self.lock);
        let acquire_body = format!("{{\"session\":\"{}\",\"wait_ms\":null}}", self.session);
        let release_path = format!("/v1/locks/{}/release", self.lock);
        let mut connection = None;
        while !counted.stop.get() {
            let begin = Instant::now();
            let cycle = async {
                let connection = connected(&mut connection, &self.place).await?;
                let granted = loop {
                    let granted = connection.send("POST", &acquire_path, &acquire_body).await?;
                    if granted.status != 503 || granted.code() != "unavailable" {
                        break granted;
                    }
                    // As it was told to. All of that is time in which it was not served.
                    counted.refused.set(counted.refused.get() + 1);
                    tokio::time::sleep(BUSY_RETRY).await;
                };
                let holder = granted.json()["holder"].as_str().unwrap_or_default().to_owned();
                ensure!(granted.status == 200, "acquire: {}", granted.json());
                let body = format!("{{\"session\":\"{}\",\"holder\":\"{holder}\"}}", self.session);
                let released = connection.send("POST", &release_path, &body).await?;
                ensure!(released.status == 200, "release: {}", released.json());
                anyhow::Ok(())
            };
            match tokio::time::timeout(PATIENCE, cycle)
                .await
                .map_err(anyhow::Error::from)
                .flatten()
            {
                Ok(()) => counted.cycles.borrow_mut().record(begin.elapsed()),
                Err(error) => {
                    tracing::warn!(%error, "a well-behaved client was not served");
                    counted
                        .first_error
                        .borrow_mut()
                        .get_or_insert_with(|| error.to_string());
                    counted.errors.set(counted.errors.get() + 1);
                    connection = None;
                }
            }
            tokio::time::sleep(self.pause).await;
        }
    }
}

async fn connected<'c>(
    connection: &'c mut Option<Connection>,
    place: &Place,
) -> anyhow::Result<&'c mut Connection> {
    if connection.is_none() {
        *connection = Some(place.nodes.connect(place.number).await?);
    }
    Ok(connection.as_mut().expect("it was connected just now"))
}

/// One request within a time; its status.
async fn ask(
    connection: &mut Option<Connection>,
    place: &Place,
    method: &str,
    path: &str,
    body: &str,
    within: Duration,
) -> anyhow::Result<u16> {
    let asked = async {
        Ok(connected(connection, place)
            .await?
            .send(method, path, body)
            .await?
            .status)
    };
    let answered = tokio::time::timeout(within, asked)
        .await
        .map_err(anyhow::Error::from)
        .flatten();
    if answered.is_err() {
        *connection = None;
    }
    answered
}

/// The cluster's term, as the node says that knows the latest one: a later one means that there was an election.
pub async fn term(cluster: &LocalCluster) -> anyhow::Result<u64> {
    let mut term = 0;
    for id in cluster.ids() {
        let view = cluster.view_of(id).await?;
        term = term.max(view.map_or(0, |view| view.term));
    }
    ensure!(term > 0, "no node tells the cluster's term");
    Ok(term)
}

/// The memory that each process has now, in bytes.
pub fn memory(pids: &[Pid]) -> anyhow::Result<Vec<u64>> {
    pids.iter().map(|pid| processes::memory(*pid)).collect()
}

/// The most that each process has ever had, in bytes.
pub fn peak_memory(pids: &[Pid]) -> anyhow::Result<Vec<u64>> {
    pids.iter().map(|pid| processes::peak_memory(*pid)).collect()
}
