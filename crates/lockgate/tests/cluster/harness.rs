//! A cluster for one test, and a few words to talk to it. It knows what no single test is about.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::Duration;

pub use cli_support::api_client::RenewedSession;
use cli_support::api_client::{ApiClient, HeldLock};
use cli_support::http_client::{self, Response};
use local_cluster::{LocalCluster, Ports, START_TIMEOUT};
use lockgate::raft_node::NodeId;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

/// The program under test, which each suite names.
pub use crate::LOCKGATE;

/// No condition may take longer to come true, on however busy a machine.
pub const TIMEOUT: Duration = Duration::from_secs(40);

/// How often a condition is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A session that lives longer than any test.
pub const LONG_TTL: Duration = Duration::from_secs(120);

/// Nobody but the operator is served before the cluster is secured.
pub const ACCESS_REQUIRED: &str = "[access]\nrequired = true\n";

/// Returns the time that a test adds to a promised bound: 2 s for an unoptimised build if LOCKGATE_ALONE says that the test has the machine
/// to itself, as in `.ci/full`. Beside other tests it is [`PATIENCE`], so that only a missing event fails the test.
pub fn allowance() -> Duration {
    match std::env::var_os("LOCKGATE_ALONE") {
        Some(_) => Duration::from_secs(2),
        None => TIMEOUT,
    }
}

/// How often a fault test repeats its round.
pub fn rounds(usually: usize) -> usize {
    let factor = std::env::var("LOCKGATE_TEST_ROUNDS")
        .map_or(1, |text| text.parse().expect("LOCKGATE_TEST_ROUNDS is a number"));
    usually * factor
}

/// A cluster of three processes that ends with the test, however that ends.
pub struct TestCluster {
    cluster: LocalCluster,
    dir: TempDir,
}

impl TestCluster {
    /// Three nodes that serve.
    pub async fn start() -> Self {
        Self::start_with("").await
    }

    /// Three nodes with these lines in their configuration.
    pub async fn start_with(settings: &str) -> Self {
        let mut cluster = Self::configure(settings);
        cluster.up(START_TIMEOUT).await.expect("the cluster starts");
        cluster
    }

    /// Three nodes that do not run yet.
    pub fn configure(settings: &str) -> Self {
        let dir = TempDir::new().expect("a directory for the cluster");
        let cluster = LocalCluster::create(dir.path(), Path::new(LOCKGATE), 3, Ports::Free, settings)
            .expect("the cluster can be configured");
        Self { cluster, dir }
    }

    /// Three nodes that serve over TLS.
    pub async fn start_secured() -> Self {
        let mut cluster = Self::configure_secured();
        cluster.up(START_TIMEOUT).await.expect("the cluster starts");
        cluster
    }

    /// The same, not started yet.
    pub fn configure_secured() -> Self {
        Self::configure_secured_with("")
    }

    /// The same with these lines in their configuration.
    pub fn configure_secured_with(settings: &str) -> Self {
        let dir = TempDir::new().expect("a directory for the cluster");
        let cluster = LocalCluster::create_secured(dir.path(), Path::new(LOCKGATE), 3, Ports::Free, settings)
            .expect("the cluster can be configured");
        Self { cluster, dir }
    }

    /// Three nodes that serve over TLS, and want to know whom.
    pub async fn start_with_access() -> Self {
        let mut cluster = Self::configure_secured_with(ACCESS_REQUIRED);
        cluster.up(START_TIMEOUT).await.expect("the cluster starts");
        cluster.secure().await.expect("the cluster is secured");
        cluster
    }

    /// Where its files are.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where a node serves HTTP.
    pub fn http(&self, id: NodeId) -> String {
        self.node(id)
            .expect("the node is one of the cluster's")
            .http
            .clone()
    }

    /// A client of all nodes that begins with this one.
    pub fn client(&self, first: NodeId) -> ApiClient {
        ApiClient::new(&self.http_addresses(), first as usize - 1, TIMEOUT).secured(self.tls().cloned())
    }

    /// A client of this node alone.
    pub fn client_of(&self, id: NodeId) -> ApiClient {
        ApiClient::new(&[self.http(id)], 0, TIMEOUT).secured(self.tls().cloned())
    }

    /// The leader, now or soon.
    pub async fn leader_now(&self) -> NodeId {
        self.leader(TIMEOUT).await.expect("there is a leader")
    }

    /// The nodes that do not lead.
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

    /// The document at `path`, with all that was committed before.
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

    /// A long session and a client for it that begins with this node.
    pub async fn session(&self, first: NodeId, name: &str) -> (ApiClient, RenewedSession) {
        let mut client = self.client(first);
        let session = RenewedSession::open(&mut client, LONG_TTL, name)
            .await
            .expect("a session");
        (client, session)
    }

    /// Waits until so many wait for a lock.
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
                    "--- the end of node {id}'s log:\n{}",
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
        assert!(Instant::now() < deadline, "it never came true that {what}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Asserts a refusal with its status and code.
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

/// What a grant's document says.
pub fn held(lock: &str, response: &Response) -> HeldLock {
    let document = response.json();
    assert_eq!(response.status, 200, "{document}");
    HeldLock {
        lock: lock.to_owned(),
        holder: document["holder"].as_str().expect("a holder").to_owned(),
        fencing_token: document["fencing_token"].as_u64().expect("a token"),
    }
}
