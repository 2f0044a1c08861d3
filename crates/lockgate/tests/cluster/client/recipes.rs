//! Recipes of the client, each with several sessions, and with a dying leader where that matters.

use lock_client::Loss;
use lock_client::recipes::{Barrier, CountError, CountdownLatch, Counter, DoubleBarrier, Election};
use tokio::task::JoinSet;

use crate::harness::{TIMEOUT, TestCluster, eventually};

#[tokio::test]
async fn one_candidate_leads_at_a_time_with_increasing_terms() {
    let cluster = TestCluster::start().await;
    let client = cluster.lock_client();
    let sessions = [cluster.lock_session("a").await, cluster.lock_session("b").await];
    let [a, b] = sessions
        .clone()
        .map(|session| Election::new(session, "service/leader"));
    assert_eq!(Election::candidates(&client, "service/leader").await.unwrap(), []);
    let first = a.campaign("host-a:80").await.unwrap();
    let campaign = tokio::spawn(async move { b.campaign("host-b:80").await });
    cluster.wait_queued(1, "service/leader", 1).await;
    let candidates = Election::candidates(&client, "service/leader").await.unwrap();
    let names: Vec<&str> = candidates
        .iter()
        .map(|candidate| candidate.name.as_str())
        .collect();
    assert_eq!(names, ["host-a:80", "host-b:80"]);
    assert_eq!(
        (candidates[0].term, first.check()),
        (first.term(), Ok(first.term()))
    );
    // The session of the elected candidate ends, and the next candidate is elected.
    let lost = first.lost();
    sessions[0].clone().close().await.unwrap();
    assert_eq!(lost.await, Loss::Closed);
    let second = tokio::time::timeout(TIMEOUT, campaign)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(second.term() > first.term() && first.check().is_err());
    second.resign().await.unwrap();
    assert_eq!(Election::candidates(&client, "service/leader").await.unwrap(), []);
}

#[tokio::test]
async fn counter_loses_no_change_when_the_leader_dies() {
    let mut cluster = TestCluster::start().await;
    let counter = |cluster: &TestCluster| Counter::new(cluster.lock_client().znodes(), "/stock/apples");
    let shared = counter(&cluster);
    assert_eq!(shared.get().await, Ok(0));
    let mut adders = JoinSet::new();
    for _ in 0..4 {
        let counter = counter(&cluster);
        adders.spawn(async move {
            for _ in 0..25 {
                counter.add(2).await.unwrap();
            }
        });
    }
    eventually("some additions are made", async || {
        shared.get().await.unwrap() > 20
    })
    .await;
    let leader = cluster.leader_now().await;
    cluster.kill(leader).await.unwrap();
    adders.join_all().await;
    assert_eq!(shared.get().await, Ok(200));
    assert_eq!(shared.compare_and_set(199, 0).await, Ok(false));
    assert_eq!(shared.compare_and_set(200, i64::MAX).await, Ok(true));
    let overflow = CountError::Overflow("/stock/apples".to_owned());
    assert_eq!(shared.add(1).await, Err(overflow));
    let znodes = cluster.lock_client().znodes();
    znodes.set("/stock/apples", "many", None).await.unwrap();
    assert_eq!(
        shared.get().await,
        Err(CountError::NotANumber("/stock/apples".to_owned()))
    );
}

#[tokio::test]
async fn latch_opens_when_its_count_is_zero() {
    let cluster = TestCluster::start().await;
    let latch = async || {
        let znodes = cluster.lock_client().znodes();
        CountdownLatch::open(znodes, "/latches/start", 5).await.unwrap()
    };
    let mut waiting = JoinSet::new();
    for _ in 0..3 {
        let latch = latch().await;
        waiting.spawn(async move { latch.wait().await });
    }
    let counting = latch().await;
    for left in (1..5).rev() {
        assert_eq!(counting.count_down().await, Ok(left));
        assert_eq!(counting.count().await, Ok(left));
    }
    assert!(waiting.try_join_next().is_none(), "a waiter has passed early");
    assert_eq!(counting.count_down().await, Ok(0));
    while let Some(waited) = tokio::time::timeout(TIMEOUT, waiting.join_next()).await.unwrap() {
        waited.unwrap().unwrap();
    }
    assert_eq!(counting.count_down().await, Ok(0), "it stays at zero");
    counting.wait().await.unwrap();
    counting.delete().await.unwrap();
}

#[tokio::test]
async fn barrier_blocks_all_until_it_is_opened() {
    let cluster = TestCluster::start().await;
    let barrier = || Barrier::new(cluster.lock_client().znodes(), "/barriers/migration");
    let operator = barrier();
    operator.wait().await.unwrap();
    operator.close().await.unwrap();
    operator.close().await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..3 {
        let barrier = barrier();
        waiting.spawn(async move { barrier.wait().await });
    }
    // A write to the barrier's znode does not open it.
    let znodes = cluster.lock_client().znodes();
    znodes.set("/barriers/migration", "soon", None).await.unwrap();
    assert!(waiting.try_join_next().is_none(), "a waiter has passed early");
    operator.open().await.unwrap();
    while let Some(waited) = tokio::time::timeout(TIMEOUT, waiting.join_next()).await.unwrap() {
        waited.unwrap().unwrap();
    }
    operator.open().await.unwrap();
}

#[tokio::test]
async fn double_barrier_starts_and_ends_its_members_together() {
    let cluster = TestCluster::start().await;
    let count = Counter::new(cluster.lock_client().znodes(), "/rounds/within");
    // A member whose session has ended does not count.
    let gone = cluster.lock_session("gone").await;
    let barrier = DoubleBarrier::new(gone.clone(), "/rounds/1", 3);
    let mut enter = Box::pin(barrier.enter());
    let znodes = cluster.lock_client().znodes();
    while znodes.find("/rounds/1").await.unwrap().is_none() {
        assert!(futures_util::poll!(&mut enter).is_pending());
    }
    gone.close().await.unwrap();
    drop(enter);
    eventually("the member is gone", async || {
        znodes.children("/rounds/1").await.unwrap().is_empty()
    })
    .await;

    let mut members = JoinSet::new();
    for member in 0..3 {
        let session = cluster.lock_session(&format!("member {member}")).await;
        let (barrier, count) = (DoubleBarrier::new(session, "/rounds/1", 3), count.clone());
        if member == 2 {
            eventually("the other members have entered", async || {
                znodes
                    .find("/rounds/1")
                    .await
                    .unwrap()
                    .is_some_and(|znode| znode.stat.num_children == 2)
            })
            .await;
            assert_eq!(
                count.get().await,
                Ok(0),
                "a member has passed before the last one entered"
            );
        }
        members.spawn(async move {
            let entered = barrier.enter().await.unwrap();
            count.add(1).await.unwrap();
            entered.leave().await.unwrap();
            // All had entered before any member left.
            assert_eq!(count.get().await, Ok(3));
        });
    }
    while let Some(done) = tokio::time::timeout(TIMEOUT, members.join_next()).await.unwrap() {
        done.unwrap();
    }
    assert_eq!(znodes.children("/rounds/1").await.unwrap(), []);
}
