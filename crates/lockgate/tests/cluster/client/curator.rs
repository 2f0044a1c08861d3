//! Scenarios of Curator's own tests of its recipes, with the Rust client.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lock_client::{AcquireOptions, Code, LockSession, LockSet};
use tokio::task::JoinSet;

use crate::harness::{TIMEOUT, TestCluster};
use crate::limited_resource::LimitedResource;

/// Wait of an acquire that must time out: longer than a grant takes.
const SHORT: Duration = Duration::from_millis(200);

/// Opens sessions, each with a client of its own.
async fn sessions(cluster: &TestCluster, count: usize) -> Vec<LockSession> {
    let mut sessions = Vec::new();
    for number in 0..count {
        sessions.push(cluster.lock_session(&format!("client {number}")).await);
    }
    sessions
}

/// `InterProcessMutex`: five clients with ten rounds each; in each round the client reenters once.
#[tokio::test]
async fn five_clients_use_a_resource_in_turn_and_reenter() {
    let cluster = TestCluster::start().await;
    let resource = Arc::new(LimitedResource::default());
    let mut clients = JoinSet::new();
    for session in sessions(&cluster, 5).await {
        let resource = resource.clone();
        clients.spawn(async move {
            let mine = || AcquireOptions::exclusive().reentrant("main");
            for _ in 0..10 {
                let outer = session.acquire("resource", mine()).await.unwrap();
                let inner = session.acquire("resource", mine()).await.unwrap();
                assert_eq!((outer.hold_count(), inner.hold_count()), (1, 2));
                resource.use_it().await;
                assert_eq!(inner.release().await, Ok(1));
                // The outer hold still excludes others.
                resource.use_it().await;
                assert_eq!(outer.release().await, Ok(0));
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
    let session = cluster.lock_session("one").await;
    let acquire = || session.acquire("door", AcquireOptions::exclusive().wait_at_most(SHORT));
    let held = acquire().await.unwrap();
    let begin = Instant::now();
    assert!(acquire().await.unwrap_err().is(Code::LockTimeout));
    assert!(begin.elapsed() >= SHORT);
    held.release().await.unwrap();
    acquire().await.unwrap().release().await.unwrap();
}

/// `InterProcessReadWriteLock`: a writer may acquire the read lock, a reader may not acquire the write lock.
#[tokio::test]
async fn writer_may_read_and_reader_may_not_write() {
    let cluster = TestCluster::start().await;
    let (one, other) = (
        cluster.lock_session("one").await,
        cluster.lock_session("other").await,
    );
    let write = || AcquireOptions::exclusive().reentrant("main").wait_at_most(SHORT);
    let read = || AcquireOptions::shared().reentrant("main").wait_at_most(SHORT);

    let writing = one.acquire("book", write()).await.unwrap();
    let reading = one.acquire("book", read()).await.unwrap();
    assert!(
        other
            .acquire("book", read())
            .await
            .unwrap_err()
            .is(Code::LockTimeout)
    );
    reading.release().await.unwrap();
    // The writer becomes a reader without a release.
    let mut writing = writing;
    let token = writing.fencing_token();
    writing.downgrade().await.unwrap();
    let others = other.acquire("book", read()).await.unwrap();
    assert!(writing.check() == Ok(token) && others.fencing_token() > token);
    others.release().await.unwrap();
    writing.release().await.unwrap();

    let reading = one.acquire("book", read()).await.unwrap();
    assert!(
        one.acquire("book", write())
            .await
            .unwrap_err()
            .is(Code::WouldDeadlock)
    );
    assert!(reading.verify().await.unwrap(), "the rejection changes nothing");
    reading.release().await.unwrap();
}

/// Five clients with many reads and some writes: a writer is alone.
#[tokio::test]
async fn readers_read_together_and_writers_write_alone() {
    let cluster = TestCluster::start().await;
    let book = Arc::new((LimitedResource::default(), std::sync::atomic::AtomicUsize::new(0)));
    let mut clients = JoinSet::new();
    for (number, session) in sessions(&cluster, 5).await.into_iter().enumerate() {
        let book = book.clone();
        clients.spawn(async move {
            let (resource, readers) = &*book;
            for round in 0..10 {
                if (number + round) % 4 == 0 {
                    let guard = session
                        .acquire("book", AcquireOptions::exclusive())
                        .await
                        .unwrap();
                    assert_eq!(readers.load(Ordering::SeqCst), 0, "a reader holds the lock");
                    resource.use_it().await;
                    guard.release().await.unwrap();
                } else {
                    let guard = session.acquire("book", AcquireOptions::shared()).await.unwrap();
                    readers.fetch_add(1, Ordering::SeqCst);
                    assert!(!resource.is_used(), "a writer holds the lock");
                    tokio::task::yield_now().await;
                    readers.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            }
        });
    }
    while let Some(done) = tokio::time::timeout(TIMEOUT, clients.join_next()).await.unwrap() {
        done.unwrap();
    }
}

/// `InterProcessSemaphoreV2`: ten permits. Five and one are acquired, five more time out; after the one is
/// released, five are acquired.
#[tokio::test]
async fn permits_are_acquired_together_and_released() {
    let cluster = TestCluster::start().await;
    let session = cluster.lock_session("one").await;
    let take = |permits| {
        let options = AcquireOptions::semaphore(10).permits(permits).wait_at_most(SHORT);
        session.acquire("pool", options)
    };
    let five = take(5).await.unwrap();
    let one = take(1).await.unwrap();
    let begin = Instant::now();
    assert!(take(5).await.unwrap_err().is(Code::LockTimeout));
    assert!(begin.elapsed() >= SHORT);
    // The acquire that timed out holds none of the four free permits.
    let four = take(4).await.unwrap();
    four.release().await.unwrap();
    one.release().await.unwrap();
    let more = take(5).await.unwrap();
    assert_eq!((five.permits(), more.permits()), (5, 5));
    assert!(take(1).await.unwrap_err().is(Code::LockTimeout));
    drop((five, more));
    // Each of ten clients has one permit, which is released when its session ends.
    let clients = sessions(&cluster, 10).await;
    for client in &clients {
        let guard = client
            .acquire("pool", AcquireOptions::semaphore(10))
            .await
            .unwrap();
        // The session releases the permit, not the guard.
        std::mem::forget(guard);
    }
    assert!(take(1).await.unwrap_err().is(Code::LockTimeout));
    for client in clients {
        client.close().await.unwrap();
    }
    assert_eq!(take(10).await.unwrap().permits(), 10);
}

/// `InterProcessMultiLock` over an `InterProcessMutex` and an `InterProcessSemaphoreMutex`.
#[tokio::test]
async fn reentrant_and_plain_lock_are_acquired_all_or_nothing() {
    let cluster = TestCluster::start().await;
    let (one, other) = (
        cluster.lock_session("one").await,
        cluster.lock_session("other").await,
    );
    let both = || {
        LockSet::new()
            .with("reentrant", AcquireOptions::exclusive().reentrant(""))
            .with("once", AcquireOptions::exclusive())
            .owner("main")
            .wait_at_most(SHORT)
    };
    let guards = one.acquire_all(both()).await.unwrap();
    assert!(guards.check().is_ok());
    assert_eq!(guards.guards().len(), 2);
    // A second acquire of both: the reentrant lock would be granted again, the other is not, so neither is.
    assert!(one.acquire_all(both()).await.unwrap_err().is_not_free());
    let view = cluster.lock_client().lock("reentrant").await.unwrap().unwrap();
    assert_eq!((view.holders.len(), view.holders[0].holds), (1, 1));
    // The other client gets neither of them, and leaves no waiter.
    assert!(other.acquire_all(both()).await.unwrap_err().is(Code::LockTimeout));
    guards.release().await.unwrap();
    for name in ["reentrant", "once"] {
        let view = cluster.lock_client().lock(name).await.unwrap().unwrap();
        assert_eq!((view.holders, view.queue), (vec![], vec![]), "{name}");
    }
    // One of the two is held by another client: the failed acquire leaves no contender.
    let taken = one.acquire("once", AcquireOptions::exclusive()).await.unwrap();
    assert!(other.acquire_all(both()).await.unwrap_err().is(Code::LockTimeout));
    let free = AcquireOptions::exclusive().try_only();
    one.acquire("reentrant", free)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    taken.release().await.unwrap();

    // Ten clients acquire two locks ten times, half of them in the opposite order.
    let resource = Arc::new(LimitedResource::default());
    let mut clients = JoinSet::new();
    for (number, session) in sessions(&cluster, 10).await.into_iter().enumerate() {
        let resource = resource.clone();
        clients.spawn(async move {
            let names = if number % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
            for _ in 0..10 {
                let set = names.iter().fold(LockSet::new(), |set, name| {
                    set.with(name, AcquireOptions::exclusive())
                });
                let guards = session.acquire_all(set).await.unwrap();
                resource.use_it().await;
                guards.release().await.unwrap();
            }
        });
    }
    while let Some(done) = tokio::time::timeout(TIMEOUT, clients.join_next()).await.unwrap() {
        done.unwrap();
    }
}
