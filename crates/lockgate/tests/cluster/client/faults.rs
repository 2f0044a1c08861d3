//! The client while servers die, stall, or lose connections.

use std::time::Duration;

use lock_client::{AcquireOptions, Error, LockClient, Loss, SessionState};
use nix::sys::signal::Signal;
use tokio::time::Instant;

use super::proxy::Proxy;
use super::{BRISK_TTL, SHORT_TTL};
use crate::harness::{TIMEOUT, TestCluster, eventually};

/// Starts a proxy for each node, and a client that has only their addresses.
async fn through_proxies(cluster: &TestCluster) -> (Vec<Proxy>, LockClient) {
    let mut proxies = Vec::new();
    for address in cluster.http_addresses() {
        proxies.push(Proxy::start(address).await);
    }
    let client = LockClient::new(proxies.iter().map(Proxy::address)).unwrap();
    (proxies, client)
}

#[tokio::test]
async fn waiter_keeps_its_position_when_leaders_die_and_stall() {
    let mut cluster = TestCluster::start().await;
    let holder = cluster.lock_session("holder").await;
    let held = holder
        .acquire("place", AcquireOptions::exclusive())
        .await
        .unwrap();
    let mut waits = Vec::new();
    // More waiters than nodes, so that some wait at the leader.
    for number in 0..6 {
        let session = cluster.lock_client().session().open().await.unwrap();
        let wait = {
            let session = session.clone();
            tokio::spawn(async move { session.acquire("place", AcquireOptions::exclusive()).await })
        };
        cluster.wait_queued(1, "place", number + 1).await;
        waits.push((session, wait));
    }
    let client = cluster.lock_client();
    let order = async || {
        let view = client.lock("place").await.unwrap().unwrap();
        view.queue
            .into_iter()
            .map(|waiter| waiter.holder)
            .collect::<Vec<_>>()
    };
    let before = order().await;
    let leader = cluster.leader_now().await;
    cluster.kill(leader).await.unwrap();
    assert_eq!(order().await, before, "the death of the leader moves no waiter");
    // The next leader is only stopped, and its waiters get no answer.
    cluster.up(crate::harness::TIMEOUT).await.unwrap();
    let leader = cluster.leader_now().await;
    cluster.signal(leader, Signal::SIGSTOP).unwrap();
    assert_eq!(order().await, before, "the stall of the leader moves no waiter");
    held.release().await.unwrap();
    for (expected, (session, wait)) in before.into_iter().zip(waits) {
        let guard = tokio::time::timeout(TIMEOUT, wait)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(guard.holder(), expected);
        assert!(
            guard.verify().await.unwrap(),
            "the grant of {expected} was revoked"
        );
        cluster.signal(leader, Signal::SIGCONT).unwrap();
        guard.release().await.unwrap();
        session.close().await.unwrap();
    }
    let last = client.lock("place").await.unwrap().unwrap();
    assert_eq!((last.holders, last.queue), (vec![], vec![]));
}

#[tokio::test]
async fn unreachable_client_learns_of_its_loss_before_the_next_grant() {
    let cluster = TestCluster::start().await;
    let (proxies, client) = through_proxies(&cluster).await;
    let session = client.session().ttl(SHORT_TTL).open().await.unwrap();
    let guard = session
        .acquire("heir", AcquireOptions::exclusive())
        .await
        .unwrap();
    let heir = cluster.lock_session("heir").await;
    let inherited = tokio::spawn(async move {
        let guard = heir.acquire("heir", AcquireOptions::exclusive()).await.unwrap();
        (Instant::now(), guard)
    });
    cluster.wait_queued(1, "heir", 1).await;
    let mut changes = session.state_changes();
    let silent_from = Instant::now();
    for proxy in &proxies {
        proxy.block();
    }
    changes
        .wait_for(|standing| *standing == SessionState::Uncertain)
        .await
        .unwrap();
    assert!(guard.check().is_ok(), "uncertain is not lost");
    assert_eq!(guard.lost().await, Loss::NoHeartbeat);
    let notified = Instant::now();
    assert_eq!(guard.check(), Err(Error::Lost(Loss::NoHeartbeat)));
    assert_eq!(*changes.borrow(), SessionState::Lost(Loss::NoHeartbeat));
    let (granted, other) = tokio::time::timeout(TIMEOUT, inherited).await.unwrap().unwrap();
    assert!(
        notified < granted,
        "another session had the lock {:?} before its holder was notified",
        notified - granted
    );
    assert!(
        notified - silent_from <= SHORT_TTL,
        "{:?}",
        notified - silent_from
    );
    println!(
        "notified {:?} after the network was cut, another session had the lock {:?} later",
        notified - silent_from,
        granted - notified
    );
    // When the network is back, the lock stays lost, and the late release has no effect.
    for proxy in &proxies {
        proxy.unblock();
    }
    assert_eq!(guard.release().await, Err(Error::Lost(Loss::NoHeartbeat)));
    assert!(other.verify().await.unwrap());
    let again = session
        .acquire("heir", AcquireOptions::exclusive())
        .await
        .unwrap_err();
    assert_eq!(again, Error::Lost(Loss::NoHeartbeat));
}

#[tokio::test]
async fn broken_connections_during_an_acquire_leave_one_contender() {
    let cluster = TestCluster::start().await;
    let (proxies, client) = through_proxies(&cluster).await;
    let holder = cluster.lock_session("holder").await;
    let held = holder.acquire("once", AcquireOptions::exclusive()).await.unwrap();
    let session = client.session().open().await.unwrap();
    let wait = {
        let session = session.clone();
        tokio::spawn(async move { session.acquire("once", AcquireOptions::exclusive()).await })
    };
    cluster.wait_queued(1, "once", 1).await;
    for round in 0..20 {
        let before: u64 = proxies.iter().map(Proxy::connections).sum();
        for proxy in &proxies {
            proxy.cut();
        }
        eventually("the client connects again", async || {
            proxies.iter().map(Proxy::connections).sum::<u64>() > before
        })
        .await;
        let view = cluster.lock_client().lock("once").await.unwrap().unwrap();
        assert!(view.queue.len() <= 1, "round {round}: {:?}", view.queue);
    }
    cluster.wait_queued(1, "once", 1).await;
    held.release().await.unwrap();
    let guard = tokio::time::timeout(TIMEOUT, wait)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(guard.hold_count(), 1);
    // The guard keeps the lock, although servers notice later that earlier connections have ended.
    let view = cluster.lock_client().lock("once").await.unwrap().unwrap();
    assert_eq!(
        (view.holders.len(), view.queue.len(), view.holders[0].holds),
        (1, 0, 1)
    );
    guard.release().await.unwrap();

    // A cancelled acquire whose connections broke leaves no contender.
    let held = holder.acquire("once", AcquireOptions::exclusive()).await.unwrap();
    let wait = {
        let session = session.clone();
        tokio::spawn(async move { session.acquire("once", AcquireOptions::exclusive()).await })
    };
    cluster.wait_queued(1, "once", 1).await;
    for proxy in &proxies {
        proxy.block();
    }
    wait.abort();
    assert!(wait.await.unwrap_err().is_cancelled());
    for proxy in &proxies {
        proxy.cut();
        proxy.unblock();
    }
    cluster.wait_queued(1, "once", 0).await;
    held.release().await.unwrap();
    // The client's withdrawal may arrive after the server has noticed the broken connection: the contender
    // then waits for one more millisecond, and a grant in that time is released.
    eventually("the lock has no holder and no waiter", async || {
        let view = cluster.lock_client().lock("once").await.unwrap().unwrap();
        view.holders.is_empty() && view.queue.is_empty()
    })
    .await;
}

#[tokio::test]
async fn ended_session_is_lost_at_once() {
    let cluster = TestCluster::start().await;
    let client = cluster.lock_client();
    let session = client.session().ttl(BRISK_TTL).open().await.unwrap();
    let guard = session
        .acquire("ended", AcquireOptions::exclusive())
        .await
        .unwrap();
    let waiting = {
        let (session, other) = (session.clone(), cluster.lock_session("other").await);
        let blocker = other
            .acquire("blocked", AcquireOptions::exclusive())
            .await
            .unwrap();
        let wait = tokio::spawn(async move { session.acquire("blocked", AcquireOptions::exclusive()).await });
        cluster.wait_queued(1, "blocked", 1).await;
        (other, blocker, wait)
    };
    // As an operator would, or a program with the session's id.
    let path = format!("/v1/sessions/{}", session.id());
    let closed = cluster.send(1, "DELETE", &path, &serde_json::Value::Null).await;
    assert_eq!(closed.status, 204);
    let (_other, _blocker, wait) = waiting;
    assert_eq!(wait.await.unwrap().unwrap_err(), Error::Lost(Loss::Expired));
    assert_eq!(guard.lost().await, Loss::Expired);
    assert_eq!(guard.release().await, Err(Error::Lost(Loss::Expired)));
    assert_eq!(session.state(), SessionState::Lost(Loss::Expired));
    session.close().await.unwrap();
}

#[tokio::test]
async fn refused_unavailable_and_unknown_are_distinct_errors() {
    let mut cluster = TestCluster::start().await;
    let client = || {
        LockClient::builder(cluster.http_addresses())
            .patience(Duration::from_secs(1))
            .build()
            .unwrap()
    };
    let refused = client().znodes().get("/nowhere").await.unwrap_err();
    assert!(matches!(refused, Error::Refused(_)), "{refused:?}");
    // Another client: a request over a connection that just breaks may have arrived.
    let client = client();
    cluster.kill_all().await.unwrap();
    let nobody = client.session().open().await.unwrap_err();
    assert!(matches!(nobody, Error::Unavailable(_)), "{nobody:?}");
    // A server that accepts a request and never answers.
    let proxy = Proxy::start(cluster.http(1)).await;
    proxy.block();
    let client = LockClient::builder([proxy.address()])
        .patience(Duration::from_millis(300))
        .answer_timeout(Duration::from_millis(100))
        .build()
        .unwrap();
    let unknown = client
        .znodes()
        .create("/a", "", lock_client::CreateMode::Persistent, false)
        .await;
    assert!(matches!(unknown, Err(Error::Unknown(_))), "{unknown:?}");
    // A read changes nothing, so its outcome is not unknown.
    let silent = client.znodes().get("/a").await;
    assert!(matches!(silent, Err(Error::Unavailable(_))), "{silent:?}");
}
