//! Losses of nodes, leaders, sessions and finally the quorum.

use local_cluster::START_TIMEOUT;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::prometheus::Prometheus;
use super::{assert_only_these_fire, job};
use crate::harness::{TestCluster, eventually};
use crate::scrape::Scrape;

/// Alerts that these tests raise.
pub const ALERTS: &[&str] = &[
    "LockgateNodeDown",
    "LockgateMemberSilent",
    "LockgateFollowerLags",
    "LockgateLeaderChangesOften",
    "LockgateNodeRestarts",
    "LockgateNodeNotReady",
    "LockgateNoNodeServes",
    "LockgateSessionsExpire",
];

const JOB: &str = "lockgate-losses";

#[tokio::test]
async fn losses_of_nodes_leaders_and_sessions_raise_alerts() {
    let mut cluster = TestCluster::start().await;
    let Some(prometheus) = Prometheus::start(&[job(JOB, &cluster)]).await else {
        return;
    };
    let leader = cluster.leader_now().await;
    prometheus.wait_scraped("count(lockgate_ready)==3").await;
    prometheus.wait_scraped("count(ALERTS)").await;
    // A healthy cluster raises only the two alerts that all test clusters have: it is not secured, and its
    // memory limit is tiny.
    assert_only_these_fire(&prometheus, &["LockgateNotSecured", "LockgateMemory"]).await;

    // Twelve clients disappear without closing their sessions.
    for _ in 0..12 {
        let opened = cluster
            .send(leader, "POST", "/v1/sessions", &json!({"ttl_ms": 1_000}))
            .await;
        assert_eq!(opened.status, 201, "{}", opened.json());
    }
    prometheus.wait_for(JOB, "LockgateSessionsExpire").await;

    let follower = cluster.followers().await[0];
    cluster.kill(follower).await.unwrap();
    prometheus.wait_for(JOB, "LockgateNodeDown").await;
    prometheus.wait_for(JOB, "LockgateMemberSilent").await;
    for _ in 0..30 {
        let znode = json!({"data": "", "mode": "persistent_sequential"});
        let made = cluster.send(leader, "POST", "/v1/znodes/lag", &znode).await;
        assert_eq!(made.status, 201, "{}", made.json());
    }
    prometheus.wait_for(JOB, "LockgateFollowerLags").await;
    cluster.up(START_TIMEOUT).await.unwrap();

    // Leadership moves several times.
    for round in 0..5 {
        let leader = cluster.leader_now().await;
        let next = cluster.followers().await[round % 2];
        let moved = cluster
            .send(leader, "POST", "/v1/cluster/leader", &json!({"node_id": next}))
            .await;
        assert_eq!(moved.status, 200, "{}", moved.json());
        // A scrape has to see each change, or several would count as one.
        eventually("the next leader is elected", async || {
            cluster.leader_now().await == next
        })
        .await;
    }
    prometheus.wait_for(JOB, "LockgateLeaderChangesOften").await;

    // One node restarts several times, each time long enough to be scraped.
    let follower = cluster.followers().await[0];
    let instance = cluster.http(follower);
    for _ in 0..4 {
        let seen = Scrape::of(&cluster, follower).await;
        let started = seen.value("process_start_time_seconds");
        let scraped = format!(
            "process_start_time_seconds{{instance=\"{instance}\"}} > {}",
            started - 0.1
        );
        prometheus.wait_scraped(&scraped).await;
        cluster.kill(follower).await.unwrap();
        cluster.up(START_TIMEOUT).await.unwrap();
    }
    prometheus.wait_for(JOB, "LockgateNodeRestarts").await;

    // Two of three nodes are paused, so the third one cannot serve.
    let leader = cluster.leader_now().await;
    for follower in cluster.followers().await {
        cluster.signal(follower, Signal::SIGSTOP).unwrap();
    }
    prometheus.wait_for(JOB, "LockgateNodeNotReady").await;
    prometheus.wait_for(JOB, "LockgateNoNodeServes").await;
    let said = cluster.send(leader, "GET", "/readyz", &Value::Null).await;
    assert_eq!(said.status, 503);
}
