//! State that restarts and snapshots must not bring back.

use std::collections::BTreeSet;

use local_cluster::START_TIMEOUT;
use serde_json::{Value, json};

use crate::harness::{LONG_TTL, TestCluster, rounds};

/// Settings with frequent snapshots, also while sessions open and close.
const SETTINGS: &str = "[snapshots]\nevery_entries = 20\nkeep_entries = 5\n";

const SESSIONS: u64 = 24;

async fn ephemerals(cluster: &TestCluster, node: u64) -> BTreeSet<String> {
    let path = "/v1/znodes/members?children=true&limit=1000&linearizable=true";
    let seen = cluster.send(node, "GET", path, &Value::Null).await.json();
    let children = seen["children"].as_array().expect("the parent is there").iter();
    children
        .map(|child| {
            child["stat"]["ephemeral_owner"]
                .as_str()
                .expect("an owner")
                .to_owned()
        })
        .collect()
}

#[tokio::test]
async fn zookeeper_2355_3144_3145_and_4837_no_ephemeral_reappears_after_a_snapshot() {
    let mut cluster = TestCluster::start_with(SETTINGS).await;
    let parent = json!({ "data": "", "mode": "persistent" });
    let created = cluster.send(1, "POST", "/v1/znodes/members", &parent).await;
    assert_eq!(created.status, 201);
    for round in 0..rounds(2) {
        let mut client = cluster.client(1);
        let mut living = BTreeSet::new();
        for number in 0..SESSIONS {
            let session = client.open_session(LONG_TTL, "member").await.unwrap();
            let path = format!("/v1/znodes/members/{round}-{number}");
            let body = json!({ "data": "", "mode": "ephemeral", "session": session });
            let created = cluster.send(1 + number % 3, "POST", &path, &body).await;
            assert_eq!(created.status, 201, "{}", created.json());
            living.insert(session);
            // Every second session closes while a snapshot of the others is written.
            if number % 2 == 1 {
                let ended = living.pop_first().unwrap();
                let path = "/v1/cluster/snapshot";
                let snapshot = cluster.send(1 + number % 3, "POST", path, &Value::Null);
                let (snapshot, closed) = tokio::join!(snapshot, client.close_session(&ended));
                closed.unwrap();
                assert_eq!(snapshot.status, 200, "{}", snapshot.json());
            }
        }
        // A killed node replays its log on a snapshot, one has missed an entry, and then all restart.
        for node in cluster.ids() {
            cluster.kill(node).await.unwrap();
            let ended = living.pop_first().unwrap();
            cluster.client(node % 3 + 1).close_session(&ended).await.unwrap();
            cluster.up(START_TIMEOUT).await.unwrap();
        }
        cluster.kill_all().await.unwrap();
        cluster.up(START_TIMEOUT).await.unwrap();
        for node in cluster.ids() {
            assert_eq!(
                ephemerals(&cluster, node).await,
                living,
                "node {node}, round {round}"
            );
        }
        for session in living {
            cluster.client(1).close_session(&session).await.unwrap();
        }
        for node in cluster.ids() {
            assert_eq!(ephemerals(&cluster, node).await, BTreeSet::new(), "node {node}");
        }
    }
}
