//! Many waiters of one lock: grants are in arrival order, and a release wakes one waiter.

use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;

use crate::harness::{TIMEOUT, TestCluster};

const WAITERS: usize = 100;

/// Time without a grant: an additional wake-up would come together with the expected one.
const QUIET: Duration = Duration::from_millis(20);

#[tokio::test]
async fn arrival_order_is_grant_order_and_a_release_wakes_exactly_one() {
    let cluster = TestCluster::start().await;
    let (mut holder, session) = cluster.session(1, "holder").await;
    let mut holding = holder.acquire(session.id(), "queue").await.unwrap();

    let (granted, mut grants) = mpsc::unbounded_channel();
    let mut sessions = Vec::new();
    for number in 0..WAITERS {
        // Spread over the nodes; each joins after the one before is in the queue.
        let (mut client, session) = cluster
            .session(1 + number as u64 % 3, &format!("waiter {number}"))
            .await;
        let (id, granted) = (session.id().to_owned(), granted.clone());
        tokio::spawn(async move {
            let held = client.acquire(&id, "queue").await;
            granted.send((number, held, client)).expect("the test listens");
        });
        cluster.wait_queued(1, "queue", number + 1).await;
        sessions.push(session);
    }

    let mut client = holder;
    let mut id = session.id().to_owned();
    for (expected, waiter) in sessions.iter().enumerate() {
        client.release(&id, &holding).await.unwrap();
        let (number, held, next) = tokio::time::timeout(TIMEOUT, grants.recv())
            .await
            .expect("a waiter is woken")
            .unwrap();
        let held = held.unwrap();
        assert_eq!(number, expected, "granted out of order");
        assert!(held.fencing_token > holding.fencing_token);
        let lock = cluster.get(2, "/v1/locks/queue").await;
        assert_eq!(lock["holders"].as_array().unwrap().len(), 1, "{lock}");
        assert_eq!(
            lock["queue"].as_array().unwrap().len(),
            WAITERS - 1 - expected,
            "{lock}"
        );
        assert!(grants.try_recv().is_err(), "a release woke more than one");
        (client, id, holding) = (next, waiter.id().to_owned(), held);
    }
    assert!(tokio::time::timeout(QUIET, grants.recv()).await.is_err());
}

#[tokio::test]
async fn readers_share_permits_add_up_and_writers_are_not_overtaken() {
    let cluster = TestCluster::start().await;
    let (mut first, first_session) = cluster.session(1, "first").await;
    let (mut second, second_session) = cluster.session(2, "second").await;
    let (mut third, third_session) = cluster.session(3, "third").await;

    let shared = json!({ "mode": "shared" });
    let reader = first
        .acquire_with(first_session.id(), "book", shared.clone())
        .await
        .unwrap();
    let other = second
        .acquire_with(second_session.id(), "book", shared.clone())
        .await
        .unwrap();
    let writer = {
        let id = third_session.id().to_owned();
        tokio::spawn(async move { third.acquire(&id, "book").await.map(|held| (held, third)) })
    };
    cluster.wait_queued(1, "book", 1).await;
    // A reader is compatible with the readers, but the writer is before it in the queue.
    let (mut late, late_session) = cluster.session(1, "late").await;
    let refused = late
        .acquire_with(late_session.id(), "book", shared)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), "lock_busy");
    first.release(first_session.id(), &reader).await.unwrap();
    assert!(!writer.is_finished());
    second.release(second_session.id(), &other).await.unwrap();
    let (written, mut third) = writer.await.unwrap().unwrap();
    assert!(written.fencing_token > other.fencing_token);
    third.release(third_session.id(), &written).await.unwrap();

    let two_of_three = json!({ "mode": "semaphore", "limit": 3, "permits": 2 });
    let one_of_three = json!({ "mode": "semaphore", "limit": 3 });
    let big = first
        .acquire_with(first_session.id(), "pool", two_of_three.clone())
        .await
        .unwrap();
    let busy = second
        .acquire_with(second_session.id(), "pool", two_of_three)
        .await
        .unwrap_err();
    assert_eq!(busy.code(), "lock_busy");
    second
        .acquire_with(second_session.id(), "pool", one_of_three)
        .await
        .unwrap();
    let conflict = third
        .acquire_with(
            third_session.id(),
            "pool",
            json!({ "mode": "semaphore", "limit": 4 }),
        )
        .await
        .unwrap_err();
    assert_eq!(conflict.code(), "mode_conflict");
    first.release(first_session.id(), &big).await.unwrap();
}

#[tokio::test]
async fn disconnected_waiter_leaves_the_queue() {
    let cluster = TestCluster::start().await;
    let (mut holder, session) = cluster.session(1, "holder").await;
    let held = holder.acquire(session.id(), "door").await.unwrap();
    let (mut waiter, waiting) = cluster.session(2, "waiter").await;
    let id = waiting.id().to_owned();
    let wait = tokio::spawn(async move { waiter.acquire(&id, "door").await });
    cluster.wait_queued(3, "door", 1).await;
    wait.abort();
    cluster.wait_queued(3, "door", 0).await;
    // The release does not wait for the waiter that left.
    holder.release(session.id(), &held).await.unwrap();
    let (mut next, next_session) = cluster.session(3, "next").await;
    next.acquire_with(next_session.id(), "door", json!({ "wait_ms": 0 }))
        .await
        .unwrap();
}
