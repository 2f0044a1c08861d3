//! A node whose disk hangs still stops in a bounded time, and logs what it waited for.

use std::time::Duration;

use local_cluster::process::wait_unclaimed;
use lockgate::lock_node::NodeId;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::harness::{LONG_TTL, TestCluster, allowance, eventually};

/// Time limit of a stop.
const STOPS_WITHIN: Duration = Duration::from_secs(3);

/// Delay that is longer than any test.
const HANGS_MS: u64 = 600_000;

const SYNC: &str = "log::before_sync";

#[tokio::test]
async fn follower_with_a_hanging_disk_stops_in_time_and_logs_the_reason() {
    let cluster = TestCluster::start().await;
    let node = cluster.followers().await[0];
    stops_in_time(&cluster, node).await;
}

#[tokio::test]
async fn leader_with_a_hanging_disk_stops_in_time_and_logs_the_reason() {
    let cluster = TestCluster::start().await;
    let node = cluster.leader_now().await;
    stops_in_time(&cluster, node).await;
}

async fn stops_in_time(cluster: &TestCluster, node: NodeId) {
    let order = json!({ "name": SYNC, "action": { "delay_ms": HANGS_MS }, "times": 1_000 });
    let ordered = cluster.send(node, "PUT", "/v1/debug/fail-points", &order).await;
    assert_eq!(ordered.status, 204, "{}", ordered.json());
    // The other nodes commit the entry; the node's own log waits for its disk.
    let mut client = cluster.client_of(cluster.ids().into_iter().find(|id| *id != node).unwrap());
    client
        .open_session(LONG_TTL, "while the disk hangs")
        .await
        .unwrap();
    eventually("a sync hangs", async || {
        let seen = cluster.send(node, "GET", "/v1/debug", &Value::Null).await.json();
        seen["points"][SYNC]["acted"].as_u64() > Some(0)
    })
    .await;

    cluster.signal(node, Signal::SIGTERM).unwrap();
    let bound = STOPS_WITHIN + allowance();
    let pid_file = cluster.node(node).unwrap().pid_file();
    // `LocalCluster::stop` would send a second signal.
    let stopped = wait_unclaimed(&pid_file, bound).await;
    assert!(stopped.unwrap(), "the node has not stopped within {bound:?}");
    let log = cluster.log_tail(node).unwrap();
    let said = log.lines().find(|line| line.contains("has not stopped within"));
    let said = said.unwrap_or_else(|| panic!("the log has no reason: {log}"));
    assert!(
        said.contains("waits_for=\"Raft, and its writes to the log\"")
            || said.contains("waits_for=\"the log's disk\""),
        "{said}"
    );
    // The other nodes continue.
    client.open_session(LONG_TTL, "afterwards").await.unwrap();
}
