//! Leases, and bounds of holds: over HTTP, by a node with one member.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{Call, Reply, Server, until};

async fn acquire(server: &Server, body: Value) -> Reply {
    server.post("/v1/locks/job/acquire", body).await
}

fn address(grant: &Value) -> String {
    format!("/v1/leases/{}", grant["lease"].as_str().unwrap())
}

async fn holders(server: &Server) -> Vec<Value> {
    let seen = server.get("/v1/locks/job").await.expect(200);
    seen["holders"].as_array().unwrap().clone()
}

#[tokio::test]
async fn lease_is_acquired_shown_renewed_and_released() {
    let server = Server::start().await;
    let body = json!({"ttl_ms": 60_000, "note": "nightly"});
    let grant = acquire(&server, body.clone()).await.expect(200);
    assert!((1..=60_000).contains(&grant["expires_in_ms"].as_u64().unwrap()));
    acquire(&server, body.clone()).await.problem(409, "lock_busy");
    let lease = address(&grant);
    let seen = server.get(&lease).await.expect(200);
    for (field, value) in [
        ("lock", json!("job")),
        ("holder", grant["holder"].clone()),
        ("state", json!("holds")),
        ("mode", json!("exclusive")),
        ("fencing_token", grant["fencing_token"].clone()),
        ("note", json!("nightly")),
        ("ttl_ms", json!(60_000)),
    ] {
        assert_eq!(seen[field], value, "{field}");
    }
    let renewed = server
        .post(&format!("{lease}/renew"), json!({}))
        .await
        .expect(200);
    assert_eq!(renewed["ttl_ms"], json!(60_000));
    let longer = server
        .post(&format!("{lease}/renew"), json!({"ttl_ms": 120_000}))
        .await
        .expect(200);
    assert_eq!(longer["ttl_ms"], json!(120_000));
    assert!(longer["expires_in_ms"].as_u64().unwrap() > 60_000);
    let sessions = server.get("/v1/sessions").await.expect(200);
    assert_eq!(sessions["sessions"][0]["lease"], json!(true));

    // A wrong secret is no lease.
    let wrong = format!("{}0", &lease[..lease.len() - 1]);
    let wrong = if wrong == lease {
        format!("{}1", &lease[..lease.len() - 1])
    } else {
        wrong
    };
    server.get(&wrong).await.problem(410, "lease_expired");
    server.delete(&wrong).await.problem(410, "lease_expired");

    server.delete(&lease).await.expect(204);
    server.delete(&lease).await.expect(204);
    server.get(&lease).await.problem(410, "lease_expired");
    server
        .post(&format!("{lease}/renew"), json!({}))
        .await
        .problem(410, "lease_expired");
    let sessions = server.get("/v1/sessions").await.expect(200);
    assert_eq!(sessions["sessions"], json!([]));
    let next = acquire(&server, body).await.expect(200);
    assert!(next["fencing_token"].as_u64() > grant["fencing_token"].as_u64());
    server.stop().await;
}

#[tokio::test]
async fn lease_that_is_not_renewed_expires_and_its_lock_goes_to_the_next_one() {
    let server = Server::start().await;
    let first = acquire(&server, json!({"ttl_ms": 400})).await.expect(200);
    // The second one waits for longer than its own time to live: its node renews it.
    let second = acquire(&server, json!({"ttl_ms": 300, "wait_ms": 20_000})).await;
    let second = second.expect(200);
    assert!(second["fencing_token"].as_u64() > first["fencing_token"].as_u64());
    server
        .delete(&address(&first))
        .await
        .problem(410, "lease_expired");
    until("the second one expires, too", async || {
        holders(&server).await.is_empty()
    })
    .await;
    server.get(&address(&second)).await.problem(410, "lease_expired");
    server.stop().await;
}

#[tokio::test]
async fn caller_that_hangs_up_leaves_no_lease_behind() {
    let server = Server::start().await;
    let first = acquire(&server, json!({"ttl_ms": 60_000})).await.expect(200);
    let body = json!({"ttl_ms": 60_000, "wait_ms": null}).to_string();
    let call = Call::send(server.address, "POST", "/v1/locks/job/acquire", Some(&body)).await;
    let sessions = async || {
        let sessions = server.get("/v1/sessions").await.expect(200);
        sessions["sessions"].as_array().unwrap().len()
    };
    until("the second one waits", async || sessions().await == 2).await;
    drop(call);
    until("its lease has ended", async || sessions().await == 1).await;
    acquire(&server, json!({"ttl_ms": 60_000, "wait_ms": 50}))
        .await
        .problem(409, "lock_timeout");
    until("the third one's, too", async || sessions().await == 1).await;
    server.delete(&address(&first)).await.expect(204);
    server.stop().await;
}

#[tokio::test]
async fn repeated_acquire_gets_the_same_lease() {
    let server = Server::start().await;
    let body = json!({"ttl_ms": 60_000, "request_id": "r"});
    let first = acquire(&server, body.clone()).await.expect(200);
    let again = acquire(&server, body.clone()).await.expect(200);
    assert_eq!(first["lease"], again["lease"]);
    assert_eq!(first["fencing_token"], again["fencing_token"]);
    server.delete(&address(&first)).await.expect(204);
    acquire(&server, body).await.problem(410, "lease_expired");
    server.stop().await;
}

#[tokio::test]
async fn hold_ends_after_its_maximum_time_and_its_session_is_told() {
    let server = Server::start().await;
    let session = server.session().await;
    let mut stream = server.follow(&session, "", None).await;
    stream.expect("state").await;
    let begun = Instant::now();
    let body = json!({"session": session, "max_hold_ms": 300});
    acquire(&server, body).await.expect(200);
    assert_eq!(holders(&server).await[0]["max_hold_ms"], json!(300));
    stream.expect("granted").await;
    let lost = stream.expect("lost").await;
    assert_eq!(lost["ended"], json!("max_hold"));
    assert!(begun.elapsed() >= Duration::from_millis(300));

    let lease = acquire(&server, json!({"ttl_ms": 60_000, "max_hold_ms": 100}))
        .await
        .expect(200);
    until("the lease has ended", async || {
        server.get(&address(&lease)).await.status == 410
    })
    .await;
    until("both are in the history", async || {
        let history = server.get("/v1/locks/job/history").await.expect(200);
        let ended = |at: usize| history["history"][at]["ended"] == json!("max_hold");
        ended(0) && ended(1)
    })
    .await;
    server.stop().await;
}

#[tokio::test]
async fn lock_is_not_granted_again_within_the_minimum_time() {
    let server = Server::start().await;
    let begun = Instant::now();
    let first = acquire(&server, json!({"ttl_ms": 60_000, "min_hold_ms": 500}))
        .await
        .expect(200);
    server.delete(&address(&first)).await.expect(204);
    acquire(&server, json!({"ttl_ms": 60_000}))
        .await
        .problem(409, "lock_busy");
    let second = acquire(&server, json!({"ttl_ms": 60_000, "wait_ms": 20_000})).await;
    second.expect(200);
    assert!(begun.elapsed() >= Duration::from_millis(500));
    server.stop().await;
}
