//! Load at a fixed rate regardless of earlier requests. Each acquire is sent on a free connection, and a
//! rejected one is not repeated. While no connection is free nothing is sent, and the missed requests are not
//! made up for.

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

/// Interval at which arrivals are released: batches keep the load generator's own work small.
const TICK: Duration = Duration::from_millis(2);

/// TTL long enough that no session needs a heartbeat during the load. The locks are released when the session
/// is closed.
const SESSION_TTL: Duration = Duration::from_secs(300);

/// Total time of a call at the start.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Number of locks that share a session.
const LOCKS_PER_SESSION: usize = 100;

/// Response timeout after which the connection is dropped and an error is counted.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// Outcome of the load.
#[derive(Default)]
pub struct OfferedOutcome {
    /// Durations of served cycles.
    pub cycles: Durations,
    /// Durations of rejected acquires.
    pub refusals: Durations,
    /// Number of sent acquires.
    pub sent: u64,
    /// Number of other responses.
    pub errors: u64,
    /// Text of the first error.
    pub first_error: Option<String>,
}

/// Connections that are ready to offer a load.
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
            if number % LOCKS_PER_SESSION == 0 {
                let mut api = nodes.client(number / LOCKS_PER_SESSION, CALL_TIMEOUT);
                let session = api.open_session(SESSION_TTL, "lockgate bench overload").await;
                sessions.push((api, session.context("opening a session")?));
            }
            let (_, session) = sessions.last().expect("the first session was opened");
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

    /// Offers acquires at this rate for this time and returns the outcome.
    pub async fn run(self, per_second: f64, duration: Duration) -> anyhow::Result<OfferedOutcome> {
        let outcome = Rc::new(RefCell::new(OfferedOutcome::default()));
        let arrivals = Rc::new(Semaphore::new(0));
        let over = Rc::new(Cell::new(false));
        let mut tasks = Vec::new();
        let (mut stops, clients) = (Vec::new(), self.clients);
        let waiting = Rc::new(Cell::new(0_usize));
        for client in clients {
            let (stop, stopped) = oneshot::channel::<()>();
            stops.push(stop);
            let (outcome, arrivals, over) = (outcome.clone(), arrivals.clone(), over.clone());
            let waiting = waiting.clone();
            tasks.push(tokio::task::spawn_local(
                client
                    .run(arrivals, waiting, outcome, over, stopped)
                    .boxed_local(),
            ));
        }
        let begin = Instant::now();
        let mut tick = tokio::time::interval(TICK);
        let mut due = 0.0;
        let mut last = begin;
        while begin.elapsed() < duration {
            tick.tick().await;
            let now = Instant::now();
            due += (now - last).as_secs_f64() * per_second;
            last = now;
            // Requests must not queue in this program: the response time of the cluster would be unknown.
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
        let outcome = Rc::into_inner(outcome).context("a client of the load is still running")?;
        Ok(outcome.into_inner())
    }
}

impl Client {
    async fn run(
        mut self,
        arrivals: Rc<Semaphore>,
        waiting: Rc<Cell<usize>>,
        outcome: Rc<RefCell<OfferedOutcome>>,
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
            outcome.borrow_mut().sent += 1;
            let served = tokio::time::timeout(RESPONSE_TIMEOUT, self.cycle()).await;
            let took = begin.elapsed();
            let ended = match served.map_err(anyhow::Error::from).flatten() {
                Ok(Ended::Served) => {
                    // Cycles that end after the load are not counted: they had more time than the others.
                    if !over.get() {
                        outcome.borrow_mut().cycles.record(took);
                    }
                    continue;
                }
                Ok(Ended::Refused) => {
                    outcome.borrow_mut().refusals.record(took);
                    continue;
                }
                Ok(Ended::Otherwise(what)) => what,
                Err(error) => error.to_string(),
            };
            tracing::warn!(ended, "bench: a request failed");
            outcome.borrow_mut().errors += 1;
            outcome.borrow_mut().first_error.get_or_insert(ended);
            match self.nodes.connect(self.number).await {
                Ok(connection) => self.connection = connection,
                Err(error) => {
                    tracing::warn!(%error, "bench: a client cannot reconnect");
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
            _ if granted.code() == "unavailable" => return Ok(Ended::Refused),
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
