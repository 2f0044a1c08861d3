//! Loads over ZooKeeper's own protocol, for Lockgate's front end and for any ZooKeeper.
//!
//! The same program sends the same bytes to both, so all differences are those of the servers.

pub(super) mod session;
pub(super) mod client;
mod recipes;
pub(super) mod tree;

use anyhow::Context;
use bytes::Bytes;
use clap::{Args, ValueEnum};
use cli_support::api_client::request_id;
use cli_support::signals;
use tokio::task::LocalSet;
use zk_wire::Request;

use super::Target;
use super::load::{self, Pace, Plan};
use super::report::{self, LoadReport, Subject};
use super::workload::Workload;
use client::{Caller, Cycle};
use session::{Session, refused};
use tree::Tree;

/// Permits of the semaphore workload.
const PERMITS: u32 = 4;

/// Number of locks of the multi workload.
const LOCKS: usize = 3;

/// Percentage of reads of the mixed workload.
const READS: u32 = 90;

/// Options of `lockgate bench zookeeper`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// Workloads, measured one after the other
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "create,set,get,sequential,lock"
    )]
    workloads: Vec<Name>,
    #[command(flatten)]
    pace: Pace,
}

/// Workload over ZooKeeper's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Create a persistent znode below the client's own
    Create,
    /// Set the data of the client's own znode (setData)
    Set,
    /// Read the data of the client's own znode (getData)
    Get,
    /// Nine reads of the client's own znode for each write
    Mixed,
    /// Create and delete an ephemeral sequential znode: two requests
    Sequential,
    /// The lock recipe without contention: create, getChildren, delete
    Lock,
    /// The lock recipe, all clients the same lock
    Contended,
    /// The shared lock recipe, all clients the same lock
    Shared,
    /// Curator's semaphore recipe, all clients the same one with four permits
    Semaphore,
    /// Three locks of the client's own, one after the other
    Multi,
}

impl From<Name> for Workload {
    fn from(name: Name) -> Self {
        match name {
            Name::Create => Workload::Create,
            Name::Set => Workload::Set,
            Name::Get => Workload::Get,
            Name::Mixed => Workload::Mixed { reads: READS },
            Name::Sequential => Workload::Sequential,
            Name::Lock => Workload::Lock,
            Name::Contended => Workload::Contended,
            Name::Shared => Workload::Shared,
            Name::Semaphore => Workload::Semaphore { permits: PERMITS },
            Name::Multi => Workload::Multi { locks: LOCKS },
        }
    }
}

/// Measures and prints the result.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    args.pace.check()?;
    let workloads: Vec<Workload> = args.workloads.iter().map(|name| (*name).into()).collect();
    let reports = run_workloads(&workloads, &args.target, &args.pace).await?;
    if args.pace.output.is_document() {
        args.pace.output.say(&reports, String::new)?;
    }
    report::require_no_errors(&reports)
}

/// Measures the workloads one after the other, and prints each line at once unless JSON is printed at the
/// end.
pub(super) async fn run_workloads(
    workloads: &[Workload],
    target: &Target,
    pace: &Pace,
) -> anyhow::Result<Vec<LoadReport>> {
    let plan = Plan::of(pace, target.zookeeper_nodes()?, target.processes()?);
    let tree = Tree::new(&request_id());
    let clients = LocalSet::new();
    let measured = tokio::select! {
        measured = clients.run_until(measure(&plan, workloads, pace, &tree)) => measured,
        interrupted = signals::interrupted() => interrupted.and_then(|()| Err(anyhow::anyhow!("interrupted"))),
    };
    // This drops the clients that an interrupt has left.
    drop(clients);
    if measured.is_err() {
        // Only this program knows the created znodes, and the servers may have other users.
        tree.remove(&plan.nodes)
            .await
            .with_context(|| format!("{} cannot be removed", tree.paths().join(" and ")))?;
    }
    measured
}

async fn measure(
    plan: &Plan,
    workloads: &[Workload],
    pace: &Pace,
    tree: &Tree,
) -> anyhow::Result<Vec<LoadReport>> {
    let mut reports = Vec::new();
    for &workload in workloads {
        for &clients in &pace.clients {
            let report = measure_one(plan, workload, clients, tree).await?;
            load::print(pace, &report, reports.is_empty())?;
            reports.push(report);
        }
    }
    Ok(reports)
}

/// Measures one workload with this number of clients: creates its znodes, runs it, and deletes the znodes.
/// All clients share this thread.
async fn measure_one(
    plan: &Plan,
    workload: Workload,
    clients: usize,
    tree: &Tree,
) -> anyhow::Result<LoadReport> {
    let data = Bytes::from(vec![b'x'; plan.data_bytes]);
    tree.create(&plan.nodes, workload, clients, &data).await?;
    let mut callers = Vec::with_capacity(clients);
    for number in 0..clients {
        let mut session = Session::open(&plan.nodes, number).await?;
        // This session's server may not have applied the znodes yet that were created at another one.
        let path = tree.home(workload, number);
        session
            .call(&Request::Sync { path })
            .await?
            .map(drop)
            .or_else(refused)?;
        let cycle = Cycle::new(workload, tree, number, data.clone());
        callers.push(Caller { session, cycle });
    }
    let drive = plan.drive(workload, clients);
    let driven = drive.run(callers).await?;
    tree.remove(&plan.nodes).await?;
    let subject = Subject {
        workload: workload.name(),
        over: "zookeeper",
        nodes: plan.nodes.count(),
        clients,
    };
    Ok(LoadReport::new(&subject, &drive, &driven))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workload_names_are_the_same_for_both_protocols() {
        for name in Name::value_variants() {
            let given = name.to_possible_value().unwrap();
            assert_eq!(given.get_name(), Workload::from(*name).name());
        }
    }
}
