//! `lockgate bench watch`: time from a change until all watching sessions are notified, over ZooKeeper's own
//! protocol, at Lockgate's nodes and at any ZooKeeper.

pub mod fan_out;

use std::time::Duration;

use anyhow::Context;
use clap::Args;
use cli_support::api_client::request_id;
use cli_support::durations;
use cli_support::ensure_usage;
use cli_support::format::Output;
use cli_support::open_files;
use cli_support::output::say;
use cli_support::progress::Progress;
use cli_support::signals;
use nix::unistd::Pid;
use serde::Serialize;
use tokio::task::LocalSet;
use tokio::time::Instant;

use super::nodes::Nodes;
use super::report::{Durations, Percentiles, ms};
use super::workload::Workload;
use super::zookeeper::tree::Tree;
use super::{Target, processes};
use fan_out::{FanOut, Rearm};

/// Open files beside the connections of the watchers.
const OTHER_FILES: u64 = 256;

/// Options of `lockgate bench watch`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// Number of sessions that watch the znode, each on a connection of its own; several numbers are measured
    /// one after the other
    #[arg(long, value_delimiter = ',', default_value = "1000")]
    sessions: Vec<usize>,
    /// Let each session read the new data as soon as it is notified, as programs do; by default they read
    /// when all are notified, so that the reads delay no notification
    #[arg(long)]
    at_once: bool,
    /// Duration of each measurement
    #[arg(long, value_name = "TIME", alias = "seconds", default_value = "10s", value_parser = durations::seconds)]
    duration: Duration,
    /// Duration of the warm-up
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = durations::seconds_or_zero)]
    warmup: Duration,
    /// Format of the result
    #[command(flatten)]
    output: Output,
}

/// Result for one number of sessions. Times begin with the first byte of the write.
#[derive(Debug, Clone, Serialize)]
pub struct WatchReport {
    /// Number of watching sessions.
    pub sessions: usize,
    /// Number of servers.
    pub servers: usize,
    /// Duration of the measurement in seconds.
    pub seconds: f64,
    /// Number of changes of the znode.
    pub changes: u64,
    /// Times until the first session was notified, one per change.
    pub first: Percentiles,
    /// Times until half of the sessions were notified.
    pub median: Percentiles,
    /// Times until all sessions were notified.
    pub last: Percentiles,
    /// Times of all notifications of all changes.
    pub each: Percentiles,
    /// Times until the write was acknowledged.
    pub write: Percentiles,
    /// Times until all sessions had read the new data and set their watches again.
    pub read: Percentiles,
    /// CPU time of all servers together per notification, including the read that sets the watch again, in
    /// microseconds; only for a local cluster.
    pub server_cpu_us: Option<f64>,
    /// CPU time of this program per notification, which the servers could not use if they share the machine.
    pub client_cpu_us: f64,
}

/// Measures and prints the result.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure_usage!(!args.sessions.contains(&0), "at least one session is needed");
    let max_sessions = args.sessions.iter().max().copied().unwrap_or_default();
    open_files::raise(max_sessions as u64 + OTHER_FILES)?;
    let servers = args.target.zookeeper_nodes()?;
    let tree = Tree::new(&request_id());
    let clients = LocalSet::new();
    let measured = tokio::select! {
        measured = clients.run_until(measure(&args, &servers, &tree)) => measured,
        interrupted = signals::interrupted() => interrupted.and_then(|()| Err(anyhow::anyhow!("interrupted"))),
    };
    // This drops the clients that an interrupt has left.
    drop(clients);
    if measured.is_err() {
        // Only this program knows the created znodes, and the servers may have other users.
        tree.remove(&servers)
            .await
            .with_context(|| format!("{} cannot be removed", tree.paths().join(" and ")))?;
    }
    let reports = measured?;
    match args.output.is_document() {
        true => args.output.say(&reports, String::new),
        false => Ok(()),
    }
}

async fn measure(args: &Arguments, servers: &Nodes, tree: &Tree) -> anyhow::Result<Vec<WatchReport>> {
    let mut reports = Vec::new();
    for &sessions in &args.sessions {
        tree.create(servers, Workload::Set, 1, &bytes::Bytes::new())
            .await?;
        let report = measure_sessions(args, servers, &tree.znode(0), sessions).await?;
        tree.remove(servers).await?;
        if !args.output.is_document() {
            print(&report, reports.is_empty())?;
        }
        reports.push(report);
    }
    Ok(reports)
}

/// Measures with this number of sessions.
async fn measure_sessions(
    args: &Arguments,
    servers: &Nodes,
    znode: &str,
    sessions: usize,
) -> anyhow::Result<WatchReport> {
    let rearm = match args.at_once {
        true => Rearm::AtOnce,
        false => Rearm::Together,
    };
    let mut fan_out = FanOut::start(servers, servers, znode, sessions, rearm).await?;
    let begin = Instant::now() + args.warmup;
    while Instant::now() < begin {
        fan_out.change().await?;
    }
    let pids = args.target.processes()?;
    let own = [Pid::this()];
    let (servers_before, own_before) = (spent(&pids)?, spent(&own)?);
    let mut progress = Progress::counting("watched changes", "s");
    let [mut first, mut median, mut last, mut each, mut write, mut read] = [(); 6].map(|()| Durations::new());
    let mut changes = 0;
    let begin = Instant::now();
    let measured = args.duration;
    while begin.elapsed() < measured {
        let times = fan_out.change().await?;
        changes += 1;
        first.record(times.notified[0]);
        median.record(times.notified[(sessions - 1) / 2]);
        last.record(times.notified[sessions - 1]);
        times.notified.iter().for_each(|after| each.record(*after));
        write.record(times.acknowledged);
        read.record(times.read);
        progress.at(begin.elapsed().as_secs(), args.duration.as_secs());
    }
    let seconds = begin.elapsed().as_secs_f64();
    let notifications = changes as f64 * sessions as f64;
    let for_each = |spent: Duration| spent.as_secs_f64() * 1e6 / notifications;
    let servers_spent = spent(&pids)?.saturating_sub(servers_before);
    let own_spent = spent(&own)?.saturating_sub(own_before);
    drop(progress);
    fan_out.stop().await?;
    Ok(WatchReport {
        sessions,
        servers: servers.count(),
        seconds,
        changes,
        first: first.percentiles(),
        median: median.percentiles(),
        last: last.percentiles(),
        each: each.percentiles(),
        write: write.percentiles(),
        read: read.percentiles(),
        server_cpu_us: (!pids.is_empty()).then(|| for_each(servers_spent)),
        client_cpu_us: for_each(own_spent),
    })
}

fn spent(pids: &[Pid]) -> anyhow::Result<Duration> {
    pids.iter().map(|pid| processes::cpu_time(*pid)).sum()
}

fn print(report: &WatchReport, first: bool) -> anyhow::Result<()> {
    if first {
        say(format!(
            "{:>8} {:>8} {:>15} {:>15} {:>15} {:>15} {:>15} {:>9} {:>9}",
            "",
            "",
            "first notified",
            "half notified",
            "all notified",
            "written",
            "all have read",
            "CPU us of",
            "CPU us of"
        ))?;
        say(format!(
            "{:>8} {:>8}{} {:>9} {:>9}",
            "sessions",
            "changes",
            format!(" {:>15}", "p50, p99 ms").repeat(5),
            "servers",
            "this"
        ))?;
    }
    let two = |times: &Percentiles| format!("{}, {}", ms(times.p50_us), ms(times.p99_us));
    let cpu = report
        .server_cpu_us
        .map_or("-".to_owned(), |us| format!("{us:.1}"));
    say(format!(
        "{:>8} {:>8} {:>15} {:>15} {:>15} {:>15} {:>15} {:>9} {:>9.1}",
        report.sessions,
        report.changes,
        two(&report.first),
        two(&report.median),
        two(&report.last),
        two(&report.write),
        two(&report.read),
        cpu,
        report.client_cpu_us
    ))
}
