//! Expiry of sessions: a silent client loses its locks, not before its timeout, and not long after it.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::harness::{TestCluster, allowance, eventually, held};

/// Minimum timeout that the server allows.
const TTL: Duration = Duration::from_secs(2);

#[tokio::test]
async fn silent_client_loses_its_lock_in_time_to_the_next_waiter() {
    let cluster = TestCluster::start().await;
    let mut silent = cluster.client(1);
    let (mut next, next_session) = cluster.session(2, "next").await;
    // The session's timeout begins no earlier than this.
    let opened = Instant::now();
    let session = silent.open_session(TTL, "silent").await.unwrap();
    let lost = silent.acquire(&session, "inheritance").await.unwrap();

    let granted = next.acquire(next_session.id(), "inheritance").await.unwrap();
    let waited = opened.elapsed();
    assert!(waited >= TTL, "the lock was taken away after {waited:?}");
    assert!(
        waited <= TTL + allowance(),
        "the lock was still held after {waited:?}"
    );
    assert!(granted.fencing_token > lost.fencing_token);

    assert!(!silent.check(&lost).await.unwrap());
    assert_eq!(
        silent.heartbeat(&session).await.unwrap_err().code(),
        "session_expired"
    );
    assert_eq!(
        silent.release(&session, &lost).await.unwrap_err().code(),
        "session_expired"
    );
}

#[tokio::test]
async fn lock_delay_is_not_restarted_by_a_leader_change() {
    const DELAY: Duration = Duration::from_secs(8);
    const COUNTED: Duration = Duration::from_secs(6);
    let mut cluster = TestCluster::start().await;
    let leader = cluster.leader_now().await;
    let survivors = cluster.followers().await;
    let mut silent = cluster.client_of(survivors[0]);
    let (mut next, next_session) = cluster.session(survivors[1], "next").await;
    let opened = Instant::now();
    let session = silent.open_session(TTL, "silent").await.unwrap();
    let wish = json!({ "session": session, "lock_delay_ms": DELAY.as_millis() as u64 });
    let path = "/v1/locks/inheritance/acquire";
    let lost = cluster.send(survivors[0], "POST", path, &wish).await;
    let lost = held("inheritance", &lost);

    let closed = async || cluster.get(survivors[0], "/v1/locks/inheritance").await["closed"].clone();
    eventually("the lock is closed", async || closed().await.is_object()).await;
    let begun = Instant::now();
    eventually("the time is counted", async || {
        closed().await["passed_ms"].as_u64() >= Some(COUNTED.as_millis() as u64)
    })
    .await;
    cluster.kill(leader).await.unwrap();
    let granted = next.acquire(next_session.id(), "inheritance").await.unwrap();
    let (since_opened, since_begun) = (opened.elapsed(), begun.elapsed());
    assert!(
        since_opened >= TTL + DELAY,
        "the lock was closed for too short: {since_opened:?}"
    );
    // If the new leader restarted the delay, it would take another eight seconds after the six.
    assert!(
        since_begun < DELAY + COUNTED,
        "the lock was closed for too long: {since_begun:?}"
    );
    assert!(granted.fencing_token > lost.fencing_token);
}

#[tokio::test]
async fn heartbeats_at_any_node_keep_the_lock() {
    let cluster = TestCluster::start().await;
    let mut keeper = cluster.client(1);
    let session = keeper.open_session(TTL, "keeper").await.unwrap();
    let held = keeper.acquire(&session, "kept").await.unwrap();
    let begin = Instant::now();
    let mut beats = tokio::time::interval(TTL / 4);
    // Two and a half timeouts, at one node after the other.
    for node in [1, 2, 3, 1, 2, 3, 1, 2, 3, 1] {
        beats.tick().await;
        cluster.client_of(node).heartbeat(&session).await.unwrap();
    }
    assert!(begin.elapsed() > TTL * 2);
    assert!(keeper.check(&held).await.unwrap());
}

#[tokio::test]
async fn new_leader_grants_every_session_its_full_ttl() {
    let mut cluster = TestCluster::start().await;
    let leader = cluster.leader_now().await;
    let survivors = cluster.followers().await;
    let mut silent = cluster.client_of(survivors[0]);
    let (mut next, next_session) = cluster.session(survivors[1], "next").await;
    let session = silent.open_session(TTL, "silent").await.unwrap();
    let lost = silent.acquire(&session, "inheritance").await.unwrap();
    let killed = Instant::now();
    cluster.kill(leader).await.unwrap();
    let granted = next.acquire(next_session.id(), "inheritance").await.unwrap();
    let waited = killed.elapsed();
    assert!(
        waited >= TTL,
        "the new leader took the lock away after {waited:?}"
    );
    // The election precedes the session's new timeout.
    assert!(
        waited <= TTL * 2 + allowance(),
        "the lock was still held after {waited:?}"
    );
    assert!(granted.fencing_token > lost.fencing_token);
}
