//! Programs that use `lock_client` over a cluster in memory.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on may say so shortly, also in its helpers"
)]

use std::time::Duration;

use lock_client::recipes::Election;
use lock_client::{
    AcquireOptions, Code, CreateMode, Error, LockSession, LockSet, Loss, Mode, Transaction, Wait, WatchKind,
    blocking,
};
use lock_client_fake::FakeCluster;
use tokio::time::timeout;

/// Maximum time of every wait.
const TIMEOUT: Duration = Duration::from_secs(30);

async fn session(cluster: &FakeCluster) -> LockSession {
    cluster.client().session().open().await.unwrap()
}

async fn wait_for_waiters(cluster: &FakeCluster, lock: &str, count: usize) {
    let client = cluster.client();
    let queued = async {
        while client.lock(lock).await.unwrap().map_or(0, |view| view.waiting()) != count {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, queued).await.unwrap();
}

#[tokio::test]
async fn waiter_gets_a_broken_lock_with_a_larger_token() {
    let cluster = FakeCluster::new();
    let (one, other) = (session(&cluster).await, session(&cluster).await);
    let guard = one.acquire("job", AcquireOptions::exclusive()).await.unwrap();
    let busy = other.acquire("job", AcquireOptions::exclusive().try_only()).await;
    assert!(busy.unwrap_err().is(Code::LockBusy));
    let bounded = AcquireOptions::exclusive().wait_at_most(Duration::from_millis(20));
    assert!(
        other
            .acquire("job", bounded)
            .await
            .unwrap_err()
            .is(Code::LockTimeout)
    );
    let waiter = tokio::spawn(async move {
        other
            .acquire("job", AcquireOptions::exclusive())
            .await
            .map(|guard| guard.fencing_token())
    });
    wait_for_waiters(&cluster, "job", 1).await;
    assert_eq!(cluster.break_lock("job", "test"), 1);
    let loss = timeout(TIMEOUT, guard.lost()).await.unwrap();
    assert!(
        matches!(&loss, Loss::Broken { reason, .. } if reason == "test"),
        "{loss:?}"
    );
    assert!(waiter.await.unwrap().unwrap() > guard.fencing_token());
}

#[tokio::test]
async fn expiry_of_sessions_frees_their_locks() {
    let cluster = FakeCluster::new();
    let lost = session(&cluster).await;
    let guards = [
        lost.acquire("a", AcquireOptions::shared()).await.unwrap(),
        lost.acquire("b", AcquireOptions::exclusive()).await.unwrap(),
    ];
    cluster.expire_sessions();
    for guard in &guards {
        assert_eq!(timeout(TIMEOUT, guard.lost()).await.unwrap(), Loss::Expired);
    }
    assert_eq!(
        lost.acquire("c", AcquireOptions::exclusive()).await.unwrap_err(),
        Error::Lost(Loss::Expired)
    );
    let next = session(&cluster).await;
    let _guard = next
        .acquire("b", AcquireOptions::exclusive().try_only())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_dropped_acquire_leaves_the_queue() {
    let cluster = FakeCluster::new();
    let (one, other) = (session(&cluster).await, session(&cluster).await);
    let guard = one.acquire("job", AcquireOptions::exclusive()).await.unwrap();
    let waiter = tokio::spawn(async move {
        let _ = other.acquire("job", AcquireOptions::exclusive()).await;
    });
    wait_for_waiters(&cluster, "job", 1).await;
    waiter.abort();
    wait_for_waiters(&cluster, "job", 0).await;
    guard.release().await.unwrap();
    let _guard = one
        .acquire("job", AcquireOptions::exclusive().try_only())
        .await
        .unwrap();
}

#[tokio::test]
async fn modes_follow_the_rules_of_a_cluster() {
    let cluster = FakeCluster::new();
    let session = session(&cluster).await;
    let mut writer = session
        .acquire("table", AcquireOptions::upgradeable())
        .await
        .unwrap();
    let reader = session.acquire("table", AcquireOptions::shared()).await.unwrap();
    assert!(writer.upgrade(Wait::Try).await.unwrap_err().is_not_free());
    let (upgraded, released) = tokio::join!(writer.upgrade(Wait::Forever), reader.release());
    upgraded.unwrap();
    released.unwrap();
    assert_eq!(writer.mode(), Mode::Exclusive);
    writer.downgrade().await.unwrap();
    let _reader = session
        .acquire("table", AcquireOptions::shared().try_only())
        .await
        .unwrap();

    let two = AcquireOptions::semaphore(3).permits(2).try_only();
    let permits = session.acquire("pool", two.clone()).await.unwrap();
    assert!(
        session
            .acquire("pool", two.clone())
            .await
            .unwrap_err()
            .is_not_free()
    );
    permits.release().await.unwrap();
    let _permits = session.acquire("pool", two).await.unwrap();

    let inner = AcquireOptions::exclusive().reentrant("task");
    let outer = session.acquire("own", inner.clone()).await.unwrap();
    assert_eq!(session.acquire("own", inner).await.unwrap().hold_count(), 2);
    drop(outer);

    let set = || {
        LockSet::new()
            .with("x", AcquireOptions::exclusive())
            .with("y", AcquireOptions::shared())
    };
    let both = session.acquire_all(set()).await.unwrap();
    assert!(
        session
            .acquire_all(set().try_only())
            .await
            .unwrap_err()
            .is_not_free()
    );
    both.release().await.unwrap();
    let _both = session.acquire_all(set().try_only()).await.unwrap();
}

#[tokio::test]
async fn holder_learns_of_a_release_request() {
    let cluster = FakeCluster::new();
    let session = session(&cluster).await;
    let guard = session.acquire("job", AcquireOptions::exclusive()).await.unwrap();
    assert_eq!(
        cluster.client().request_release("job", None, "please").await,
        Ok(1)
    );
    let asked = timeout(TIMEOUT, guard.release_requested()).await.unwrap();
    assert_eq!(asked.reason, "please");
    guard.answer("soon").await.unwrap();
    assert!(guard.verify().await.unwrap());
}

#[tokio::test]
async fn leases_are_renewed_and_released_by_their_key() {
    let cluster = FakeCluster::new();
    let (client, ttl) = (cluster.client(), Duration::from_secs(60));
    let lease = client
        .acquire_lease("job", ttl, AcquireOptions::exclusive().note("mine"))
        .await
        .unwrap();
    let other = cluster.client();
    assert!(
        other
            .acquire_lease("job", ttl, AcquireOptions::exclusive().try_only())
            .await
            .unwrap_err()
            .is_not_free()
    );
    let handle = other.lease(lease.key());
    assert_eq!(
        handle.renew(Some(2 * ttl)).await.unwrap().fencing_token(),
        lease.fencing_token()
    );
    let view = handle.get().await.unwrap();
    assert_eq!((view.note.as_str(), view.ttl_ms), ("mine", 120_000));
    let next = tokio::spawn(async move {
        client
            .acquire_lease("job", ttl, AcquireOptions::exclusive())
            .await
    });
    wait_for_waiters(&cluster, "job", 1).await;
    handle.release().await.unwrap();
    handle.release().await.unwrap();
    assert_eq!(
        handle.renew(None).await.unwrap_err(),
        Error::Lost(Loss::LeaseExpired)
    );
    assert!(next.await.unwrap().unwrap().fencing_token() > lease.fencing_token());
}

#[tokio::test]
async fn queued_lease_is_waited_for_by_its_key() {
    let cluster = FakeCluster::new();
    let (client, ttl) = (cluster.client(), Duration::from_secs(60));
    let first = client
        .queue_lease("job", ttl, AcquireOptions::exclusive())
        .await
        .unwrap();
    let token = first.wait(Wait::Try).await.unwrap().fencing_token();
    let second = client
        .queue_lease("job", ttl, AcquireOptions::exclusive())
        .await
        .unwrap();
    let other = cluster.client().lease(second.key());
    let late = other.wait(Wait::AtMost(Duration::from_millis(20))).await;
    assert!(late.unwrap_err().is(Code::LockTimeout));
    let waits = tokio::spawn(async move { other.wait(Wait::Forever).await });
    first.release().await.unwrap();
    let granted = timeout(TIMEOUT, waits).await.unwrap().unwrap().unwrap();
    assert!(granted.fencing_token() > token);
    second.release().await.unwrap();
    assert_eq!(
        second.wait(Wait::Forever).await.unwrap_err(),
        Error::Lost(Loss::LeaseExpired)
    );
}

#[tokio::test]
async fn many_leases_are_acquired_renewed_and_released_together() {
    let cluster = FakeCluster::new();
    let (client, ttl) = (cluster.client(), Duration::from_secs(60));
    let taken = client
        .acquire_lease("job-7", ttl, AcquireOptions::exclusive())
        .await
        .unwrap();
    let locks: Vec<String> = (0..200).map(|number| format!("job-{number}")).collect();
    let acquired = client
        .acquire_leases(&locks, ttl, AcquireOptions::exclusive())
        .await;
    assert_eq!(acquired.len(), locks.len());
    let (leases, refused): (Vec<_>, Vec<_>) = acquired.into_iter().partition(Result::is_ok);
    let leases: Vec<_> = leases.into_iter().map(Result::unwrap).collect();
    assert_eq!((leases.len(), leases[7].lock()), (199, "job-8"));
    assert!(refused[0].as_ref().unwrap_err().is_not_free());
    assert_eq!(client.stats().requests, 3, "two batches");
    assert_eq!((client.stats().acquired, client.stats().not_free), (200, 1));

    taken.release().await.unwrap();
    leases[0].check().unwrap();
    let keys: Vec<&str> = leases[..2].iter().map(|lease| lease.key()).collect();
    assert!(client.release_leases(&keys[..1]).await[0].is_ok());
    let renewed = client.renew_leases(&keys, Some(2 * ttl)).await;
    assert_eq!(renewed[0].as_ref().unwrap_err(), &Error::Lost(Loss::LeaseExpired));
    assert!(renewed[1].as_ref().unwrap().expires_in() > ttl);
    let all = leases.iter().map(|lease| lease.key());
    assert!(
        client.release_leases(all).await.iter().all(Result::is_ok),
        "a release may be repeated"
    );
}

#[tokio::test]
async fn leases_of_a_dropped_batch_are_released() {
    let cluster = FakeCluster::new();
    let client = cluster.client();
    let acquire = client.acquire_leases(["a", "b"], Duration::from_secs(60), AcquireOptions::exclusive());
    let mut acquire = Box::pin(acquire);
    assert!(futures_util::poll!(&mut acquire).is_pending());
    let acquired = async {
        while client.stats().acquired < 2 {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, acquired).await.unwrap();
    drop(acquire);
    let session = session(&cluster).await;
    for lock in ["a", "b"] {
        let waits = session.acquire(lock, AcquireOptions::exclusive());
        let _guard = timeout(TIMEOUT, waits).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn znodes_have_versions_watches_and_guarded_writes() {
    let cluster = FakeCluster::new();
    let session = session(&cluster).await;
    let znodes = session.znodes();
    let (path, stat) = znodes
        .create("/app/config", "1", CreateMode::Persistent, true)
        .await
        .unwrap();
    let later = cluster.client().znodes();
    let change = tokio::spawn(async move {
        later
            .watch_after("/app/config", WatchKind::Data, stat.mzxid)
            .await
    });
    assert!(
        znodes
            .set(&path, "2", Some(7))
            .await
            .unwrap_err()
            .is(Code::BadVersion)
    );
    assert_eq!(znodes.set(&path, [0xff], None).await.unwrap().version, 1);
    assert_eq!(
        timeout(TIMEOUT, change).await.unwrap().unwrap().unwrap().path,
        "/app/config"
    );
    assert_eq!(znodes.get(&path).await.unwrap().data, [0xff_u8].as_slice());
    znodes
        .create("/app/n-", "", CreateMode::EphemeralSequential, false)
        .await
        .unwrap();
    assert_eq!(znodes.children("/app").await.unwrap().len(), 2);

    let guard = session.acquire("job", AcquireOptions::exclusive()).await.unwrap();
    guard
        .write(Transaction::new().set("/app/config", "3", None))
        .await
        .unwrap();
    let index = match guard.write(Transaction::new().delete("/app", None)).await {
        Err(Error::Refused(refusal)) => refusal.facts["index"].as_u64(),
        other => panic!("{other:?}"),
    };
    assert_eq!(index, Some(0));
    cluster.break_lock("job", "test");
    let late = guard
        .write(Transaction::new().set("/app/config", "4", None))
        .await;
    assert!(matches!(late, Err(Error::Lost(_))), "{late:?}");
    session.close().await.unwrap();
    let znodes = cluster.client().znodes();
    assert_eq!(znodes.children("/app").await.unwrap().len(), 1);
    znodes.delete("/app", None, true).await.unwrap();
    assert_eq!(znodes.find("/app").await, Ok(None));
}

#[tokio::test]
async fn leadership_is_handed_over() {
    let cluster = FakeCluster::new();
    let first = Election::new(session(&cluster).await, "leader")
        .campaign("one")
        .await
        .unwrap();
    let second = Election::new(session(&cluster).await, "leader");
    let next = tokio::spawn(async move { second.campaign("two").await });
    wait_for_waiters(&cluster, "leader", 1).await;
    assert!(first.hand_over("two").await.unwrap().is_none());
    let _leadership = timeout(TIMEOUT, next).await.unwrap().unwrap().unwrap();
}

#[test]
fn blocking_programs_use_the_same_cluster() {
    let cluster = FakeCluster::new();
    let session = blocking::LockClient::from(cluster.client())
        .session()
        .open()
        .unwrap();
    let guard = session.acquire("job", AcquireOptions::exclusive()).unwrap();
    cluster.expire_sessions();
    assert!(guard.release().is_err());
}
