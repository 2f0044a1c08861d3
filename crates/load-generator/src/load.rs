//! `lockgate bench lock` and all other loads in loops: their options, and the choice of the protocol that
//! runs them.

use std::time::Duration;

use clap::{Args, ValueEnum};
use cli_support::api_client::request_id;
use cli_support::durations;
use cli_support::ensure_usage;
use cli_support::format::Output;
use nix::unistd::Pid;

use super::drive::Drive;
use super::nodes::Nodes;
use super::report::{self, LoadReport};
use super::workload::Workload;
use super::{Target, http, zookeeper};

/// Maximum number of data bytes: znodes and ZooKeeper's requests (`jute.maxbuffer`) take a mebibyte, less the
/// rest of the request.
pub const MAX_DATA_BYTES: usize = 0xf_ffff - 1024;

/// Maximum number of locks per acquire, as in the state machine.
const MAX_LOCKS: usize = znode_store::MAX_LOCKS_AT_ONCE;

/// Maximum number of requests in a batch of the API.
const MAX_BATCH: usize = 128;

/// Protocol of the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Over {
    /// The HTTP API of locks and znodes
    Http,
    /// ZooKeeper's protocol with the recipes of its clients, also for any ZooKeeper
    Zookeeper,
}

/// Options of every load.
#[derive(Debug, Args)]
pub struct LoadArgs {
    #[command(flatten)]
    target: Target,
    /// Protocol of the clients
    #[arg(long, value_enum, default_value = "http")]
    over: Over,
    /// Connect all clients to the node that leads when the run begins, like programs that configure the Rust
    /// client so; by default they are spread over all nodes
    #[arg(long)]
    at_leader: bool,
    #[command(flatten)]
    pace: Pace,
}

/// Number of clients, rate and duration.
#[derive(Debug, Args)]
pub struct Pace {
    /// Number of clients, each with a connection of its own; several numbers are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "64")]
    pub clients: Vec<usize>,
    /// Operations per second that are due regardless of earlier ones (an open loop); by default each client
    /// starts its next operation as soon as the previous one ends
    #[arg(long, value_name = "PER_SECOND")]
    pub rate: Option<f64>,
    /// Duration of the measurement
    #[arg(long, value_name = "TIME", alias = "seconds", default_value = "10s", value_parser = durations::seconds)]
    pub duration: Duration,
    /// Duration of the warm-up
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = durations::seconds_or_zero)]
    pub warmup: Duration,
    /// Number of data bytes of a znode
    #[arg(long, default_value_t = 100)]
    pub data_bytes: usize,
    /// Print progress each second, even if standard error is no terminal
    #[arg(long)]
    pub progress: bool,
    /// Format of the result
    #[command(flatten)]
    pub output: Output,
}

impl Pace {
    /// Checks the options.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure_usage!(!self.clients.contains(&0), "at least one client is needed");
        ensure_usage!(
            self.data_bytes <= MAX_DATA_BYTES,
            "a request has room for {MAX_DATA_BYTES} bytes of data"
        );
        Ok(())
    }
}

/// Load without the number of clients and their operation.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Nodes, over which the clients are spread.
    pub nodes: Nodes,
    /// Duration of the warm-up.
    pub warmup: Duration,
    /// Duration of the measurement.
    pub measured: Duration,
    /// Operations per second of an open loop.
    pub rate: Option<f64>,
    /// Number of data bytes of a znode.
    pub data_bytes: usize,
    /// Print progress even if standard error is no terminal.
    pub progress: bool,
    /// Processes of the nodes that are on this machine.
    pub processes: Vec<Pid>,
}

impl Plan {
    /// Creates the plan of a closed loop with defaults.
    pub fn new(nodes: Nodes, warmup: Duration, measured: Duration) -> Self {
        Self {
            nodes,
            warmup,
            measured,
            rate: None,
            data_bytes: 100,
            progress: false,
            processes: Vec::new(),
        }
    }

    /// Creates the plan of the options.
    pub fn of(pace: &Pace, nodes: Nodes, processes: Vec<Pid>) -> Self {
        Self {
            rate: pace.rate,
            data_bytes: pace.data_bytes,
            progress: pace.progress,
            processes,
            ..Self::new(nodes, pace.warmup, pace.duration)
        }
    }

    /// Runs cycles of acquire and release over HTTP, each client with its own lock. Needs a `LocalSet`.
    pub async fn lock_cycles(&self, clients: usize) -> anyhow::Result<LoadReport> {
        http::run(self, Workload::Lock, clients, &request_id()).await
    }

    /// Returns the parameters for `clients` clients.
    pub(super) fn drive(&self, workload: Workload, clients: usize) -> Drive {
        Drive {
            label: format!("{}, {clients} clients", workload.name()),
            warmup: self.warmup,
            measured: self.measured,
            rate: self.rate,
            one_lock: workload.hands_over(),
            progress: self.progress,
            processes: self.processes.clone(),
        }
    }
}

/// Measures and prints the result.
pub async fn run(workload: Workload, args: LoadArgs) -> anyhow::Result<()> {
    args.pace.check()?;
    match workload {
        Workload::Semaphore { permits } => ensure_usage!(permits > 0, "at least one permit is needed"),
        Workload::Multi { locks } => ensure_usage!(
            (1..=MAX_LOCKS).contains(&locks),
            "from 1 to {MAX_LOCKS} locks can be acquired at once"
        ),
        Workload::Batch { locks } => {
            ensure_usage!(
                (1..=MAX_BATCH).contains(&locks),
                "a batch has from 1 to {MAX_BATCH} requests"
            );
            ensure_usage!(args.over == Over::Http, "a batch requires --over http");
        }
        Workload::Mixed { reads } => {
            ensure_usage!(reads <= 100, "--reads is a percentage, at most 100")
        }
        _ => {}
    }
    ensure_usage!(
        args.over == Over::Http || !args.at_leader,
        "--at-leader requires --over http"
    );
    let (target, pace) = (&args.target, &args.pace);
    let reports = match args.over {
        Over::Http => {
            let nodes = match args.at_leader {
                true => target.nodes()?.only_leader().await?,
                false => target.nodes()?,
            };
            let plan = Plan::of(pace, nodes, target.processes()?);
            let mut reports = Vec::new();
            http::run_all(&plan, workload, &pace.clients, |report| {
                print(pace, &report, reports.is_empty())?;
                reports.push(report);
                Ok(())
            })
            .await?;
            reports
        }
        Over::Zookeeper => zookeeper::run_workloads(&[workload], target, pace).await?,
    };
    if pace.output.is_document() {
        pace.output.say(&reports, String::new)?;
    }
    report::require_no_errors(&reports)
}

/// Prints a line, unless JSON is printed at the end.
pub(super) fn print(pace: &Pace, report: &LoadReport, first: bool) -> anyhow::Result<()> {
    match pace.output.is_document() {
        true => Ok(()),
        false => report::print_load(report, first),
    }
}
