//! Holder of a lock whose token is revoked.

use std::time::Duration;

use cli_support::http_client::request_as;
use lock_client::{AcquireOptions, Code, Error, LockClient, Loss};

use super::{assert_not_logged, client};
use crate::harness::{TestCluster, eventually};

/// Timeout of a session that expires soon after its last heartbeat.
const SHORT_TTL: Duration = Duration::from_secs(3);

#[tokio::test]
async fn revoked_token_is_rejected_and_its_locks_end_with_its_session() {
    let cluster = TestCluster::start_with_access().await;
    let admin = client(
        &cluster,
        cluster.credentials().token.clone().expect("it is secured"),
    );
    let access = admin.access();
    access
        .set_role("worker", &["lock,read:orders".parse().unwrap()])
        .await
        .unwrap();
    let made = access.create_token("worker", "", None).await.unwrap();
    let worker = client(&cluster, made.token.clone());
    let session = worker.session().ttl(SHORT_TTL).open().await.unwrap();
    let guard = session
        .acquire("orders/1", AcquireOptions::exclusive())
        .await
        .unwrap();

    access.revoke_token(&made.id).await.unwrap();
    // The next request fails, at any server and for any right.
    let unknown = |error: &Error| error.is(Code::Unauthenticated);
    let refused = session
        .acquire("orders/2", AcquireOptions::exclusive())
        .await
        .unwrap_err();
    assert!(unknown(&refused), "{refused:?}");
    let refused = worker.locks("").await.unwrap_err();
    assert!(unknown(&refused), "{refused:?}");
    for id in cluster.ids() {
        let mut credentials = cluster.credentials().clone();
        credentials.token = Some(made.token.clone());
        eventually("every node has applied the revocation", async || {
            let answer = request_as(&cluster.http(id), &credentials, "GET", "/v1/locks", "").await;
            answer.unwrap().status == 401
        })
        .await;
    }

    // Its lock is not broken, but no heartbeat of its session is accepted: the session expires like that of a
    // dead client, and both sides learn of it.
    assert_eq!(guard.lost().await, Loss::NoHeartbeat);
    let next = admin.session().open().await.unwrap();
    let granted = next
        .acquire("orders/1", AcquireOptions::exclusive())
        .await
        .unwrap();
    assert!(granted.fencing_token() > guard.fencing_token());
    let history = cluster.http(cluster.leader_now().await);
    let path = "/v1/locks/orders/1/history?limit=10";
    eventually("its end is in the history", async || {
        let answer = request_as(&history, cluster.credentials(), "GET", path, "")
            .await
            .unwrap();
        answer.json().to_string().contains("session_expired")
    })
    .await;
    let secret = made.token.expose().rsplit_once('_').unwrap().1.to_owned();
    assert_not_logged(cluster.nodes().map(|node| node.log_file()), [secret].iter());
}

#[tokio::test]
async fn a_wait_ends_when_the_certificate_of_its_caller_gets_a_role_without_the_lock() {
    const SUBJECT: &str = "CN=try-out";
    let cluster = TestCluster::start_with_access().await;
    let admin = client(
        &cluster,
        cluster.credentials().token.clone().expect("it is secured"),
    );
    let access = admin.access();
    for (role, grant) in [("worker", "lock,read:orders"), ("reader", "read:orders")] {
        access.set_role(role, &[grant.parse().unwrap()]).await.unwrap();
    }
    access.set_certificate(SUBJECT, "worker").await.unwrap();
    let tls = cluster.tls().expect("it has certificates").clone();
    let worker = LockClient::builder(cluster.http_addresses()).tls(tls);
    let worker = worker.build().unwrap();

    let holder = admin.session().open().await.unwrap();
    let guard = holder
        .acquire("orders/1", AcquireOptions::exclusive())
        .await
        .unwrap();
    let session = worker.session().open().await.unwrap();
    let waiting = tokio::spawn(async move {
        let granted = session.acquire("orders/1", AcquireOptions::exclusive()).await;
        granted.map(drop).unwrap_err()
    });
    let in_queue = async || {
        let view = admin.lock("orders/1").await.unwrap();
        view.expect("it is held").queue.len()
    };
    eventually("the worker waits", async || in_queue().await == 1).await;
    access.set_certificate(SUBJECT, "reader").await.unwrap();
    let refused = waiting.await.unwrap();
    assert!(refused.is(Code::Forbidden), "{refused:?}");
    eventually("its place is gone", async || in_queue().await == 0).await;
    guard.release().await.unwrap();
}
