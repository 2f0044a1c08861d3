//! `lockgate bench limits`: how many sessions, watches and locks a node keeps, and what each of them costs it: step by step, on a cluster
//! of its own that is new for each kind, because memory that was used once does not all come back.

mod locks;
pub(super) mod sessions;
mod watches;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use cli_support::open_files;
use cli_support::output::say;
use cli_support::progress::Progress;
use local_cluster::{LocalCluster, Ports, START_TIMEOUT, STOP_TIMEOUT};
use nix::unistd::Pid;
use raft_node::NodeId;
use serde::Serialize;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep};

use super::load::Plan;
use super::nodes::Nodes;
use super::processes;
use super::report::{self, Percentiles, ms};
use super::zookeeper::servers::address;
use locks::Locks;
use sessions::Sessions;
use watches::Watches;

/// Connections over which sessions are opened and kept, and locks taken: enough to keep the leader busy.
const AT_A_TIME: usize = 16;

/// How long a node may refuse before the run is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many nodes the clusters have.
const NODES: u64 = 3;

/// All calls come from one address, of which a node opens no more than some hundred sessions in a second otherwise.
const SETTINGS: &str = "[load]\nsession_openings_per_second = 100000\n";

/// What a step leaves to do (batches, snapshots that are written) is over after so long, or belongs to keeping it.
const SETTLE: Duration = Duration::from_secs(2);

/// For so long a client takes a lock and gives it back, again and again, to see whether others notice.
const PROBE: Duration = Duration::from_secs(3);

/// Files of this program: its connections, and what it needs beside them.
const FILES: u64 = 1_024;

/// What is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Kept {
    /// Sessions with heartbeats, without a connection of their own
    Sessions,
    /// Watches of few clients at one node, which is not the leader
    Watches,
    /// Locks that few sessions hold
    Locks,
}

/// What `lockgate bench limits` is told.
#[derive(Debug, Args)]
pub struct Arguments {
    /// What is kept, one after the other
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "sessions,watches,locks"
    )]
    kept: Vec<Kept>,
    /// How many sessions, step by step
    #[arg(long, value_delimiter = ',', default_value = "10000,50000,90000")]
    sessions: Vec<usize>,
    /// How many watches, step by step
    #[arg(long, value_delimiter = ',', default_value = "100000,500000,1000000")]
    watches: Vec<usize>,
    /// How many locks, step by step
    #[arg(long, value_delimiter = ',', default_value = "100000,500000,1000000")]
    locks: Vec<usize>,
    /// The sessions' ttl in milliseconds
    #[arg(long, default_value_t = 30_000)]
    ttl_ms: u64,
    /// For how long it is looked, at each step, what keeping them costs
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Where the files of the clusters are that are made for this; there must be none yet
    #[arg(long, default_value = "lockgate-limits")]
    dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What so many came to. Of nodes: the leader first.
#[derive(Debug, Clone, Serialize)]
pub struct Step {
    /// Of what.
    pub kept: Kept,
    /// How many.
    pub count: usize,
    /// How many were made in a second since the last step.
    pub made_per_second: f64,
    /// Each node's memory, in bytes.
    pub memory_bytes: Vec<u64>,
    /// What each has cost the node that has grown most, in bytes: its memory less what it had before the first.
    pub bytes_each: f64,
    /// Each node's share of one processor while they were kept and nothing else was done, in percent.
    pub cpu_percent: Vec<f64>,
    /// Heartbeats that were confirmed in a second, if sessions are what is kept.
    pub heartbeats_per_second: f64,
    /// How long they took.
    pub heartbeat: Option<Percentiles>,
    /// Heartbeats that this program sent too late: then it is what is measured.
    pub late: u64,
    /// How long it took one client to take a lock and give it back, with nothing else to do but to keep all this.
    pub cycle: Percentiles,
}

/// Measures, and prints what came out.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure!(
        !args.dir.exists(),
        "there is something in {} already",
        args.dir.display()
    );
    for steps in [&args.sessions, &args.watches, &args.locks] {
        ensure!(
            steps.is_sorted() && !steps.contains(&0),
            "steps go up, and begin with one at least"
        );
    }
    ensure!(args.seconds > 0, "at least one second is needed");
    open_files::raise(FILES)?;
    let mut steps = Vec::new();
    for &kept in &args.kept {
        let name = kept.to_possible_value().context("every kind has a name")?;
        let dir = args.dir.join(name.get_name());
        let executable = std::env::current_exe().context("finding this program's own file")?;
        let mut cluster = LocalCluster::create(&dir, &executable, NODES, Ports::Free, SETTINGS)?;
        let clients = LocalSet::new();
        let measured = tokio::select! {
            measured = clients.run_until(measure(&args, kept, &mut cluster, &mut steps)) => measured,
            interrupted = tokio::signal::ctrl_c() => interrupted
                .context("listening for SIGINT")
                .and_then(|()| Err(anyhow::anyhow!("interrupted"))),
        };
        drop(clients);
        for id in cluster.ids() {
            cluster.stop(id, STOP_TIMEOUT).await?;
        }
        measured?;
    }
    match args.json {
        true => report::print_json(&steps),
        false => Ok(()),
    }
}

/// The things that are kept.
enum Things {
    Sessions(Sessions),
    Watches(Watches),
    Locks(Locks),
}

async fn measure(
    args: &Arguments,
    kept: Kept,
    cluster: &mut LocalCluster,
    steps: &mut Vec<Step>,
) -> anyhow::Result<()> {
    cluster.up(START_TIMEOUT).await?;
    let leader = cluster.leader(START_TIMEOUT).await?;
    let mut ids: Vec<NodeId> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    let follower = cluster.node(ids[0])?;
    let follower = Nodes::from(vec![address(follower)?]);
    ids.insert(0, leader);
    let pids: Vec<Pid> = ids
        .iter()
        .map(|id| cluster.pid(*id)?.context("a node has ended"))
        .collect::<anyhow::Result<_>>()?;
    let nodes = Nodes::from(cluster.http_addresses());
    let probe = Plan::new(nodes.clone(), Duration::from_millis(500), PROBE);
    // What grows with the first request has grown then.
    probe.lock_cycles(1).await?;
    let before = memory(&pids)?;

    let ttl = Duration::from_millis(args.ttl_ms);
    let (mut things, counts, what) = match kept {
        Kept::Sessions => (
            Things::Sessions(Sessions::new(nodes, ttl, AT_A_TIME)),
            &args.sessions,
            "sessions",
        ),
        Kept::Watches => (Things::Watches(Watches::new(follower)), &args.watches, "watches"),
        Kept::Locks => (Things::Locks(Locks::new(nodes, ttl)), &args.locks, "locks"),
    };
    let mut had = 0;
    for &count in counts {
        let begin = Instant::now();
        let mut bar = Progress::counting("made", what);
        let mut progress = |so_many: usize| bar.at(so_many as u64, count as u64);
        match &mut things {
            Things::Sessions(sessions) => sessions.grow_to(count, &mut progress).await?,
            Things::Watches(watches) => watches.grow_to(count, &mut progress).await?,
            Things::Locks(locks) => locks.grow_to(count, &mut progress).await?,
        }
        drop(bar);
        let made_per_second = (count - had) as f64 / begin.elapsed().as_secs_f64();
        had = count;
        // Sessions that have come in the middle of a round of heartbeats are in the next one.
        let settle = match kept {
            Kept::Sessions => SETTLE.max(ttl / 3 * 2),
            Kept::Watches | Kept::Locks => SETTLE,
        };
        sleep(settle).await;

        if let Things::Sessions(sessions) = &mut things {
            sessions.look()?;
        }
        let (begin, spent) = (Instant::now(), spent(&pids)?);
        sleep(Duration::from_secs(args.seconds)).await;
        let seconds = begin.elapsed().as_secs_f64();
        let cpu_percent = self::spent(&pids)?
            .into_iter()
            .zip(spent)
            .map(|(after, before)| after.saturating_sub(before).as_secs_f64() / seconds * 100.0)
            .collect();
        let (heartbeat, late) = match &mut things {
            Things::Sessions(sessions) => {
                let (heartbeat, late) = sessions.look()?;
                (Some(heartbeat), late)
            }
            Things::Watches(_) => (None, 0),
            Things::Locks(locks) => {
                locks.check()?;
                (None, 0)
            }
        };
        let memory_bytes = memory(&pids)?;
        let grown = memory_bytes.iter().zip(&before);
        let grown = grown.map(|(now, before)| now.saturating_sub(*before)).max();
        let probed = probe.lock_cycles(1).await?;
        ensure!(probed.errors == 0, "a lock was not granted beside {count} {what}");
        let step = Step {
            kept,
            count,
            made_per_second,
            bytes_each: grown.unwrap_or_default() as f64 / count as f64,
            memory_bytes,
            cpu_percent,
            heartbeats_per_second: heartbeat.map_or(0.0, |heartbeat| heartbeat.count as f64 / seconds),
            heartbeat,
            late,
            cycle: probed.operation,
        };
        if !args.json {
            print(&step, what, steps.is_empty())?;
        }
        steps.push(step);
    }
    Ok(())
}

fn spent(pids: &[Pid]) -> anyhow::Result<Vec<Duration>> {
    pids.iter().map(|pid| processes::cpu_time(*pid)).collect()
}

fn memory(pids: &[Pid]) -> anyhow::Result<Vec<u64>> {
    pids.iter().map(|pid| processes::memory(*pid)).collect()
}

fn print(step: &Step, what: &str, first: bool) -> anyhow::Result<()> {
    if first {
        say(format!(
            "{:>9} {:<9} {:>9} {:>18} {:>10} {:>18} {:>12} {:>15} {:>15}",
            "",
            "",
            "made/s",
            "MiB of each node",
            "bytes each",
            "CPU % of each",
            "heartbeats/s",
            "their p50, p99",
            "lock's p50, p99"
        ))?;
    }
    let list = |numbers: Vec<String>| numbers.join(" ");
    let two = |times: &Percentiles| format!("{}, {}", ms(times.p50_us), ms(times.p99_us));
    let memory = step.memory_bytes.iter();
    let memory = list(
        memory
            .map(|bytes| format!("{:.0}", *bytes as f64 / 1_048_576.0))
            .collect(),
    );
    let cpu = list(
        step.cpu_percent
            .iter()
            .map(|percent| format!("{percent:.1}"))
            .collect(),
    );
    let (beats, times) = match &step.heartbeat {
        Some(heartbeat) => (format!("{:.0}", step.heartbeats_per_second), two(heartbeat)),
        None => ("-".to_owned(), "-".to_owned()),
    };
    say(format!(
        "{:>9} {what:<9} {:>9.0} {memory:>18} {:>10.0} {cpu:>18} {beats:>12} {times:>15} {:>15}",
        step.count,
        step.made_per_second,
        step.bytes_each,
        two(&step.cycle)
    ))?;
    if step.late > 0 {
        say(format!(
            "{:>9} heartbeats were sent too late by this program",
            step.late
        ))?;
    }
    Ok(())
}
