//! Demand above the limits: connections, sessions, watches, a namespace's quota, locks, and more requests than
//! the cluster can commit.

use nix::sys::signal::Signal;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use cli_support::http_client;

use super::job;
use super::prometheus::Prometheus;
use crate::harness::{LONG_TTL, TestCluster};

/// Alerts that these tests raise.
pub const ALERTS: &[&str] = &[
    "LockgateConnectionsNearLimit",
    "LockgateSessionsNearLimit",
    "LockgateWatchesNearLimit",
    "LockgateNamespaceNearQuota",
    "LockgateLockWaitsLong",
    "LockgateLocksStuck",
    "LockgateRefuses",
];

const JOB: &str = "lockgate-crowded";

const SETTINGS: &str = "propose_timeout_ms = 20000\n[http]\nmax_connections = 40\n[limits]\nsessions = 10\n[watches]\nper_node = 10\n\
                        [load]\nmax_outstanding = 8\n";

#[tokio::test]
async fn demand_near_each_limit_raises_its_alert() {
    let cluster = TestCluster::start_with(SETTINGS).await;
    let Some(prometheus) = Prometheus::start(&[job(JOB, &cluster)]).await else {
        return;
    };
    let leader = cluster.leader_now().await;
    prometheus.wait_scraped("count(lockgate_ready)==3").await;
    // Administration has no port of its own here, so Prometheus and this test take up some connections
    // themselves.
    let mut crowd = Vec::new();
    for _ in 0..33 {
        crowd.push(TcpStream::connect(cluster.http(leader)).await.unwrap());
    }
    prometheus.wait_for(JOB, "LockgateConnectionsNearLimit").await;
    drop(crowd);

    let (_client, holder) = cluster.session(leader, "holder").await;
    let (_client, waiter) = cluster.session(leader, "waiter").await;
    let acquire = |session: &str, lock: &str, wait_ms: u64| {
        let body = json!({"session": session, "wait_ms": wait_ms});
        let (http, path) = (cluster.http(leader), format!("/v1/locks/{lock}/acquire"));
        async move { http_client::request(&http, "POST", &path, &body.to_string()).await }
    };
    // Waits that time out, one after the other, until enough have done so within a window.
    let held = acquire(holder.id(), "hot", 0).await.unwrap();
    assert_eq!(held.status, 200, "{}", held.json());
    for at in 0..5 {
        let lock = format!("hot-{at}");
        assert_eq!(acquire(holder.id(), &lock, 0).await.unwrap().status, 200);
        let waited = acquire(waiter.id(), &lock, 50).await.unwrap();
        assert_eq!(waited.code(), "lock_timeout");
    }
    prometheus.wait_for(JOB, "LockgateLockWaitsLong").await;

    // A contender waits, and the holder does not release.
    let waits = tokio::spawn(acquire(waiter.id(), "hot", LONG_TTL.as_millis() as u64));
    prometheus.wait_for(JOB, "LockgateLocksStuck").await;

    // Nine of ten sessions.
    for _ in 0..7 {
        let ttl_ms = LONG_TTL.as_millis() as u64;
        let opened = cluster
            .send(leader, "POST", "/v1/sessions", &json!({"ttl_ms": ttl_ms}))
            .await;
        assert_eq!(opened.status, 201, "{}", opened.json());
    }
    prometheus.wait_for(JOB, "LockgateSessionsNearLimit").await;

    // The namespace has one lock, which is all that its quota allows.
    let quotas = json!({"locks": 1});
    let set = cluster.send(leader, "PUT", "/v1/namespaces/hot", &quotas).await;
    assert_eq!(set.status, 200, "{}", set.json());
    prometheus.wait_for(JOB, "LockgateNamespaceNearQuota").await;

    let mut watches = JoinSet::new();
    for _ in 0..9 {
        let http = cluster.http(leader);
        let path = "/v1/watch/locks?kind=data&timeout_ms=60000";
        watches.spawn(async move { http_client::request(&http, "GET", path, "").await });
    }
    prometheus.wait_for(JOB, "LockgateWatchesNearLimit").await;
    watches.shutdown().await;

    // Without a majority nothing is committed, so every accepted request stays pending, and the admission
    // limit is reached.
    for follower in cluster.followers().await {
        cluster.signal(follower, Signal::SIGSTOP).unwrap();
    }
    let mut asking = JoinSet::new();
    for _ in 0..12 {
        let http = cluster.http(leader);
        asking.spawn(async move {
            loop {
                let body = json!({"mode": "persistent_sequential"}).to_string();
                // The request is rejected or times out, and so is the next one.
                let _ = http_client::request(&http, "POST", "/v1/znodes/more", &body).await;
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        });
    }
    prometheus.wait_for(JOB, "LockgateRefuses").await;
    asking.shutdown().await;
    waits.abort();
}
