//! Stop of a node: it ends soon after SIGTERM whatever its clients and peers do, because its supervisor and
//! its operator wait for it.

use std::time::Duration;

use cli_support::api_client::ApiClient;
use local_cluster::process::wait_unclaimed;
use lockgate::lock_node::NodeId;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::harness::{LONG_TTL, TIMEOUT, TestCluster, allowance, eventually};

/// Time within which a node stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Commit timeout longer than any test.
const LONG_TIMEOUTS: &str = "propose_timeout_ms = 300000\n";

/// Number of clients under load.
const CLIENTS: usize = 32;

/// Waits until nodes have stopped by themselves, after one signal at `asked`. (`LocalCluster::stop` would
/// send a second one.)
async fn assert_stop(cluster: &TestCluster, ids: &[NodeId], asked: Instant) {
    let bound = STOP_TIMEOUT + allowance();
    for id in ids {
        let left = bound.saturating_sub(asked.elapsed());
        let pid_file = cluster.node(*id).unwrap().pid_file();
        assert!(
            wait_unclaimed(&pid_file, left).await.unwrap(),
            "node {id} has not stopped within {bound:?}"
        );
        let log = cluster.log_tail(*id).unwrap();
        let is_orderly = log.contains(" stopped node=");
        let is_busy = std::env::var_os("LOCKGATE_ALONE").is_none();
        // On a busy machine the node's own limit may end it before.
        assert!(
            is_orderly || is_busy && log.contains("and exits"),
            "node {id} did not stop in order: {log}"
        );
    }
}

#[tokio::test]
async fn node_without_a_majority_stops_while_it_withdraws_acquires() {
    let mut cluster = TestCluster::start_with(LONG_TIMEOUTS).await;
    let last = cluster.followers().await[0];
    let (mut client, session) = cluster.session(last, "holder").await;
    client.acquire(session.id(), "taken").await.unwrap();
    // One waiter disconnects while its contender cannot be withdrawn, and one stays.
    let waits = |name: &'static str| {
        let mut client = cluster.client_of(last);
        tokio::spawn(async move {
            let session = client.open_session(LONG_TTL, name).await.unwrap();
            client
                .acquire_with(&session, "taken", json!({ "wait_ms": null }))
                .await
        })
    };
    let (goes, stays) = (waits("goes"), waits("stays"));
    cluster.wait_queued(last, "taken", 2).await;
    for id in cluster.ids() {
        if id != last {
            cluster.kill(id).await.unwrap();
        }
    }
    goes.abort();
    // The node notices it when it has fewer connections, and tries to withdraw the acquire from then on.
    assert!(goes.await.unwrap_err().is_cancelled());

    let asked = Instant::now();
    cluster.signal(last, Signal::SIGTERM).unwrap();
    assert_stop(&cluster, &[last], asked).await;
    stays.abort();
}

#[tokio::test]
async fn all_nodes_stop_at_once_under_load() {
    let cluster = TestCluster::start_with(LONG_TIMEOUTS).await;
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let at = number as u64 % 3 + 1;
        clients.push(tokio::spawn(load(cluster.client_of(at), number)));
    }
    let leader = cluster.leader_now().await;
    eventually("clients wait for locks", async || {
        let seen = cluster
            .send(leader, "GET", "/v1/locks/hot-0", &Value::Null)
            .await
            .json();
        seen["queue"].as_array().is_some_and(|queue| queue.len() > 2)
    })
    .await;

    let asked = Instant::now();
    for id in cluster.ids() {
        cluster.signal(id, Signal::SIGTERM).unwrap();
    }
    assert_stop(&cluster, &cluster.ids(), asked).await;
    clients.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Acquires and releases a contended lock until its node stops.
async fn load(mut client: ApiClient, number: usize) {
    let Ok(session) = client.open_session(LONG_TTL, "load").await else {
        return;
    };
    let lock = format!("hot-{}", number % 2);
    loop {
        let asked = json!({ "wait_ms": 60_000, "request_id": null });
        let Ok(held) = client.acquire_with(&session, &lock, asked).await else {
            return;
        };
        if client.release(&session, &held).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn node_stops_while_it_tries_to_be_elected() {
    let cluster = TestCluster::start_with(LONG_TIMEOUTS).await;
    let last = cluster.followers().await[0];
    let others: Vec<_> = cluster.ids().into_iter().filter(|id| *id != last).collect();
    for id in &others {
        cluster.signal(*id, Signal::SIGSTOP).unwrap();
    }
    // The other nodes are silent: the node asks them, and starts elections again and again.
    eventually("the node has no leader", async || {
        let opened = json!({ "ttl_ms": 60_000 });
        let opened = cluster.send(last, "POST", "/v1/sessions", &opened);
        timeout(allowance() / 10, opened)
            .await
            .is_ok_and(|answer| answer.status == 503)
    })
    .await;

    let asked = Instant::now();
    cluster.signal(last, Signal::SIGTERM).unwrap();
    assert_stop(&cluster, &[last], asked).await;
    for id in others {
        cluster.signal(id, Signal::SIGCONT).unwrap();
    }
}

/// Drain and body timeouts longer than any test.
const LONG_DRAIN: &str = "[http]\ndrain_timeout_ms = 300000\nbody_timeout_ms = 300000\n";

#[tokio::test]
async fn second_signal_ends_a_node_that_waits_for_its_clients() {
    let cluster = TestCluster::start_with(LONG_DRAIN).await;
    let followers = cluster.followers().await;
    for (id, second) in followers.into_iter().zip([Signal::SIGTERM, Signal::SIGINT]) {
        let before = in_flight(&cluster, id).await;
        let mut slow = TcpStream::connect(cluster.http(id)).await.unwrap();
        let host = cluster.http(id);
        let head = format!(
            "POST /v1/sessions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
        );
        slow.write_all(head.as_bytes()).await.unwrap();
        eventually("the node reads the request", async || {
            in_flight(&cluster, id).await > before
        })
        .await;
        cluster.signal(id, Signal::SIGTERM).unwrap();
        eventually("the node is stopping", async || {
            cluster.log_tail(id).unwrap().contains("stopping")
        })
        .await;

        cluster.signal(id, second).unwrap();
        let log = async || cluster.log_tail(id).unwrap();
        eventually("the node logs why it exits", async || {
            log()
                .await
                .contains("the node received a second signal and exits before it has stopped")
        })
        .await;
        assert!(log().await.contains("waits_for"), "{}", log().await);
        let pid_file = cluster.node(id).unwrap().pid_file();
        assert!(wait_unclaimed(&pid_file, TIMEOUT).await.unwrap());
        drop(slow);
    }
}

/// Returns the number of requests that a node has begun and not answered.
async fn in_flight(cluster: &TestCluster, id: NodeId) -> u64 {
    let response = cluster.send(id, "GET", "/metrics", &Value::Null).await;
    let text = String::from_utf8(response.body).unwrap();
    let count = text
        .lines()
        .find_map(|line| line.strip_prefix("lockgate_http_requests_in_flight "));
    count.unwrap().parse().unwrap()
}
