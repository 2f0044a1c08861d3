//! A load that does not wait: acquires at a rate of its own, whatever becomes of those before. Each goes out on whichever
//! connection is free; who is refused is not sent again. While no connection is free nothing is sent, and it is not made up for.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use cli_support::api_client::{ApiClient, request_id};
use cli_support::http_client::Connection;
use futures_util::FutureExt as _;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use crate::nodes::Nodes;
use crate::report::Durations;

/// How often arrivals are let go: so many at a time that the load generator's own work stays small.
const TICK: Duration = Duration::from_millis(2);

/// Long enough that no session needs a heartbeat while the load runs; its locks are gone when it is closed.
const SESSION_TTL: Duration = Duration::from_secs(300);

/// How long a node may refuse a session at the beginning.
const PATIENCE: Duration = Duration::from_secs(10);

/// So many locks share a session.
const LOCKS_OF_A_SESSION: usize = 100;

/// How long an answer may take before the connection is given up, as an error.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// What became of the load.
#[derive(Default)]
pub struct Seen {
    /// Cycles that were served.
    pub cycles: Durations,
    /// Acquires that were refused.
    pub refusals: Durations,
    /// Acquires that were sent.
    pub sent: u64,
    /// What was answered otherwise.
    pub errors: u64,
    /// How the first of these was.
    pub first_error: Option<String>,
}

/// Connections that are ready.
pub struct Offered {
    clients: Vec<Client>,
    sessions: Vec<(ApiClient, String)>,
}

struct Client {
    nodes: Nodes,
    number: usize,
    connection: Connection,
    acquire_path: String,
    acquire_body: String,
    release_path: String,
    session: String,
}

impl Offered {
    /// Connects, and opens the sessions.
    pub async fn connect(nodes: &Nodes, connections: usize) -> anyhow::Result<Self> {
        let run = request_id();
        let (mut clients, mut sessions) = (Vec::new(), Vec::new());
        for number in 0..connections {
            if number % LOCKS_OF_A_SESSION == 0 {
                let mut api = nodes.client(number / LOCKS_OF_A_SESSION, PATIENCE);
                let session = api.open_session(SESSION_TTL, "lockgate bench overload").await;
                sessions.push((api, session.context("opening a session")?));
            }
            let (_, session) = sessions.last().expect("the first one was opened");
            clients.push(Client {
                connection: nodes.connect(number).await?,
                nodes: nodes.clone(),
                number,
                acquire_path: format!("/v1/locks/bench/{run}/{number}/acquire"),
                acquire_body: format!("{{\"session\":\"{session}\",\"wait_ms\":0}}"),
                release_path: format!("/v1/locks/bench/{run}/{number}/release"),
                session: session.clone(),
            });
        }
        Ok(Self { clients, sessions })
    }

    /// Offers so many acquires in a second for so long, and says what became of them.
    pub async fn run(self, per_second: f64, lasts: Duration) -> anyhow::Result<Seen> {
        let seen = Rc::new(RefCell::new(Seen::default()));
        let arrivals = Rc::new(Semaphore::new(0));
        let over = Rc::new(Cell::new(false));
        let mut tasks = Vec::new();
        let (mut stops, clients) = (Vec::new(), self.clients);
        let waiting = Rc::new(Cell::new(0_usize));
        for client in clients {
            let (stop, stopped) = oneshot::channel::<()>();
            stops.push(stop);
            let (seen, arrivals, over) = (seen.clone(), arrivals.clone(), over.clone());
            let waiting = waiting.clone();
            tasks.push(tokio::task::spawn_local(
                client.run(arrivals, waiting, seen, over, stopped).boxed_local(),
            ));
        }
        let begin = Instant::now();
        let mut tick = tokio::time::interval(TICK);
        let mut due = 0.0;
        let mut last = begin;
        while begin.elapsed() < lasts {
            tick.tick().await;
            let now = Instant::now();
            due += (now - last).as_secs_f64() * per_second;
            last = now;
            // Nobody queues on this side: then it would not be known how long the cluster took.
            let free = waiting.get().saturating_sub(arrivals.available_permits());
            arrivals.add_permits((due as usize).min(free));
            due -= due.floor();
        }
        over.set(true);
        drop(stops);
        for task in tasks {
            task.await.context("a client of the load")?;
        }
        for (mut api, session) in self.sessions {
            api.close_session(&session).await.context("closing a session")?;
        }
        let seen = Rc::into_inner(seen).context("a client of the load is still there")?;
        Ok(seen.into_inner())
    }
}

impl Client {
    async fn run(
        mut self,
        arrivals: Rc<Semaphore>,
        waiting: Rc<Cell<usize>>,
        seen: Rc<RefCell<Seen>>,
        over: Rc<Cell<bool>>,
        mut stopped: oneshot::Receiver<()>,
    ) {
        while !over.get() {
            waiting.set(waiting.get() + 1);
            let arrival = tokio::select! {
                arrival = arrivals.acquire() => arrival,
                _ = &mut stopped => return,
            };
            waiting.set(waiting.get() - 1);
            match arrival {
                Ok(arrival) => arrival.forget(),
                Err(_) => return,
            }
            let begin = Instant::now();
            seen.borrow_mut().sent += 1;
            let served = tokio::time::timeout(ANSWER_TIMEOUT, self.cycle()).await;
            let took = begin.elapsed();
            let ended = match served.map_err(anyhow::Error::from).flatten() {
                Ok(Ended::Served) => {
                    // What ends after the end is not counted: it had longer than the others.
                    if !over.get() {
                        seen.borrow_mut().cycles.record(took);
                    }
                    continue;
                }
                Ok(Ended::Refused) => {
                    seen.borrow_mut().refusals.record(took);
                    continue;
                }
                Ok(Ended::Otherwise(what)) => what,
                Err(error) => error.to_string(),
            };
            tracing::warn!(ended, "a request of the load failed");
            seen.borrow_mut().errors += 1;
            seen.borrow_mut().first_error.get_or_insert(ended);
            match self.nodes.connect(self.number).await {
                Ok(connection) => self.connection = connection,
                Err(error) => {
                    tracing::warn!(%error, "a client of the load cannot connect again");
                    return;
                }
            }
        }
    }

    async fn cycle(&mut self) -> anyhow::Result<Ended> {
        let granted = self
            .connection
            .send("POST", &self.acquire_path, &self.acquire_body)
            .await?;
        match granted.status {
            200 => {}
            503 if granted.code() == "unavailable" => return Ok(Ended::Refused),
            status => return Ok(Ended::Otherwise(format!("acquire: {status} {}", granted.json()))),
        }
        let granted = granted.json();
        let holder = granted["holder"].as_str().unwrap_or_default();
        let body = format!("{{\"session\":\"{}\",\"holder\":\"{holder}\"}}", self.session);
        let released = self.connection.send("POST", &self.release_path, &body).await?;
        match released.status {
            200 => Ok(Ended::Served),
            status => Ok(Ended::Otherwise(format!("release: {status} {}", released.json()))),
        }
    }
}

enum Ended {
    Served,
    Refused,
    Otherwise(String),
}
