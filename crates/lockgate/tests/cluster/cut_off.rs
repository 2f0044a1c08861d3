//! Isolated node: it rejects new requests at once, so that its callers can use another node.

use std::time::Duration;

use local_cluster::START_TIMEOUT;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::harness::{TIMEOUT, TestCluster, allowance, assert_refused, eventually};

/// Commit timeout longer than any condition takes, so that a request that waits for a leader is noticed.
const LONG_TIMEOUTS: &str = "propose_timeout_ms = 300000\n";

/// Maximum time of a rejection.
const AT_ONCE: Duration = Duration::from_millis(100);

#[tokio::test]
async fn node_without_a_leader_rejects_new_requests_at_once() {
    let mut cluster = TestCluster::start_with(LONG_TIMEOUTS).await;
    let left = cluster.followers().await[0];
    let (_client, session) = cluster.session(left, "cut off").await;
    for id in cluster.ids() {
        if id != left {
            cluster.kill(id).await.unwrap();
        }
    }
    let zookeeper = cluster
        .node(left)
        .unwrap()
        .zookeeper
        .clone()
        .expect("the node has a ZooKeeper port");
    // This client connects before the node knows that it is isolated.
    let handshake = {
        let zookeeper = zookeeper.clone();
        tokio::spawn(async move { assert_hangs_up(&zookeeper).await })
    };
    let opens = json!({ "ttl_ms": 60_000 });
    // A request during a possible election waits for it.
    eventually("the node knows that it is isolated", async || {
        let opened = cluster.send(left, "POST", "/v1/sessions", &opens);
        timeout(AT_ONCE + allowance() / 10, opened)
            .await
            .is_ok_and(|answer| answer.status == 503)
    })
    .await;
    let handshake = timeout(TIMEOUT, handshake).await;
    handshake
        .expect("a client of ZooKeeper that came early waits for its session")
        .unwrap();

    let beat = format!("/v1/sessions/{}/heartbeat", session.id());
    let acquire = json!({ "session": session.id(), "wait_ms": 60_000 });
    for (method, path, body) in [
        ("POST", "/v1/sessions", &opens),
        ("POST", beat.as_str(), &Value::Null),
        ("POST", "/v1/locks/any/acquire", &acquire),
        ("POST", "/v1/znodes/any", &json!({ "data": "" })),
        ("GET", "/v1/znodes/any?linearizable=true", &Value::Null),
    ] {
        let asked = Instant::now();
        let answer = timeout(TIMEOUT, cluster.send(left, method, path, body)).await;
        let answer = answer.unwrap_or_else(|_| panic!("{method} {path} waits for a leader"));
        assert_refused(&answer, 503, "unavailable");
        let took = asked.elapsed();
        assert!(
            took < AT_ONCE + allowance(),
            "{method} {path} was refused after {took:?}"
        );
    }
    let asked = Instant::now();
    timeout(TIMEOUT, assert_hangs_up(&zookeeper))
        .await
        .expect("a client of ZooKeeper waits for its session");
    let took = asked.elapsed();
    assert!(
        took < AT_ONCE + allowance(),
        "the connection ended after {took:?}"
    );

    cluster.up(START_TIMEOUT).await.unwrap();
    let again = cluster.send(left, "POST", &beat, &Value::Null).await;
    assert_eq!(again.status, 200, "{}", again.json());
}

/// Requests a session like a ZooKeeper client, and asserts that the connection ends.
async fn assert_hangs_up(address: &str) {
    let mut request = Vec::new();
    request.extend(45u32.to_be_bytes());
    request.extend(0u32.to_be_bytes());
    request.extend(0u64.to_be_bytes());
    request.extend(30_000u32.to_be_bytes());
    request.extend(0u64.to_be_bytes());
    request.extend(16u32.to_be_bytes());
    request.extend([0; 17]);
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&request).await.unwrap();
    let mut answer = Vec::new();
    // The connection ends with or without a reset.
    stream.read_to_end(&mut answer).await.ok();
    assert!(answer.is_empty(), "{answer:?}");
}
