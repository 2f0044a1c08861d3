//! Measures how long a member without state takes to catch up on a large tree while the others continue to
//! serve, and the effect on their clients.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use cli_support::format::Output;
use cli_support::output::say;
use local_cluster::{LocalCluster, START_TIMEOUT, STOP_TIMEOUT};
use serde::Serialize;
use tokio::time::Instant;

use super::{large, processes};

/// Duration of the load before the member starts, and after it has caught up.
const SETTLE: Duration = Duration::from_secs(2);

/// Timeout for the member to catch up.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(300);

/// Options of `lockgate bench catch-up`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Number of znodes of 100 bytes
    #[arg(long, default_value_t = 1_000_000)]
    znodes: u64,
    /// Number of clients that write meanwhile
    #[arg(long, default_value_t = 8)]
    writers: usize,
    /// Directory for a new cluster
    #[arg(long, default_value = "lockgate-catch-up")]
    dir: PathBuf,
    /// Format of the result
    #[command(flatten)]
    output: Output,
}

/// Result of the measurement.
#[derive(Debug, Clone, Serialize)]
pub struct CatchUpReport {
    /// Number of znodes.
    pub znodes: u64,
    /// Time from the start of the member's process until it was ready, in milliseconds.
    pub caught_up_ms: u64,
    /// Writes per second while the member caught up.
    pub writes_per_second: u64,
    /// Writes per second before the member started.
    pub writes_per_second_before: u64,
    /// Longest time without an acknowledged write, in milliseconds.
    pub longest_write_gap_ms: u64,
    /// Longest duration of a read at the leader, in milliseconds.
    pub longest_leader_read_ms: u64,
    /// Longest duration of a read at the other follower, in milliseconds.
    pub longest_follower_read_ms: u64,
    /// Peak memory of the leader in bytes.
    pub leader_peak_memory_bytes: u64,
    /// Peak memory of the member in bytes.
    pub member_peak_memory_bytes: u64,
}

/// Measures on a cluster of its own and prints the result.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure!(
        !args.dir.exists(),
        "{} already exists, but the measurement needs a new cluster",
        args.dir.display()
    );
    let mut cluster = large::cluster_in(&args.dir)?;
    let report = measure(&mut cluster, args.znodes, args.writers).await;
    for id in cluster.ids() {
        cluster.stop(id, STOP_TIMEOUT).await?;
    }
    let report = report?;
    if args.output.is_document() {
        return args.output.say(&report, String::new);
    }
    say(format!(
        "{} znodes: caught up after {} ms, with {} writes/s ({} before)",
        report.znodes, report.caught_up_ms, report.writes_per_second, report.writes_per_second_before
    ))?;
    println!(
        "longest: no write acknowledged for {} ms; a read at the leader took {} ms, at the follower {} ms",
        report.longest_write_gap_ms, report.longest_leader_read_ms, report.longest_follower_read_ms
    );
    say(format!(
        "most memory: leader {} MB, the member {} MB",
        report.leader_peak_memory_bytes / 1_000_000,
        report.member_peak_memory_bytes / 1_000_000
    ))?;
    Ok(())
}

/// Measures on this cluster. The member joins when the cluster is formed, and is down while the tree is
/// filled.
pub async fn measure(
    cluster: &mut LocalCluster,
    znodes: u64,
    writers: usize,
) -> anyhow::Result<CatchUpReport> {
    cluster.up(START_TIMEOUT).await?;
    let leader = cluster.leader(START_TIMEOUT).await?;
    let others: Vec<_> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    let (&member, &follower) =
        (others.first().zip(others.last())).context("the cluster needs three nodes")?;
    cluster.kill(member).await?;
    let leader_http = cluster.node(leader)?.http.clone();
    let follower_http = cluster.node(follower)?.http.clone();
    large::fill(std::slice::from_ref(&leader_http), znodes).await?;

    let load = large::Writers::start(&[leader_http.clone(), follower_http.clone()], writers).await?;
    load.begin();
    tokio::time::sleep(SETTLE).await;
    let (before, _) = load.so_far();
    let readers = [
        large::Reader::start(&leader_http),
        large::Reader::start(&follower_http),
    ];
    load.begin();
    let begin = Instant::now();
    cluster.start(member)?;
    cluster.wait_ready(&[member], CATCH_UP_TIMEOUT).await?;
    let took = begin.elapsed();
    let (writes, _) = load.so_far();
    // The last step may affect the other nodes a little later.
    tokio::time::sleep(SETTLE).await;
    let (_, longest) = load.so_far();
    let [leader_read, follower_read] = readers;
    let (leader_read, follower_read) = (leader_read.stop().await?, follower_read.stop().await?);
    load.stop().await?;

    let found = large::count(&cluster.node(member)?.http).await?;
    ensure!(
        found >= znodes,
        "the member has {found} znodes instead of {znodes}"
    );
    let view = cluster
        .view_of(member)
        .await?
        .context("the member does not respond")?;
    ensure!(
        view.snapshot_index > 0,
        "the member has caught up without a snapshot"
    );
    let peak =
        |id| -> anyhow::Result<u64> { processes::peak_memory(cluster.pid(id)?.context("a node has ended")?) };
    Ok(CatchUpReport {
        znodes,
        caught_up_ms: took.as_millis() as u64,
        writes_per_second: (writes as f64 / took.as_secs_f64()) as u64,
        writes_per_second_before: (before as f64 / SETTLE.as_secs_f64()) as u64,
        longest_write_gap_ms: longest.as_millis() as u64,
        longest_leader_read_ms: leader_read.as_millis() as u64,
        longest_follower_read_ms: follower_read.as_millis() as u64,
        leader_peak_memory_bytes: peak(leader)?,
        member_peak_memory_bytes: peak(member)?,
    })
}
