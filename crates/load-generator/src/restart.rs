//! How long a restart takes with a large state: of one node while the others serve, and of all at once.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use cli_support::api_client::{ApiClient, request_id};
use cli_support::ensure_usage;
use cli_support::output::say;
use local_cluster::{LocalCluster, START_TIMEOUT, STOP_TIMEOUT};
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::{large, processes, report};

/// The first write after a restart may take so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a node may be without an answer before the next is asked: no longer, or it is that which is measured.
const ASK_NEXT_AFTER: Duration = Duration::from_millis(500);

/// What `lockgate bench restart` is told.
#[derive(Debug, Args)]
pub struct Arguments {
    /// How many znodes of 100 bytes there are
    #[arg(long, default_value_t = 1_000_000)]
    znodes: u64,
    /// How often each restart is measured
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Where the cluster's files are; a new cluster of three is made there on free ports
    #[arg(long, default_value = "lockgate-restart")]
    dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was measured. Each list has one number for each round.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RestartReport {
    /// How many znodes there were.
    pub znodes: u64,
    /// Bytes in the data directory of node 1.
    pub disk_bytes: u64,
    /// A follower was killed and started: milliseconds until it was ready.
    pub one_ready_ms: Vec<u64>,
    /// All were killed and started: milliseconds until a write was acknowledged.
    pub all_first_write_ms: Vec<u64>,
    /// The same: until all were ready.
    pub all_ready_ms: Vec<u64>,
    /// The most memory that a node had after that, in bytes.
    pub peak_memory_bytes: u64,
}

/// Measures on a cluster of its own, and prints what came out.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure_usage!(args.rounds >= 1, "at least one round is needed");
    let mut cluster = large::cluster_in(&args.dir)?;
    let report = measure(&mut cluster, args.znodes, args.rounds).await;
    for id in cluster.ids() {
        cluster.stop(id, STOP_TIMEOUT).await?;
    }
    let report = report?;
    if args.json {
        return report::print_json(&report);
    }
    say(format!(
        "{} znodes, {} MB on the disk of a node, at most {} MB of memory",
        report.znodes,
        report.disk_bytes / 1_000_000,
        report.peak_memory_bytes / 1_000_000
    ))?;
    say(format!(
        "one follower restarted, until it is ready:   {:?} ms",
        report.one_ready_ms
    ))?;
    say(format!(
        "all restarted at once, until the first write: {:?} ms",
        report.all_first_write_ms
    ))?;
    say(format!(
        "all restarted at once, until all are ready:   {:?} ms",
        report.all_ready_ms
    ))?;
    Ok(())
}

/// Fills the tree and restarts.
pub async fn measure(
    cluster: &mut LocalCluster,
    znodes: u64,
    rounds: usize,
) -> anyhow::Result<RestartReport> {
    large::prepare(cluster, znodes).await?;
    let mut report = RestartReport {
        znodes,
        ..RestartReport::default()
    };
    for _ in 0..rounds {
        let leader = cluster.leader(START_TIMEOUT).await?;
        let follower = cluster
            .ids()
            .into_iter()
            .find(|id| *id != leader)
            .unwrap_or(leader);
        cluster.kill(follower).await?;
        let begin = Instant::now();
        cluster.start(follower)?;
        cluster.wait_ready(&[follower], START_TIMEOUT).await?;
        report.one_ready_ms.push(begin.elapsed().as_millis() as u64);

        cluster.kill_all().await?;
        let begin = Instant::now();
        for id in cluster.ids() {
            cluster.start(id)?;
        }
        let mut client = ApiClient::new(&cluster.http_addresses(), 0, PATIENCE);
        let body = json!({ "data": "", "request_id": request_id() });
        let path = format!("/v1/znodes/restart-{}", request_id());
        client.call("POST", &path, &body, ASK_NEXT_AFTER).await?;
        report.all_first_write_ms.push(begin.elapsed().as_millis() as u64);
        cluster.wait_ready(&cluster.ids(), START_TIMEOUT).await?;
        report.all_ready_ms.push(begin.elapsed().as_millis() as u64);
        for id in cluster.ids() {
            let found = large::count(&cluster.node(id)?.http).await?;
            ensure!(
                found >= znodes,
                "node {id} has {found} znodes instead of {znodes}"
            );
            if let Some(pid) = cluster.pid(id)? {
                report.peak_memory_bytes = report.peak_memory_bytes.max(processes::peak_memory(pid)?);
            }
        }
    }
    report.disk_bytes = large::bytes_below(&cluster.node(1)?.data_dir())?;
    Ok(report)
}
