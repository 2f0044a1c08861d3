//! Measures the effect of a lost leader. A group of clients holds and waits for locks; the leader is killed
//! with SIGKILL (or frozen with SIGSTOP). The time runs from the signal to the first grant of a lock that was
//! requested afterwards. Meanwhile other clients write without a pause, and the longest time without a
//! successful write is measured.
//!
//! Every round also checks the invariants of a failover: no held lock is lost, none is granted twice, every
//! session with heartbeats survives, and every waiter is granted its lock after its holder has released it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use cli_support::api_client::{ApiClient, CallError, HeldLock, RenewedSession};
use cli_support::ensure_usage;
use cli_support::format::Output;
use cli_support::output::say;
use futures_util::FutureExt as _;
use local_cluster::{LocalCluster, Ports, START_TIMEOUT, STOP_TIMEOUT};
use nix::sys::signal::Signal;
use serde::Serialize;
use tokio::task::{JoinHandle, JoinSet, LocalSet};
use tokio::time::Instant;

use super::gap::{OverHttp, Writers};
use super::nodes::Nodes;

/// TTL of the sessions: the server's default.
const SESSION_TTL: Duration = Duration::from_secs(10);

/// Timeout of calls, longer than any failover.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout for all waiters to appear in the queues.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(10);

/// Number of continuous writers per node: enough that a success is noticed within the duration of one write.
const WRITERS_PER_NODE: usize = 4;

/// Poll interval of the queues.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Options of `lockgate bench failover`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Number of times to kill the leader
    #[arg(long, default_value_t = 20)]
    kills: usize,
    /// Freeze the leader (SIGSTOP) instead of killing it: its connections stay open but silent
    #[arg(long)]
    stop: bool,
    /// Number of clients that hold or wait for locks meanwhile
    #[arg(long, default_value_t = 50)]
    clients: usize,
    /// Number of nodes
    #[arg(long, default_value_t = 3)]
    nodes: u64,
    /// Directory of the cluster; a new one on free ports is created if it has no cluster
    #[arg(long, default_value = "lockgate-failover")]
    dir: PathBuf,
    /// Format of the result
    #[command(flatten)]
    output: Output,
}

/// Result of all rounds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FailoverReport {
    /// Number of clients that held or waited.
    pub clients: usize,
    /// For each kill, the time until the first new grant, in milliseconds.
    pub first_grant_ms: Vec<u64>,
    /// For each kill, the longest time without a successful write, in milliseconds.
    pub write_gap_ms: Vec<u64>,
    /// For each kill, the time until all surviving sessions had a heartbeat confirmed, in milliseconds.
    pub all_confirmed_ms: Vec<u64>,
    /// Violated invariants.
    pub violations: Vec<String>,
}

/// Measures on a cluster of its own and prints the result.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure_usage!(
        args.nodes >= 3,
        "at least 3 nodes are needed to survive the loss of one"
    );
    ensure_usage!(args.kills >= 1, "at least one kill is needed");
    ensure_usage!(
        args.clients >= 2,
        "at least 2 clients are needed, a holder and a waiter"
    );
    let executable = std::env::current_exe().context("finding this program's own file")?;
    let mut cluster = match LocalCluster::open_plain(&args.dir, &executable) {
        Ok(cluster) => cluster,
        Err(_) => LocalCluster::create(&args.dir, &executable, args.nodes, Ports::Free, "")?,
    };
    cluster.up(START_TIMEOUT).await?;
    let loss = if args.stop { Loss::Frozen } else { Loss::Killed };
    let report = measure(
        &mut cluster,
        loss,
        args.kills,
        args.clients,
        |round, ms, gap_ms| match args.output.is_document() {
            true => Ok(()),
            false => say(format!(
                "{round:>3}: first new grant after {ms} ms, no write for {gap_ms} ms"
            )),
        },
    )
    .await;
    for id in cluster.ids() {
        cluster.stop(id, STOP_TIMEOUT).await?;
    }
    let report = report?;
    match args.output.is_document() {
        true => args.output.say(&report, String::new)?,
        false => print(&report)?,
    }
    ensure!(
        report.violations.is_empty(),
        "{} violations",
        report.violations.len()
    );
    Ok(())
}

fn print(report: &FailoverReport) -> anyhow::Result<()> {
    println!(
        "{} leaders lost, {} clients; {} violations",
        report.first_grant_ms.len(),
        report.clients,
        report.violations.len()
    );
    for (what, times) in [
        ("first new grant", &report.first_grant_ms),
        ("no write", &report.write_gap_ms),
    ] {
        let mut sorted = times.clone();
        sorted.sort_unstable();
        let at = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1];
        say(format!(
            "{what}: min {} ms, median {} ms, p90 {} ms, max {} ms",
            sorted[0],
            at(50),
            at(90),
            sorted[sorted.len() - 1]
        ))?;
    }
    for violation in &report.violations {
        say(format!("  {violation}"))?;
    }
    Ok(())
}

/// Way in which the leader is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// SIGKILL: the kernel closes its connections.
    Killed,
    /// SIGSTOP until the end of the round: its connections stay open but silent.
    Frozen,
}

/// Loses the leader `kills` times while `clients` hold and wait for locks, and restores it each time.
/// `report_round` is called after each round with its number, and with the milliseconds until the first new
/// grant and without a write.
pub async fn measure(
    cluster: &mut LocalCluster,
    loss: Loss,
    kills: usize,
    clients: usize,
    mut report_round: impl FnMut(usize, u64, u64) -> anyhow::Result<()>,
) -> anyhow::Result<FailoverReport> {
    let mut report = FailoverReport {
        clients,
        ..FailoverReport::default()
    };
    for number in 1..=kills {
        let one = round(cluster, loss, number, clients, &mut report);
        LocalSet::new().run_until(one).await?;
        let last = |of: &[u64]| of.last().copied().unwrap_or_default();
        report_round(number, last(&report.first_grant_ms), last(&report.write_gap_ms))?;
    }
    Ok(report)
}

async fn round(
    cluster: &mut LocalCluster,
    loss: Loss,
    number: usize,
    clients: usize,
    report: &mut FailoverReport,
) -> anyhow::Result<()> {
    let crowd = Crowd::assemble(&cluster.http_addresses(), clients, number).await?;
    let leader = cluster.leader(START_TIMEOUT).await?;
    let survivors: Vec<String> = cluster
        .nodes()
        .filter(|node| node.id != leader)
        .map(|node| node.http.clone())
        .collect();
    let mut probes = Vec::new();
    for node in &survivors {
        // Opened in advance: the measured time is that of a grant, without opening a session.
        let mut client = ApiClient::new(std::slice::from_ref(node), 0, CALL_TIMEOUT);
        let session = RenewedSession::open(&mut client, SESSION_TTL, "failover probe").await?;
        probes.push((client, session));
    }
    let writing = WRITERS_PER_NODE * cluster.ids().len();
    let open = OverHttp::create(Nodes::from(cluster.http_addresses()), writing).await?;
    let run = open.run();
    let writers = Writers::start(open, writing).await?;
    writers.begin();

    let lost = Instant::now();
    match loss {
        Loss::Killed => drop(cluster.kill(leader).await?),
        Loss::Frozen => cluster.signal(leader, Signal::SIGSTOP)?,
    }
    let first = first_grant(probes, number).await?;
    report
        .first_grant_ms
        .push(first.duration_since(lost).as_millis() as u64);
    writers.wait_for_success(lost, CALL_TIMEOUT).await?;
    report.write_gap_ms.push(writers.report().longest_ms as u64);
    drop(writers);

    let confirmed = crowd.confirm(&survivors, &mut report.violations).await;
    report
        .all_confirmed_ms
        .push(confirmed.duration_since(lost).as_millis() as u64);
    if loss == Loss::Frozen {
        cluster.signal(leader, Signal::SIGCONT)?;
    }
    crowd.finish(&mut report.violations).await?;
    cluster.up(START_TIMEOUT).await?;
    OverHttp::remove(&Nodes::from(cluster.http_addresses()), &run).await
}

/// Requests a fresh lock through each of `probes` and returns the time of the first grant.
async fn first_grant(probes: Vec<(ApiClient, RenewedSession)>, round: usize) -> anyhow::Result<Instant> {
    let mut requests = JoinSet::new();
    for (number, (mut client, session)) in probes.into_iter().enumerate() {
        requests.spawn(
            async move {
                let lock = format!("failover/{round}/probe/{number}");
                let granted = client.acquire(session.id(), &lock).await.map(|_| Instant::now());
                // The expiry of the probe's session must not count as the loss of a lock.
                client.close_session(session.id()).await.and(granted)
            }
            .boxed(),
        );
    }
    let mut first: Option<Instant> = None;
    while let Some(granted) = requests.join_next().await {
        let granted = granted
            .context("a probe")?
            .context("no lock was granted after the leader's death")?;
        first = Some(first.map_or(granted, |first| first.min(granted)));
    }
    first.context("there was no surviving node")
}

/// Clients of a round: half of them hold a lock each, and the others wait for these locks, at different
/// nodes.
struct Crowd {
    holders: Vec<Holder>,
    waiters: Vec<Waiter>,
    nodes: Vec<String>,
}

struct Holder {
    client: ApiClient,
    session: RenewedSession,
    held: HeldLock,
}

struct Waiter {
    lock: String,
    session: RenewedSession,
    wait: JoinHandle<Result<HeldLock, CallError>>,
}

impl Crowd {
    async fn assemble(nodes: &[String], clients: usize, round: usize) -> anyhow::Result<Self> {
        let mut holders = Vec::new();
        for number in 0..clients.div_ceil(2) {
            let mut client = ApiClient::new(nodes, number, CALL_TIMEOUT);
            let session = RenewedSession::open(&mut client, SESSION_TTL, "failover holder").await?;
            let held = client
                .acquire(session.id(), &format!("failover/{round}/{number}"))
                .await?;
            holders.push(Holder {
                client,
                session,
                held,
            });
        }
        let mut waiters = Vec::new();
        for (number, holder) in holders.iter().take(clients / 2).enumerate() {
            // At another node than the lock's holder.
            let mut client = ApiClient::new(nodes, number + 1, CALL_TIMEOUT);
            let session = RenewedSession::open(&mut client, SESSION_TTL, "failover waiter").await?;
            let lock = holder.held.lock.clone();
            let (id, name) = (session.id().to_owned(), lock.clone());
            let wait = tokio::spawn(async move { client.acquire(&id, &name).await }.boxed());
            waiters.push(Waiter { lock, session, wait });
        }
        let crowd = Self {
            holders,
            waiters,
            nodes: nodes.to_vec(),
        };
        crowd.wait_queued().await?;
        Ok(crowd)
    }

    /// Waits until every waiter is in its queue.
    async fn wait_queued(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + QUEUE_TIMEOUT;
        let mut client = ApiClient::new(&self.nodes, 0, CALL_TIMEOUT);
        for Waiter { lock, .. } in &self.waiters {
            let path = format!("/v1/locks/{lock}");
            loop {
                let seen = client
                    .call("GET", &path, &serde_json::Value::Null, QUEUE_TIMEOUT)
                    .await?
                    .json();
                if seen["queue"].as_array().is_some_and(|queue| queue.len() == 1) {
                    break;
                }
                ensure!(
                    Instant::now() < deadline,
                    "the waiter of {lock} does not appear in the queue: {seen}"
                );
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
        Ok(())
    }

    /// Checks that every session and every held lock has survived, and that no held lock was granted again.
    async fn confirm(&self, survivors: &[String], violations: &mut Vec<String>) -> Instant {
        let mut client = ApiClient::new(survivors, 0, CALL_TIMEOUT);
        let sessions = self.holders.iter().map(|holder| &holder.session);
        for session in sessions.chain(self.waiters.iter().map(|waiter| &waiter.session)) {
            if let Err(error) = client.heartbeat(session.id()).await {
                violations.push(format!("the session {} did not survive: {error}", session.id()));
            }
        }
        let confirmed = Instant::now();
        for Holder { held, .. } in &self.holders {
            match client.check(held).await {
                Ok(true) => {}
                Ok(false) => violations.push(format!("{} was lost by {}", held.lock, held.holder)),
                Err(error) => violations.push(format!("{} cannot be checked: {error}", held.lock)),
            }
        }
        for Waiter { lock, wait, .. } in &self.waiters {
            if wait.is_finished() {
                violations.push(format!("the wait for {lock} ended while the lock was held"));
            }
        }
        confirmed
    }

    /// Releases every lock and checks that its waiter is granted it with a greater token.
    async fn finish(self, violations: &mut Vec<String>) -> anyhow::Result<()> {
        let mut tokens = Vec::new();
        for mut member in self.holders {
            tokens.push(member.held.fencing_token);
            if let Err(error) = member.client.release(member.session.id(), &member.held).await {
                violations.push(format!("{} cannot be released: {error}", member.held.lock));
            }
            member
                .client
                .close_session(member.session.id())
                .await
                .context("closing a holder's session")?;
        }
        for (Waiter { lock, session, wait }, token) in self.waiters.into_iter().zip(tokens) {
            let granted = tokio::time::timeout(CALL_TIMEOUT, wait).await;
            match granted.map(|joined| joined.context("a waiter")) {
                Err(_) => violations.push(format!("the waiter of {lock} was never granted it")),
                Ok(Err(error)) => return Err(error),
                Ok(Ok(Err(error))) => violations.push(format!("the waiter of {lock} was rejected: {error}")),
                Ok(Ok(Ok(granted))) if granted.fencing_token <= token => violations.push(format!(
                    "{lock}: the token {} follows {token}",
                    granted.fencing_token
                )),
                Ok(Ok(Ok(_))) => {}
            }
            let mut client = ApiClient::new(&self.nodes, 0, CALL_TIMEOUT);
            client
                .close_session(session.id())
                .await
                .context("closing a waiter's session")?;
        }
        Ok(())
    }
}
