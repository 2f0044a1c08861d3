//! The HTTP front end: routes, documents, errors. What a lock means is not decided here but in
//! [`crate::locks`], and what a change means not even there but in the state machine.
//!
//! One file per family of routes, its documents beside it; [`problem`] alone decides statuses and codes.

mod acl_types;
mod acls;
mod cluster;
mod config;
#[cfg(feature = "failpoints")]
mod debug;
mod event_types;
mod events;
mod exchange;
mod history;
mod load;
mod lock_types;
mod locks;
mod multilock;
mod metrics;
mod members;
mod openapi;
mod peer;
pub mod problem;
mod reads;
mod serve;
mod session_types;
mod sessions;
mod snapshot;
mod txn;
mod url;
mod watch;
mod znode_types;
mod znodes;

use std::sync::Arc;

use axum::Router;
use axum::http::{Method, Uri};
use axum::routing::{MethodRouter, get, post, put};
use raft_node::Node;

use crate::locks::Locks;

pub use config::{HttpConfig, SMALL_BODY_BYTES};
pub use load::administration;
pub use openapi::openapi;
pub use peer::Peer;
pub use serve::serve;

/// What every handler gets.
struct Api {
    node: Node,
    locks: Locks,
    config: HttpConfig,
    metrics: metrics::Metrics,
    budgets: load::Budgets,
}

/// One allocation for all requests.
type Shared = Arc<Api>;

/// All routes of the API, to be served by [`serve()`]. `locks` is the lock service of the same `node`; whoever
/// stops the node closes it first ([`Locks::close`]), so that those who wait get their answer.
///
/// The router may be merged into another one or be called without a socket. Who calls is the [`Peer`] among the
/// request's extensions.
pub fn router(node: Node, locks: Locks, config: HttpConfig) -> Router {
    let metrics = metrics::Metrics::of(&node);
    let budgets = load::Budgets::new(&config);
    let api = Arc::new(Api {
        node,
        locks,
        config,
        metrics,
        budgets,
    });
    routes()
        .router
        .fallback(no_route)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(axum::middleware::from_fn_with_state(api.clone(), load::admit))
        .with_state(api)
}

/// Every address that is routed, as axum writes it. For those who hold [`openapi()`] against it.
pub fn addresses() -> Vec<&'static str> {
    routes().addresses
}

/// A router that knows what it routes.
struct Routes {
    router: Router<Shared>,
    addresses: Vec<&'static str>,
}

impl Routes {
    fn route(mut self, address: &'static str, methods: MethodRouter<Shared>) -> Self {
        self.addresses.push(address);
        self.router = self.router.route(address, methods);
        self
    }
}

fn routes() -> Routes {
    let one_lock = |look: MethodRouter<Shared>| {
        look.post(locks::act)
            .put(locks::configure)
            .fallback(locks::not_served)
    };
    // The root of the tree has two addresses, all other znodes have one; so everywhere.
    let znodes = || {
        get(znodes::look)
            .post(znodes::create)
            .put(znodes::set)
            .delete(znodes::delete)
    };
    let router = Routes {
        router: Router::new(),
        addresses: Vec::new(),
    };
    #[cfg(feature = "failpoints")]
    let router = router
        .route("/v1/debug", get(debug::look))
        .route("/v1/debug/fail-points", axum::routing::put(debug::order))
        .route("/v1/debug/snapshot", post(debug::snapshot))
        .route("/v1/debug/leader", post(debug::hand_over));
    router
        .route("/healthz", get(cluster::healthz))
        .route("/readyz", get(cluster::readyz))
        .route("/metrics", get(metrics::metrics))
        .route("/v1/cluster", get(cluster::cluster))
        .route("/v1/cluster/snapshot", post(cluster::snapshot))
        .route("/v1/snapshot", get(snapshot::download))
        .route("/v1/cluster/members", post(members::add))
        .route(
            "/v1/cluster/members/{id}",
            put(members::set_address).delete(members::remove),
        )
        .route("/v1/cluster/members/{id}/promote", post(members::promote))
        .route("/v1/cluster/members/{id}/demote", post(members::demote))
        .route("/v1/cluster/leader", post(members::move_leader))
        .route("/v1/sessions", get(sessions::list).post(sessions::open))
        .route(
            "/v1/sessions/{session}",
            get(sessions::look).delete(sessions::close),
        )
        .route("/v1/sessions/{session}/heartbeat", post(sessions::heartbeat))
        .route("/v1/sessions/{session}/ephemerals", get(sessions::ephemerals))
        .route("/v1/sessions/{session}/events", get(events::events))
        .route("/v1/locks", get(locks::list))
        .route("/v1/locks/", one_lock(get(locks::look)))
        .route("/v1/locks/graph", one_lock(get(locks::graph)))
        .route("/v1/locks/{*name_and_verb}", one_lock(get(locks::look)))
        .route("/v1/multilock/acquire", post(multilock::acquire))
        .route("/v1/multilock/release", post(multilock::release))
        .route("/v1/znodes", znodes())
        .route("/v1/znodes/", znodes())
        .route("/v1/znodes/{*path}", znodes())
        .route("/v1/acl", get(acls::look).put(acls::set))
        .route("/v1/acl/", get(acls::look).put(acls::set))
        .route("/v1/acl/{*path}", get(acls::look).put(acls::set))
        .route("/v1/watch", get(watch::watch))
        .route("/v1/watch/", get(watch::watch))
        .route("/v1/watch/{*path}", get(watch::watch))
        .route("/v1/txn", post(txn::txn))
        .route("/v1/read", post(reads::read))
        .route("/v1/openapi.json", get(openapi::document))
        .route("/docs", get(openapi::docs))
        .route("/docs/style.css", get(openapi::style))
}

async fn no_route(uri: Uri) -> problem::Problem {
    problem::Problem::no_route(uri.path())
}

/// axum adds the `Allow` header.
async fn method_not_allowed(method: Method) -> problem::Problem {
    problem::Problem::method_not_allowed(method.as_str(), None)
}
