//! Documented errors of invalid requests, at every node, without any change of the state.

use std::time::Duration;

use cli_support::api_client::RenewedSession;
use serde_json::{Value, json};

use crate::harness::{TIMEOUT, TestCluster, assert_refused, eventually, held};

#[tokio::test]
async fn errors_are_equal_at_every_node_and_change_nothing() {
    let cluster = TestCluster::start().await;
    let (mut client, session) = cluster.session(1, "holder").await;
    let (_, other) = cluster.session(2, "other").await;
    let holding = client.acquire(session.id(), "safe").await.unwrap();
    let ended = client
        .open_session(Duration::from_secs(10), "ended")
        .await
        .unwrap();
    client.close_session(&ended).await.unwrap();
    let before = cluster.get(1, "/v1/locks/safe").await;

    let release = "/v1/locks/safe/release";
    let acquire = "/v1/locks/safe/acquire";
    let (mine, theirs) = (session.id(), other.id());
    let long_name = format!("/v1/locks/{}/acquire", "n".repeat(513));
    let deep = "/v1/znodes".to_owned() + &"/d".repeat(4_097);
    let cases: Vec<(&str, &str, Value, u16, &str)> = vec![
        // Another session than the holder's, a former holder, an expired and an unknown session.
        (
            "POST",
            release,
            json!({ "session": theirs, "holder": holding.holder }),
            409,
            "not_holder",
        ),
        (
            "POST",
            release,
            json!({ "session": mine, "holder": "_c_0-lock-0000000099" }),
            409,
            "not_holder",
        ),
        (
            "POST",
            release,
            json!({ "session": ended, "holder": holding.holder }),
            410,
            "session_expired",
        ),
        (
            "POST",
            acquire,
            json!({ "session": ended }),
            410,
            "session_expired",
        ),
        (
            "POST",
            acquire,
            json!({ "session": "00000000000000aa" }),
            404,
            "no_session",
        ),
        (
            "POST",
            "/v1/sessions/00000000000000aa/heartbeat",
            Value::Null,
            404,
            "no_session",
        ),
        // A busy lock, a timeout, another mode.
        ("POST", acquire, json!({ "session": theirs }), 409, "lock_busy"),
        (
            "POST",
            acquire,
            json!({ "session": theirs, "wait_ms": 30 }),
            409,
            "lock_timeout",
        ),
        (
            "POST",
            acquire,
            json!({ "session": theirs, "mode": "semaphore", "limit": 2 }),
            409,
            "mode_conflict",
        ),
        // Invalid requests.
        (
            "POST",
            acquire,
            json!({ "session": theirs, "wait": 30 }),
            400,
            "bad_request",
        ),
        (
            "POST",
            acquire,
            json!({ "session": theirs, "wait_ms": -1 }),
            400,
            "bad_request",
        ),
        // The limit is known only of a semaphore in use.
        (
            "POST",
            "/v1/locks/unused/acquire",
            json!({ "session": theirs, "mode": "semaphore" }),
            400,
            "bad_request",
        ),
        ("POST", acquire, json!({}), 400, "bad_request"),
        (
            "POST",
            &long_name,
            json!({ "session": theirs }),
            400,
            "bad_lock_name",
        ),
        (
            "POST",
            "/v1/locks/a/../acquire",
            json!({ "session": theirs }),
            400,
            "bad_lock_name",
        ),
        ("POST", "/v1/znodes/a//b", json!({}), 400, "bad_path"),
        ("POST", &deep, json!({ "parents": true }), 400, "bad_path"),
        // Missing locks and znodes.
        ("GET", "/v1/locks/none", Value::Null, 404, "no_lock"),
        ("GET", "/v1/znodes/none", Value::Null, 404, "no_znode"),
        ("POST", "/v1/znodes/none/child", json!({}), 404, "no_znode"),
        ("DELETE", "/v1/znodes/locks/safe", Value::Null, 409, "not_empty"),
        // A body that is too large.
        (
            "POST",
            acquire,
            json!({ "session": theirs, "note": "x".repeat(80_000) }),
            413,
            "too_large",
        ),
    ];
    for (method, path, body, status, code) in &cases {
        for node in cluster.ids() {
            let response = cluster.send(node, method, path, body).await;
            println!("{method} {path} at node {node}: {}", response.json());
            assert_refused(&response, *status, code);
        }
    }
    assert_eq!(cluster.get(3, "/v1/locks/safe").await, before);

    // A second release has no effect, and the old holder cannot release another session's new lock.
    client.release(mine, &holding).await.unwrap();
    let next = cluster
        .send(2, "POST", acquire, &json!({ "session": theirs }))
        .await;
    let next = held("safe", &next);
    let stale = json!({ "session": mine, "holder": holding.holder });
    for node in cluster.ids() {
        assert_refused(
            &cluster.send(node, "POST", release, &stale).await,
            409,
            "not_holder",
        );
    }
    assert!(client.check(&next).await.unwrap());
    assert!(!client.check(&holding).await.unwrap());
}

#[tokio::test]
async fn reentry_counts_and_cannot_wait_for_itself() {
    let cluster = TestCluster::start().await;
    let (_, session) = cluster.session(1, "reenters").await;
    let acquire = |mode: &str| json!({ "session": session.id(), "mode": mode });
    let first = cluster
        .send(1, "POST", "/v1/locks/twice/acquire", &acquire("exclusive"))
        .await;
    let again = cluster
        .send(2, "POST", "/v1/locks/twice/acquire", &acquire("exclusive"))
        .await;
    assert_eq!(
        (first.json()["holds"].clone(), again.json()["holds"].clone()),
        (json!(1), json!(2))
    );
    assert_eq!(held("twice", &first), held("twice", &again));
    let release = json!({ "session": session.id(), "holder": held("twice", &first).holder });
    for (node, left) in [(3, 1), (1, 0)] {
        let released = cluster
            .send(node, "POST", "/v1/locks/twice/release", &release)
            .await;
        assert_eq!(released.json()["holds"], left, "{}", released.json());
    }
    cluster
        .send(1, "POST", "/v1/locks/read/acquire", &acquire("shared"))
        .await;
    let write = cluster
        .send(2, "POST", "/v1/locks/read/acquire", &acquire("exclusive"))
        .await;
    assert_refused(&write, 409, "would_deadlock");
}

#[tokio::test]
async fn node_without_quorum_is_unavailable_and_a_retry_is_applied_once() {
    let mut cluster = TestCluster::start_with("propose_timeout_ms = 1000").await;
    let (mut client, session) = cluster.session(1, "patient").await;
    let held = client.acquire(session.id(), "before").await.unwrap();
    let leader = cluster.leader_now().await;
    for node in cluster.followers().await {
        cluster.kill(node).await.unwrap();
    }
    let body = json!({ "session": session.id(), "request_id": "alone" });
    let alone = cluster
        .send(leader, "POST", "/v1/locks/after/acquire", &body)
        .await;
    assert!(
        [(503, "unavailable"), (504, "outcome_unknown")].contains(&(alone.status, alone.code().as_str())),
        "{}",
        alone.json()
    );
    eventually("the isolated node is not ready", async || {
        let response = cluster.send(leader, "GET", "/readyz", &Value::Null).await;
        response.status == 503 && response.code() == "unavailable"
    })
    .await;
    // The node is alive all the same, and does not confirm a heartbeat without a quorum.
    assert_eq!(
        cluster.send(leader, "GET", "/healthz", &Value::Null).await.status,
        200
    );
    let heartbeat = format!("/v1/sessions/{}/heartbeat", session.id());
    assert_eq!(
        cluster
            .send(leader, "POST", &heartbeat, &Value::Null)
            .await
            .status,
        503
    );

    cluster.up(TIMEOUT).await.unwrap();
    client
        .acquire_with(session.id(), "after", json!({ "request_id": "alone" }))
        .await
        .unwrap();
    let after = cluster.get(1, "/v1/locks/after").await;
    assert_eq!(after["holders"][0]["holds"], 1, "{after}");
    assert!(client.check(&held).await.unwrap());
}

#[tokio::test]
async fn closed_session_releases_everything_at_once() {
    let cluster = TestCluster::start().await;
    let mut client = cluster.client(1);
    let session = RenewedSession::open(&mut client, Duration::from_secs(60), "short")
        .await
        .unwrap();
    client.acquire(session.id(), "one").await.unwrap();
    client.acquire(session.id(), "two").await.unwrap();
    let body = json!({ "mode": "ephemeral", "session": session.id() });
    assert_eq!(
        cluster.send(2, "POST", "/v1/znodes/mark", &body).await.status,
        201
    );
    client.close_session(session.id()).await.unwrap();
    for lock in ["one", "two"] {
        let seen = cluster.get(3, &format!("/v1/locks/{lock}")).await;
        assert_eq!(seen["holders"], json!([]), "{seen}");
    }
    let mark = cluster
        .send(3, "GET", "/v1/znodes/mark?linearizable=true", &Value::Null)
        .await;
    assert_refused(&mark, 404, "no_znode");
}
