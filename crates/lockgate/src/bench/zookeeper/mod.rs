//! `lockgate bench zookeeper`: a load in ZooKeeper's own protocol, for Lockgate's front end and for any ZooKeeper alike.
//!
//! Both are asked by the same program with the same bytes, so what differs is the servers.

pub(super) mod session;
mod workload;
mod load;
mod tree;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use serde::Serialize;
use tokio::task::LocalSet;

use super::nodes::Nodes;
use super::report::{self, Percentiles, ms};
use crate::api_client::request_id;
use crate::cli::say;
use crate::cli::secured::Secured;
use crate::cluster::LocalCluster;
use load::Load;
use tree::Tree;
use workload::Workload;

/// What ZooKeeper takes in one request (`jute.maxbuffer`), less what a request is beside its data.
const MAX_DATA_BYTES: usize = 0xf_ffff - 1024;

/// What `lockgate bench zookeeper` is told.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The cluster on this machine whose nodes are called
    #[arg(long, default_value = "lockgate-data")]
    dir: PathBuf,
    /// Servers to call instead, ZooKeeper's or Lockgate's, as HOST:PORT, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "SERVERS")]
    servers: Vec<String>,
    #[command(flatten)]
    secured: Secured,
    /// What the clients do, one after the other
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "create,set,get,sequential,lock"
    )]
    workloads: Vec<Workload>,
    /// How many clients, each with its own session and connection; several numbers are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    clients: Vec<usize>,
    /// How long to measure each
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// How long to run before that
    #[arg(long, default_value_t = 2)]
    warmup: u64,
    /// How much data a znode has
    #[arg(long, default_value_t = 100)]
    data_bytes: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Where the servers listen for clients of ZooKeeper.
    fn servers(&self) -> anyhow::Result<Nodes> {
        let given = self.secured.credentials()?;
        if !self.servers.is_empty() {
            return Ok(Nodes::new(self.servers.clone(), given));
        }
        let executable = std::env::current_exe().context("finding this program's own file")?;
        let cluster = LocalCluster::open(&self.dir, &executable)
            .context("start one with `lockgate cluster up`, or name servers with --servers")?;
        let of = |node: &crate::cluster::LocalNode| {
            let address = node.zookeeper.clone();
            address.with_context(|| format!("node {} does not serve clients of ZooKeeper", node.id))
        };
        let addresses = cluster.nodes().map(of).collect::<anyhow::Result<_>>()?;
        Ok(Nodes::new(addresses, given.or(cluster.credentials())))
    }
}

/// What one workload came to with so many clients.
#[derive(Debug, Clone, Serialize)]
pub struct ZookeeperReport {
    /// Which workload.
    pub workload: Workload,
    /// How many clients.
    pub clients: usize,
    /// At how many servers.
    pub servers: usize,
    /// For how long it was measured.
    pub seconds: f64,
    /// How many operations were done in a second. An operation is all that the workload does in one go.
    pub operations_per_second: f64,
    /// From the first byte of an operation's first request to the last one of its last answer.
    pub operation: Percentiles,
    /// Operations that failed. Each ended its client.
    pub errors: u64,
    /// What the first of them failed of.
    pub first_error: Option<String>,
    /// Time on the processor that this program spent on one operation, in microseconds: what the servers did not have of a
    /// machine that they share with it.
    pub client_cpu_us: f64,
}

/// Measures, and prints what came out.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure!(!args.clients.contains(&0), "at least one client is needed");
    ensure!(args.seconds > 0, "at least one second is needed");
    ensure!(
        args.data_bytes <= MAX_DATA_BYTES,
        "a request of ZooKeeper has room for {MAX_DATA_BYTES} bytes of data"
    );
    let servers = args.servers()?;
    let tree = Tree::new(&request_id());
    let clients = LocalSet::new();
    let measured = tokio::select! {
        measured = clients.run_until(measure(&args, &servers, &tree)) => measured,
        interrupted = tokio::signal::ctrl_c() => interrupted
            .context("listening for SIGINT")
            .and_then(|()| Err(anyhow::anyhow!("interrupted"))),
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
    if args.json {
        report::print_json(&reports)?;
    }
    // A measurement with errors is one, but a script should not take it for a good one.
    let errors: u64 = reports.iter().map(|report| report.errors).sum();
    let first = reports.iter().find_map(|report| report.first_error.as_deref());
    ensure!(
        errors == 0,
        "{errors} operations failed, the first one: {}",
        first.unwrap_or("unknown")
    );
    Ok(())
}

async fn measure(args: &Arguments, servers: &Nodes, tree: &Tree) -> anyhow::Result<Vec<ZookeeperReport>> {
    let mut reports = Vec::new();
    for &workload in &args.workloads {
        for &clients in &args.clients {
            let load = Load {
                workload,
                servers,
                tree,
                clients,
                data_bytes: args.data_bytes,
                warmup: Duration::from_secs(args.warmup),
                measured: Duration::from_secs(args.seconds),
            };
            let report = load.run().await?;
            if !args.json {
                print(&report, reports.is_empty())?;
            }
            reports.push(report);
        }
    }
    Ok(reports)
}

fn print(report: &ZookeeperReport, first: bool) -> anyhow::Result<()> {
    if first {
        say(format!(
            "{:<10} {:>7} {:>12} {:>9} {:>9} {:>9} {:>9} {:>7} {:>13}",
            "workload",
            "clients",
            "operations/s",
            "p50 ms",
            "p99 ms",
            "p99.9 ms",
            "max ms",
            "errors",
            "client CPU us"
        ))?;
    }
    say(format!(
        "{:<10} {:>7} {:>12.0} {:>9} {:>9} {:>9} {:>9} {:>7} {:>13.1}",
        report.workload.name(),
        report.clients,
        report.operations_per_second,
        ms(report.operation.p50_us),
        ms(report.operation.p99_us),
        ms(report.operation.p99_9_us),
        ms(report.operation.max_us),
        report.errors,
        report.client_cpu_us
    ))
}
