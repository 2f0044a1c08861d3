//! One exclusive lock and a queue of a given length: how long it takes from a release to the next one's grant, and
//! what it costs the nodes.
//!
//! Whoever gives the lock back asks for it again at once, so the queue keeps its length. Each client has a session
//! and a connection of its own, spread over the nodes.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use cli_support::api_client::request_id;
use cli_support::ensure_usage;
use cli_support::http_client::Connection;
use cli_support::output::say;
use futures_util::FutureExt as _;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::task::LocalSet;
use tokio::time::Instant;

use super::nodes::Nodes;
use super::report::{self, Durations, Percentiles, ms};
use super::{Target, processes};

/// The longest that the server gives by default: no session needs a heartbeat while one queue is measured.
const SESSION_TTL: Duration = Duration::from_secs(300);

/// A measurement must not outlive the sessions.
const LONGEST_RUN: Duration = Duration::from_secs(240);

/// How long a node may refuse before the run is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often it is looked whether all stand in the queue.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Clients that join or leave at a time: enough to keep the nodes busy.
const AT_A_TIME: usize = 64;

/// Of so many hand-overs the first one is not measured: the last clients' requests to join are still around.
const WARMUP_SHARE: u64 = 10;

/// What `lockgate bench queue` is told.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// How many wait; several numbers are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000,10000")]
    waiters: Vec<usize>,
    /// How often the lock is handed over
    #[arg(long, default_value_t = 2000)]
    hand_overs: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What one queue came to.
#[derive(Debug, Clone, Serialize)]
pub struct QueueReport {
    /// How many waited.
    pub waiters: usize,
    /// From the first byte of the release to the last of the next one's grant.
    pub hand_over: Percentiles,
    /// How many there were in a second.
    pub hand_overs_per_second: f64,
    /// Time on the processor that all nodes together spent on one, in microseconds; of nodes on this machine.
    pub cpu_us: Option<u64>,
}

/// Measures, and prints what came out.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure_usage!(!args.waiters.contains(&0), "at least one has to wait");
    ensure_usage!(
        args.hand_overs >= WARMUP_SHARE,
        "at least {WARMUP_SHARE} hand-overs are needed"
    );
    let mut reports = Vec::new();
    for waiters in args.waiters {
        let queue = Queue::new(&args.target, args.hand_overs)?;
        let clients = LocalSet::new();
        let run = clients.run_until(queue.run(waiters));
        let report = tokio::time::timeout(LONGEST_RUN, run)
            .await
            .context("the sessions would end before the measurement does")??;
        if !args.json {
            print(&report, reports.is_empty())?;
        }
        reports.push(report);
    }
    if args.json {
        report::print_json(&reports)?;
    }
    Ok(())
}

fn print(report: &QueueReport, first: bool) -> anyhow::Result<()> {
    if first {
        say(format!(
            "{:>7} {:>12} {:>9} {:>9} {:>9} {:>9} {:>12}",
            "waiters", "hand-overs/s", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "nodes' CPU us"
        ))?;
    }
    say(format!(
        "{:>7} {:>12.0} {:>9} {:>9} {:>9} {:>9} {:>12}",
        report.waiters,
        report.hand_overs_per_second,
        ms(report.hand_over.p50_us),
        ms(report.hand_over.p99_us),
        ms(report.hand_over.p99_9_us),
        ms(report.hand_over.max_us),
        report.cpu_us.map_or("-".to_owned(), |us| us.to_string())
    ))
}

/// What all clients share.
struct Queue {
    nodes: Nodes,
    processes: Vec<Pid>,
    lock: String,
    hand_overs: u64,
    seen: RefCell<Seen>,
    done: Notify,
}

struct Seen {
    durations: Durations,
    hand_overs: u64,
    /// When the last release was sent.
    released: Instant,
    /// When the first measured one was.
    begun: Option<Instant>,
    /// The fencing token of the last grant.
    last_token: u64,
    /// All nodes', when the measurement began.
    cpu: Duration,
    failure: Option<String>,
}

/// One who stands in the queue.
struct Client {
    connection: Connection,
    session: String,
}

#[derive(Deserialize)]
struct Granted {
    holder: String,
    fencing_token: u64,
}

impl Queue {
    fn new(target: &Target, hand_overs: u64) -> anyhow::Result<Rc<Self>> {
        Ok(Rc::new(Self {
            nodes: target.nodes()?,
            processes: target.processes()?,
            lock: format!("bench/{}/queue", request_id()),
            hand_overs,
            seen: RefCell::new(Seen {
                durations: Durations::new(),
                hand_overs: 0,
                released: Instant::now(),
                begun: None,
                last_token: 0,
                cpu: Duration::ZERO,
                failure: None,
            }),
            done: Notify::new(),
        }))
    }

    /// Measures with so many waiters. All clients share this thread.
    async fn run(self: Rc<Self>, waiters: usize) -> anyhow::Result<QueueReport> {
        // Holds the lock until all stand in the queue.
        let mut gate = Client::open(&self.nodes, 0).await?;
        let held = gate.acquire(&self.lock).await?;
        let mut tasks = Vec::new();
        let mut sessions = vec![gate.session.clone()];
        for number in 0..waiters {
            let mut client = Client::open(&self.nodes, number).await?;
            sessions.push(client.session.clone());
            let queue = self.clone();
            tasks.push(tokio::task::spawn_local(
                async move {
                    if let Err(error) = queue.stand(&mut client).await {
                        queue
                            .seen
                            .borrow_mut()
                            .failure
                            .get_or_insert(format!("{error:#}"));
                        queue.done.notify_one();
                    }
                }
                .boxed_local(),
            ));
            if number % AT_A_TIME == AT_A_TIME - 1 {
                self.wait_queued(number + 1).await?;
            }
        }
        self.wait_queued(waiters).await?;

        gate.release(&self.lock, &held.holder).await?;
        self.done.notified().await;
        let end = Instant::now();
        let cpu = self.cpu_time()?;
        for task in &tasks {
            task.abort();
        }
        self.close(sessions).await?;
        let seen = self.seen.borrow();
        if let Some(failure) = &seen.failure {
            bail!("{failure}");
        }
        let measured = end - seen.begun.context("there was no hand-over")?;
        let hand_over = seen.durations.percentiles();
        Ok(QueueReport {
            waiters,
            hand_overs_per_second: hand_over.count as f64 / measured.as_secs_f64(),
            cpu_us: (!self.processes.is_empty())
                .then(|| (cpu - seen.cpu).as_micros() as u64 / hand_over.count.max(1)),
            hand_over,
        })
    }

    /// Takes the lock whenever it is granted, gives it back, and asks again.
    async fn stand(&self, client: &mut Client) -> anyhow::Result<()> {
        loop {
            let granted = client.acquire(&self.lock).await?;
            self.granted(granted.fencing_token)?;
            client.release(&self.lock, &granted.holder).await?;
        }
    }

    /// Somebody was granted the lock, and gives it back at once.
    fn granted(&self, token: u64) -> anyhow::Result<()> {
        let now = Instant::now();
        let mut seen = self.seen.borrow_mut();
        ensure!(
            token > seen.last_token,
            "the token {token} was granted after {}",
            seen.last_token
        );
        seen.last_token = token;
        if seen.begun.is_some() {
            let released = seen.released;
            seen.durations.record(now - released);
        }
        seen.released = now;
        seen.hand_overs += 1;
        if seen.hand_overs == self.hand_overs / WARMUP_SHARE {
            seen.begun = Some(now);
            seen.cpu = self.cpu_time()?;
        }
        if seen.hand_overs == self.hand_overs {
            self.done.notify_one();
        }
        Ok(())
    }

    fn cpu_time(&self) -> anyhow::Result<Duration> {
        self.processes.iter().map(|pid| processes::cpu_time(*pid)).sum()
    }

    /// Waits until so many stand in the queue.
    async fn wait_queued(&self, waiters: usize) -> anyhow::Result<()> {
        let mut client = self.nodes.client(0, PATIENCE);
        let path = format!("/v1/locks?prefix={}&linearizable=true", self.lock);
        loop {
            if let Some(failure) = &self.seen.borrow().failure {
                bail!("{failure}");
            }
            let seen = client
                .call("GET", &path, &serde_json::Value::Null, PATIENCE)
                .await?
                .json();
            if seen["locks"][0]["waiters"].as_u64() == Some(waiters as u64) {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Closes all sessions, which empties the queue.
    async fn close(&self, mut sessions: Vec<String>) -> anyhow::Result<()> {
        // The last one is the first that waits: nobody is let in only to be sent away.
        let mut closing = tokio::task::JoinSet::new();
        let share = sessions.len().div_ceil(AT_A_TIME);
        while !sessions.is_empty() {
            let some = sessions.split_off(sessions.len().saturating_sub(share));
            let mut client = self.nodes.client(closing.len(), PATIENCE);
            closing.spawn(
                async move {
                    for session in some {
                        client.close_session(&session).await?;
                    }
                    Ok::<_, anyhow::Error>(())
                }
                .boxed(),
            );
        }
        while let Some(closed) = closing.join_next().await {
            closed.context("closing sessions")??;
        }
        Ok(())
    }
}

impl Client {
    async fn open(nodes: &Nodes, number: usize) -> anyhow::Result<Self> {
        let mut connection = nodes.connect(number).await?;
        #[derive(Deserialize)]
        struct Opened {
            session: String,
        }
        let body = format!(
            "{{\"ttl_ms\":{},\"name\":\"lockgate bench\"}}",
            SESSION_TTL.as_millis()
        );
        let opened: Opened = answer(connection.send("POST", "/v1/sessions", &body).await?)?;
        Ok(Self {
            connection,
            session: opened.session,
        })
    }

    async fn acquire(&mut self, lock: &str) -> anyhow::Result<Granted> {
        let path = format!("/v1/locks/{lock}/acquire");
        let body = format!("{{\"session\":\"{}\",\"wait_ms\":null}}", self.session);
        answer(self.connection.send("POST", &path, &body).await?)
    }

    async fn release(&mut self, lock: &str, holder: &str) -> anyhow::Result<()> {
        let path = format!("/v1/locks/{lock}/release");
        let body = format!("{{\"session\":\"{}\",\"holder\":\"{holder}\"}}", self.session);
        answer::<serde_json::Value>(self.connection.send("POST", &path, &body).await?).map(drop)
    }
}

/// The document of a success.
fn answer<T: for<'de> Deserialize<'de>>(response: cli_support::http_client::Response) -> anyhow::Result<T> {
    ensure!(
        response.status < 300,
        "{}: {}",
        response.status,
        String::from_utf8_lossy(&response.body)
    );
    serde_json::from_slice(&response.body).context("an answer that is not understood")
}
