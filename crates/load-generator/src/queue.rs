//! One exclusive lock and a queue of a given length: measures the time from a release to the next grant, and
//! the cost for the nodes.
//!
//! Each client that releases the lock requests it again at once, so the queue keeps its length. Each client
//! has a session and a connection of its own, spread over the nodes.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use cli_support::api_client::request_id;
use cli_support::ensure_usage;
use cli_support::format::Output;
use cli_support::http_client::Connection;
use cli_support::output::say;
use futures_util::FutureExt as _;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::task::LocalSet;
use tokio::time::Instant;

use super::nodes::Nodes;
use super::report::{Durations, Percentiles, ms};
use super::{Target, processes};

/// TTL of the sessions: the server's default maximum, so that no session needs a heartbeat during a
/// measurement.
const SESSION_TTL: Duration = Duration::from_secs(300);

/// Maximum duration of a measurement, shorter than the TTL.
const MAX_RUN: Duration = Duration::from_secs(240);

/// Total time of a call before the run is aborted.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Poll interval of the queue's length.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Number of clients that join or leave in parallel: enough to keep the nodes busy.
const AT_A_TIME: usize = 64;

/// Divisor for the share of hand-overs that are not measured at the beginning, while requests of the last
/// joining clients are still being processed.
const WARMUP_DIVISOR: u64 = 10;

/// Options of `lockgate bench queue`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// Number of waiters; several numbers are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000,10000")]
    waiters: Vec<usize>,
    /// Number of hand-overs
    #[arg(long, default_value_t = 2000)]
    hand_overs: u64,
    /// Format of the result
    #[command(flatten)]
    output: Output,
}

/// Result of one measurement.
#[derive(Debug, Clone, Serialize)]
pub struct QueueReport {
    /// Number of waiters.
    pub waiters: usize,
    /// Durations of hand-overs, from the first byte of the release to the last byte of the next grant.
    pub hand_over: Percentiles,
    /// Hand-overs per second.
    pub hand_overs_per_second: f64,
    /// CPU time of all nodes together per hand-over in microseconds; `None` if the nodes are not on this
    /// machine.
    pub cpu_us: Option<u64>,
}

/// Measures and prints the result.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure_usage!(!args.waiters.contains(&0), "at least one waiter is needed");
    ensure_usage!(
        args.hand_overs >= WARMUP_DIVISOR,
        "at least {WARMUP_DIVISOR} hand-overs are needed"
    );
    let mut reports = Vec::new();
    for waiters in args.waiters {
        let queue = Queue::new(&args.target, args.hand_overs)?;
        let clients = LocalSet::new();
        let run = clients.run_until(queue.run(waiters));
        let report = tokio::time::timeout(MAX_RUN, run)
            .await
            .context("the measurement took almost as long as the sessions' TTL")??;
        if !args.output.is_document() {
            print(&report, reports.is_empty())?;
        }
        reports.push(report);
    }
    if args.output.is_document() {
        args.output.say(&reports, String::new)?;
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

/// State shared by all clients.
struct Queue {
    nodes: Nodes,
    processes: Vec<Pid>,
    lock: String,
    hand_overs: u64,
    progress: RefCell<QueueProgress>,
    done: Notify,
}

struct QueueProgress {
    durations: Durations,
    hand_overs: u64,
    /// Time of the last release.
    released: Instant,
    /// Time of the first measured release.
    begun: Option<Instant>,
    /// Fencing token of the last grant.
    last_token: u64,
    /// CPU time of all nodes at the beginning of the measurement.
    cpu: Duration,
    failure: Option<String>,
}

/// Client in the queue.
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
            progress: RefCell::new(QueueProgress {
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

    /// Measures with this number of waiters. All clients share this thread.
    async fn run(self: Rc<Self>, waiters: usize) -> anyhow::Result<QueueReport> {
        // This client holds the lock until all others are in the queue.
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
                    if let Err(error) = queue.acquire_and_release(&mut client).await {
                        queue
                            .progress
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
        let progress = self.progress.borrow();
        if let Some(failure) = &progress.failure {
            bail!("{failure}");
        }
        let measured = end - progress.begun.context("there was no hand-over")?;
        let hand_over = progress.durations.percentiles();
        Ok(QueueReport {
            waiters,
            hand_overs_per_second: hand_over.count as f64 / measured.as_secs_f64(),
            cpu_us: (!self.processes.is_empty())
                .then(|| (cpu - progress.cpu).as_micros() as u64 / hand_over.count.max(1)),
            hand_over,
        })
    }

    /// Acquires and releases the lock repeatedly.
    async fn acquire_and_release(&self, client: &mut Client) -> anyhow::Result<()> {
        loop {
            let granted = client.acquire(&self.lock).await?;
            self.granted(granted.fencing_token)?;
            client.release(&self.lock, &granted.holder).await?;
        }
    }

    /// Records a grant, which is followed by a release at once.
    fn granted(&self, token: u64) -> anyhow::Result<()> {
        let now = Instant::now();
        let mut progress = self.progress.borrow_mut();
        ensure!(
            token > progress.last_token,
            "the token {token} was granted after {}",
            progress.last_token
        );
        progress.last_token = token;
        if progress.begun.is_some() {
            let released = progress.released;
            progress.durations.record(now - released);
        }
        progress.released = now;
        progress.hand_overs += 1;
        if progress.hand_overs == self.hand_overs / WARMUP_DIVISOR {
            progress.begun = Some(now);
            progress.cpu = self.cpu_time()?;
        }
        if progress.hand_overs == self.hand_overs {
            self.done.notify_one();
        }
        Ok(())
    }

    fn cpu_time(&self) -> anyhow::Result<Duration> {
        self.processes.iter().map(|pid| processes::cpu_time(*pid)).sum()
    }

    /// Waits until the queue has this length.
    async fn wait_queued(&self, waiters: usize) -> anyhow::Result<()> {
        let mut client = self.nodes.client(0, CALL_TIMEOUT);
        let path = format!("/v1/locks?prefix={}&linearizable=true", self.lock);
        loop {
            if let Some(failure) = &self.progress.borrow().failure {
                bail!("{failure}");
            }
            let response = client
                .call("GET", &path, &serde_json::Value::Null, CALL_TIMEOUT)
                .await?
                .json();
            if response["locks"][0]["waiters"].as_u64() == Some(waiters as u64) {
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Closes all sessions, which empties the queue.
    async fn close(&self, mut sessions: Vec<String>) -> anyhow::Result<()> {
        // From the end of the queue, so that no waiter is granted the lock only to lose it.
        let mut closing = tokio::task::JoinSet::new();
        let share = sessions.len().div_ceil(AT_A_TIME);
        while !sessions.is_empty() {
            let some = sessions.split_off(sessions.len().saturating_sub(share));
            let mut client = self.nodes.client(closing.len(), CALL_TIMEOUT);
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
        let opened: Opened = success(connection.send("POST", "/v1/sessions", &body).await?)?;
        Ok(Self {
            connection,
            session: opened.session,
        })
    }

    async fn acquire(&mut self, lock: &str) -> anyhow::Result<Granted> {
        let path = format!("/v1/locks/{lock}/acquire");
        let body = format!("{{\"session\":\"{}\",\"wait_ms\":null}}", self.session);
        success(self.connection.send("POST", &path, &body).await?)
    }

    async fn release(&mut self, lock: &str, holder: &str) -> anyhow::Result<()> {
        let path = format!("/v1/locks/{lock}/release");
        let body = format!("{{\"session\":\"{}\",\"holder\":\"{holder}\"}}", self.session);
        success::<serde_json::Value>(self.connection.send("POST", &path, &body).await?).map(drop)
    }
}

/// Parses the body of a successful response.
fn success<T: for<'de> Deserialize<'de>>(response: cli_support::http_client::Response) -> anyhow::Result<T> {
    ensure!(
        response.status < 300,
        "{}: {}",
        response.status,
        String::from_utf8_lossy(&response.body)
    );
    serde_json::from_slice(&response.body).context("a malformed response")
}
