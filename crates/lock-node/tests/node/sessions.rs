//! Sessions as clients see them, at every node.

use std::time::{Duration, Instant};

use lock_node::HeartbeatError;
use lock_node::znode_store::{Command, CreateMode, Identities, Request, SessionFate};

use crate::cluster::{Cluster, create, eventually, path};

const TTL: Duration = Duration::from_secs(2);

#[tokio::test]
async fn silent_session_expires_with_its_ephemerals_and_not_early() {
    let mut cluster = Cluster::start(3).await;
    let follower = cluster.follower().await;
    let node = cluster.node(follower).clone();
    let silent = node.open_session(Some(TTL), "silent", "", None).await.unwrap();
    let lively = node.open_session(Some(TTL), "lively", "", None).await.unwrap();
    assert_eq!(silent.timeout, TTL);
    let request = Request {
        session: Some(silent.session),
        request_id: None,
        caller: Identities::none(),
        command: create("/e", "", CreateMode::Ephemeral),
    };
    // The leader counts it at some later moment.
    let last_sent = Instant::now();
    assert!(node.propose(request).await.unwrap().outcome.is_ok());
    let there = || node.read(|store| store.get(&path("/e")).is_some());
    while there() {
        assert_eq!(node.heartbeat(lively.session).await, Ok(TTL));
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(last_sent.elapsed() < TTL * 5, "it should have expired long ago");
    }
    assert!(
        last_sent.elapsed() >= TTL,
        "it ended after {:?}",
        last_sent.elapsed()
    );
    assert_eq!(
        node.heartbeat(silent.session).await,
        Err(HeartbeatError::SessionEnded)
    );
    assert_eq!(
        node.read(|store| store.session_fate(lively.session)),
        SessionFate::Live
    );
    cluster.stop_all().await;
}

#[tokio::test]
async fn session_survives_a_failover() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let follower = cluster.follower().await;
    let node = cluster.node(follower).clone();
    let opened = node.open_session(Some(TTL), "", "", None).await.unwrap();
    cluster.stop(leader).await;
    let moved = Instant::now();
    while moved.elapsed() < TTL * 2 {
        // A failover takes less than the session's timeout.
        assert_eq!(node.heartbeat(opened.session).await, Ok(TTL));
        tokio::time::sleep(TTL / 10).await;
    }
    cluster.stop_all().await;
}

#[tokio::test]
async fn heartbeat_of_a_closed_session_reports_its_end() {
    let mut cluster = Cluster::start(3).await;
    let node = cluster.node(2).clone();
    let session = node.open_session(None, "", "", None).await.unwrap().session;
    let close = Request {
        session: None,
        request_id: None,
        caller: Identities::none(),
        command: Command::CloseSession { session },
    };
    assert!(node.propose(close).await.unwrap().outcome.is_ok());
    for node in cluster.nodes.values() {
        assert_eq!(node.heartbeat(session).await, Err(HeartbeatError::SessionEnded));
    }
    let never = lock_node::znode_store::SessionId(42);
    assert_eq!(node.heartbeat(never).await, Err(HeartbeatError::NoSession));
    eventually("the leader hears of others", || node.not_ready().is_none()).await;
    cluster.stop_all().await;
}
