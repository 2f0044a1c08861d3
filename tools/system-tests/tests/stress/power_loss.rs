//! All nodes die at the same moment, under load, and restart from their disks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cli_support::api_client::HeldLock;
use cli_support::http_client::Connection;
use local_cluster::START_TIMEOUT;
use serde_json::json;
use tokio::task::JoinSet;

use crate::harness::{TestCluster, eventually, rounds};

const WRITERS: usize = 8;

/// Number of writes that are acknowledged before the nodes die.
const WRITES: u64 = 400;

#[tokio::test]
async fn kill_of_all_nodes_loses_no_acknowledged_write() {
    let mut cluster = TestCluster::start_with("[snapshots]\nevery_entries = 200\nkeep_entries = 20").await;
    let (mut keeper, session) = cluster.session(1, "keeper").await;
    let mut locks = Vec::new();
    let mut acknowledged = Vec::new();
    for round in 0..rounds(2) {
        for number in 0..3 {
            let name = format!("power/{round}/{number}");
            locks.push(keeper.acquire(session.id(), &name).await.unwrap());
        }
        acknowledged.extend(write_until_killed(&mut cluster, round).await);
        cluster.up(START_TIMEOUT).await.unwrap();
        for node in cluster.ids() {
            check_all(&cluster, node, &acknowledged, &locks).await;
        }
        // The session survived: its TTL starts again under a new leader.
        keeper.heartbeat(session.id()).await.unwrap();
        assert!(!session.is_lost());
    }
}

/// Writes from several connections to all nodes until they are killed; returns the acknowledged paths.
async fn write_until_killed(cluster: &mut TestCluster, round: usize) -> Vec<String> {
    let count = Arc::new(AtomicU64::new(0));
    let killed = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (count, killed) = (count.clone(), killed.clone());
        let node = cluster.http(1 + writer as u64 % 3);
        writers.spawn(async move {
            let mut connection = Connection::connect(&node).await.expect("the node runs");
            let mut acknowledged = Vec::new();
            for number in 0.. {
                let path = format!("/power/{round}/{writer}-{number}");
                let body = json!({ "data": path, "parents": true }).to_string();
                match connection.send("POST", &format!("/v1/znodes{path}"), &body).await {
                    Ok(response) if response.status == 201 => {
                        acknowledged.push(path);
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    // Neither an error nor a malformed response may occur before the end.
                    ended => {
                        assert!(killed.load(Ordering::Relaxed), "{ended:?}");
                        break;
                    }
                }
            }
            acknowledged
        });
    }
    eventually("enough is written", async || {
        count.load(Ordering::Relaxed) >= WRITES
    })
    .await;
    killed.store(true, Ordering::Relaxed);
    cluster.kill_all().await.unwrap();
    writers.join_all().await.into_iter().flatten().collect()
}

async fn check_all(cluster: &TestCluster, node: u64, paths: &[String], locks: &[HeldLock]) {
    let mut client = cluster.client_of(node);
    for held in locks {
        assert!(client.check(held).await.unwrap(), "node {node} lost {held:?}");
    }
    let mut connection = Connection::connect(&cluster.http(node)).await.unwrap();
    for path in paths {
        let response = connection
            .send("GET", &format!("/v1/znodes{path}"), "")
            .await
            .unwrap();
        assert_eq!(response.json()["data"], json!(path), "node {node} lost {path}");
    }
}

#[tokio::test]
async fn data_survives_the_restart_of_each_node_in_turn() {
    let mut cluster = TestCluster::start_with("[snapshots]\nevery_entries = 100\nkeep_entries = 10").await;
    let (mut keeper, session) = cluster.session(1, "keeper").await;
    let held = keeper.acquire(session.id(), "kept").await.unwrap();
    let mut paths = Vec::new();
    for node in cluster.ids() {
        cluster.kill(node).await.unwrap();
        // More than a snapshot's worth of entries, so that the absent node may need a snapshot.
        for number in 0..150 {
            let path = format!("/turn/{node}/{number}");
            let body = json!({ "data": path, "parents": true, "request_id": path });
            let limit = std::time::Duration::from_secs(5);
            keeper
                .call("POST", &format!("/v1/znodes{path}"), &body, limit)
                .await
                .unwrap();
            paths.push(path);
        }
        cluster.up(START_TIMEOUT).await.unwrap();
    }
    for node in cluster.ids() {
        check_all(&cluster, node, &paths, std::slice::from_ref(&held)).await;
    }
    keeper.release(session.id(), &held).await.unwrap();
}
