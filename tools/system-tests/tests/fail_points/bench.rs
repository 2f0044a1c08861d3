//! The cluster that is broken again and again: real processes of the program with fail points, with limits so small that
//! what is rare elsewhere happens all the time. It orders faults and asks nodes where they are; it judges nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cli_support::http_client;
use local_cluster::{LocalCluster, Ports, START_TIMEOUT};
use lockgate::raft_node::NodeId;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

/// The program under test, with fail points.
const LOCKGATE: &str = env!("CARGO_BIN_EXE_lockgate-with-rare-steps");

/// A living node answers these questions at once, unless it is made to wait just then.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// For a session that nobody keeps.
const SHORTEST_TTL_MS: u64 = 2_000;

/// How often a condition is looked at.
pub const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A segment of the log and a snapshot every second or two. The limits differ from node to node (see `differ`).
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

/// What a node says of itself.
#[derive(Debug, Clone)]
pub struct View {
    /// The last position of its tree.
    pub zxid: u64,
    /// The state at that position.
    pub digest: String,
    /// How often something was done at the points.
    points: Value,
}

impl View {
    /// How often something was done at a point.
    pub fn acted(&self, point: &str) -> u64 {
        self.points[point]["acted"].as_u64().unwrap_or(0)
    }
}

/// The cluster, until this is dropped.
pub struct Bench {
    cluster: LocalCluster,
    _dir: TempDir,
}

impl Bench {
    /// So many nodes that serve.
    pub async fn start(nodes: u64) -> Self {
        let mut bench = Self::configure(nodes);
        bench.cluster.up(START_TIMEOUT).await.expect("the cluster starts");
        bench
    }

    /// So many nodes that do not run yet.
    pub fn configure(nodes: u64) -> Self {
        let dir = TempDir::new().expect("a directory for the cluster");
        let cluster = LocalCluster::create(dir.path(), Path::new(LOCKGATE), nodes, Ports::Free, SETTINGS)
            .expect("the cluster can be configured");
        for node in cluster.nodes() {
            // So every new leader has its limits set.
            let file = node.config_file();
            let text = fs::read_to_string(&file).expect("the configuration was just written");
            let own = format!("children = {}", 500_000 + node.id);
            fs::write(&file, text.replace("children = 500000", &own)).expect("the directory is ours");
        }
        Self { cluster, _dir: dir }
    }

    /// The processes.
    pub fn cluster(&mut self) -> &mut LocalCluster {
        &mut self.cluster
    }

    /// All nodes.
    pub fn ids(&self) -> Vec<NodeId> {
        self.cluster.ids()
    }

    /// Where they serve HTTP.
    pub fn addresses(&self) -> Vec<String> {
        self.cluster.http_addresses()
    }

    /// Where one serves HTTP.
    pub fn address(&self, id: NodeId) -> &str {
        &self
            .cluster
            .node(id)
            .expect("the node is one of the cluster's")
            .http
    }

    /// Where one serves clients of ZooKeeper.
    pub fn zookeeper_address(&self, id: NodeId) -> &str {
        let node = self.cluster.node(id).expect("the node is one of the cluster's");
        node.zookeeper
            .as_deref()
            .expect("every node of the cluster serves them")
    }

    /// Whether a node's process lives.
    pub fn lives(&self, id: NodeId) -> bool {
        self.cluster.pid(id).expect("the pid file can be read").is_some()
    }

    /// The leader, if the living agree that there is one.
    pub async fn leader(&self) -> NodeId {
        self.cluster
            .leader(START_TIMEOUT)
            .await
            .expect("there is a leader")
    }

    /// Whether a node says that it serves.
    pub async fn is_ready(&self, id: NodeId) -> bool {
        let answer = self.ask(id, "GET", "/readyz", Value::Null).await;
        answer.is_some_and(|(status, _)| status == 200)
    }

    /// What a node says of itself, if it answers.
    pub async fn view(&self, id: NodeId) -> Option<View> {
        let (status, view) = self.ask(id, "GET", "/v1/debug", Value::Null).await?;
        (status == 200).then(|| View {
            zxid: view["zxid"].as_u64().expect("a number"),
            digest: view["digest"].as_str().expect("a text").to_owned(),
            points: view["points"].clone(),
        })
    }

    /// Orders a fault. A node may die of the order: its answer is a step, too.
    pub async fn order(&self, id: NodeId, point: &str, action: Value, times: usize) {
        let order = json!({ "name": point, "action": action, "times": times });
        if let Some((status, answer)) = self.ask(id, "PUT", "/v1/debug/fail-points", order).await {
            assert_eq!(status, 204, "{point}: {answer}");
        }
    }

    /// Has a node make a snapshot.
    pub async fn snapshot(&self, id: NodeId) {
        self.ask(id, "POST", "/v1/debug/snapshot", Value::Null).await;
    }

    /// Has the leader begin to hand over.
    pub async fn hand_over(&self, from: NodeId, to: NodeId) {
        self.ask(from, "POST", "/v1/debug/leader", json!({ "to": to }))
            .await;
    }

    /// Calls a node as a client does: for a session, with a heartbeat of it, and for a read that waits for the leader. The
    /// node may die of each.
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

    /// How long a node's log is.
    pub fn log_length(&self, id: NodeId) -> u64 {
        fs::metadata(self.log_file(id)).map_or(0, |log| log.len())
    }

    /// What a node has logged since its log had that length.
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

    /// The end of a node's log.
    pub fn log_tail(&self, id: NodeId) -> String {
        self.cluster.log_tail(id).unwrap_or_default()
    }

    /// Has all nodes run again, after a cell that has failed.
    pub async fn up(&mut self) {
        self.cluster
            .up(START_TIMEOUT)
            .await
            .expect("the cluster starts again");
    }

    /// Copies the nodes' logs to where they outlive the test, if the environment says where.
    pub fn keep_logs(&self, number: usize) {
        let Ok(dir) = std::env::var("LOCKGATE_FAIL_POINTS_LOGS") else {
            return;
        };
        for node in self.cluster.nodes() {
            let to = Path::new(&dir).join(format!("cell-{}-node-{}.log", number + 1, node.id));
            fs::copy(node.log_file(), &to).expect("the directory for logs is there");
        }
    }

    async fn ask(&self, id: NodeId, method: &str, path: &str, body: Value) -> Option<(u16, Value)> {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let asked = http_client::request(self.address(id), method, path, &body);
        // A node that is dead or made to wait says nothing, and whoever asks asks again.
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, asked).await.ok()?.ok()?;
        Some((answer.status, answer.json()))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.cluster.kill_now();
    }
}

/// Waits until `condition` holds, at most for `patience`; says whether it does.
pub async fn within(patience: Duration, mut condition: impl AsyncFnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    while !condition().await {
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    true
}
