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

/// State of a node and its view of the cluster.
#[derive(Serialize, ToSchema)]
pub struct ClusterAnswer {
    version: &'static str,
    #[serde(flatten)]
    status: ClusterStatus,
    /// Disk of this node.
    disk: DiskAnswer,
    counts: CountsAnswer,
}

/// Numbers of objects in this node's state.
#[derive(Serialize, ToSchema)]
#[schema(as = Counts)]
pub struct CountsAnswer {
    sessions: usize,
    /// Locks in use.
    locks: usize,
    znodes: usize,
    /// Watches at this node alone.
    watches: usize,
}

/// `GET /v1/cluster`: the cluster from this node's view. Values that only the leader knows are `null` on other nodes.
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

/// Features of this API that a client may look for, because earlier versions of the program lack them. The list only
/// grows within a version of the API.
const FEATURES: &[&str] = &[
    "idempotency_key",
    "lock_graph",
    "release_requests",
    "znode_upsert",
];

/// Version of the program and of the API.
#[derive(Serialize, ToSchema)]
pub struct VersionAnswer {
    /// Version of the program.
    #[schema(value_type = String)]
    program: &'static str,
    /// Version of the API: the first segment of its addresses.
    #[schema(value_type = String)]
    api: &'static str,
    /// Features that a client may look for.
    #[schema(value_type = Vec<String>)]
    features: &'static [&'static str],
}

/// `GET /v1/version`. Without authentication, so that a client can choose how to speak before it has a token.
pub async fn version(uri: Uri) -> HandlerResult {
    no_query(&uri)?;
    Ok(ok(&VersionAnswer {
        program: env!("CARGO_PKG_VERSION"),
        api: "v1",
        features: FEATURES,
    }))
}

#[derive(Serialize, ToSchema)]
pub struct Health {
    #[schema(value_type = words::HealthStatus)]
    status: &'static str,
}

/// `GET /healthz`: the process is alive. Nothing else is checked, so that a supervisor does not restart a node because
/// of a fault of its peers.
pub async fn healthz() -> HandlerResult {
    Ok(ok(&Health { status: "alive" }))
}

/// `GET /readyz`: the node can serve requests.
pub async fn readyz(State(api): State<Shared>) -> HandlerResult {
    match api.node.not_ready() {
        None => Ok(ok(&Health { status: "ready" })),
        Some(reason) => Err(Problem::not_ready(reason, api.node.status().leader)),
    }
}

/// `POST /v1/cluster/snapshot`: this node writes a snapshot of its applied state, and shortens its log. The answer
/// follows when the snapshot is written.
pub async fn snapshot(State(api): State<Shared>, peer: Peer, uri: Uri) -> HandlerResult {
    no_query(&uri)?;
    let entry = api
        .audit_log
        .begin(&peer, "make_snapshot", format!("on node {}", api.node.id()));
    let made = entry.end(api.node.make_snapshot().await)?;
    Ok(ok(&made))
}
