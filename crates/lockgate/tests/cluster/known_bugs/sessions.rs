//! Sessions that expire, and those that must not.

use std::collections::BTreeSet;
use std::time::Duration;

use cli_support::api_client::{ApiClient, request_id};
use cli_support::http_client;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::harness::{TIMEOUT, TestCluster, assert_refused, eventually};

/// Minimum timeout that the server allows.
const TTL: Duration = Duration::from_secs(2);

/// Heartbeats per timeout of a session that must not expire.
const BEATS: u32 = 8;

/// Sends heartbeats of a session for this time.
async fn keep(client: &mut ApiClient, session: &str, time: Duration) {
    let end = Instant::now() + time;
    let mut beats = tokio::time::interval(TTL / BEATS);
    while beats.tick().await < end {
        client.heartbeat(session).await.unwrap();
    }
}

/// Opens a session that sends no heartbeats.
async fn silent(cluster: &TestCluster, node: u64) -> (ApiClient, String) {
    let mut client = cluster.client_of(node);
    let session = client.open_session(TTL, "silent").await.unwrap();
    (client, session)
}

/// Opens a session and waits until it has expired.
async fn expired(cluster: &TestCluster, node: u64) -> (ApiClient, String) {
    let (client, session) = silent(cluster, node).await;
    let path = format!("/v1/sessions/{session}");
    eventually("the session expires", async || {
        let path = format!("{path}?linearizable=true");
        cluster.send(node, "GET", &path, &Value::Null).await.status != 200
    })
    .await;
    (client, session)
}

#[tokio::test]
async fn etcd_11456_no_grant_to_a_waiter_whose_session_has_expired() {
    let cluster = TestCluster::start().await;
    let (mut holder, holding) = cluster.session(1, "holder").await;
    let held = holder.acquire(holding.id(), "lock").await.unwrap();
    let (mut dying, session) = silent(&cluster, 2).await;
    let dead = tokio::spawn(async move { dying.acquire(&session, "lock").await });
    cluster.wait_queued(1, "lock", 1).await;
    let (mut next, waiting) = cluster.session(3, "next").await;
    let (id, wait) = (waiting.id().to_owned(), json!({ "wait_ms": null }));
    let granted = tokio::spawn(async move { next.acquire_with(&id, "lock", wait).await });
    cluster.wait_queued(1, "lock", 2).await;

    // The connection stays open; only the session expires.
    cluster.wait_queued(1, "lock", 1).await;
    assert_eq!(dead.await.unwrap().unwrap_err().code(), "session_expired");
    holder.release(holding.id(), &held).await.unwrap();
    let granted = granted.await.unwrap().unwrap();
    let lock = cluster.get(1, "/v1/locks/lock").await;
    assert_eq!(lock["holders"][0]["holder"], granted.holder.as_str());
    assert_eq!(lock["holders"][0]["session"], waiting.id());
}

#[tokio::test]
async fn etcd_19597_and_22387_a_wait_ends_with_its_session() {
    let cluster = TestCluster::start().await;
    let (mut holder, holding) = cluster.session(1, "holder").await;
    let held = holder.acquire(holding.id(), "lock").await.unwrap();
    let opened = Instant::now();
    let (mut waiter, session) = silent(&cluster, 2).await;
    let refused = waiter.acquire(&session, "lock").await.unwrap_err();
    assert_eq!(refused.code(), "session_expired");
    assert!(opened.elapsed() >= TTL);
    // The holder still has the lock.
    assert!(holder.check(&held).await.unwrap());
}

#[tokio::test]
async fn etcd_15247_and_12528_stalled_leader_expires_no_session_renewed_by_its_successor() {
    let cluster = TestCluster::start().await;
    let leader = cluster.leader_now().await;
    let survivors = cluster.followers().await;
    let mut client = cluster.client_of(survivors[0]);
    let session = client.open_session(TTL, "renewed").await.unwrap();
    let held = client.acquire(&session, "lock").await.unwrap();
    // The old leader must not expire the session by its own clock.
    cluster.signal(leader, Signal::SIGSTOP).unwrap();
    keep(&mut client, &session, TTL * 3).await;
    // The old leader answers the request with the new leader's state, or not at all.
    let address = cluster.http(leader);
    let path = format!("/v1/sessions/{session}/heartbeat");
    let late = tokio::spawn(async move { http_client::request(&address, "POST", &path, "").await });
    cluster.signal(leader, Signal::SIGCONT).unwrap();
    let answered = late.await.unwrap().unwrap();
    assert!(
        [200, 503].contains(&answered.status),
        "{}",
        String::from_utf8_lossy(&answered.body)
    );
    keep(&mut client, &session, TTL).await;
    for node in cluster.ids() {
        assert!(cluster.client_of(node).check(&held).await.unwrap(), "node {node}");
    }
}

#[tokio::test]
async fn keeper_121361_requests_to_followers_keep_the_session() {
    let cluster = TestCluster::start().await;
    let followers = cluster.followers().await;
    let mut client = cluster.client_of(followers[0]);
    let session = client.open_session(TTL, "at followers").await.unwrap();
    let kept = client.acquire(&session, "kept").await.unwrap();
    let mut rounds = tokio::time::interval(TTL / BEATS);
    for round in 0..3 * BEATS as usize {
        rounds.tick().await;
        // No request is a heartbeat.
        let mut client = cluster.client_of(followers[round % 2]);
        let held = client.acquire(&session, "now and then").await.unwrap();
        client.release(&session, &held).await.unwrap();
    }
    assert!(client.check(&kept).await.unwrap());
}

#[tokio::test]
async fn keeper_116690_expired_session_is_never_replaced() {
    let mut cluster = TestCluster::start().await;
    let (_, session) = expired(&cluster, 1).await;
    let leader = cluster.leader_now().await;
    for round in ["the leader that ended it", "its successor"] {
        for node in cluster.ids() {
            let heartbeat = format!("/v1/sessions/{session}/heartbeat");
            let answers = [
                cluster.send(node, "POST", &heartbeat, &Value::Null).await,
                cluster
                    .send(
                        node,
                        "POST",
                        "/v1/locks/lock/acquire",
                        &json!({ "session": session }),
                    )
                    .await,
            ];
            for answer in answers {
                assert_refused(&answer, 410, "session_expired");
                assert!(
                    answer
                        .json()
                        .get("session")
                        .is_none_or(|named| *named == session.as_str()),
                    "{round}: {}",
                    answer.json()
                );
            }
        }
        let sessions = cluster.get(leader, "/v1/sessions").await;
        assert_eq!(sessions["sessions"], json!([]), "{round}");
        cluster.kill(leader).await.unwrap();
        cluster.up(TIMEOUT).await.unwrap();
    }
}

#[tokio::test]
async fn keeper_114401_session_requested_during_a_failover_is_opened_once_and_in_time() {
    const AT_A_TIME: usize = 8;
    /// Default timeout of a session.
    const WHOLE_TIMEOUT: Duration = Duration::from_secs(10);
    let mut cluster = TestCluster::start().await;
    let leader = cluster.leader_now().await;
    let survivors = cluster.followers().await;
    let addresses: Vec<String> = survivors.iter().map(|node| cluster.http(*node)).collect();
    let ask = |requests: &mut JoinSet<String>| {
        for number in 0..AT_A_TIME {
            let address = std::slice::from_ref(&addresses[number % addresses.len()]);
            let mut client = ApiClient::new(address, 0, TIMEOUT);
            requests.spawn(async move {
                let body = json!({ "name": "requested", "request_id": request_id(), "ttl_ms": 60_000 });
                let opened = client.call("POST", "/v1/sessions", &body, TIMEOUT);
                let opened = tokio::time::timeout(WHOLE_TIMEOUT, opened).await;
                let opened = opened.expect("the request does not hang").unwrap();
                opened.json()["session"].as_str().unwrap().to_owned()
            });
        }
    };
    // Requests while the leader dies, when it is dead, and when there is another leader.
    let mut asked = JoinSet::new();
    ask(&mut asked);
    cluster.kill(leader).await.unwrap();
    ask(&mut asked);
    let mut ids = BTreeSet::new();
    ids.insert(asked.join_next().await.unwrap().unwrap());
    cluster.leader_now().await;
    ask(&mut asked);
    while let Some(session) = asked.join_next().await {
        ids.insert(session.unwrap());
    }
    assert_eq!(ids.len(), 3 * AT_A_TIME);
    let sessions = cluster.get(survivors[0], "/v1/sessions").await;
    let open: BTreeSet<_> = sessions["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|session| session["session"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(open, ids, "each was opened once");
}

#[tokio::test]
async fn curator_604_hold_of_a_former_session_does_not_belong_to_the_new_one() {
    let cluster = TestCluster::start().await;
    let (mut before, former) = silent(&cluster, 1).await;
    let held = before.acquire(&former, "lock").await.unwrap();
    // The same client returns with another session of the same name.
    let (mut after, session) = cluster.session(1, "silent").await;
    let wish = json!({ "owner": "", "reentrant": true });
    match after.acquire_with(session.id(), "lock", wish).await {
        Err(refused) => assert_eq!(refused.code(), "lock_busy"),
        // The former session has expired already.
        Ok(granted) => {
            assert!(granted.fencing_token > held.fencing_token);
            after.release(session.id(), &granted).await.unwrap();
        }
    }
    let foreign = after.release(session.id(), &held).await.unwrap_err();
    assert_eq!(foreign.code(), "not_holder");
    let granted = after.acquire(session.id(), "lock").await.unwrap();
    assert_ne!(granted.holder, held.holder);
    assert!(granted.fencing_token > held.fencing_token);
    assert!(!after.check(&held).await.unwrap());
}

#[tokio::test]
async fn gozero_5545_nothing_is_created_for_a_dead_session() {
    let cluster = TestCluster::start().await;
    let (_, session) = expired(&cluster, 2).await;
    let created = json!({ "create": { "path": "/left", "data": "", "mode": "ephemeral" } });
    for node in cluster.ids() {
        let ephemeral = json!({ "mode": "ephemeral", "session": session, "data": "" });
        let acquire = json!({ "session": session });
        let several = json!({ "session": session, "locks": [{ "name": "left" }, { "name": "right" }] });
        let txn = json!({ "session": session, "ops": [created] });
        for (path, body) in [
            ("/v1/znodes/left", &ephemeral),
            ("/v1/locks/left/acquire", &acquire),
            ("/v1/multilock/acquire", &several),
            ("/v1/txn", &txn),
        ] {
            let answer = cluster.send(node, "POST", path, body).await;
            assert_refused(&answer, 410, "session_expired");
        }
    }
    assert_eq!(cluster.get(1, "/v1/locks").await["locks"], json!([]));
    let root = cluster
        .send(
            1,
            "GET",
            "/v1/znodes/?children=true&linearizable=true",
            &Value::Null,
        )
        .await
        .json();
    let names = root["children"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|child| child["name"].as_str().unwrap()).collect();
    assert!(!names.contains(&"left"), "{root}");
}
