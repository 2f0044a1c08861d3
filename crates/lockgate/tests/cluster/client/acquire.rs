//! Locks in every mode, and every end of an acquire.

use std::time::Duration;

use lock_client::{AcquireOptions, Code, CreateMode, Error, Loss, Mode, Transaction};

use crate::harness::{TIMEOUT, TestCluster, eventually};

#[tokio::test]
async fn every_mode_is_granted_and_released() {
    let cluster = TestCluster::start().await;
    let (first, second) = (
        cluster.lock_session("first").await,
        cluster.lock_session("second").await,
    );
    let client = cluster.lock_client();

    // Names that need encoding, or end like an action.
    for name in ["orders/42", "a b?c#d%/ü", "orders/acquire", "check", "graph"] {
        let guard = first
            .acquire(name, AcquireOptions::exclusive().note("mine"))
            .await
            .unwrap();
        assert_eq!(
            (guard.lock(), guard.mode(), guard.hold_count()),
            (name, Mode::Exclusive, 1)
        );
        assert!(guard.verify().await.unwrap() && guard.check().is_ok());
        let busy = second
            .acquire(name, AcquireOptions::exclusive().try_only())
            .await
            .unwrap_err();
        assert!(busy.is(Code::LockBusy) && busy.is_not_free(), "{busy:?}");
        let wait = AcquireOptions::shared().wait_at_most(Duration::from_millis(50));
        let timeout = second.acquire(name, wait).await.unwrap_err();
        assert!(timeout.is(Code::LockTimeout), "{timeout:?}");
        let view = client.lock(name).await.unwrap().unwrap();
        assert_eq!((view.holders[0].note.as_str(), view.queue.len()), ("mine", 0));
        let token = guard.fencing_token();
        assert_eq!(guard.release().await.unwrap(), 0);
        let next = second
            .acquire(name, AcquireOptions::exclusive().try_only())
            .await
            .unwrap();
        assert!(next.fencing_token() > token);
        next.release().await.unwrap();
    }

    let reader = first.acquire("book", AcquireOptions::shared()).await.unwrap();
    let other = second.acquire("book", AcquireOptions::shared()).await.unwrap();
    assert_eq!(other.mode(), Mode::Shared);
    let writer = first
        .acquire("book", AcquireOptions::exclusive().try_only())
        .await;
    assert!(writer.unwrap_err().is(Code::LockBusy));
    reader.release().await.unwrap();
    other.release().await.unwrap();

    let take = |permits| {
        AcquireOptions::semaphore(10)
            .permits(permits)
            .wait_at_most(Duration::from_millis(50))
    };
    let five = first.acquire("pool", take(5)).await.unwrap();
    let one = first.acquire("pool", take(1)).await.unwrap();
    assert_eq!(
        (five.permits(), one.permits(), five.mode()),
        (5, 1, Mode::Semaphore)
    );
    assert!(
        second
            .acquire("pool", take(5))
            .await
            .unwrap_err()
            .is(Code::LockTimeout)
    );
    one.release().await.unwrap();
    let more = second.acquire("pool", take(5)).await.unwrap();
    let conflict = second
        .acquire("pool", AcquireOptions::semaphore(9).try_only())
        .await;
    assert!(conflict.unwrap_err().is(Code::ModeConflict));
    let names: Vec<String> = client
        .locks("po")
        .await
        .unwrap()
        .into_iter()
        .map(|lock| lock.lock)
        .collect();
    assert_eq!(names, ["pool"]);
    let sessions = client.sessions().await.unwrap();
    let holding = sessions.iter().find(|session| session.name == "second").unwrap();
    assert_eq!(
        holding.held.iter().map(|place| &*place.lock).collect::<Vec<_>>(),
        ["pool"]
    );
    drop((five, more));
    second.close().await.unwrap();
    first.close().await.unwrap();
    assert_eq!(client.sessions().await.unwrap(), []);
}

#[tokio::test]
async fn owner_reenters_and_other_owners_of_its_session_do_not() {
    let cluster = TestCluster::start().await;
    let session = cluster.lock_session("one").await;
    let again = || AcquireOptions::exclusive().reentrant("task 1").try_only();
    let outer = session.acquire("job", again()).await.unwrap();
    let inner = session.acquire("job", again()).await.unwrap();
    assert_eq!((outer.hold_count(), inner.hold_count()), (1, 2));
    assert_eq!(
        (outer.holder(), outer.fencing_token()),
        (inner.holder(), inner.fencing_token())
    );
    let stranger = session
        .acquire("job", AcquireOptions::exclusive().try_only())
        .await;
    assert!(stranger.unwrap_err().is(Code::LockBusy));
    // A writer may also read, a reader may not also write.
    let read = session
        .acquire("job", AcquireOptions::shared().reentrant("task 1"))
        .await
        .unwrap();
    assert_eq!(read.release().await.unwrap(), 2);
    assert_eq!(inner.release().await.unwrap(), 1);
    assert!(outer.verify().await.unwrap());
    assert_eq!(outer.release().await.unwrap(), 0);
    let reader = session
        .acquire("job", AcquireOptions::shared().reentrant("task 2"))
        .await
        .unwrap();
    let upgrade = session
        .acquire("job", AcquireOptions::exclusive().reentrant("task 2"))
        .await;
    assert!(upgrade.unwrap_err().is(Code::WouldDeadlock));
    reader.release().await.unwrap();
}

#[tokio::test]
async fn dropped_acquire_leaves_the_queue_and_dropped_guard_releases() {
    let cluster = TestCluster::start().await;
    let (holder, waiter) = (
        cluster.lock_session("holder").await,
        cluster.lock_session("waiter").await,
    );
    let guard = holder.acquire("door", AcquireOptions::exclusive()).await.unwrap();
    let wait = {
        let waiter = waiter.clone();
        tokio::spawn(async move { waiter.acquire("door", AcquireOptions::exclusive()).await })
    };
    cluster.wait_queued(1, "door", 1).await;
    wait.abort();
    cluster.wait_queued(1, "door", 0).await;
    // The next waiter is not delayed by the one that left.
    let next = {
        let waiter = waiter.clone();
        tokio::spawn(async move { waiter.acquire("door", AcquireOptions::exclusive()).await })
    };
    cluster.wait_queued(1, "door", 1).await;
    drop(guard);
    let next = tokio::time::timeout(TIMEOUT, next)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    // A release that is dropped halfway is made all the same, and once.
    let outer = waiter
        .acquire("twice", AcquireOptions::exclusive().reentrant("a"))
        .await
        .unwrap();
    let inner = waiter
        .acquire("twice", AcquireOptions::exclusive().reentrant("a"))
        .await
        .unwrap();
    let mut release = Box::pin(inner.release());
    assert!(futures_util::poll!(&mut release).is_pending());
    drop(release);
    eventually("one hold is released", async || {
        cluster
            .lock_client()
            .lock("twice")
            .await
            .unwrap()
            .unwrap()
            .holders[0]
            .holds
            == 1
    })
    .await;
    assert!(outer.verify().await.unwrap() && !outer.is_lost());
    assert_eq!(outer.release().await.unwrap(), 0);
    assert!(next.verify().await.unwrap());
}

#[tokio::test]
async fn broken_lock_is_lost_and_guarded_writes_need_the_lock() {
    let cluster = TestCluster::start().await;
    let client = cluster.lock_client();
    let session = client.session().ttl(super::BRISK_TTL).open().await.unwrap();
    let guard = session
        .acquire("ledger", AcquireOptions::exclusive())
        .await
        .unwrap();
    let kept = session
        .acquire("kept", AcquireOptions::exclusive())
        .await
        .unwrap();
    let znodes = session.znodes();
    znodes
        .create("/ledger", "0", CreateMode::Persistent, false)
        .await
        .unwrap();
    let write = |data: &str| Transaction::new().held(&guard).set("/ledger", data, None);
    znodes.commit(write("1")).await.unwrap();
    let lost = guard.lost();
    client
        .break_lock("ledger", guard.holder(), "maintenance")
        .await
        .unwrap();
    assert!(znodes.commit(write("2")).await.unwrap_err().is(Code::NotHolder));
    let broken = Loss::Broken {
        by: Some("ip:127.0.0.1".into()),
        reason: "maintenance".into(),
    };
    assert_eq!(tokio::time::timeout(TIMEOUT, lost).await.unwrap(), broken);
    assert_eq!(guard.check(), Err(Error::Lost(broken.clone())));
    assert_eq!(znodes.get("/ledger").await.unwrap().text(), Some("1"));
    assert_eq!(guard.release().await, Err(Error::Lost(broken)));
    assert!(!session.is_lost() && kept.check().is_ok());
}
