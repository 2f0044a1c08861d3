//! Choice of the server by a client that prefers the leader.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on may say so shortly, also in its helpers"
)]

mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lock_client::LockClient;
use server::{Answer, Heard, Server};
use tokio::time::timeout;

/// Maximum time of every wait.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Number of a leader that is none of the servers.
const NOBODY: usize = usize::MAX;

/// Less than the time between two heartbeats of a session of three seconds, unless a server is suspected for half a second.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(900);

const HEARTBEAT: &str = "POST /v1/sessions/s1/heartbeat";

fn answer(what: &str, leads: bool) -> Answer {
    Some(match what {
        "POST /v1/sessions" => (201, r#"{"session": "s1", "ttl_ms": 3000}"#),
        HEARTBEAT if leads => (200, r#"{"ttl_ms": 3000, "leads": true}"#),
        HEARTBEAT => (200, r#"{"ttl_ms": 3000, "leads": false}"#),
        "DELETE /v1/sessions/s1" => (204, ""),
        "GET /v1/locks" => (200, r#"{"locks": [], "next_cursor": null}"#),
        other => panic!("{other} is not expected"),
    })
}

/// Three servers, of which the one with this number leads.
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

fn count(heard: &[Heard], what: &str) -> usize {
    heard.iter().filter(|heard| heard.what == what).count()
}

/// Waits until a server has received this number of requests.
async fn has_received(server: &Server, what: &str, times: usize) {
    let mut heard = server.heard.clone();
    let asked = heard.wait_for(|heard| count(heard, what) >= times);
    let in_time = timeout(TIMEOUT, asked).await;
    in_time.expect("it is asked in time").unwrap();
}

#[tokio::test]
async fn the_leader_is_found_and_followed() {
    let (servers, leader) = servers().await;
    let client = at_leader(&servers.each_ref().map(|server| server.address.as_str()));
    let session = client.session().open().await.unwrap();
    for leads in [2, 0, 1] {
        leader.store(leads, Ordering::Relaxed);
        let asked = count(&servers[leads].heard(), HEARTBEAT);
        let before = count(&servers[leads].heard(), "GET /v1/locks");
        has_received(&servers[leads], HEARTBEAT, asked + 1).await;
        // The client knows it as soon as it has read the answer.
        let found = async {
            while count(&servers[leads].heard(), "GET /v1/locks") == before {
                client.locks("").await.unwrap();
            }
        };
        timeout(TIMEOUT, found).await.expect("the leader is asked");
    }
    session.close().await.unwrap();
}

#[tokio::test]
async fn client_without_at_leader_stays_at_its_server() {
    let (servers, leader) = servers().await;
    let addresses = servers.each_ref().map(|server| server.address.as_str());
    let client = LockClient::new(addresses).unwrap();
    let session = client.session().open().await.unwrap();
    let opened = |server: &Server| count(&server.heard(), "POST /v1/sessions") == 1;
    let asked = servers.iter().position(opened).unwrap();
    leader.store((asked + 1) % 3, Ordering::Relaxed);
    has_received(&servers[asked], HEARTBEAT, 2).await;
    client.locks("").await.unwrap();
    assert_eq!(count(&servers[asked].heard(), "GET /v1/locks"), 1);
    session.close().await.unwrap();
}

#[tokio::test]
async fn a_leader_that_cannot_be_found_is_looked_for_no_more_often_than_heartbeats_are_sent() {
    let (servers, _) = servers().await;
    // One of the probed servers closes every connection.
    let gone = Server::start(|_, _| None).await;
    let addresses = [&servers[0].address, &gone.address].map(String::as_str);
    let client = at_leader(&addresses);
    let begun = Instant::now();
    let session = client.session().open().await.unwrap();
    has_received(&servers[0], HEARTBEAT, 3).await;
    let took = begun.elapsed();
    assert!(took >= 2 * SHORTEST_INTERVAL, "three heartbeats within {took:?}");
    let looks = count(&gone.heard(), HEARTBEAT);
    assert!((1..=3).contains(&looks), "{looks} looks for three heartbeats");
    session.close().await.unwrap();
}
