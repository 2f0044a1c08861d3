//! `lockgate bench observers`: what nodes without a vote take off those that have one. The same load of writes, reads and watches with no
//! learner, one and two, and what each node spends on it.
//!
//! On a machine that all share, the whole does not get faster by more nodes; what can be seen there is whose processor is used.

mod paced;
mod places;
mod stage;

use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Args;
use cli_support::open_files;
use cli_support::output::say;
use cli_support::progress::Progress;
use local_cluster::{LocalCluster, START_TIMEOUT, STOP_TIMEOUT};
use serde::Serialize;
use tokio::task::LocalSet;

use super::large;
use super::report::{self, Percentiles, ms};
use places::Places;
use stage::Beside;

/// The cluster begins with so many nodes, which vote.
const VOTERS: u64 = 3;

/// Files beside the connections of the load.
const OTHER_FILES: u64 = 256;

/// What `lockgate bench observers` is told.
#[derive(Debug, Args)]
pub struct Arguments {
    /// With how many learners it is measured, one after the other and never fewer than before
    #[arg(long, value_delimiter = ',', default_value = "0,1,2")]
    learners: Vec<usize>,
    /// What goes on beside the writes, one after the other
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "nothing,get,http,watch"
    )]
    beside: Vec<Beside>,
    /// Clients that write, over ZooKeeper's protocol, spread over the voters
    #[arg(long, default_value_t = 8)]
    writers: usize,
    /// Writes of all of them in a second; 0: as fast as they are answered
    #[arg(long, default_value_t = 400)]
    writes: u32,
    /// Clients that read, spread over the learners if there are any, and otherwise over the voters
    #[arg(long, default_value_t = 32)]
    readers: usize,
    /// Reads of all of them in a second; 0: as fast as they are answered
    #[arg(long, default_value_t = 8_000)]
    reads: u32,
    /// Sessions that watch a znode, spread as the readers
    #[arg(long, default_value_t = 500)]
    watchers: usize,
    /// How often in a second it changes
    #[arg(long, default_value_t = 10)]
    changes: u32,
    /// Voters on the machine's first core, learners and this program on the others
    #[arg(long)]
    pin: bool,
    /// How long to measure each
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// How long to run before that
    #[arg(long, default_value_t = 1)]
    warmup: u64,
    /// Where the files of the cluster are that is made for this; there must be none yet
    #[arg(long, default_value = "lockgate-observers")]
    dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What one load came to with so many learners.
#[derive(Debug, Clone, Serialize)]
pub struct ObserversReport {
    /// How many nodes had no vote.
    pub learners: usize,
    /// What went on beside the writes.
    pub beside: Beside,
    /// Writes that were acknowledged in a second.
    pub writes_per_second: f64,
    /// How long they took.
    pub write: Percentiles,
    /// Reads that were answered in a second, or watchers that were told.
    pub served_per_second: f64,
    /// How long they took; of watchers, from the first byte of the write.
    pub served: Percentiles,
    /// Until the last watcher was told of a change.
    pub last_told: Option<Percentiles>,
    /// The leader's share of one processor, in percent.
    pub leader_cpu_percent: f64,
    /// Of each other voter, on average.
    pub follower_cpu_percent: f64,
    /// Of each learner, on average.
    pub learner_cpu_percent: f64,
    /// Of this program.
    pub client_cpu_percent: f64,
    /// The most entries that a learner was ever seen to be behind; none if there are no learners.
    pub lag_at_most: Option<u64>,
}

/// Measures, and prints what came out.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure!(
        !args.dir.exists(),
        "there is something in {} already",
        args.dir.display()
    );
    ensure!(
        args.learners.is_sorted(),
        "learners are added, and none is taken away: name their numbers in order"
    );
    ensure!(args.seconds > 0, "at least one second is needed");
    ensure!(
        args.writers > 0 && args.readers > 0 && args.watchers > 0 && args.changes > 0,
        "writers, readers, watchers and changes are needed"
    );
    open_files::raise((args.watchers + args.readers + args.writers) as u64 + OTHER_FILES)?;
    let mut cluster = large::cluster_in(&args.dir)?;
    let clients = LocalSet::new();
    let measured = tokio::select! {
        measured = clients.run_until(measure(&args, &mut cluster)) => measured,
        interrupted = tokio::signal::ctrl_c() => interrupted
            .context("listening for SIGINT")
            .and_then(|()| Err(anyhow::anyhow!("interrupted"))),
    };
    drop(clients);
    // With the learners that were added meanwhile.
    for id in cluster.ids() {
        cluster.stop(id, STOP_TIMEOUT).await?;
    }
    let reports = measured?;
    match args.json {
        true => report::print_json(&reports),
        false => Ok(()),
    }
}

async fn measure(args: &Arguments, cluster: &mut LocalCluster) -> anyhow::Result<Vec<ObserversReport>> {
    cluster.up(START_TIMEOUT).await?;
    let mut progress = Progress::counting("observers", "stages");
    let stages = (args.learners.len() * args.beside.len()) as u64;
    let mut reports: Vec<ObserversReport> = Vec::new();
    for &learners in &args.learners {
        while cluster.ids().len() < VOTERS as usize + learners {
            cluster.add_learner(None).await?;
        }
        let places = Places::of(cluster, VOTERS).await?;
        if args.pin {
            places.pin(cluster)?;
        }
        let mut nothing = None;
        for &beside in &args.beside {
            let report = stage::run(args, cluster, &places, beside).await?;
            if beside == Beside::Nothing {
                nothing = Some(report.clone());
            }
            progress.at(reports.len() as u64 + 1, stages);
            if !args.json {
                print(&report, nothing.as_ref(), reports.is_empty())?;
            }
            reports.push(report);
        }
    }
    Ok(reports)
}

/// `nothing` is what the writes alone came to with as many learners: what goes beyond it is the cost of what is beside them.
fn print(report: &ObserversReport, nothing: Option<&ObserversReport>, first: bool) -> anyhow::Result<()> {
    if first {
        say(format!(
            "{:>8} {:<8} {:>8} {:>15} {:>9} {:>15}  {:>6} {:>8} {:>7} {:>6}  {:>9} {:>8} {:>5}",
            "",
            "",
            "",
            "write",
            "",
            "read or told",
            "CPU %",
            "follower",
            "learner",
            "this",
            "voters us",
            "learners",
            "most"
        ))?;
        say(format!(
            "{:>8} {:<8} {:>8} {:>15} {:>9} {:>15}  {:>6} {:>8} {:>7} {:>6}  {:>9} {:>8} {:>5}",
            "learners",
            "beside",
            "writes/s",
            "p50, p99 ms",
            "served/s",
            "p50, p99 ms",
            "leader",
            "each",
            "each",
            "",
            "for each",
            "us",
            "lag"
        ))?;
    }
    let two = |times: &Percentiles| format!("{}, {}", ms(times.p50_us), ms(times.p99_us));
    let voters = |of: &ObserversReport| of.leader_cpu_percent + of.follower_cpu_percent * (VOTERS - 1) as f64;
    let learners = |of: &ObserversReport| of.learner_cpu_percent * of.learners as f64;
    // Percent of a core are ten milliseconds in a second.
    let each = |of: &dyn Fn(&ObserversReport) -> f64| match nothing {
        Some(nothing) if report.served_per_second > 0.0 => {
            format!(
                "{:.1}",
                (of(report) - of(nothing)) * 1e4 / report.served_per_second
            )
        }
        _ => "-".to_owned(),
    };
    say(format!(
        "{:>8} {:<8} {:>8.0} {:>15} {:>9.0} {:>15}  {:>6.1} {:>8.1} {:>7.1} {:>6.1}  {:>9} {:>8} {:>5}",
        report.learners,
        report.beside.name(),
        report.writes_per_second,
        two(&report.write),
        report.served_per_second,
        two(&report.served),
        report.leader_cpu_percent,
        report.follower_cpu_percent,
        report.learner_cpu_percent,
        report.client_cpu_percent,
        each(&voters),
        each(&learners),
        report.lag_at_most.map_or("-".to_owned(), |lag| lag.to_string())
    ))
}
