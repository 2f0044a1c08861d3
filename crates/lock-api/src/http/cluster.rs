//! Routes for operators of the cluster: members, liveness, readiness.

use axum::extract::State;
use axum::http::Uri;
use lock_node::ClusterStatus;
use serde::Serialize;
use utoipa::ToSchema;

use super::extract::{HandlerResult, no_query, ok};
use super::members::DiskAnswer;
use super::openapi::words;
use super::problem::Problem;
use super::{Peer, Shared};

/// State of a node, beside its view of the cluster.
#[derive(Serialize, ToSchema)]
pub struct ClusterAnswer {
    version: &'static str,
    #[serde(flatten)]
    status: ClusterStatus,
    /// This node's own.
    disk: DiskAnswer,
    counts: CountsAnswer,
}

/// Numbers of objects, as this node knows them.
#[derive(Serialize, ToSchema)]
#[schema(as = Counts)]
pub struct CountsAnswer {
    sessions: usize,
    /// Those in use.
    locks: usize,
    znodes: usize,
    /// At this node alone.
    watches: usize,
}

/// `GET /v1/cluster`: as this node sees it; what only the leader knows is `null` elsewhere.
pub async fn cluster(State(api): State<Shared>, uri: Uri) -> HandlerResult {
    no_query(&uri)?;
    Ok(ok(&ClusterAnswer {
        version: env!("CARGO_PKG_VERSION"),
        status: api.node.status(),
        disk: api.node.disk_report().into(),
        counts: api.node.read(|store| CountsAnswer {
            sessions: store.session_count(),
            locks: store.lock_count(),
            znodes: store.node_count(),
            watches: api.node.watch_counts().watches as usize,
        }),
    }))
}

#[derive(Serialize, ToSchema)]
pub struct Health {
    #[schema(value_type = words::HealthStatus)]
    status: &'static str,
}

/// `GET /healthz`: the process lives. Nothing else is asked, so that a node is not restarted for a fault that
/// lies with its peers.
pub async fn healthz() -> HandlerResult {
    Ok(ok(&Health { status: "alive" }))
}

/// `GET /readyz`: the node can serve.
pub async fn readyz(State(api): State<Shared>) -> HandlerResult {
    match api.node.not_ready() {
        None => Ok(ok(&Health { status: "ready" })),
        Some(reason) => Err(Problem::not_ready(reason, api.node.status().leader)),
    }
}

/// `POST /v1/cluster/snapshot`: this node writes a snapshot of what it has applied, and shortens its log. The answer
/// comes when it is there.
pub async fn snapshot(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    no_query(&uri)?;
    let entry = api
        .audit_log
        .begin(&peer, "make_snapshot", format!("on node {}", api.node.id()));
    let made = entry.end(api.node.make_snapshot().await)?;
    Ok(ok(&made))
}
