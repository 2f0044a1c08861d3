//! `lockgate bench lock`, and all the other loads that clients put on a cluster in loops: what the command line says of them, and who
//! carries it out.

use std::time::Duration;

use clap::{Args, ValueEnum};
use cli_support::api_client::request_id;
use cli_support::ensure_usage;
use nix::unistd::Pid;

use super::drive::Drive;
use super::nodes::Nodes;
use super::report::{self, LoadReport};
use super::workload::Workload;
use super::{Target, http, zookeeper};

/// Znodes take a mebibyte, ZooKeeper's requests as well (`jute.maxbuffer`); less what a request is beside its data.
pub const MAX_DATA_BYTES: usize = 0xf_ffff - 1024;

/// The most locks that are taken at once: `znode_store::MAX_LOCKS_AT_ONCE` says the same, and a request has to name them all.
const MAX_LOCKS: usize = znode_store::MAX_LOCKS_AT_ONCE;

/// How clients reach the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Over {
    /// The API of locks and znodes
    Http,
    /// ZooKeeper's protocol, with the recipes of its clients: any ZooKeeper as well
    Zookeeper,
}

/// What every load is told.
#[derive(Debug, Args)]
pub struct LoadArgs {
    #[command(flatten)]
    target: Target,
    /// How the clients reach the nodes
    #[arg(long, value_enum, default_value = "http")]
    over: Over,
    /// All clients at the node that leads when the run begins, as programs have it that say so to the Rust client; else they are
    /// spread over all nodes
    #[arg(long)]
    at_leader: bool,
    #[command(flatten)]
    pace: Pace,
}

/// How many clients do something, how often, and for how long.
#[derive(Debug, Args)]
pub struct Pace {
    /// How many clients, each on its own connection; several numbers are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "64")]
    pub clients: Vec<usize>,
    /// Operations in a second that are due whatever becomes of those before (an open loop); without it each client begins anew as
    /// soon as it is done
    #[arg(long, value_name = "PER_SECOND")]
    pub rate: Option<f64>,
    /// How long to measure
    #[arg(long, default_value_t = 10)]
    pub seconds: u64,
    /// How long to run before that
    #[arg(long, default_value_t = 2)]
    pub warmup: u64,
    /// How much data a znode has
    #[arg(long, default_value_t = 100)]
    pub data_bytes: usize,
    /// Tell each second how it goes, also where no terminal is
    #[arg(long)]
    pub progress: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Pace {
    /// Whether this can be done at all.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure_usage!(!self.clients.contains(&0), "at least one client is needed");
        ensure_usage!(self.seconds > 0, "at least one second is needed");
        ensure_usage!(
            self.data_bytes <= MAX_DATA_BYTES,
            "a request has room for {MAX_DATA_BYTES} bytes of data"
        );
        Ok(())
    }
}

/// A load to put on a cluster, but for how many clients do what.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where the nodes are; clients are spread over them.
    pub nodes: Nodes,
    /// How long to run before measuring.
    pub warmup: Duration,
    /// How long to measure.
    pub measured: Duration,
    /// Operations in a second that are due, in an open loop.
    pub rate: Option<f64>,
    /// How much data a znode has.
    pub data_bytes: usize,
    /// Whether progress is told where no terminal is.
    pub progress: bool,
    /// The nodes' processes, as far as they are on this machine.
    pub processes: Vec<Pid>,
}

impl Plan {
    /// A closed loop, and nothing special about it.
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

    /// What the command line says.
    pub fn of(pace: &Pace, nodes: Nodes, processes: Vec<Pid>) -> Self {
        Self {
            rate: pace.rate,
            data_bytes: pace.data_bytes,
            progress: pace.progress,
            processes,
            ..Self::new(
                nodes,
                Duration::from_secs(pace.warmup),
                Duration::from_secs(pace.seconds),
            )
        }
    }

    /// Cycles of acquire and release by HTTP, each client its own lock; for who has a `LocalSet` already.
    pub async fn lock_cycles(&self, clients: usize) -> anyhow::Result<LoadReport> {
        http::run(self, Workload::Lock, clients, &request_id()).await
    }

    /// How its clients are driven.
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

/// Measures, and prints what came out.
pub async fn run(workload: Workload, args: LoadArgs) -> anyhow::Result<()> {
    args.pace.check()?;
    match workload {
        Workload::Semaphore { permits } => ensure_usage!(permits > 0, "at least one permit is needed"),
        Workload::Multi { locks } => ensure_usage!(
            (1..=MAX_LOCKS).contains(&locks),
            "from 1 to {MAX_LOCKS} locks can be taken at once"
        ),
        Workload::Mixed { reads } => {
            ensure_usage!(reads <= 100, "of a hundred no more than a hundred can read")
        }
        _ => {}
    }
    ensure_usage!(
        args.over == Over::Http || !args.at_leader,
        "--at-leader is of clients over HTTP, who may ask which node that is"
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
                tell(pace, &report, reports.is_empty())?;
                reports.push(report);
                Ok(())
            })
            .await?;
            reports
        }
        Over::Zookeeper => zookeeper::run_workloads(&[workload], target, pace).await?,
    };
    if pace.json {
        report::print_json(&reports)?;
    }
    report::refuse_errors(&reports)
}

/// Prints a line, unless all is printed in the end.
pub(super) fn tell(pace: &Pace, report: &LoadReport, first: bool) -> anyhow::Result<()> {
    match pace.json {
        true => Ok(()),
        false => report::print_load(report, first),
    }
}
