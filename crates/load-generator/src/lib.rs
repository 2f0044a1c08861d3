//! Load generator, the subcommand `lockgate bench`: applies loads to a cluster over HTTP and over ZooKeeper's
//! protocol, and reports rates, latencies and costs.
//!
//! It measures any Lockgate cluster and any ZooKeeper from outside. Some measurements start, kill and restart
//! a cluster of their own with [`local_cluster`]. It must not depend on the server library: a load that
//! depends on the internals of a node would measure something that no client gets.
//!
//! Spawned futures are boxed: tokio's code for a task is then compiled for each type of result, and not for
//! each future. The crate builds in 24 s of CPU time instead of 29 s.

pub mod attack;
mod bystanders;
mod catch_up;
pub mod drive;
pub mod failover;
pub mod fill;
pub mod gap;
mod http;
mod idle;
mod large;
pub mod load;
pub mod nodes;
mod overload;
mod processes;
mod queue;
pub mod report;
mod restart;
mod sessions;
mod watch;
mod wire;
mod workload;
mod zookeeper;

use anyhow::Context;
use clap::{Args, Subcommand};
use cli_support::ensure_usage;
use local_cluster::location::{Location, Place};
use local_cluster::{LocalCluster, LocalNode};
use nix::unistd::Pid;

use load::LoadArgs;
use nodes::Nodes;
use workload::Workload;

/// Measurement to run.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Acquire and release, each client its own lock
    Lock(LoadArgs),
    /// Acquire and release, all clients the same lock
    Contended(LoadArgs),
    /// Acquire and release in shared mode, all clients the same lock
    Shared(LoadArgs),
    /// Acquire and release, all clients the same semaphore
    Semaphore {
        /// Options of every load
        #[command(flatten)]
        load: LoadArgs,
        /// Number of permits of the semaphore
        #[arg(long, default_value_t = 4)]
        permits: u32,
    },
    /// Acquire and release several locks at once, each client its own
    Multi {
        /// Options of every load
        #[command(flatten)]
        load: LoadArgs,
        /// Number of locks
        #[arg(long, default_value_t = 3)]
        locks: usize,
    },
    /// Acquire several locks by one request, and release them by another, each lock with its own result; an operation
    /// is both requests
    Batch {
        /// Options of every load
        #[command(flatten)]
        load: LoadArgs,
        /// Number of locks
        #[arg(long, default_value_t = 16)]
        locks: usize,
    },
    /// Create znodes, each client below its own
    Create(LoadArgs),
    /// Set the data of znodes, each client that of its own
    Set(LoadArgs),
    /// Read znodes, each client its own
    Get(LoadArgs),
    /// Read and set znodes, each client its own
    Mixed {
        /// Options of every load
        #[command(flatten)]
        load: LoadArgs,
        /// Percentage of operations that read
        #[arg(long, default_value_t = 90, value_name = "PERCENT")]
        reads: u32,
    },
    /// One lock with a long queue: time from a release to the next grant
    Queue(queue::Arguments),
    /// Many sessions that hold a lock each and send heartbeats: lost sessions, and cost for the nodes
    Sessions(sessions::Arguments),
    /// Many idle sessions, at Lockgate's nodes or at any ZooKeeper: rate of opening, and cost of holding them
    Idle(idle::Arguments),
    /// Kill the leader repeatedly, and measure the time until the next grant
    Failover(failover::Arguments),
    /// Write without a pause while the cluster is disturbed, and measure the longest times without a success
    Gap(gap::Arguments),
    /// Create many znodes as fast as possible, and leave them
    Fill(fill::Arguments),
    /// Restart nodes with a large state, and measure the time until they serve again
    Restart(restart::Arguments),
    /// Let a member catch up on a large state under load, and measure its duration and the effect on other
    /// clients
    CatchUp(catch_up::Arguments),
    /// Many sessions that watch one znode over ZooKeeper's protocol, and a writer: time until all are
    /// notified of a change
    Watch(watch::Arguments),
    /// Znodes and locks over ZooKeeper's own protocol: the same load at Lockgate's nodes or at any ZooKeeper
    Zookeeper(zookeeper::Arguments),
    /// Several times the load that the cluster can serve: lost sessions, elections, and granted locks
    Overload(overload::Arguments),
    /// Abuse by untrusted clients: slow, silent and very many connections, floods, malformed data; and the
    /// effect on other clients
    Attack(attack::Arguments),
}

/// Servers under load.
#[derive(Debug, Args)]
pub struct Target {
    #[command(flatten)]
    location: Location,
}

impl Target {
    /// Returns the local cluster, if the nodes are on this machine.
    fn local(&self) -> anyhow::Result<Option<LocalCluster>> {
        Ok(self.location.find()?.local())
    }

    /// Returns the processes of the nodes, if they are on this machine.
    fn processes(&self) -> anyhow::Result<Vec<Pid>> {
        let mut pids = Vec::new();
        if let Some(cluster) = self.local()? {
            for id in cluster.ids() {
                pids.extend(cluster.pid(id)?);
            }
        }
        Ok(pids)
    }

    /// Returns the HTTP addresses of the nodes with the credentials. For a local cluster these are the
    /// administrator's, unless others are given.
    fn nodes(&self) -> anyhow::Result<Nodes> {
        Ok(match self.location.find()? {
            Place::Local(cluster) => {
                let credentials = self.location.credentials()?.or(cluster.credentials());
                Nodes::new(cluster.http_addresses(), credentials)
            }
            Place::Servers(servers) => Nodes::new(servers.addresses()?, servers.credentials),
        })
    }

    /// Returns the addresses for ZooKeeper clients with the credentials. The servers of `--server` may be any
    /// ZooKeeper servers.
    fn zookeeper_nodes(&self) -> anyhow::Result<Nodes> {
        Ok(match self.location.find()? {
            Place::Local(cluster) => {
                let addresses = cluster
                    .nodes()
                    .map(zookeeper_address)
                    .collect::<anyhow::Result<_>>()?;
                Nodes::new(addresses, self.location.credentials()?.or(cluster.credentials()))
            }
            Place::Servers(servers) => {
                ensure_usage!(
                    self.location.names_servers(),
                    "name the addresses for ZooKeeper clients with --server: {} has those of the HTTP API",
                    servers.source
                );
                Nodes::new(servers.addresses()?, servers.credentials)
            }
        })
    }
}

/// Returns a node's address for ZooKeeper clients.
fn zookeeper_address(node: &LocalNode) -> anyhow::Result<String> {
    let address = node.zookeeper.clone();
    address.with_context(|| format!("node {} does not serve clients of ZooKeeper", node.id))
}

/// Runs a measurement on the calling thread and prints the results.
pub fn run(command: Command) -> anyhow::Result<()> {
    cli_support::block_on(measure(command))
}

async fn measure(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Lock(args) => load::run(Workload::Lock, args).await,
        Command::Contended(args) => load::run(Workload::Contended, args).await,
        Command::Shared(args) => load::run(Workload::Shared, args).await,
        Command::Semaphore { load, permits } => load::run(Workload::Semaphore { permits }, load).await,
        Command::Multi { load, locks } => load::run(Workload::Multi { locks }, load).await,
        Command::Batch { load, locks } => load::run(Workload::Batch { locks }, load).await,
        Command::Create(args) => load::run(Workload::Create, args).await,
        Command::Set(args) => load::run(Workload::Set, args).await,
        Command::Get(args) => load::run(Workload::Get, args).await,
        Command::Mixed { load, reads } => load::run(Workload::Mixed { reads }, load).await,
        Command::Queue(args) => queue::run(args).await,
        Command::Sessions(args) => sessions::run(args).await,
        Command::Idle(args) => idle::run(args).await,
        Command::Failover(args) => failover::run(args).await,
        Command::Fill(args) => fill::run(args).await,
        Command::Gap(args) => gap::run(args).await,
        Command::Restart(args) => restart::run(args).await,
        Command::CatchUp(args) => catch_up::run(args).await,
        Command::Watch(args) => watch::run(args).await,
        Command::Zookeeper(args) => zookeeper::run(args).await,
        Command::Overload(args) => overload::run(args).await,
        Command::Attack(args) => attack::run(args).await,
    }
}
