//! Leases by the client library.

use std::time::Duration;

use lock_client::{AcquireOptions, Code, Error, LockClient, Loss};

use super::proxy::Proxy;
use super::{BRISK_TTL, SHORT_TTL};
use crate::harness::{LONG_TTL, TIMEOUT, TestCluster};

/// Name of the lock.
const LOCK: &str = "reports/nightly";

const EXPIRED: Error = Error::Lost(Loss::LeaseExpired);

#[tokio::test]
async fn lease_continues_in_another_process_by_its_key() {
    let cluster = TestCluster::start().await;
    let (first, second) = (cluster.lock_client(), cluster.lock_client());
    let options = || AcquireOptions::exclusive().note("host 7");
    let lease = first.acquire_lease(LOCK, SHORT_TTL, options()).await.unwrap();
    let token = lease.fencing_token();
    assert_eq!((lease.lock(), lease.check()), (LOCK, Ok(token)));
    assert!((Duration::from_millis(1)..SHORT_TTL).contains(&lease.expires_in()));
    let debug = format!("{lease:?}");
    assert!(!debug.contains(lease.key()), "{debug}");
    let busy = second
        .acquire_lease(LOCK, SHORT_TTL, options().try_only())
        .await
        .unwrap_err();
    assert!(busy.is(Code::LockBusy), "{busy:?}");

    let handle = second.lease(&format!("{}\n", lease.key()));
    let mut continued = handle.renew(Some(LONG_TTL)).await.unwrap();
    assert_eq!(continued.fencing_token(), token);
    assert!(continued.expires_in() > SHORT_TTL);
    let view = handle.get().await.unwrap();
    assert_eq!((view.lock.as_str(), view.note.as_str()), (LOCK, "host 7"));
    assert_eq!(view.fencing_token, Some(token));
    assert_eq!(u128::from(view.ttl_ms), LONG_TTL.as_millis());
    continued.renew(Some(SHORT_TTL)).await.unwrap();
    assert!(continued.expires_in() < SHORT_TTL, "a renewal also shortens");
    continued.renew(None).await.unwrap();
    continued.release().await.unwrap();
    handle.release().await.unwrap();
    assert_eq!(handle.renew(None).await.map(drop), Err(EXPIRED));
    assert_eq!(handle.get().await, Err(EXPIRED));
}

#[tokio::test]
async fn end_of_a_lease_is_reported_before_the_next_grant() {
    let cluster = TestCluster::start().await;
    let client = cluster.lock_client();
    let acquire = |ttl| client.acquire_lease(LOCK, ttl, AcquireOptions::exclusive());
    let mut lease = acquire(SHORT_TTL).await.unwrap();
    let next = tokio::time::timeout(TIMEOUT, acquire(LONG_TTL))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (lease.check(), lease.expires_in()),
        (Err(EXPIRED), Duration::ZERO)
    );
    assert!(next.fencing_token() > lease.fencing_token());
    assert_eq!(lease.renew(None).await, Err(EXPIRED));
    assert_eq!(lease.release().await, Err(EXPIRED));

    // The clock does not know of a break, and the next renewal does.
    let mut broken = next;
    client
        .break_lock(LOCK, broken.holder(), "it hangs")
        .await
        .unwrap();
    assert!(broken.check().is_ok());
    assert_eq!(broken.renew(None).await, Err(EXPIRED));
    assert_eq!(broken.check(), Err(EXPIRED));
}

#[tokio::test]
async fn waiting_lease_outlives_its_ttl_servers_and_connections() {
    let mut cluster = TestCluster::start().await;
    let holder = cluster.lock_client();
    let held = holder
        .acquire_lease(LOCK, LONG_TTL, AcquireOptions::exclusive())
        .await
        .unwrap();
    let mut proxies = Vec::new();
    for address in cluster.http_addresses() {
        proxies.push(Proxy::start(address).await);
    }
    let client = LockClient::new(proxies.iter().map(Proxy::address)).unwrap();
    let begun = tokio::time::Instant::now();
    let waiting = tokio::spawn(async move {
        client
            .acquire_lease(LOCK, BRISK_TTL, AcquireOptions::exclusive())
            .await
    });
    cluster.wait_queued(1, LOCK, 1).await;
    let place = holder.lock(LOCK).await.unwrap().unwrap().queue.remove(0).holder;
    let leader = cluster.leader_now().await;
    cluster.kill(leader).await.unwrap();
    while begun.elapsed() < BRISK_TTL + SHORT_TTL {
        proxies.iter().for_each(Proxy::cut);
        // Shorter than a poll, and longer than a renewal on a busy machine.
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    held.release().await.unwrap();
    let lease = tokio::time::timeout(TIMEOUT, waiting)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(lease.holder(), place, "it kept its place");
    assert!(lease.check().is_ok());
    lease.release().await.unwrap();
}

#[tokio::test]
async fn lease_that_gives_up_leaves_nothing_behind() {
    let cluster = TestCluster::start().await;
    let client = cluster.lock_client();
    let acquire = |options| client.acquire_lease(LOCK, LONG_TTL, options);
    let held = acquire(AcquireOptions::exclusive()).await.unwrap();
    let bounded = AcquireOptions::exclusive().wait_at_most(Duration::from_millis(100));
    let timeout = acquire(bounded).await.unwrap_err();
    assert!(timeout.is(Code::LockTimeout), "{timeout:?}");
    let view = client.lock(LOCK).await.unwrap().unwrap();
    assert_eq!(view.queue, []);

    let mut dropped = Box::pin(acquire(AcquireOptions::exclusive()));
    assert!(futures_util::poll!(&mut dropped).is_pending());
    let queued = cluster.wait_queued(1, LOCK, 1);
    tokio::select! {
        _ = &mut dropped => panic!("the lock is held"),
        () = queued => {}
    }
    drop(dropped);
    cluster.wait_queued(1, LOCK, 0).await;
    // Dropped before the first answer.
    let mut dropped = Box::pin(acquire(AcquireOptions::exclusive()));
    assert!(futures_util::poll!(&mut dropped).is_pending());
    drop(dropped);
    held.release().await.unwrap();
    // The lease of a dropped call would live longer than the test.
    let next = tokio::time::timeout(TIMEOUT, acquire(AcquireOptions::exclusive())).await;
    next.unwrap().unwrap().release().await.unwrap();
}
