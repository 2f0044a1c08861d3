//! A node stops soon after SIGTERM whatever its clients and peers do: its supervisor and its operator wait for it.

use std::time::Duration;

use cli_support::api_client::ApiClient;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{LONG_TTL, TestCluster, allowance, eventually};

/// How long a node takes to stop.
const STOPS_WITHIN: Duration = Duration::from_secs(3);

/// A proposal without a leader waits for longer than any test.
const PATIENT: &str = "propose_timeout_ms = 300000\n";

/// Clients that do the same thing all the time.
const CLIENTS: usize = 32;

/// Waits until all nodes have stopped by themselves, after they were asked to at `asked`.
async fn assert_stop(cluster: &mut TestCluster, asked: Instant) {
    for id in cluster.ids() {
        let bound = STOPS_WITHIN + allowance();
        let left = bound.saturating_sub(asked.elapsed());
        assert!(
            cluster.stop(id, left).await.unwrap(),
            "node {id} has not stopped within {bound:?}"
        );
    }
}

#[tokio::test]
async fn node_without_a_majority_stops_while_it_takes_calls_back() {
    let mut cluster = TestCluster::start_with(PATIENT).await;
    let last = cluster.followers().await[0];
    let (mut client, session) = cluster.session(last, "holder").await;
    client.acquire(session.id(), "taken").await.unwrap();
    // One whose caller goes while nobody can take its place out of the queue, and one that is still there.
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
    // The node has seen it when it holds fewer connections; it tries to take the call back from then on.
    assert!(goes.await.unwrap_err().is_cancelled());

    let asked = Instant::now();
    cluster.signal(last, Signal::SIGTERM).unwrap();
    assert_stop(&mut cluster, asked).await;
    stays.abort();
}

#[tokio::test]
async fn all_nodes_stop_at_once_under_load() {
    let mut cluster = TestCluster::start_with(PATIENT).await;
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
    assert_stop(&mut cluster, asked).await;
    clients.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Takes a lock that many want and gives it back, as long as its node lets it.
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
