//! Which server a client asks that is told to ask the leader.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on may say so shortly, also in its helpers"
)]

mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lock_client::LockClient;
use server::{Answer, Server};

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Leads: none of the servers.
const NOBODY: usize = usize::MAX;

/// Less than this lies between no two heartbeats of a session of 900 ms.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(900 / 3 - 900 / 3 / 10);

fn answer(what: &str, leads: bool) -> Answer {
    Some(match what {
        "POST /v1/sessions" => (201, r#"{"session": "s1", "ttl_ms": 900}"#),
        "POST /v1/sessions/s1/heartbeat" if leads => (200, r#"{"ttl_ms": 900, "leads": true}"#),
        "POST /v1/sessions/s1/heartbeat" => (200, r#"{"ttl_ms": 900}"#),
        "DELETE /v1/sessions/s1" => (204, ""),
        "GET /v1/locks" => (200, r#"{"locks": [], "next_after": null}"#),
        other => panic!("{other} is not expected"),
    })
}

/// Three servers, of which the one leads whose number stands here.
async fn servers() -> ([Server; 3], Arc<AtomicUsize>) {
    let leader = Arc::new(AtomicUsize::new(NOBODY));
    let server = async |number| {
        let leader = leader.clone();
        Server::start(move |what, _| answer(what, leader.load(Ordering::Relaxed) == number)).await
    };
    ([server(0).await, server(1).await, server(2).await], leader)
}

fn at_leader(addresses: &[&str]) -> LockClient {
    let builder = LockClient::builder(addresses).at_leader(true);
    builder.build().unwrap()
}

fn count(server: &Server, what: &str) -> usize {
    server.heard().iter().filter(|heard| heard.what == what).count()
}

async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "it never came true that {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_leader_is_found_and_followed() {
    let (servers, leader) = servers().await;
    let client = at_leader(&servers.each_ref().map(|server| server.address.as_str()));
    let session = client.session().open().await.unwrap();
    for leads in [2, 0, 1] {
        leader.store(leads, Ordering::Relaxed);
        eventually("the leader is asked", async || {
            let before = count(&servers[leads], "GET /v1/locks");
            client.locks("").await.unwrap();
            count(&servers[leads], "GET /v1/locks") > before
        })
        .await;
    }
    session.close().await.unwrap();
}

#[tokio::test]
async fn a_client_that_is_not_told_to_stays_where_it_is() {
    let (servers, leader) = servers().await;
    let addresses = servers.each_ref().map(|server| server.address.as_str());
    let client = LockClient::new(addresses).unwrap();
    let session = client.session().open().await.unwrap();
    let first = |servers: &[Server; 3]| {
        servers
            .iter()
            .position(|server| count(server, "POST /v1/sessions") == 1)
            .unwrap()
    };
    let asked = first(&servers);
    leader.store((asked + 1) % 3, Ordering::Relaxed);
    eventually("it has sent heartbeats", async || {
        count(&servers[asked], "POST /v1/sessions/s1/heartbeat") > 2
    })
    .await;
    client.locks("").await.unwrap();
    assert_eq!(count(&servers[asked], "GET /v1/locks"), 1);
    session.close().await.unwrap();
}

#[tokio::test]
async fn a_leader_that_cannot_be_found_is_looked_for_no_more_often_than_heartbeats_are_sent() {
    let (servers, _) = servers().await;
    // One of those that are asked hangs up at every question.
    let gone = Server::start(|_, _| None).await;
    let addresses = [&servers[0].address, &gone.address].map(String::as_str);
    let client = at_leader(&addresses);
    let begun = Instant::now();
    let session = client.session().open().await.unwrap();
    eventually("it has sent four heartbeats", async || {
        count(&servers[0], "POST /v1/sessions/s1/heartbeat") >= 4
    })
    .await;
    let took = begun.elapsed();
    assert!(took >= 3 * SHORTEST_INTERVAL, "four heartbeats within {took:?}");
    let looks = count(&gone, "POST /v1/sessions/s1/heartbeat");
    assert!((1..=5).contains(&looks), "{looks} looks");
    session.close().await.unwrap();
}
