//! Cluster for one test, and helpers for requests to it.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::Duration;

pub use cli_support::api_client::RenewedSession;
use cli_support::api_client::{ApiClient, HeldLock};
use cli_support::http_client::{self, Response};
use local_cluster::{LocalCluster, Ports, START_TIMEOUT};
use lockgate::lock_node::NodeId;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

/// The program under test, which each suite names.
pub use crate::LOCKGATE;

/// Time limit of a condition, on any busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(40);

/// Poll interval of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Timeout of a session that outlives any test.
pub const LONG_TTL: Duration = Duration::from_secs(120);

/// Setting with which a node serves only the operator before the cluster is secured.
pub const ACCESS_REQUIRED: &str = "[access]\nrequired = true\n";

/// Returns the time that a test adds to a promised bound: 2 s for an unoptimised build if LOCKGATE_ALONE
/// declares that the test has the machine to itself, as in `.ci/full`. Beside other tests it is [`TIMEOUT`],
/// so that only a missing event fails the test.
pub fn allowance() -> Duration {
    match std::env::var_os("LOCKGATE_ALONE") {
        Some(_) => Duration::from_secs(2),
        None => TIMEOUT,
    }
}

/// Returns the number of rounds of a fault test.
pub fn rounds(usually: usize) -> usize {
    let factor = std::env::var("LOCKGATE_TEST_ROUNDS")
        .map_or(1, |text| text.parse().expect("LOCKGATE_TEST_ROUNDS is a number"));
    usually * factor
}

/// Cluster of three processes that are killed with the test.
pub struct TestCluster {
    cluster: LocalCluster,
    dir: TempDir,
}

impl TestCluster {
    /// Starts three nodes.
    pub async fn start() -> Self {
        Self::start_with("").await
    }

    /// Starts three nodes with these lines in their configuration.
    pub async fn start_with(settings: &str) -> Self {
        let mut cluster = Self::configure(settings);
        cluster.up(START_TIMEOUT).await.expect("the cluster starts");
        cluster
    }

    /// Configures three nodes without starting them.
    pub fn configure(settings: &str) -> Self {
        let dir = TempDir::new().expect("a directory for the cluster");
        let cluster = LocalCluster::create(dir.path(), Path::new(LOCKGATE), 3, Ports::Free, settings)
            .expect("the cluster can be configured");
        Self { cluster, dir }
    }

    /// Starts three nodes with TLS.
    pub async fn start_secured() -> Self {
        let mut cluster = Self::configure_secured();
        cluster.up(START_TIMEOUT).await.expect("the cluster starts");
        cluster
    }

    /// Configures three nodes with TLS without starting them.
    pub fn configure_secured() -> Self {
        Self::configure_secured_with("")
    }

    /// Configures three nodes with TLS, and with these lines in their configuration.
    pub fn configure_secured_with(settings: &str) -> Self {
        let dir = TempDir::new().expect("a directory for the cluster");
        let cluster = LocalCluster::create_secured(dir.path(), Path::new(LOCKGATE), 3, Ports::Free, settings)
            .expect("the cluster can be configured");
        Self { cluster, dir }
    }

    /// Starts three nodes with TLS and secures their cluster.
    pub async fn start_with_access() -> Self {
        let mut cluster = Self::configure_secured_with(ACCESS_REQUIRED);
        cluster.up(START_TIMEOUT).await.expect("the cluster starts");
        cluster.secure().await.expect("the cluster is secured");
        cluster
    }

    /// Returns the directory of the cluster.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the HTTP address of a node.
    pub fn http(&self, id: NodeId) -> String {
        self.node(id)
            .expect("the node is one of the cluster's")
            .http
            .clone()
    }

    /// Returns a client of all nodes that tries this one first.
    pub fn client(&self, first: NodeId) -> ApiClient {
        ApiClient::new(&self.http_addresses(), first as usize - 1, TIMEOUT).secured(self.tls().cloned())
    }

    /// Returns a client of this node alone.
    pub fn client_of(&self, id: NodeId) -> ApiClient {
        ApiClient::new(&[self.http(id)], 0, TIMEOUT).secured(self.tls().cloned())
    }

    /// Waits for a leader and returns it.
    pub async fn leader_now(&self) -> NodeId {
        self.leader(TIMEOUT).await.expect("there is a leader")
    }

    /// Returns the nodes except the leader.
    pub async fn followers(&self) -> Vec<NodeId> {
        let leader = self.leader_now().await;
        self.ids().into_iter().filter(|id| *id != leader).collect()
    }

    /// Sends one request to one node.
    pub async fn send(&self, id: NodeId, method: &str, path: &str, body: &Value) -> Response {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        http_client::request_with(&self.http(id), self.tls(), method, path, &body)
            .await
            .expect("the node answers")
    }

    /// Returns the document at `path`, by a linearizable read.
    pub async fn get(&self, id: NodeId, path: &str) -> Value {
        let response = self
            .send(id, "GET", &format!("{path}?linearizable=true"), &Value::Null)
            .await;
        assert_eq!(
            response.status,
            200,
            "GET {path} at node {id}: {}",
            response.json()
        );
        response.json()
    }

    /// Opens a long session, with a client that tries this node first.
    pub async fn session(&self, first: NodeId, name: &str) -> (ApiClient, RenewedSession) {
        let mut client = self.client(first);
        let session = RenewedSession::open(&mut client, LONG_TTL, name)
            .await
            .expect("a session");
        (client, session)
    }

    /// Waits until a lock has this number of waiters.
    pub async fn wait_queued(&self, id: NodeId, lock: &str, waiters: usize) {
        let path = format!("/v1/locks/{lock}");
        eventually(&format!("{waiters} wait for {lock}"), async || {
            let seen = self.send(id, "GET", &path, &Value::Null).await.json();
            seen["queue"]
                .as_array()
                .is_some_and(|queue| queue.len() == waiters)
        })
        .await;
    }
}

impl Deref for TestCluster {
    type Target = LocalCluster;

    fn deref(&self) -> &LocalCluster {
        &self.cluster
    }
}

impl DerefMut for TestCluster {
    fn deref_mut(&mut self) -> &mut LocalCluster {
        &mut self.cluster
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for id in self.ids() {
                eprintln!(
                    "--- end of the log of node {id}:\n{}",
                    self.log_tail(id).unwrap_or_default()
                );
            }
        }
        self.cluster.kill_now();
    }
}

/// Waits until `condition` holds.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition().await {
        assert!(Instant::now() < deadline, "not within {TIMEOUT:?}: {what}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Asserts the status and code of an error.
#[track_caller]
pub fn assert_refused(response: &Response, status: u16, code: &str) {
    let document = response.json();
    assert_eq!(
        (response.status, response.code().as_str()),
        (status, code),
        "{document}"
    );
    assert_eq!(document["status"], status, "{document}");
    for field in ["type", "title", "detail"] {
        assert!(document[field].is_string(), "{field} is missing: {document}");
    }
}

/// Returns the grant of a response.
pub fn held(lock: &str, response: &Response) -> HeldLock {
    let document = response.json();
    assert_eq!(response.status, 200, "{document}");
    HeldLock {
        lock: lock.to_owned(),
        holder: document["holder"].as_str().expect("a holder").to_owned(),
        fencing_token: document["fencing_token"].as_u64().expect("a token"),
    }
}
