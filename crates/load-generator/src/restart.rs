//! Measures restarts with a large state: of one node while the others serve, and of all nodes at once.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use cli_support::api_client::{ApiClient, request_id};
use cli_support::ensure_usage;
use cli_support::format::Output;
use cli_support::output::say;
use local_cluster::{LocalCluster, START_TIMEOUT, STOP_TIMEOUT};
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::{large, processes};

/// Timeout of the first write after a restart.
const FIRST_WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Response timeout before the next node is tried. It is short, as it would otherwise be measured.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Options of `lockgate bench restart`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Number of znodes of 100 bytes
    #[arg(long, default_value_t = 1_000_000)]
    znodes: u64,
    /// Number of measurements of each restart
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Directory of the cluster; a new one of three nodes on free ports is created if it has no cluster
    #[arg(long, default_value = "lockgate-restart")]
    dir: PathBuf,
    /// Format of the result
    #[command(flatten)]
    output: Output,
}

/// Result of the measurement. Each list has one number per round.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RestartReport {
    /// Number of znodes.
    pub znodes: u64,
    /// Size of node 1's data directory in bytes.
    pub disk_bytes: u64,
    /// Times from the start of a killed follower until it was ready, in milliseconds.
    pub one_ready_ms: Vec<u64>,
    /// Times from the start of all killed nodes until a write was acknowledged, in milliseconds.
    pub all_first_write_ms: Vec<u64>,
    /// Times from the start of all killed nodes until all were ready, in milliseconds.
    pub all_ready_ms: Vec<u64>,
    /// Peak memory of a node afterwards, in bytes.
    pub peak_memory_bytes: u64,
}

/// Measures on a cluster of its own and prints the result.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure_usage!(args.rounds >= 1, "at least one round is needed");
    let mut cluster = large::cluster_in(&args.dir)?;
    let report = measure(&mut cluster, args.znodes, args.rounds).await;
    for id in cluster.ids() {
        cluster.stop(id, STOP_TIMEOUT).await?;
    }
    let report = report?;
    if args.output.is_document() {
        return args.output.say(&report, String::new);
    }
    say(format!(
        "{} znodes, {} MB on disk per node, at most {} MB of memory",
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

/// Fills the tree and measures the restarts.
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
        let mut client = ApiClient::new(&cluster.http_addresses(), 0, FIRST_WRITE_TIMEOUT);
        let body = json!({ "data": "", "request_id": request_id() });
        let path = format!("/v1/znodes/restart-{}", request_id());
        client.call("POST", &path, &body, RESPONSE_TIMEOUT).await?;
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
