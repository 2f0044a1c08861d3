//! Commands of the program, as a user types them.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use cli_support::http_client;
use local_cluster::process::send_signal;
use local_cluster::{LocalCluster, START_TIMEOUT};
use lockgate::lock_node::NodeId;
use nix::unistd::Pid;

use crate::harness::{LOCKGATE, TIMEOUT, TestCluster, eventually};
use crate::identity::copy;

/// Directory of a cluster that the command line has started; its nodes are killed with the test.
pub struct LaunchedCluster(pub TempDir);

impl LaunchedCluster {
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for LaunchedCluster {
    fn drop(&mut self) {
        if let Ok(mut cluster) = LocalCluster::open(self.path(), Path::new(LOCKGATE)) {
            cluster.kill_now();
        }
    }
}

pub async fn lockgate(arguments: &[&str]) -> Output {
    Command::new(LOCKGATE)
        .args(arguments)
        .output()
        .await
        .expect("the program can be run")
}

pub async fn succeeds(arguments: &[&str]) -> String {
    let output = lockgate(arguments).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{arguments:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Runs a command that must fail. Returns the one line of its error.
pub async fn fails(arguments: &[&str]) -> String {
    let output = lockgate(arguments).await;
    assert!(!output.status.success(), "{arguments:?} succeeded");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

async fn status(dir: &str) -> Vec<Value> {
    let text = succeeds(&["cluster", "status", "--dir", dir, "--json"]).await;
    serde_json::from_str(&text).expect("JSON")
}

#[tokio::test]
async fn cluster_is_started_killed_restarted_and_stopped() {
    let place = LaunchedCluster(TempDir::new().unwrap());
    let dir = place.path().to_str().unwrap();
    assert!(
        fails(&["cluster", "status", "--dir", dir])
            .await
            .contains("no cluster in")
    );

    let shown = succeeds(&["cluster", "up", "--dir", dir, "--ephemeral-ports"]).await;
    assert!(shown.contains("Started 3 of 3 nodes"), "{shown}");
    let first = status(dir).await;
    assert_eq!(
        first.iter().map(|node| &node["id"]).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert_eq!(
        first.iter().filter(|node| node["role"] == "leader").count(),
        1,
        "{first:?}"
    );
    for node in &first {
        assert!(node["pid"].is_number() && node["ready"] == true, "{node}");
        assert!(Path::new(node["data_dir"].as_str().unwrap()).is_dir(), "{node}");
        let url = node["url"].as_str().unwrap();
        assert!(shown.contains(url), "{url} is not shown: {shown}");
        let address = url.strip_prefix("http://").unwrap();
        assert_eq!(
            http_client::request(address, "GET", "/healthz", "")
                .await
                .unwrap()
                .status,
            200
        );
    }

    // Another cluster cannot use the same ports, and does not take this cluster for its own.
    let base = first[0]["url"]
        .as_str()
        .unwrap()
        .rsplit(':')
        .next()
        .unwrap()
        .parse::<u16>()
        .unwrap()
        - 1;
    let elsewhere = LaunchedCluster(TempDir::new().unwrap());
    let same = [
        "--dir",
        elsewhere.path().to_str().unwrap(),
        "--http-base-port",
        &base.to_string(),
    ];
    let stderr = fails(&[&["cluster", "up", "--nodes", "1"][..], &same[..]].concat()).await;
    assert!(stderr.contains("node 1 cannot have the address"), "{stderr}");

    // A second `up` changes nothing; it starts dead nodes, and only those.
    let pids = |status: &[Value]| status.iter().map(|node| node["pid"].clone()).collect::<Vec<_>>();
    let shown = succeeds(&["cluster", "up", "--dir", dir]).await;
    assert!(shown.contains("All nodes in"), "{shown}");
    assert_eq!(pids(&status(dir).await), pids(&first));
    let stderr = fails(&["cluster", "up", "--dir", dir, "--nodes", "5"]).await;
    assert!(stderr.contains("a cluster of 3 nodes"), "{stderr}");

    succeeds(&["cluster", "kill", "--dir", dir, "leader"]).await;
    let broken = status(dir).await;
    let dead: Vec<_> = broken
        .iter()
        .filter(|node| node["pid"].is_null())
        .map(|node| &node["id"])
        .collect();
    assert_eq!(dead.len(), 1, "{broken:?}");
    let shown = succeeds(&["cluster", "up", "--dir", dir]).await;
    assert!(shown.contains("Started 1 of 3 nodes"), "{shown}");
    let mended = status(dir).await;
    for (was, is) in first.iter().zip(&mended) {
        assert_eq!(was["pid"] == is["pid"], was["id"] != *dead[0], "{is}");
    }

    let load = [
        "bench",
        "lock",
        "--dir",
        dir,
        "--clients",
        "1,8",
        "--seconds",
        "1",
        "--warmup",
        "0",
        "--json",
    ];
    let reports: Vec<Value> = serde_json::from_str(&succeeds(&load).await).unwrap();
    assert_eq!(
        reports
            .iter()
            .map(|report| &report["clients"])
            .collect::<Vec<_>>(),
        [1, 8]
    );
    for report in &reports {
        assert!(
            report["operation"]["count"].as_u64().unwrap() > 0 && report["errors"] == 0,
            "{report}"
        );
    }
    let load = [
        "bench",
        "contended",
        "--dir",
        dir,
        "--clients",
        "8",
        "--seconds",
        "1",
        "--warmup",
        "0",
    ];
    assert!(succeeds(&load).await.contains("contended"));

    assert_eq!(
        succeeds(&["cluster", "down", "--dir", dir])
            .await
            .matches("has stopped")
            .count(),
        3
    );
    assert!(status(dir).await.iter().all(|node| node["pid"].is_null()));
    assert_eq!(
        succeeds(&["cluster", "down", "--dir", dir])
            .await
            .matches("was not running")
            .count(),
        3
    );
}

#[tokio::test]
async fn node_is_configured_by_its_environment_and_exits_with_0_on_sigterm() {
    let dir = TempDir::new().unwrap();
    let ports = local_cluster::ports::free_ports(2).unwrap();
    let (peer, http) = (
        format!("127.0.0.1:{}", ports[0]),
        format!("127.0.0.1:{}", ports[1]),
    );
    let node = Command::new(LOCKGATE)
        .arg("serve")
        .env("LOCKGATE_NODE_ID", "1")
        .env("LOCKGATE_MEMBERS", format!("1={peer}/{http}"))
        .env("LOCKGATE_DATA_DIR", dir.path())
        .env("LOCKGATE_ZOOKEEPER_LISTEN", "off")
        .env("LOCKGATE_LOG_FORMAT", "json")
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    eventually("the node is ready", async || {
        http_client::request(&http, "GET", "/readyz", "")
            .await
            .is_ok_and(|answer| answer.status == 200)
    })
    .await;
    send_signal(Pid::from_raw(node.id().unwrap() as i32), Signal::SIGTERM).unwrap();
    let output = tokio::time::timeout(Duration::from_secs(20), node.wait_with_output());
    let output = output.await.expect("the program ends").unwrap();
    assert_eq!(output.status.code(), Some(0));
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        let entry: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"));
        assert!(
            entry["level"].is_string() && entry["fields"]["message"].is_string(),
            "{line}"
        );
    }
}

#[tokio::test]
async fn invalid_configuration_is_rejected_with_all_errors() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("node.toml");
    std::fs::write(&file, "node_id = 1\nport = 7400\n[raft]\nheartbeat_ms = 0\n").unwrap();
    let refused = lockgate(&["serve", "--config", file.to_str().unwrap()]).await;
    assert_eq!(refused.status.code(), Some(1));
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(
        stderr.lines().next(),
        Some("lockgate: the configuration has 3 errors:")
    );
    assert_eq!(stderr.lines().count(), 4, "{stderr}");
    for part in [
        "members: at least one is required",
        "node.toml:2: port: unknown setting",
        "raft.heartbeat_ms: ",
    ] {
        assert!(stderr.contains(part), "{part} is missing: {stderr}");
    }
    let stderr = fails(&["serve", "--config", "/nowhere/node.toml"]).await;
    assert!(stderr.contains("/nowhere/node.toml"), "{stderr}");
}

/// After SIGKILL a process with much memory needs time to end, and exists meanwhile.
#[tokio::test]
async fn dying_node_is_restarted_by_cluster_up() {
    const ENDS: NodeId = 2;
    let cluster = TestCluster::start().await;
    cluster.signal(ENDS, Signal::SIGSTOP).unwrap();
    let mut somebody_else = LocalCluster::open(cluster.dir(), Path::new(LOCKGATE)).unwrap();
    // The command checks which nodes are running before it waits.
    let ends = async { cluster.signal(ENDS, Signal::SIGKILL).unwrap() };
    let (started, ()) = tokio::join!(somebody_else.up(START_TIMEOUT), ends);
    assert_eq!(started.unwrap(), [ENDS]);
}

/// The dead node is started and serves only with one more node; the dying ones must not wait for it.
#[tokio::test]
async fn cluster_with_mostly_dying_nodes_starts() {
    const ENDED: NodeId = 1;
    const END: [NodeId; 2] = [2, 3];
    let mut cluster = TestCluster::start().await;
    cluster.kill(ENDED).await.unwrap();
    for id in END {
        cluster.signal(id, Signal::SIGSTOP).unwrap();
    }
    let mut somebody_else = LocalCluster::open(cluster.dir(), Path::new(LOCKGATE)).unwrap();
    let end = async {
        for id in END {
            cluster.signal(id, Signal::SIGKILL).unwrap();
        }
    };
    let (started, ()) = tokio::join!(somebody_else.up(START_TIMEOUT), end);
    assert_eq!(started.unwrap(), [1, 2, 3]);
}

/// Like `lockgate cluster down | head -0`.
#[tokio::test]
async fn commands_work_with_a_closed_output() {
    let cluster = TestCluster::start().await;
    let dir = cluster.dir().to_str().unwrap();
    for arguments in [
        ["cluster", "status", "--dir", dir],
        ["cluster", "down", "--dir", dir],
    ] {
        let mut child = Command::new(LOCKGATE)
            .args(arguments)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = tokio::time::timeout(TIMEOUT, child.wait_with_output());
        let output = output.await.expect("the program ends").unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && stderr.is_empty(),
            "{arguments:?}: {stderr}"
        );
    }
    // A stopped node has released its data, and its process takes a moment more.
    for id in cluster.ids() {
        eventually("the node's process ends", async || {
            cluster.pid(id).unwrap().is_none()
        })
        .await;
    }
}

#[tokio::test]
async fn dev_runs_the_nodes_and_member_changes_the_members() {
    let place = LaunchedCluster(TempDir::new().unwrap());
    let dir = ["--dir", place.path().to_str().unwrap()];
    let run = async |words: &[&str]| succeeds(&[words, &dir].concat()).await;
    let document = async |words: &[&str]| -> Value {
        serde_json::from_str(&succeeds(&[words, &dir, &["-o", "json"]].concat()).await).unwrap()
    };
    let started = document(&["dev", "up", "--nodes", "1", "--ephemeral-ports"]).await;
    assert_eq!(started[0]["role"], "leader");
    let added = document(&["member", "add"]).await;
    assert_eq!((&added["node_id"], &added["changed"]), (&2.into(), &true.into()));
    let promoted = document(&["member", "promote", "2"]).await;
    assert!(!promoted["warnings"].as_array().unwrap().is_empty(), "{promoted}");
    assert!(
        run(&["member", "move-leader", "2"])
            .await
            .contains("node 2 leads")
    );
    let demoted = document(&["member", "demote", "1"]).await;
    assert_eq!(
        (&demoted["node_id"], &demoted["changed"]),
        (&1.into(), &true.into())
    );
    let list = run(&["member", "list"]).await;
    assert_eq!(run(&["cluster", "members"]).await, list, "an alias");
    assert_eq!(list.lines().count(), 3, "{list}");
    let stderr = fails(&[&["member", "remove", "1"][..], &dir].concat()).await;
    assert!(stderr.contains("--yes"), "{stderr}");
    let removed = document(&["member", "remove", "1", "--yes"]).await;
    assert!(
        Path::new(removed["files"].as_str().unwrap()).is_dir(),
        "{removed}"
    );
    assert!(run(&["dev", "stop", "2"]).await.contains("node 2 has stopped"));
    assert_eq!(document(&["dev", "status"]).await[0]["pid"], Value::Null);
    assert_eq!(
        run(&["cluster", "status"]).await,
        run(&["dev", "status"]).await,
        "an alias"
    );
    run(&["dev", "up"]).await;
    assert!(run(&["dev", "kill", "leader"]).await.contains("node 2 is dead"));
    run(&["dev", "up"]).await;
    assert!(run(&["dev", "down"]).await.contains("node 2 has stopped"));
}

#[tokio::test]
async fn cluster_up_names_a_data_directory_of_another_cluster() {
    const SWAPPED: NodeId = 1;
    let mut clusters = [TestCluster::start().await, TestCluster::start().await];
    for cluster in &mut clusters {
        for id in cluster.ids() {
            assert!(cluster.stop(id, TIMEOUT).await.unwrap());
        }
    }
    let [here, other] = clusters;
    let own = here.node(SWAPPED).unwrap().data_dir();
    std::fs::remove_dir_all(&own).unwrap();
    copy(&other.node(SWAPPED).unwrap().data_dir(), &own);
    let output = lockgate(&["cluster", "up", "--dir", here.dir().to_str().unwrap()]).await;
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    // The node or the command reports it, whichever is first. The command may do so before all nodes respond.
    let by_node = stderr.contains("node 1's data directory belongs to the cluster ");
    let by_command = stderr.contains("different clusters: ") && stderr.contains("node 1 of cluster ");
    assert!(by_node || by_command, "{stderr}");
}
