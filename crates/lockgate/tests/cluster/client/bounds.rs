//! Bounds of a hold.

use std::time::Duration;

use lock_client::{AcquireOptions, Error, Loss};

use crate::harness::{TIMEOUT, TestCluster};

#[tokio::test]
async fn hold_ends_at_its_maximum_time_while_its_session_lives() {
    let cluster = TestCluster::start().await;
    let (holder, next) = (
        cluster.lock_session("holder").await,
        cluster.lock_session("next").await,
    );
    let options = AcquireOptions::exclusive().max_hold(Duration::from_millis(500));
    let guard = holder.acquire("job", options).await.unwrap();
    let waiting = tokio::spawn(async move { next.acquire("job", AcquireOptions::exclusive()).await });
    assert_eq!(
        tokio::time::timeout(TIMEOUT, guard.lost()).await,
        Ok(Loss::MaxHold)
    );
    assert_eq!(guard.check(), Err(Error::Lost(Loss::MaxHold)));
    assert_eq!(guard.release().await, Err(Error::Lost(Loss::MaxHold)));
    assert!(!holder.is_lost());
    let granted = tokio::time::timeout(TIMEOUT, waiting).await.unwrap().unwrap();
    granted.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn lock_stays_closed_for_the_minimum_time_of_a_hold() {
    const MIN_HOLD: Duration = Duration::from_secs(1);
    let cluster = TestCluster::start().await;
    let session = cluster.lock_session("both runs").await;
    let begun = tokio::time::Instant::now();
    let first = session.acquire("cron", AcquireOptions::exclusive().min_hold(MIN_HOLD));
    first.await.unwrap().release().await.unwrap();
    let second = session.acquire("cron", AcquireOptions::exclusive());
    let second = tokio::time::timeout(TIMEOUT, second).await.unwrap().unwrap();
    let took = begun.elapsed();
    assert!(took >= MIN_HOLD, "granted again after {took:?}");
    second.release().await.unwrap();
}
