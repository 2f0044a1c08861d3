//! Events that the client receives at once, long before its next heartbeat.

use std::time::Duration;

use lock_client::{AcquireOptions, LockClient, LockGuard, Loss};
use serde_json::json;
use tokio::time::Instant;

use crate::harness::{TIMEOUT, TestCluster};

/// Maximum timeout: no heartbeat is due before the test is over.
const LONGEST_TTL: Duration = Duration::from_secs(300);

/// Asserts that no heartbeat can have reported the event. Heartbeats are sent every third of the session's
/// timeout.
fn assert_before_next_heartbeat(begun: Instant) {
    let took = begun.elapsed();
    assert!(took < LONGEST_TTL / 4, "it took {took:?}: no stream reported it");
}

async fn lost(guard: &LockGuard, begun: Instant) -> Loss {
    let loss = tokio::time::timeout(TIMEOUT, guard.lost())
        .await
        .expect("the client is notified");
    assert_before_next_heartbeat(begun);
    loss
}

fn by() -> Option<String> {
    Some("ip:127.0.0.1".to_owned())
}

#[tokio::test]
async fn guard_is_notified_of_its_loss_at_once_also_when_servers_die() {
    let mut cluster = TestCluster::start().await;
    let client = cluster.lock_client();
    let session = client.session().ttl(LONGEST_TTL).open().await.unwrap();
    let begun = Instant::now();
    let acquire = async |lock: &str| session.acquire(lock, AcquireOptions::exclusive()).await.unwrap();

    let guard = acquire("broken").await;
    client
        .break_lock("broken", guard.holder(), "it hangs")
        .await
        .unwrap();
    let reason = "it hangs".to_owned();
    assert_eq!(lost(&guard, begun).await, Loss::Broken { by: by(), reason });

    let guard = acquire("deleted").await;
    let path = format!("/locks/deleted/{}", guard.holder());
    client.znodes().delete(&path, None, false).await.unwrap();
    assert_eq!(lost(&guard, begun).await, Loss::Deleted { by: by() });

    let guard = acquire("released").await;
    let body = json!({ "session": session.id(), "holder": guard.holder() });
    let released = cluster.send(2, "POST", "/v1/locks/released/release", &body).await;
    assert_eq!(released.status, 200);
    assert_eq!(lost(&guard, begun).await, Loss::Released);

    let guard = acquire("asked").await;
    client.request_release("asked", None, "noon").await.unwrap();
    let asked = tokio::time::timeout(TIMEOUT, guard.release_requested())
        .await
        .expect("the client is notified");
    assert_before_next_heartbeat(begun);
    assert_eq!(asked.reason, "noon");
    assert_eq!(guard.check().unwrap(), guard.fencing_token());

    // The server that streams the session's events dies; another one streams the later events.
    for id in cluster.ids() {
        let begun = Instant::now();
        let guard = acquire("moving").await;
        cluster.kill(id).await.unwrap();
        client
            .break_lock("moving", guard.holder(), "it moves")
            .await
            .unwrap();
        let reason = "it moves".to_owned();
        assert_eq!(lost(&guard, begun).await, Loss::Broken { by: by(), reason });
        cluster.up(TIMEOUT).await.unwrap();
    }
    session.close().await.unwrap();
}

#[tokio::test]
async fn heartbeats_report_losses_without_a_stream() {
    // Another client occupies all streams that the nodes allow.
    let cluster = TestCluster::start_with("[events]\nstreams_per_node = 1\n").await;
    let hog = cluster.lock_session("hog").await;
    let mut kept = Vec::new();
    for id in cluster.ids() {
        kept.push(hog_stream(&cluster.http(id), hog.id()).await);
    }
    let session = cluster
        .lock_client()
        .session()
        .ttl(Duration::from_secs(9))
        .open()
        .await
        .unwrap();
    let guard = session.acquire("job", AcquireOptions::exclusive()).await.unwrap();
    let client: LockClient = cluster.lock_client();
    client
        .break_lock("job", guard.holder(), "it hangs")
        .await
        .unwrap();
    let loss = tokio::time::timeout(TIMEOUT, guard.lost())
        .await
        .expect("the client is notified");
    assert_eq!(loss, Loss::TakenAway);
    drop(kept);
}

/// Opens a stream and keeps it.
async fn hog_stream(server: &str, session: &str) -> tokio::net::TcpStream {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut socket = tokio::net::TcpStream::connect(server).await.unwrap();
    let head = format!("GET /v1/sessions/{session}/events?heartbeat=false HTTP/1.0\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    socket.read_exact(&mut status).await.unwrap();
    assert!(status.ends_with(b"200"), "{status:?}");
    socket
}
