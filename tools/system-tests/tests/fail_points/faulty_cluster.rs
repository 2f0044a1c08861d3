//! Cluster whose nodes get one fault after the other: real processes of the program with fail points, with
//! limits so small that rare steps happen all the time. It injects faults and queries positions, but judges
//! nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cli_support::http_client;
use local_cluster::{LocalCluster, Ports, START_TIMEOUT};
use lockgate::lock_node::NodeId;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

/// Program under test, with fail points.
const LOCKGATE: &str = env!("CARGO_BIN_EXE_lockgate-with-rare-steps");

/// Time limit of a response. A running node answers these requests at once, unless a fault delays it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// TTL of a session without heartbeats.
const SHORTEST_TTL_MS: u64 = 2_000;

/// Interval between two checks of a condition.
pub const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Settings with a log segment and a snapshot every second or two. The limits differ from node to node (see
/// `differ`).
const SETTINGS: &str = "
[disk]
segment_bytes = 65536

[snapshots]
every_entries = 400
every_bytes = 32768
keep_entries = 40
keep_bytes = 16384

[sweeps]
empty_for_ms = 300
every_ms = 300

[limits]
children = 500000
";

/// State of a node as it reports it.
#[derive(Debug, Clone)]
pub struct View {
    /// Last position of its tree.
    pub zxid: u64,
    /// Digest of the state at that position.
    pub digest: String,
    /// Counts of executed faults by fail point.
    points: Value,
}

impl View {
    /// Returns the number of executed faults at a point.
    pub fn hits(&self, point: &str) -> u64 {
        self.points[point]["acted"].as_u64().unwrap_or(0)
    }
}

/// Cluster under test; it ends when this is dropped.
pub struct FaultyCluster {
    cluster: LocalCluster,
    _dir: TempDir,
}

impl FaultyCluster {
    /// Starts this number of nodes and waits until they serve.
    pub async fn start(nodes: u64) -> Self {
        let mut cluster = Self::configure(nodes);
        cluster
            .cluster
            .up(START_TIMEOUT)
            .await
            .expect("the cluster starts");
        cluster
    }

    /// Configures this number of nodes without starting them.
    pub fn configure(nodes: u64) -> Self {
        let dir = TempDir::new().expect("a directory for the cluster");
        let cluster = LocalCluster::create(dir.path(), Path::new(LOCKGATE), nodes, Ports::Free, SETTINGS)
            .expect("the cluster can be configured");
        for node in cluster.nodes() {
            // Different limits make every new leader write its own.
            let file = node.config_file();
            let text = fs::read_to_string(&file).expect("the configuration was just written");
            let own = format!("children = {}", 500_000 + node.id);
            fs::write(&file, text.replace("children = 500000", &own))
                .expect("the temporary directory is writable");
        }
        Self { cluster, _dir: dir }
    }

    /// Returns the processes.
    pub fn cluster(&mut self) -> &mut LocalCluster {
        &mut self.cluster
    }

    /// Returns the ids of all nodes.
    pub fn ids(&self) -> Vec<NodeId> {
        self.cluster.ids()
    }

    /// Returns the nodes' HTTP addresses.
    pub fn addresses(&self) -> Vec<String> {
        self.cluster.http_addresses()
    }

    /// Returns a node's HTTP address.
    pub fn address(&self, id: NodeId) -> &str {
        &self
            .cluster
            .node(id)
            .expect("the node is one of the cluster's")
            .http
    }

    /// Returns a node's ZooKeeper address.
    pub fn zookeeper_address(&self, id: NodeId) -> &str {
        let node = self.cluster.node(id).expect("the node is one of the cluster's");
        node.zookeeper
            .as_deref()
            .expect("every node has a ZooKeeper port")
    }

    /// Returns whether a node's process runs.
    pub fn is_running(&self, id: NodeId) -> bool {
        self.cluster.pid(id).expect("the pid file can be read").is_some()
    }

    /// Returns the leader on which the running nodes agree.
    pub async fn leader(&self) -> NodeId {
        self.cluster
            .leader(START_TIMEOUT)
            .await
            .expect("the cluster has a leader")
    }

    /// Returns whether a node reports that it serves.
    pub async fn is_ready(&self, id: NodeId) -> bool {
        let answer = self.ask(id, "GET", "/readyz", Value::Null).await;
        answer.is_some_and(|(status, _)| status == 200)
    }

    /// Returns a node's state, if it answers.
    pub async fn view(&self, id: NodeId) -> Option<View> {
        let (status, view) = self.ask(id, "GET", "/v1/debug", Value::Null).await?;
        (status == 200).then(|| View {
            zxid: view["zxid"].as_u64().expect("a number"),
            digest: view["digest"].as_str().expect("a text").to_owned(),
            points: view["points"].clone(),
        })
    }

    /// Injects a fault. The node may die of it before its response, which is a step as well.
    pub async fn order(&self, id: NodeId, point: &str, action: Value, times: usize) {
        let order = json!({ "name": point, "action": action, "times": times });
        if let Some((status, answer)) = self.ask(id, "PUT", "/v1/debug/fail-points", order).await {
            assert_eq!(status, 204, "{point}: {answer}");
        }
    }

    /// Makes a node create a snapshot.
    pub async fn snapshot(&self, id: NodeId) {
        self.ask(id, "POST", "/v1/debug/snapshot", Value::Null).await;
    }

    /// Makes the leader start a handover.
    pub async fn hand_over(&self, from: NodeId, to: NodeId) {
        self.ask(from, "POST", "/v1/debug/leader", json!({ "to": to }))
            .await;
    }

    /// Calls a node as a client does: opens a session, sends a heartbeat of it, and makes a linearizable
    /// read. The node may die of each call.
    pub async fn call(&self, id: NodeId) {
        let session = self
            .ask(id, "POST", "/v1/sessions", json!({ "ttl_ms": SHORTEST_TTL_MS }))
            .await;
        if let Some((_, session)) = session
            && let Some(session) = session["session"].as_str()
        {
            let heartbeat = format!("/v1/sessions/{session}/heartbeat");
            self.ask(id, "POST", &heartbeat, Value::Null).await;
        }
        self.ask(id, "GET", "/v1/znodes/fp?linearizable=true", Value::Null)
            .await;
    }

    /// Returns the length of a node's log file.
    pub fn log_length(&self, id: NodeId) -> u64 {
        fs::metadata(self.log_file(id)).map_or(0, |log| log.len())
    }

    /// Returns the part of a node's log file after this length.
    pub fn log_since(&self, id: NodeId, length: u64) -> String {
        let log = fs::read(self.log_file(id)).unwrap_or_default();
        let from = usize::try_from(length).unwrap_or(usize::MAX).min(log.len());
        String::from_utf8_lossy(&log[from..]).into_owned()
    }

    fn log_file(&self, id: NodeId) -> PathBuf {
        self.cluster
            .node(id)
            .expect("the node is one of the cluster's")
            .log_file()
    }

    /// Returns the end of a node's log file.
    pub fn log_tail(&self, id: NodeId) -> String {
        self.cluster.log_tail(id).unwrap_or_default()
    }

    /// Starts all nodes again after a failed cell.
    pub async fn up(&mut self) {
        self.cluster
            .up(START_TIMEOUT)
            .await
            .expect("the cluster starts again");
    }

    /// Copies the nodes' log files to the directory of the environment variable, if it is set.
    pub fn keep_logs(&self, number: usize) {
        let Ok(dir) = std::env::var("LOCKGATE_FAIL_POINTS_LOGS") else {
            return;
        };
        for node in self.cluster.nodes() {
            let to = Path::new(&dir).join(format!("cell-{}-node-{}.log", number + 1, node.id));
            fs::copy(node.log_file(), &to).expect("the directory for logs exists");
        }
    }

    async fn ask(&self, id: NodeId, method: &str, path: &str, body: Value) -> Option<(u16, Value)> {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let asked = http_client::request(self.address(id), method, path, &body);
        // A dead or delayed node does not answer; callers repeat the request.
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, asked).await.ok()?.ok()?;
        Some((answer.status, answer.json()))
    }
}

impl Drop for FaultyCluster {
    fn drop(&mut self) {
        self.cluster.kill_now();
    }
}

/// Waits up to `patience` for a condition; returns whether it holds.
pub async fn within(patience: Duration, mut condition: impl AsyncFnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    while !condition().await {
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    true
}
