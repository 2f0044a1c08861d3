//! HTTP front end: routes, documents, errors. It does not decide what a lock call does, which is [`crate::locks`]' job,
//! nor what a change does, which is the state machine's.
//!
//! Each family of routes has one file, and its documents are in the file beside it. [`problem`] alone decides statuses
//! and codes. `auth` authenticates callers before each route, with the requirement that `routes` declares.

mod access;
mod access_types;
mod acl_types;
mod acls;
mod audit;
mod batch;
mod certificates;
mod cluster;
mod config;
#[doc(hidden)]
pub mod bench_support;
#[cfg(feature = "failpoints")]
mod debug;
mod auth;
mod event_types;
mod events;
mod extract;
mod service;
mod dashboard;
mod event_feed_types;
mod event_feed;
mod history;
mod http_request_id;
mod lease_types;
mod leases;
mod lenient_parsing;
mod load_shedding;
mod lock_types;
mod locks;
mod lookahead;
mod multilock;
mod metrics;
mod members;
mod mirror;
mod mirror_types;
mod namespace_types;
mod namespaces;
mod names_query;
mod openapi;
mod origin;
mod middleware;
mod peer;
pub mod problem;
mod reads;
mod roles;
mod route;
mod serve;
mod session_types;
mod sessions;
mod snapshot;
mod terraform;
mod tokens;
mod trace;
mod txn;
mod url;
mod watch;
mod znode_types;
mod znodes;

use std::sync::Arc;

use axum::Router;
use axum::http::{Method, Uri};
use axum::middleware::from_fn_with_state;
use listener::Shares;
use lock_node::metrics::text_format::Registry;
use lock_node::{MAX_FEED_SUBSCRIBERS, Node};

use self::auth::{RequiredPermission, UnknownTokens};
use self::middleware::Guarded;
use self::route::Route;
use crate::locks::{Locks, MAX_CALLS};

pub use auth::OperatorToken;
pub use config::{HttpConfig, LiveConfig, MAX_HTTP_PATH_BYTES, SMALL_BODY_BYTES};
pub use listener::ConnectionMetrics;
pub use load_shedding::administration;
pub use metrics::register_connections;
pub use openapi::openapi;
pub use origin::KnownNames;
pub use peer::Peer;
pub use serve::{serve, serve_in_process};
pub use service::ApiService;
pub use trace::Tracing;

/// State of every handler.
struct Api {
    node: Node,
    locks: Locks,
    live: LiveConfig,
    registry: Registry,
    requests: Arc<metrics::requests::Requests>,
    /// Cache of token ids that the cluster does not know.
    unknown: UnknownTokens,
    audit_log: audit::AuditLog,
    budgets: load_shedding::Budgets,
    /// Subscriptions of the event feed.
    feed_shares: Arc<Shares>,
    /// Calls that wait for locks.
    wait_shares: Arc<Shares>,
}

impl Api {
    /// Returns the current configuration.
    fn config(&self) -> Arc<HttpConfig> {
        self.live.get()
    }
}

/// Shared state, in one allocation for all requests.
type Shared = Arc<Api>;

/// Returns all routes of the API, to be served by [`serve()`]. `locks` is the lock service of the same `node`. Close it
/// before you stop the node ([`Locks::close`]), so that waiting callers get an answer.
pub fn router(node: Node, locks: Locks, config: impl Into<LiveConfig>) -> ApiService {
    measured_router(node, locks, config, Registry::default())
}

/// Like [`router`], with further metrics of this process in `registry` for `/metrics`.
pub fn measured_router(
    node: Node,
    locks: Locks,
    config: impl Into<LiveConfig>,
    mut registry: Registry,
) -> ApiService {
    let live = config.into();
    let config = live.get();
    let requests = Arc::new(metrics::requests::Requests::new(&served()));
    metrics::register(&mut registry, &node, &requests);
    if let Some(tracing) = &config.tracing {
        metrics::register_traces(&mut registry, tracing.clone());
    }
    let budgets = load_shedding::Budgets::new(&config);
    let api = Arc::new(Api {
        node,
        locks,
        live,
        registry,
        requests,
        unknown: UnknownTokens::new(),
        audit_log: audit::AuditLog::default(),
        budgets,
        feed_shares: Shares::of(MAX_FEED_SUBSCRIBERS),
        wait_shares: Shares::of(MAX_CALLS),
    });
    let mut router = Router::new();
    let mut needed = Vec::new();
    for route in routes() {
        let served = route
            .served()
            .map(|(method, required)| (route.address(), method.clone(), *required));
        needed.extend(served);
        router = router.route(route.address(), route.methods());
    }
    router = router
        .fallback(public(no_route))
        .method_not_allowed_fallback(public(method_not_allowed));
    // Without tracing no layer is added, so that requests do not pay for one.
    if api.config().tracing.is_some() {
        router = router.layer(from_fn_with_state(api.clone(), trace::follow));
    }
    ApiService::new(router.with_state(api.clone()), api, &needed)
}

/// Returns every routed address in axum's notation. For comparisons with [`openapi()`].
pub fn addresses() -> Vec<&'static str> {
    routes().iter().map(Route::address).collect()
}

/// Returns every address with each of its methods, without the `HEAD` of a `GET`. For tests of all routes.
pub fn served() -> Vec<(&'static str, Method)> {
    let routes = routes();
    let each = routes.iter().flat_map(|route| {
        let address = route.address();
        route.served().map(move |(method, _)| (address, method.clone()))
    });
    each.collect()
}

/// Returns the one table of all routes, with the permission that each method requires.
fn routes() -> Vec<Route> {
    use RequiredPermission::{
        Administer, AdministerLinearizable, DecidedByHandler, DecidedInLog, Public, ReadCluster, ValidToken,
    };
    let of_locks = |address| {
        Route::at(address)
            .post(DecidedInLog, locks::act)
            .patch(DecidedInLog, locks::configure)
            .otherwise(locks::not_served)
    };
    // The root of the tree has two addresses, and every other znode has one. The same holds for lists and watches.
    let znodes = |address| {
        Route::at(address)
            .get(DecidedByHandler, znodes::get)
            .post(DecidedInLog, znodes::create)
            .put(DecidedInLog, znodes::set)
            .delete(DecidedInLog, znodes::delete)
    };
    let acls = |address| {
        Route::at(address)
            .get(DecidedByHandler, acls::get)
            .put(DecidedInLog, acls::set)
    };
    let watches = |address| Route::at(address).get(DecidedByHandler, watch::watch);
    vec![
        #[cfg(feature = "failpoints")]
        Route::at("/v1/debug").get(Administer, debug::get),
        #[cfg(feature = "failpoints")]
        Route::at("/v1/debug/fail-points").put(Administer, debug::set_fail_point),
        #[cfg(feature = "failpoints")]
        Route::at("/v1/debug/snapshot").post(Administer, debug::snapshot),
        #[cfg(feature = "failpoints")]
        Route::at("/v1/debug/leader").post(Administer, debug::transfer_leadership),
        Route::at("/healthz").get(Public, cluster::healthz),
        Route::at("/readyz").get(Public, cluster::readyz),
        Route::at("/v1/version").get(Public, cluster::version),
        Route::at("/metrics").get(ReadCluster, metrics::metrics),
        Route::at("/v1/cluster").get(ReadCluster, cluster::cluster),
        Route::at("/v1/cluster/snapshot").post(Administer, cluster::snapshot),
        Route::at("/v1/snapshot").get(Administer, snapshot::download),
        Route::at("/v1/cluster/members")
            .get(ReadCluster, members::conditions)
            .post(AdministerLinearizable, members::add),
        Route::at("/v1/events").get(DecidedByHandler, event_feed::events),
        Route::at("/v1/cluster/members/{id}")
            .put(AdministerLinearizable, members::set_address)
            .delete(AdministerLinearizable, members::remove),
        Route::at("/v1/cluster/members/{id}/promote").post(AdministerLinearizable, members::promote),
        Route::at("/v1/cluster/members/{id}/demote").post(AdministerLinearizable, members::demote),
        Route::at("/v1/cluster/leader").post(AdministerLinearizable, members::move_leader),
        Route::at("/v1/access").get(ValidToken, access::get),
        Route::at("/v1/access/secure").post(DecidedInLog, access::secure),
        Route::at("/v1/tokens")
            .get(DecidedByHandler, tokens::list)
            .post(DecidedInLog, tokens::create),
        Route::at("/v1/tokens/{id}").delete(DecidedInLog, tokens::revoke),
        Route::at("/v1/roles").get(DecidedByHandler, roles::list),
        Route::at("/v1/roles/{role}")
            .get(DecidedByHandler, roles::get)
            .put(DecidedInLog, roles::set)
            .delete(DecidedInLog, roles::delete),
        Route::at("/v1/certificates")
            .get(DecidedByHandler, certificates::list)
            .put(DecidedInLog, certificates::set)
            .delete(DecidedInLog, certificates::delete),
        Route::at("/v1/namespaces").get(DecidedByHandler, namespaces::list),
        Route::at("/v1/namespaces/{name}")
            .get(DecidedByHandler, namespaces::get)
            .put(DecidedInLog, namespaces::set)
            .delete(DecidedInLog, namespaces::delete),
        Route::at("/v1/sessions")
            .get(DecidedByHandler, sessions::list)
            .post(DecidedInLog, sessions::open),
        Route::at("/v1/sessions/{session}")
            .get(DecidedByHandler, sessions::get)
            .delete(DecidedInLog, sessions::close),
        Route::at("/v1/sessions/{session}/heartbeat").post(DecidedByHandler, sessions::heartbeat),
        Route::at("/v1/sessions/{session}/ephemerals").get(DecidedByHandler, sessions::ephemerals),
        Route::at("/v1/sessions/{session}/events").get(DecidedByHandler, events::events),
        Route::at("/v1/leases/{lease}")
            .get(DecidedByHandler, leases::get)
            .delete(DecidedInLog, leases::release),
        Route::at("/v1/leases/{lease}/renew").post(DecidedByHandler, leases::renew),
        Route::at("/v1/locks").get(DecidedByHandler, locks::list),
        Route::at("/v1/lock-graph").get(DecidedByHandler, locks::graph),
        of_locks("/v1/locks/").get(DecidedByHandler, locks::get),
        of_locks("/v1/locks/{*name_and_verb}").get(DecidedByHandler, locks::get),
        Route::at("/v1/batch").post(DecidedInLog, batch::batch),
        Route::at("/v1/multilock/acquire").post(DecidedInLog, multilock::acquire),
        Route::at("/v1/multilock/release").post(DecidedInLog, multilock::release),
        znodes("/v1/znodes"),
        znodes("/v1/znodes/"),
        znodes("/v1/znodes/{*path}"),
        acls("/v1/acl"),
        acls("/v1/acl/"),
        acls("/v1/acl/{*path}"),
        watches("/v1/watch"),
        watches("/v1/watch/"),
        watches("/v1/watch/{*path}"),
        Route::at("/v1/terraform/states/{*name}")
            .get(DecidedByHandler, terraform::get)
            .post(DecidedInLog, terraform::update)
            .delete(DecidedInLog, terraform::delete),
        Route::at("/v1/terraform/locks/{*name}")
            .post(DecidedInLog, terraform::lock)
            .delete(DecidedInLog, terraform::unlock),
        Route::at("/v1/txn").post(DecidedInLog, txn::txn),
        Route::at("/v1/mirror")
            .get(DecidedByHandler, mirror::get)
            .post(DecidedInLog, mirror::take_steps),
        Route::at("/v1/read").post(DecidedByHandler, reads::read),
        Route::at("/v1/openapi.json").get(Public, openapi::document),
        Route::at("/").get(Public, dashboard::page),
        Route::at("/dashboard/{file}").get(Public, dashboard::file),
        Route::at("/docs").get(Public, openapi::docs),
        Route::at("/docs/style.css").get(Public, openapi::style),
    ]
}

/// Declares a handler without a requirement. It must reveal nothing.
fn public<H>(handler: H) -> Guarded<H> {
    let required = RequiredPermission::Public;
    Guarded { required, handler }
}

async fn no_route(uri: Uri) -> problem::Problem {
    problem::Problem::no_route(uri.path())
}

/// Answers 405. axum adds the `Allow` header.
async fn method_not_allowed(method: Method) -> problem::Problem {
    problem::Problem::method_not_allowed(method.as_str(), None)
}
