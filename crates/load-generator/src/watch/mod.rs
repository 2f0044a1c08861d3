//! `lockgate bench watch`: how long it takes from a change until all who watch it know, over ZooKeeper's own protocol, at Lockgate's
//! nodes and at any ZooKeeper alike.

pub mod fan_out;

use std::time::Duration;

use anyhow::Context;
use clap::Args;
use cli_support::api_client::request_id;
use cli_support::ensure_usage;
use cli_support::open_files;
use cli_support::output::say;
use cli_support::progress::Progress;
use cli_support::signals;
use nix::unistd::Pid;
use serde::Serialize;
use tokio::task::LocalSet;
use tokio::time::Instant;

use super::nodes::Nodes;
use super::processes;
use super::report::{self, Durations, Percentiles, ms};
use super::workload::Workload;
use super::zookeeper::servers::Servers;
use super::zookeeper::tree::Tree;
use fan_out::{Again, FanOut};

/// Files beside the watchers' connections.
const OTHER_FILES: u64 = 256;

/// What `lockgate bench watch` is told.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    servers: Servers,
    /// How many sessions watch the znode, each on its own connection; several numbers are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "1000")]
    sessions: Vec<usize>,
    /// Each reads what is new as soon as it is told, as programs do; otherwise all do when the last one was told, so that reads
    /// hold up no notification
    #[arg(long)]
    at_once: bool,
    /// How long to measure each
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// How long to run before that
    #[arg(long, default_value_t = 2)]
    warmup: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What so many watchers came to. Times are from the first byte of the write.
#[derive(Debug, Clone, Serialize)]
pub struct WatchReport {
    /// How many sessions watched.
    pub sessions: usize,
    /// At how many servers.
    pub servers: usize,
    /// For how long it was measured.
    pub seconds: f64,
    /// How often the znode was changed in that time.
    pub changes: u64,
    /// Until the first one was told, of each change.
    pub first: Percentiles,
    /// Until half of them were.
    pub median: Percentiles,
    /// Until all were.
    pub last: Percentiles,
    /// Until anyone was: all notifications of all changes.
    pub each: Percentiles,
    /// Until the write was answered.
    pub write: Percentiles,
    /// Until all had read what is new and watched again.
    pub read: Percentiles,
    /// Time on the processor that all servers spent on one notification, with the read that sets the watch again, in microseconds; if
    /// they are a cluster on this machine.
    pub server_cpu_us: Option<f64>,
    /// The same of this program: what the servers did not have of a machine that they share with it.
    pub client_cpu_us: f64,
}

/// Measures, and prints what came out.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure_usage!(!args.sessions.contains(&0), "at least one session has to watch");
    ensure_usage!(args.seconds > 0, "at least one second is needed");
    let most = args.sessions.iter().max().copied().unwrap_or_default();
    open_files::raise(most as u64 + OTHER_FILES)?;
    let servers = args.servers.nodes()?;
    let tree = Tree::new(&request_id());
    let clients = LocalSet::new();
    let measured = tokio::select! {
        measured = clients.run_until(measure(&args, &servers, &tree)) => measured,
        interrupted = signals::interrupted() => interrupted.and_then(|()| Err(anyhow::anyhow!("interrupted"))),
    };
    // With the clients that an interruption has left.
    drop(clients);
    if measured.is_err() {
        // Nobody else knows what is left, and these servers may have other users.
        tree.remove(&servers)
            .await
            .with_context(|| format!("{} could not be removed", tree.paths().join(" and ")))?;
    }
    let reports = measured?;
    match args.json {
        true => report::print_json(&reports),
        false => Ok(()),
    }
}

async fn measure(args: &Arguments, servers: &Nodes, tree: &Tree) -> anyhow::Result<Vec<WatchReport>> {
    let mut reports = Vec::new();
    for &sessions in &args.sessions {
        tree.make(servers, Workload::Set, 1, &bytes::Bytes::new()).await?;
        let report = of(args, servers, &tree.znode(0), sessions).await?;
        tree.remove(servers).await?;
        if !args.json {
            print(&report, reports.is_empty())?;
        }
        reports.push(report);
    }
    Ok(reports)
}

/// So many sessions.
async fn of(args: &Arguments, servers: &Nodes, znode: &str, sessions: usize) -> anyhow::Result<WatchReport> {
    let again = match args.at_once {
        true => Again::AtOnce,
        false => Again::Together,
    };
    let mut fan_out = FanOut::start(servers, servers, znode, sessions, again).await?;
    let begin = Instant::now() + Duration::from_secs(args.warmup);
    while Instant::now() < begin {
        fan_out.change().await?;
    }
    let pids = args.servers.processes()?;
    let own = [Pid::this()];
    let (servers_before, own_before) = (spent(&pids)?, spent(&own)?);
    let mut progress = Progress::counting("watched changes", "s");
    let [mut first, mut median, mut last, mut each, mut write, mut read] = [(); 6].map(|()| Durations::new());
    let mut changes = 0;
    let begin = Instant::now();
    let measured = Duration::from_secs(args.seconds);
    while begin.elapsed() < measured {
        let told = fan_out.change().await?;
        changes += 1;
        first.record(told.told[0]);
        median.record(told.told[(sessions - 1) / 2]);
        last.record(told.told[sessions - 1]);
        told.told.iter().for_each(|after| each.record(*after));
        write.record(told.answered);
        read.record(told.read);
        progress.at(begin.elapsed().as_secs(), args.seconds);
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
            "first told",
            "half told",
            "all told",
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
