//! Graceful stop: the leader transfers leadership first, so that no client waits for an election.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::harness::{TIMEOUT, TestCluster};

/// Settings with which no node starts an election earlier than 12 seconds after the leader's last message:
/// its lease is the longest election timeout, and a whole timeout has to pass after it.
const SLOW_ELECTIONS: &str = "[raft]
election_min_ms = 4000
election_max_ms = 8000
\
                              [sessions]
min_ms = 16000
default_ms = 20000";

/// Time within which there is a new leader only after a transfer: an election takes 12 seconds.
const WITHOUT_AN_ELECTION: Duration = Duration::from_secs(10);

#[tokio::test]
async fn leader_transfers_leadership_before_it_stops() {
    let mut cluster = TestCluster::start_with(SLOW_ELECTIONS).await;
    let leader = cluster.leader_now().await;
    let (mut client, session) = cluster.session(cluster.followers().await[0], "stays").await;
    let held = client.acquire(session.id(), "stays").await.unwrap();
    // A waiter at the leader is sent to another node, and keeps its queue position under its request id.
    let (mut waiter, waiting) = cluster.session(leader, "waits").await;
    let wait = {
        let id = waiting.id().to_owned();
        tokio::spawn(async move {
            waiter
                .acquire_with(&id, "stays", json!({ "wait_ms": null, "request_id": "w" }))
                .await
        })
    };
    cluster.wait_queued(leader, "stays", 1).await;

    let stopped = Instant::now();
    assert!(
        cluster.stop(leader, TIMEOUT).await.unwrap(),
        "the node had to be killed"
    );
    client.acquire(session.id(), "fresh").await.unwrap();
    let took = stopped.elapsed();
    assert!(
        took < WITHOUT_AN_ELECTION,
        "the next lock was granted {took:?} after the signal"
    );
    assert_ne!(cluster.leader_now().await, leader);

    assert!(client.check(&held).await.unwrap());
    client.release(session.id(), &held).await.unwrap();
    let granted = wait.await.unwrap().unwrap();
    assert!(granted.fencing_token > held.fencing_token);

    cluster.up(TIMEOUT).await.unwrap();
    assert!(client.check(&granted).await.unwrap());
}
