//! Loads over HTTP: creates their znodes, runs them, and deletes the znodes.

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

/// TTL of sessions: long enough that the heartbeats cost nothing, and short enough that the locks of an
/// aborted run are soon released.
const SESSION_TTL: Duration = Duration::from_secs(30);

/// Total time of a call before the run is aborted.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for the deletion of a tree, which may have millions of znodes.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(60);

/// Measures with each number of clients, and passes each report to `print`. The created znodes are deleted
/// even after an interrupt.
pub(super) async fn run_all(
    plan: &Plan,
    workload: Workload,
    clients: &[usize],
    mut print: impl FnMut(LoadReport) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // Every run has a name of its own, so the remains of an aborted one do not matter.
    let name = request_id();
    let all = async {
        for &clients in clients {
            print(run(plan, workload, clients, &name).await?)?;
        }
        Ok(())
    };
    let here = LocalSet::new();
    let done = tokio::select! {
        done = here.run_until(all) => done,
        interrupted = signals::interrupted() => interrupted.and_then(|()| Err(anyhow::anyhow!("interrupted"))),
    };
    // This drops the clients that an interrupt has left.
    drop(here);
    if done.is_err() && !workload.takes_locks() {
        remove_tree(&plan.nodes, &name).await?;
    }
    done
}

/// Runs a load for a caller that has a `LocalSet`. `name` is part of all created paths.
pub(super) async fn run(
    plan: &Plan,
    workload: Workload,
    clients: usize,
    name: &str,
) -> anyhow::Result<LoadReport> {
    if workload.takes_locks() {
        // The server deletes unused locks.
        return drive(plan, workload, clients, name).await;
    }
    create_tree(&plan.nodes, name, clients, plan.data_bytes).await?;
    let driven = drive(plan, workload, clients, name).await?;
    remove_tree(&plan.nodes, name).await?;
    Ok(driven)
}

async fn drive(plan: &Plan, workload: Workload, clients: usize, run: &str) -> anyhow::Result<LoadReport> {
    let mut callers = Vec::with_capacity(clients);
    for number in 0..clients {
        let mut session = None;
        if workload.takes_locks() {
            let mut api = plan.nodes.client(number, CALL_TIMEOUT);
            let kept = RenewedSession::open(&mut api, SESSION_TTL, "lockgate bench")
                .await
                .with_context(|| format!("opening a session at {}", api.node()))?;
            session = Some((api, kept));
        }
        let mut wire = Wire::connect(&plan.nodes, number).await?;
        if !workload.takes_locks() {
            // This node may not have applied the znodes yet that were created at another one.
            let own = format!("/v1/znodes/{}/{number}?linearizable=true", tree(run));
            let read = Template::new(&wire, "GET", &own, "");
            let seen = wire.send(&read, "", "").await;
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

/// Creates a client that sets the data of its own znode, at the node with this number.
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

/// Returns the parent of a run's znodes, without the leading slash.
fn tree(run: &str) -> String {
    format!("lockgate-bench-{run}")
}

/// Creates each client's own znode.
pub(super) async fn create_tree(
    nodes: &Nodes,
    run: &str,
    clients: usize,
    data_bytes: usize,
) -> anyhow::Result<()> {
    let mut api: ApiClient = nodes.client(0, CALL_TIMEOUT);
    let data = "x".repeat(data_bytes);
    let mut ops = vec![json!({ "create": { "path": format!("/{}", tree(run)), "data": "" } })];
    ops.extend((0..clients).map(|client| {
        let path = format!("/{}/{client}", tree(run));
        json!({ "create": { "path": path, "data": data } })
    }));
    // Maximum number of operations per transaction, in batches that stay far below the size limit.
    let at_once = (256 * 1024 / data_bytes.max(1)).clamp(1, 500);
    for some in ops.chunks(at_once) {
        let body = json!({ "ops": some, "request_id": request_id() });
        api.call("POST", "/v1/txn", &body, CALL_TIMEOUT)
            .await
            .with_context(|| format!("creating the znodes below /{}", tree(run)))?;
    }
    Ok(())
}

/// Deletes all znodes of a run, if there are any.
pub(super) async fn remove_tree(nodes: &Nodes, run: &str) -> anyhow::Result<()> {
    let mut api = nodes.client(0, CALL_TIMEOUT);
    let path = format!("/v1/znodes/{}?recursive=true", tree(run));
    match api.call("DELETE", &path, &Value::Null, REMOVE_TIMEOUT).await {
        Err(error) if error.code() == "no_znode" => Ok(()),
        removed => removed
            .map(drop)
            .with_context(|| format!("removing /{}", tree(run))),
    }
}
