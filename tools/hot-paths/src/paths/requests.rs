//! Whole requests: through the router, the lock service, consensus of one, the log and the state machine, and
//! back. All of it runs in one thread on a simulated machine, so the count covers everything that a node
//! executes except the kernel. The paths in `connections` go through a connection and include hyper; the
//! paths here call the router.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lock_api::Locks;
use lock_api::http::{ApiService, HttpConfig, Peer, router};
use lock_node::simulation::{self, DiskTiming, DiskWork, Host, Line, Place, ReplicationHost};
use lock_node::{MemberAddress, Node, NodeConfig};
use raft_log::sim_disk::SimDisk;
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tower_service::Service;
use znode_store::{Event, Store, Zxid};

use super::counted;
use super::material::DATA_BYTES;

/// Constant time of the wall clock.
const NOW_MS: u64 = 1_780_000_000_000;

/// URL path of a znode.
pub(super) const ZNODE_URL: &str = "/v1/znodes/thing";

/// Maximum length of a response.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Interval between two checks for readiness, by the node's own clock, which otherwise does not advance.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Number of requests before the counted ones: they create everything that is created once or grows at first.
const WARM_UP_REQUESTS: u64 = 20;

/// A machine without a network, whose disk takes no time.
struct IsolatedHost;

impl DiskTiming for IsolatedHost {
    fn disk_takes(&self, _: DiskWork) -> Duration {
        Duration::ZERO
    }
}

impl ReplicationHost for IsolatedHost {
    fn wall_clock_ms(&self) -> u64 {
        NOW_MS
    }

    fn connect(&self, _: &str) -> BoxFuture<'static, io::Result<Line>> {
        std::future::ready(Err(io::ErrorKind::NetworkUnreachable.into())).boxed()
    }

    fn voted(&self, _: u64, _: u64, _: bool) {}
    fn appended(&self, _: Place, _: &[u8], _: Option<Place>) {}
    fn applied(&self, _: Place, _: &[u8]) {}
}

impl Host for IsolatedHost {
    fn command_applied(&self, _: Place, _: Zxid, _: &[Event], _: &Store) {}
    fn replaced(&self, _: Place, _: &Store) {}
}

/// A running node, and a session of it.
pub(super) struct Server {
    pub front: ApiService,
    pub node: Node,
    pub session: String,
    peer: Peer,
}

impl Server {
    async fn start() -> Self {
        let member = MemberAddress {
            peer: "machine-1:1".into(),
            http: "machine-1:2".into(),
        };
        let config = NodeConfig::new(1, "hot-paths", [(1, member)].into(), "/data");
        let (_nobody, listening) = mpsc::unbounded_channel();
        let node = Node::start_simulated(config, listening, Arc::new(SimDisk::new()))
            .await
            .expect("a node of one starts");
        let locks = Locks::new(node.clone());
        let mut server = Self {
            front: router(node.clone(), locks, HttpConfig::default()),
            node,
            session: String::new(),
            peer: peer(),
        };
        while server.call(Method::GET, "/readyz", None).await.0 != StatusCode::OK {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        server.session = server.open_session().await;
        server.done(Method::POST, ZNODE_URL, json!({"data": ""})).await;
        server
    }

    pub async fn open_session(&mut self) -> String {
        let opened = self
            .done(Method::POST, "/v1/sessions", json!({"ttl_ms": 60_000}))
            .await;
        let session = opened["session"].as_str();
        session.expect("the response has a session id").to_owned()
    }

    async fn call(&mut self, method: Method, address: &str, body: Option<Vec<u8>>) -> (StatusCode, Vec<u8>) {
        let mut request = Request::new(body.map_or_else(Body::empty, Body::from));
        *request.method_mut() = method;
        *request.uri_mut() = address.parse().expect("the address is valid");
        let headers = request.headers_mut();
        headers.insert("host", "localhost".parse().expect("the host is valid"));
        request.extensions_mut().insert(self.peer.clone());
        let answer = match self.front.call(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        };
        let status = answer.status();
        let body = to_bytes(answer.into_body(), MAX_ANSWER_BYTES)
            .await
            .expect("reading a body from memory succeeds");
        (status, body.into())
    }

    /// Sends a request with a document and returns the document of the response, which must be a success.
    async fn done(&mut self, method: Method, address: &str, body: Value) -> Value {
        let (status, answer) = self.call(method, address, Some(body.to_string().into())).await;
        assert!(
            status.is_success(),
            "{address}: {status}: {}",
            String::from_utf8_lossy(&answer)
        );
        match answer.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&answer).expect("responses are JSON"),
        }
    }
}

/// Returns the identity of the client, which a connection determines only once.
pub(super) fn peer() -> Peer {
    Peer::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 50_000)), None)
}

/// Sends some requests, then counts the requested number.
fn counted_requests(operations: u64, request: impl AsyncFn(Server, u64) -> Server) {
    counted_requests_by(operations, async |server| server, request);
}

/// Does the same with clients that `begin` creates from a server.
pub(super) fn counted_requests_by<C>(
    operations: u64,
    begin: impl AsyncFnOnce(Server) -> C,
    request: impl AsyncFn(C, u64) -> C,
) {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without threads and I/O can be built");
    let before = simulation::enter(Some(Rc::new(IsolatedHost)));
    let mut server = Some(runtime.block_on(async {
        let mut server = begin(Server::start().await).await;
        for n in 0..WARM_UP_REQUESTS {
            server = request(server, n).await;
        }
        server
    }));
    counted(&mut || {
        server = runtime.block_on(async {
            let mut server = server.take().expect("the requests are counted once");
            for n in 0..operations {
                server = request(server, n).await;
            }
            Some(server)
        });
    });
    drop(server);
    drop(runtime);
    simulation::enter(before);
}

pub fn lock_cycle(operations: u64) {
    counted_requests(operations, async |mut server: Server, n| {
        let lock = format!("/v1/locks/job-{}", n % 10);
        let acquire = json!({"session": server.session, "wait_ms": 10_000});
        let granted = server
            .done(Method::POST, &format!("{lock}/acquire"), acquire)
            .await;
        let release = json!({"session": server.session, "holder": granted["holder"]});
        server
            .done(Method::POST, &format!("{lock}/release"), release)
            .await;
        server
    });
}

pub fn heartbeat(operations: u64) {
    counted_requests(operations, async |mut server: Server, _| {
        let address = format!("/v1/sessions/{}/heartbeat", server.session);
        server.done(Method::POST, &address, json!({})).await;
        server
    });
}

pub fn set(operations: u64) {
    let data = "x".repeat(DATA_BYTES);
    counted_requests(operations, async |mut server: Server, _| {
        server.done(Method::PUT, ZNODE_URL, json!({"data": data})).await;
        server
    });
}

pub fn get(operations: u64) {
    counted_requests(operations, async |mut server: Server, _| {
        let (status, answer) = server.call(Method::GET, ZNODE_URL, None).await;
        assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&answer));
        server
    });
}
