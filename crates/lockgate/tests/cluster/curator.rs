//! Scenarios of Curator's own tests of its recipes, over bare HTTP; `client/curator.rs` has them with the
//! client library.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cli_support::api_client::{ApiClient, HeldLock};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::{TIMEOUT, TestCluster, assert_refused};
use crate::limited_resource::LimitedResource;

/// Wait of an acquire that must time out: longer than a grant takes.
const SHORT_MS: u64 = 200;

/// Asserts that an acquire times out, not before its wait is over.
async fn assert_times_out(client: &mut ApiClient, session: &str, lock: &str, mut wish: Value) {
    wish["wait_ms"] = SHORT_MS.into();
    let begin = Instant::now();
    let refused = client.acquire_with(session, lock, wish).await.unwrap_err();
    assert_eq!(refused.code(), "lock_timeout");
    assert!(begin.elapsed() >= Duration::from_millis(SHORT_MS));
}

/// `InterProcessMutex`: five clients with ten rounds each; in each round the client reenters once.
#[tokio::test]
async fn five_clients_use_a_resource_in_turn_and_reenter() {
    let cluster = TestCluster::start().await;
    let resource = Arc::new(LimitedResource::default());
    let mut clients = JoinSet::new();
    for number in 0..5 {
        let (mut client, session) = cluster.session(1 + number % 3, "client").await;
        let resource = resource.clone();
        let nodes = cluster.http_addresses();
        clients.spawn(async move {
            let id = session.id();
            let release = async |held: &HeldLock, left: u64| {
                let body = json!({ "session": id, "holder": held.holder }).to_string();
                let node = &nodes[number as usize % 3];
                let path = "/v1/locks/resource/release";
                let answer = cli_support::http_client::request(node, "POST", path, &body)
                    .await
                    .unwrap();
                assert_eq!(
                    (answer.status, answer.json()["holds"].as_u64()),
                    (200, Some(left))
                );
            };
            for _ in 0..10 {
                let outer = client.acquire(id, "resource").await.unwrap();
                // Granted at once: the client does not wait for itself.
                let inner = client.acquire_with(id, "resource", json!({})).await.unwrap();
                assert_eq!(inner, outer);
                resource.use_it().await;
                release(&inner, 1).await;
                // The outer hold still excludes others.
                resource.use_it().await;
                release(&outer, 0).await;
            }
        });
    }
    while let Some(done) = tokio::time::timeout(TIMEOUT, clients.join_next()).await.unwrap() {
        done.unwrap();
    }
}

/// `InterProcessSemaphoreMutex`: a second acquire by the holder waits like any other.
#[tokio::test]
async fn non_reentrant_lock_is_not_reentered() {
    let cluster = TestCluster::start().await;
    let (mut client, session) = cluster.session(1, "one").await;
    let wish = json!({ "reentrant": false });
    let held = client
        .acquire_with(session.id(), "door", wish.clone())
        .await
        .unwrap();
    assert_times_out(&mut client, session.id(), "door", wish.clone()).await;
    client.release(session.id(), &held).await.unwrap();
    client.acquire_with(session.id(), "door", wish).await.unwrap();
}

/// `InterProcessReadWriteLock`: a writer may acquire the read lock, a reader may not acquire the write lock.
#[tokio::test]
async fn writer_may_read_and_reader_may_not_write() {
    let cluster = TestCluster::start().await;
    let (mut one, mine) = cluster.session(1, "one").await;
    let (mut other, theirs) = cluster.session(2, "other").await;
    let (write, read) = (json!({ "mode": "exclusive" }), json!({ "mode": "shared" }));

    let writing = one.acquire_with(mine.id(), "book", write.clone()).await.unwrap();
    let reading = one.acquire_with(mine.id(), "book", read.clone()).await.unwrap();
    assert_times_out(&mut other, theirs.id(), "book", read.clone()).await;
    one.release(mine.id(), &reading).await.unwrap();
    // The writer becomes a reader without a release.
    let downgrade = json!({ "session": mine.id(), "holder": writing.holder });
    let reads = cluster
        .send(1, "POST", "/v1/locks/book/downgrade", &downgrade)
        .await;
    assert_eq!(
        (reads.status, reads.json()["mode"].as_str()),
        (200, Some("shared"))
    );
    let others = other
        .acquire_with(theirs.id(), "book", read.clone())
        .await
        .unwrap();
    assert!(one.check(&writing).await.unwrap() && others.fencing_token > writing.fencing_token);
    other.release(theirs.id(), &others).await.unwrap();
    one.release(mine.id(), &writing).await.unwrap();

    let reading = one.acquire_with(mine.id(), "book", read).await.unwrap();
    let refused = one.acquire_with(mine.id(), "book", write).await.unwrap_err();
    assert_eq!(refused.code(), "would_deadlock");
    assert!(
        one.check(&reading).await.unwrap(),
        "the rejection changes nothing"
    );
}

/// `InterProcessSemaphoreV2`: ten permits. Five and one are acquired, five more time out; after the one is
/// released, five are acquired.
#[tokio::test]
async fn permits_are_acquired_together_and_released() {
    let cluster = TestCluster::start().await;
    let (mut client, session) = cluster.session(1, "one").await;
    let permits = |permits: u64| json!({ "mode": "semaphore", "limit": 10, "permits": permits });
    client
        .acquire_with(session.id(), "pool", permits(5))
        .await
        .unwrap();
    let one = client
        .acquire_with(session.id(), "pool", permits(1))
        .await
        .unwrap();
    assert_times_out(&mut client, session.id(), "pool", permits(5)).await;
    // The acquire that timed out holds none of the four free permits.
    let four = client
        .acquire_with(session.id(), "pool", permits(4))
        .await
        .unwrap();
    client.release(session.id(), &four).await.unwrap();
    client.release(session.id(), &one).await.unwrap();
    client
        .acquire_with(session.id(), "pool", permits(5))
        .await
        .unwrap();
    assert_times_out(&mut client, session.id(), "pool", permits(1)).await;
}

/// `InterProcessMultiLock` over an `InterProcessMutex` and an `InterProcessSemaphoreMutex`.
#[tokio::test]
async fn reentrant_and_plain_lock_are_acquired_all_or_nothing() {
    const ACQUIRE: &str = "/v1/multilock/acquire";
    let cluster = TestCluster::start().await;
    let (_client, one) = cluster.session(1, "one").await;
    let (_client, other) = cluster.session(2, "other").await;
    let both = |session: &str| {
        let locks = json!([{ "name": "reentrant" }, { "name": "once", "reentrant": false }]);
        json!({ "session": session, "locks": locks, "wait_ms": SHORT_MS })
    };
    let granted = cluster.send(1, "POST", ACQUIRE, &both(one.id())).await;
    assert_eq!(granted.status, 200, "{}", granted.json());
    // A second acquire of both: the reentrant lock would be granted again, the other is not, so neither is.
    let again = cluster.send(1, "POST", ACQUIRE, &both(one.id())).await;
    assert!(again.status == 409, "{}", again.json());
    let view = cluster.get(1, "/v1/locks/reentrant").await;
    assert_eq!(view["holders"].as_array().unwrap().len(), 1);
    assert_eq!(view["holders"][0]["holds"], 1);
    // The other client gets neither of them, and leaves no waiter.
    let refused = cluster.send(2, "POST", ACQUIRE, &both(other.id())).await;
    assert_refused(&refused, 409, "lock_timeout");
    let holders: Vec<Value> = granted.json()["holders"]
        .as_array()
        .unwrap()
        .iter()
        .map(|held| json!({ "lock": held["lock"], "holder": held["holder"] }))
        .collect();
    let release = json!({ "session": one.id(), "holders": holders });
    let released = cluster.send(3, "POST", "/v1/multilock/release", &release).await;
    assert_eq!(released.status, 200, "{}", released.json());
    for name in ["reentrant", "once"] {
        let view = cluster.get(1, &format!("/v1/locks/{name}")).await;
        assert_eq!(
            (&view["holders"], &view["queue"]),
            (&json!([]), &json!([])),
            "{name}"
        );
    }
    // One of the two is held by another client: the failed acquire leaves no contender.
    let taken = json!({ "session": one.id(), "reentrant": false });
    assert_eq!(
        cluster
            .send(1, "POST", "/v1/locks/once/acquire", &taken)
            .await
            .status,
        200
    );
    let refused = cluster.send(2, "POST", ACQUIRE, &both(other.id())).await;
    assert_refused(&refused, 409, "lock_timeout");
    let free = json!({ "session": one.id() });
    assert_eq!(
        cluster
            .send(1, "POST", "/v1/locks/reentrant/acquire", &free)
            .await
            .status,
        200
    );
}
