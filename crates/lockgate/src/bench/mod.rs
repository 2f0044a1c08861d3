//! `lockgate bench`: what a cluster does under load, seen from outside, over HTTP and over ZooKeeper's protocol.

pub mod attack;
pub mod bystanders;
pub mod catch_up;
pub mod failover;
pub mod large;
pub mod load;
pub mod nodes;
pub mod overload;
pub mod processes;
pub mod queue;
mod report;
pub mod restart;
pub mod scrape;
pub mod sessions;
pub mod zookeeper;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use nix::unistd::Pid;

use crate::cli::secured::Secured;
use crate::cluster::LocalCluster;
use crate::serve::open_files;
use load::{Load, Workload};
use nodes::Nodes;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Acquire and release, each client its own lock
    Lock(LoadArgs),
    /// Acquire and release, all clients the same lock
    Contended(LoadArgs),
    /// One lock and a long queue: how long it takes from a release to the next one's grant
    Queue(queue::Arguments),
    /// Many sessions that hold a lock each and send heartbeats: whether all live, and what that costs the nodes
    Sessions(sessions::Arguments),
    /// Kill the leader again and again, and measure the time until the next lock is granted
    Failover(failover::Arguments),
    /// Restart nodes with a large state, and measure until they serve again
    Restart(restart::Arguments),
    /// Let a member catch up on a large state under load, and measure how long it takes and what others notice
    CatchUp(catch_up::Arguments),
    /// Znodes and locks over ZooKeeper's own protocol: the same load at Lockgate's nodes or at any ZooKeeper
    Zookeeper(zookeeper::Arguments),
    /// Several times as many requests as the cluster can serve: whether sessions live, the leader stays, and locks are granted
    Overload(overload::Arguments),
    /// What strangers can do by asking: slow, silent and very many connections, floods, nonsense; and whether others notice
    Attack(attack::Arguments),
    /// What it costs to be watched: the same load with and without scrapes of `/metrics`, by turns
    Scrape(scrape::Arguments),
}

/// Whom to put under load.
#[derive(Debug, Args)]
pub struct Target {
    /// The cluster on this machine whose nodes are called
    #[arg(long, default_value = "lockgate-data")]
    dir: PathBuf,
    /// Nodes to call instead, as HOST:PORT, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NODES")]
    target: Vec<String>,
    #[command(flatten)]
    secured: Secured,
}

impl Target {
    /// The cluster on this machine, unless others are named.
    fn local(&self) -> anyhow::Result<Option<LocalCluster>> {
        if !self.target.is_empty() {
            return Ok(None);
        }
        let executable = std::env::current_exe().context("finding this program's own file")?;
        LocalCluster::open(&self.dir, &executable)
            .context("start one with `lockgate cluster up`, or name nodes with --target")
            .map(Some)
    }

    /// The processes of the nodes, if they are on this machine.
    fn processes(&self) -> anyhow::Result<Vec<Pid>> {
        let mut pids = Vec::new();
        if let Some(cluster) = self.local()? {
            for id in cluster.ids() {
                pids.extend(cluster.pid(id)?);
            }
        }
        Ok(pids)
    }

    /// Where the nodes serve HTTP, and what is shown to them: of a cluster on this machine what its administrator has, unless
    /// something else is given.
    fn nodes(&self) -> anyhow::Result<Nodes> {
        let given = self.secured.credentials()?;
        Ok(match self.local()? {
            Some(cluster) => Nodes::new(cluster.http_addresses(), given.or(cluster.credentials())),
            None => Nodes::new(self.target.clone(), given),
        })
    }
}

/// What kind of load, and on what.
#[derive(Debug, Args)]
pub struct LoadArgs {
    #[command(flatten)]
    target: Target,
    /// How many clients, each on its own connection; several numbers are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "64")]
    clients: Vec<usize>,
    /// How long to measure
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// How long to run before that
    #[arg(long, default_value_t = 2)]
    warmup: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Measures, and prints what came out.
pub async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Lock(args) => run_load(Workload::Lock, args).await,
        Command::Contended(args) => run_load(Workload::Contended, args).await,
        Command::Queue(args) => queue::run(args).await,
        Command::Sessions(args) => sessions::run(args).await,
        Command::Failover(args) => failover::run(args).await,
        Command::Restart(args) => restart::run(args).await,
        Command::CatchUp(args) => catch_up::run(args).await,
        Command::Zookeeper(args) => zookeeper::run(args).await,
        Command::Overload(args) => overload::run(args).await,
        Command::Attack(args) => attack::run(args).await,
        Command::Scrape(args) => scrape::run(args).await,
    }
}

async fn run_load(workload: Workload, args: LoadArgs) -> anyhow::Result<()> {
    ensure!(!args.clients.contains(&0), "at least one client is needed");
    ensure!(args.seconds > 0, "at least one second is needed");
    let nodes = args.target.nodes()?;
    let mut reports = Vec::new();
    for clients in args.clients {
        let load = Load {
            workload,
            nodes: nodes.clone(),
            clients,
            warmup: Duration::from_secs(args.warmup),
            measured: Duration::from_secs(args.seconds),
        };
        let report = load.run().await?;
        if !args.json {
            report::print_load(&report, reports.is_empty())?;
        }
        reports.push(report);
    }
    if args.json {
        report::print_json(&reports)?;
    }
    // A measurement with errors is one, but a script should not take it for a good one.
    let errors: u64 = reports.iter().map(|report| report.errors).sum();
    ensure!(errors == 0, "{errors} requests failed");
    Ok(())
}
