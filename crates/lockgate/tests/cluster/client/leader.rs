//! Client that sends its requests to the leader, while leaders change.

use lock_client::{AcquireOptions, LockClient, LockSession};
use lockgate::lock_node::NodeId;
use serde_json::{Value, json};

use super::BRISK_TTL;
use crate::harness::{TIMEOUT, TestCluster, eventually};

/// Returns the number of release requests that a node has received.
async fn releases(cluster: &TestCluster, node: NodeId) -> u64 {
    let response = cluster.send(node, "GET", "/metrics", &Value::Null).await;
    let text = String::from_utf8(response.body).unwrap();
    let counts = text.lines().filter(|line| {
        line.starts_with("lockgate_http_requests_total{")
            && line.contains("route=\"/v1/locks/{name}/release\"")
    });
    counts
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64)
        .sum()
}

/// Waits until the client releases a lock at the leader, which is not the one of `before`.
async fn release_at_another_leader(
    cluster: &TestCluster,
    session: &LockSession,
    before: Option<NodeId>,
) -> NodeId {
    let mut leader = 0;
    eventually("the leader gets the release", async || {
        leader = cluster.leader_now().await;
        let asked = releases(cluster, leader).await;
        let guard = session.acquire("followed", AcquireOptions::exclusive()).await;
        guard.unwrap().release().await.unwrap();
        Some(leader) != before && releases(cluster, leader).await > asked
    })
    .await;
    leader
}

#[tokio::test]
async fn client_follows_the_leader() {
    let mut cluster = TestCluster::start().await;
    let client = LockClient::builder(cluster.http_addresses()).at_leader(true);
    let session = client.build().unwrap().session().ttl(BRISK_TTL);
    let session = session.open().await.unwrap();
    let first = release_at_another_leader(&cluster, &session, None).await;

    let next = cluster.followers().await[0];
    let moved = json!({ "node_id": next });
    let answer = cluster.send(next, "POST", "/v1/cluster/leader", &moved).await;
    assert_eq!(answer.status, 200, "{}", answer.json());
    let second = release_at_another_leader(&cluster, &session, Some(first)).await;

    cluster.kill(second).await.unwrap();
    release_at_another_leader(&cluster, &session, Some(second)).await;

    cluster.up(TIMEOUT).await.unwrap();
    session.close().await.unwrap();
}
