//! Loads in ZooKeeper's own protocol, for Lockgate's front end and for any ZooKeeper alike.
//!
//! Both are asked by the same program with the same bytes, so what differs is the servers.

pub(super) mod servers;
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

/// How many hold a semaphore at a time, where nothing is said of it.
const PERMITS: u32 = 4;

/// How many locks are taken at once, where nothing is said of it.
const LOCKS: usize = 3;

/// How many of a hundred operations of a mixed load read, where nothing is said of it.
const READS: u32 = 90;

/// What `lockgate bench zookeeper` is told.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// What the clients do, one after the other
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

/// What can be done over ZooKeeper's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    /// One more persistent znode below the client's own
    Create,
    /// New data for the client's own znode (setData)
    Set,
    /// The data of the client's own znode (getData)
    Get,
    /// Nine reads of the client's own znode for one write
    Mixed,
    /// An ephemeral sequential znode, created and deleted: two requests
    Sequential,
    /// The lock recipe, with a lock that nobody else wants: create, getChildren, delete
    Lock,
    /// The lock recipe, all clients the same lock
    Contended,
    /// The recipe of locks that are shared, all clients the same lock
    Shared,
    /// Curator's recipe of semaphores, all clients the same one with four permits
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

/// Measures, and prints what came out.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    args.pace.check()?;
    let workloads: Vec<Workload> = args.workloads.iter().map(|name| (*name).into()).collect();
    let reports = run_workloads(&workloads, &args.target, &args.pace).await?;
    if args.pace.json {
        report::print_json(&reports)?;
    }
    report::refuse_errors(&reports)
}

/// Measures one workload after the other, and prints each line as it comes unless all is printed in the end.
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
    // With the clients that an interruption has left.
    drop(clients);
    if measured.is_err() {
        // Nobody else knows what is left, and these servers may have other users.
        tree.remove(&plan.nodes)
            .await
            .with_context(|| format!("{} could not be removed", tree.paths().join(" and ")))?;
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
            let report = one(plan, workload, clients, tree).await?;
            load::tell(pace, &report, reports.is_empty())?;
            reports.push(report);
        }
    }
    Ok(reports)
}

/// One workload with so many clients, between making what it needs and taking that away. All clients share this thread.
async fn one(plan: &Plan, workload: Workload, clients: usize, tree: &Tree) -> anyhow::Result<LoadReport> {
    let data = Bytes::from(vec![b'x'; plan.data_bytes]);
    tree.make(&plan.nodes, workload, clients, &data).await?;
    let mut callers = Vec::with_capacity(clients);
    for number in 0..clients {
        let mut session = Session::open(&plan.nodes, number).await?;
        // Its server may not have heard of what was made at another one.
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
    fn workloads_are_called_the_same_everywhere() {
        for name in Name::value_variants() {
            let given = name.to_possible_value().unwrap();
            assert_eq!(given.get_name(), Workload::from(*name).name());
        }
    }
}
