//! Loads over HTTP: what is made for them, and taken away again.

pub(super) mod client;

use std::time::Duration;

use anyhow::Context;
use cli_support::api_client::{ApiClient, RenewedSession, request_id};
use cli_support::signals;
use serde_json::{Value, json};
use tokio::task::LocalSet;

use super::drive::Drive;
use super::load::Plan;
use super::nodes::Nodes;
use super::report::{LoadReport, Subject};
use super::wire::{Template, Wire};
use super::workload::Workload;
use client::{Caller, Cycle};

/// Long enough that a heartbeat every third of it costs nothing, short enough that an aborted run's locks are soon gone.
const SESSION_TTL: Duration = Duration::from_secs(30);

/// How long a node may refuse before the run is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the removal of a tree may take: there may be millions of znodes in it.
const REMOVED_WITHIN: Duration = Duration::from_secs(60);

/// Measures with each number of clients, and hands out each report as it comes. What was made is taken away also when this is
/// interrupted.
pub(super) async fn run_all(
    plan: &Plan,
    workload: Workload,
    clients: &[usize],
    mut tell: impl FnMut(LoadReport) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // A name of its own for every run: what an aborted one left behind does not matter.
    let name = request_id();
    let all = async {
        for &clients in clients {
            tell(run(plan, workload, clients, &name).await?)?;
        }
        Ok(())
    };
    let here = LocalSet::new();
    let done = tokio::select! {
        done = here.run_until(all) => done,
        interrupted = signals::interrupted() => interrupted.and_then(|()| Err(anyhow::anyhow!("interrupted"))),
    };
    // With the clients that an interruption has left.
    drop(here);
    if done.is_err() && !workload.takes_locks() {
        remove_tree(&plan.nodes, &name).await?;
    }
    done
}

/// Puts a load on nodes, for who has a `LocalSet` already. `name` is that of all it makes.
pub(super) async fn run(
    plan: &Plan,
    workload: Workload,
    clients: usize,
    name: &str,
) -> anyhow::Result<LoadReport> {
    if workload.takes_locks() {
        // Locks that nobody holds or wants go by themselves.
        return drive(plan, workload, clients, name).await;
    }
    make_tree(&plan.nodes, name, clients, plan.data_bytes).await?;
    let driven = drive(plan, workload, clients, name).await?;
    remove_tree(&plan.nodes, name).await?;
    Ok(driven)
}

async fn drive(plan: &Plan, workload: Workload, clients: usize, run: &str) -> anyhow::Result<LoadReport> {
    let mut callers = Vec::with_capacity(clients);
    for number in 0..clients {
        let mut session = None;
        if workload.takes_locks() {
            let mut api = plan.nodes.client(number, PATIENCE);
            let kept = RenewedSession::open(&mut api, SESSION_TTL, "lockgate bench")
                .await
                .with_context(|| format!("opening a session at {}", api.node()))?;
            session = Some((api, kept));
        }
        let mut wire = Wire::connect(&plan.nodes, number).await?;
        if !workload.takes_locks() {
            // Its node may not have heard of what was made at another one.
            let own = format!("/v1/znodes/{}/{number}?linearizable=true", tree(run));
            let look = Template::new(&wire, "GET", &own, "");
            let seen = wire.send(&look, "", "").await;
            seen.with_context(|| format!("the node of client {number}"))?;
        }
        let id = session.as_ref().map_or("", |(_, session)| session.id());
        let cycle = Cycle::new(&wire, workload, run, number, id, plan.data_bytes);
        callers.push(Caller { wire, cycle, session });
    }
    let subject = Subject {
        workload: workload.name(),
        over: "http",
        nodes: plan.nodes.count(),
        clients,
    };
    let drive: Drive = plan.drive(workload, clients);
    let driven = drive.run(callers).await?;
    Ok(LoadReport::new(&subject, &drive, &driven))
}

/// A client that sets the data of its own znode, at the node with that number.
pub(super) async fn setter(
    nodes: &Nodes,
    run: &str,
    client: usize,
    node: usize,
    data_bytes: usize,
) -> anyhow::Result<Caller> {
    let wire = Wire::connect(nodes, node).await?;
    let cycle = Cycle::new(&wire, Workload::Set, run, client, "", data_bytes);
    Ok(Caller {
        wire,
        cycle,
        session: None,
    })
}

/// The path below which a run's znodes are, without its slash.
fn tree(run: &str) -> String {
    format!("lockgate-bench-{run}")
}

/// Creates each client's own znode.
pub(super) async fn make_tree(
    nodes: &Nodes,
    run: &str,
    clients: usize,
    data_bytes: usize,
) -> anyhow::Result<()> {
    let mut api: ApiClient = nodes.client(0, PATIENCE);
    let data = "x".repeat(data_bytes);
    let mut ops = vec![json!({ "create": { "path": format!("/{}", tree(run)), "data": "" } })];
    ops.extend((0..clients).map(|client| {
        let path = format!("/{}/{client}", tree(run));
        json!({ "create": { "path": path, "data": data } })
    }));
    // The most that one transaction may have, in pieces that stay far below its bytes.
    let at_once = (256 * 1024 / data_bytes.max(1)).clamp(1, 500);
    for some in ops.chunks(at_once) {
        let body = json!({ "ops": some, "request_id": request_id() });
        api.call("POST", "/v1/txn", &body, PATIENCE)
            .await
            .with_context(|| format!("creating the znodes below /{}", tree(run)))?;
    }
    Ok(())
}

/// Deletes all that a run has created, as far as it is there.
pub(super) async fn remove_tree(nodes: &Nodes, run: &str) -> anyhow::Result<()> {
    let mut api = nodes.client(0, PATIENCE);
    let path = format!("/v1/znodes/{}?recursive=true", tree(run));
    match api.call("DELETE", &path, &Value::Null, REMOVED_WITHIN).await {
        Err(error) if error.code() == "no_node" => Ok(()),
        removed => removed
            .map(drop)
            .with_context(|| format!("removing /{}", tree(run))),
    }
}
