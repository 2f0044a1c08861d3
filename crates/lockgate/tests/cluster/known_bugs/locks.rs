//! Releases, vanishing waiters, permits, and watches.

use std::time::Duration;

use cli_support::api_client::request_id;
use cli_support::http_client::Connection;
use serde_json::{Value, json};

use crate::harness::{TIMEOUT, TestCluster, assert_refused, eventually, held};

#[tokio::test]
async fn etcd_22082_repeated_release_does_not_release_a_later_acquire() {
    let cluster = TestCluster::start().await;
    let (mut client, session) = cluster.session(1, "client").await;
    let first = client.acquire(session.id(), "lock").await.unwrap();
    let with_id = json!({ "session": session.id(), "holder": first.holder, "request_id": request_id() });
    let without = json!({ "session": session.id(), "holder": first.holder });
    let path = "/v1/locks/lock/release";
    assert_eq!(cluster.send(1, "POST", path, &with_id).await.status, 200);
    let second = client.acquire(session.id(), "lock").await.unwrap();
    for node in cluster.ids() {
        // A retry of the request gets the same answer, another request for the same hold is rejected.
        let again = cluster.send(node, "POST", path, &with_id).await;
        assert_eq!((again.status, again.json()), (200, json!({ "holds": 0 })));
        assert_refused(
            &cluster.send(node, "POST", path, &without).await,
            409,
            "not_holder",
        );
        assert!(cluster.client_of(node).check(&second).await.unwrap());
    }
}

#[tokio::test]
async fn etcd_16221_vanishing_waiter_causes_no_grant_beside_the_holder() {
    let cluster = TestCluster::start().await;
    let (mut holder, holding) = cluster.session(1, "holder").await;
    let first = holder.acquire(holding.id(), "lock").await.unwrap();
    for (round, (vanishing, next)) in [
        ("exclusive", "exclusive"),
        ("exclusive", "shared"),
        ("shared", "exclusive"),
        ("shared", "shared"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut waits = Vec::new();
        let mut sessions = Vec::new();
        for (place, mode) in [vanishing, next].into_iter().enumerate() {
            let (mut client, session) = cluster.session(2, "waiter").await;
            let (id, wish) = (session.id().to_owned(), json!({ "mode": mode, "wait_ms": null }));
            waits.push(tokio::spawn(async move {
                client.acquire_with(&id, "lock", wish).await
            }));
            cluster.wait_queued(1, "lock", place + 1).await;
            sessions.push(session);
        }
        // In turn by closing the session, and by a closed connection.
        let next = waits.pop().unwrap();
        let vanishing = waits.pop().unwrap();
        match round % 2 {
            0 => cluster.client(3).close_session(sessions[0].id()).await.unwrap(),
            _ => vanishing.abort(),
        }
        cluster.wait_queued(1, "lock", 1).await;
        let lock = cluster.get(3, "/v1/locks/lock").await;
        assert_eq!(lock["holders"].as_array().unwrap().len(), 1, "{lock}");
        assert_eq!(lock["holders"][0]["holder"], first.holder.as_str());
        assert!(!next.is_finished());
        next.abort();
        cluster.wait_queued(1, "lock", 0).await;
    }
    assert!(holder.check(&first).await.unwrap());
    // The holder is a reader: when the waiting writer vanishes, the reader behind it gets the lock, and no
    // other waiter.
    holder.release(holding.id(), &first).await.unwrap();
    let shared = json!({ "mode": "shared", "wait_ms": null });
    holder
        .acquire_with(holding.id(), "lock", shared.clone())
        .await
        .unwrap();
    let (mut writer, writing) = cluster.session(2, "writer").await;
    let id = writing.id().to_owned();
    let wait = tokio::spawn(async move { writer.acquire(&id, "lock").await });
    cluster.wait_queued(1, "lock", 1).await;
    let (mut reader, reading) = cluster.session(3, "reader").await;
    let id = reading.id().to_owned();
    let read = tokio::spawn(async move { reader.acquire_with(&id, "lock", shared).await });
    cluster.wait_queued(1, "lock", 2).await;
    let (mut last, lasting) = cluster.session(1, "last").await;
    let id = lasting.id().to_owned();
    let after = tokio::spawn(async move { last.acquire(&id, "lock").await });
    cluster.wait_queued(1, "lock", 3).await;
    wait.abort();
    read.await.unwrap().unwrap();
    cluster.wait_queued(1, "lock", 1).await;
    let lock = cluster.get(1, "/v1/locks/lock").await;
    assert_eq!(lock["holders"].as_array().unwrap().len(), 2, "{lock}");
    assert!(!after.is_finished());
}

#[tokio::test]
async fn curator_678_and_307_release_without_an_answer_can_be_retried() {
    let cluster = TestCluster::start().await;
    let (mut client, session) = cluster.session(1, "client").await;
    let path = "/v1/locks/lock/release";
    for round in 0..10 {
        let granted = client.acquire(session.id(), "lock").await.unwrap();
        let body = json!({ "session": session.id(), "holder": granted.holder, "request_id": request_id() });
        let mut connection = Connection::connect(&cluster.http(1 + round % 3)).await.unwrap();
        let text = body.to_string();
        // The connection breaks before the answer is read: before, while or after the release is applied.
        let sent = tokio::time::timeout(
            Duration::from_micros(100 * round),
            connection.send("POST", path, &text),
        );
        let answered = sent
            .await
            .is_ok_and(|answer| answer.is_ok_and(|answer| answer.status == 200));
        drop(connection);
        if answered {
            assert!(!client.check(&granted).await.unwrap());
        }
        let again = cluster.send(1 + (round + 1) % 3, "POST", path, &body).await;
        assert_eq!((again.status, again.json()), (200, json!({ "holds": 0 })));
        let lock = cluster.get(1, "/v1/locks/lock").await;
        assert_eq!(lock["holders"], json!([]));
    }
}

#[tokio::test]
async fn curator_335_and_595_permits_are_released_when_their_sessions_end() {
    const LIMIT: u64 = 10;
    let mut cluster = TestCluster::start().await;
    let (mut client, session) = cluster.session(1, "client").await;
    let all = json!({ "mode": "semaphore", "limit": LIMIT, "permits": LIMIT, "wait_ms": null });
    for round in 0..3 {
        let mut dying = Vec::new();
        for number in 0..12 {
            // Some sessions hold permits, some wait for more than are free.
            let permits = 1 + (number + round) % 4;
            let node = 1 + number % 3;
            let mut client = cluster.client(node);
            let ttl = Duration::from_secs(2);
            let id = client.open_session(ttl, "dying").await.unwrap();
            dying.push(tokio::spawn(async move {
                let wish =
                    json!({ "mode": "semaphore", "limit": LIMIT, "permits": permits, "wait_ms": null });
                let granted = client.acquire_with(&id, "pool", wish).await;
                (client, id, granted)
            }));
        }
        eventually("the permits are taken", async || {
            let pool = cluster.get(1, "/v1/locks/pool").await;
            let holders = pool["holders"].as_array().unwrap();
            let taken: u64 = holders
                .iter()
                .filter_map(|holder| holder["permits"].as_u64())
                .sum();
            assert!(taken <= LIMIT, "{pool}");
            taken > LIMIT / 2
        })
        .await;
        if round == 1 {
            let leader = cluster.leader_now().await;
            cluster.kill(leader).await.unwrap();
        }
        // All permits can be acquired at once: none has leaked from a holder or a waiter.
        let granted = client
            .acquire_with(session.id(), "pool", all.clone())
            .await
            .unwrap();
        let pool = cluster.get(cluster.leader_now().await, "/v1/locks/pool").await;
        assert_eq!(pool["holders"].as_array().unwrap().len(), 1, "{pool}");
        client.release(session.id(), &granted).await.unwrap();
        for wait in dying {
            wait.abort();
        }
        cluster.up(local_cluster::START_TIMEOUT).await.unwrap();
    }
}

#[tokio::test]
async fn curator_527_change_between_read_and_watch_is_notified() {
    let cluster = TestCluster::start().await;
    let body = json!({ "data": "before" });
    let created = cluster.send(1, "POST", "/v1/znodes/seen", &body).await;
    assert_eq!(created.status, 201);
    let read = cluster.get(1, "/v1/znodes/seen").await;
    let seen = read["stat"]["mzxid"].as_u64().unwrap();
    let changed = cluster
        .send(2, "PUT", "/v1/znodes/seen", &json!({ "data": "after" }))
        .await;
    assert_eq!(changed.status, 200);
    for node in cluster.ids() {
        let path = format!("/v1/watch/seen?kind=data&linearizable=true&timeout_ms=60000&zxid={seen}");
        let notified = cluster.send(node, "GET", &path, &Value::Null).await;
        assert_eq!(notified.status, 200, "node {node}: {}", notified.json());
        assert_eq!(notified.json()["path"], "/seen");
    }
}

#[tokio::test]
async fn hiqlite_352_acquire_cancelled_at_its_grant_blocks_no_waiter() {
    const PATH: &str = "/v1/locks/lock/acquire";
    let cluster = TestCluster::start().await;
    let (mut holder, holding) = cluster.session(1, "holder").await;
    let (mut next, following) = cluster.session(2, "next").await;
    let (mut leaving, session) = cluster.session(3, "leaving").await;
    for round in 0..40 {
        let first = holder.acquire(holding.id(), "lock").await.unwrap();
        let mut connection = Connection::connect(&cluster.http(3)).await.unwrap();
        let wish = json!({ "session": session.id(), "wait_ms": null, "request_id": request_id() });
        let body = wish.to_string();
        let wait = tokio::spawn(async move { connection.send("POST", PATH, &body).await });
        cluster.wait_queued(1, "lock", 1).await;
        let hang_up = async {
            tokio::time::sleep(Duration::from_micros(50 * (round % 20))).await;
            wait.abort();
        };
        let (released, ()) = tokio::join!(holder.release(holding.id(), &first), hang_up);
        released.unwrap();
        // A retry returns the grant if the lock was granted before the connection closed; otherwise a retry
        // without a wait leaves no contender.
        let mut again = wish.clone();
        (again["wait_ms"], again["retry"]) = (json!(0), json!(1));
        let answer = cluster.send(3, "POST", PATH, &again).await;
        if answer.status == 200 {
            let granted = held("lock", &answer);
            leaving.release(session.id(), &granted).await.unwrap();
        } else {
            assert!(
                ["lock_busy", "lock_timeout"].contains(&answer.code().as_str()),
                "{}",
                answer.json()
            );
        }
        let granted = tokio::time::timeout(TIMEOUT, next.acquire(following.id(), "lock"));
        let granted = granted.await.expect("no contender blocks the lock").unwrap();
        assert!(granted.fencing_token > first.fencing_token);
        next.release(following.id(), &granted).await.unwrap();
    }
    let answer = cluster
        .send(1, "POST", PATH, &json!({ "session": holding.id() }))
        .await;
    let last = held("lock", &answer);
    // Late releases of unknown holders are rejected and change nothing.
    for (session, holder) in [
        (session.id(), last.holder.as_str()),
        ("0", "x"),
        (holding.id(), "y"),
    ] {
        let late = json!({ "session": session, "holder": holder });
        let late = cluster.send(2, "POST", "/v1/locks/lock/release", &late).await;
        assert!([404, 409].contains(&late.status), "{}", late.json());
    }
    assert!(holder.check(&last).await.unwrap());
}
