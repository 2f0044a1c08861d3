//! Recipes of the client, each with several sessions, and with a dying leader where that matters.

use lock_client::recipes::{
    Barrier, CountError, CountdownLatch, Counter, DoubleBarrier, Election, Leadership, Observer,
};
use lock_client::{CreateMode, FencingToken, LockSession, Loss};
use tokio::task::{JoinHandle, JoinSet};

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

/// Candidate that campaigns in a task of its own.
async fn candidate(cluster: &TestCluster, name: &'static str) -> (LockSession, JoinHandle<Leadership>) {
    let session = cluster.lock_session(name).await;
    let election = Election::new(session.clone(), "service/leader");
    let campaign = tokio::spawn(async move { election.campaign(name).await.unwrap() });
    let client = cluster.lock_client();
    eventually("the candidate is in the queue", async || {
        let candidates = Election::candidates(&client, "service/leader").await.unwrap();
        candidates.iter().any(|candidate| candidate.name == name)
    })
    .await;
    (session, campaign)
}

async fn elected(campaign: JoinHandle<Leadership>) -> Leadership {
    tokio::time::timeout(TIMEOUT, campaign).await.unwrap().unwrap()
}

/// Returns the name and the term of the next leader.
async fn next(observer: &mut Observer) -> Option<(String, FencingToken)> {
    let next = tokio::time::timeout(TIMEOUT, observer.next()).await.unwrap();
    next.unwrap().map(|leader| (leader.name, leader.term))
}

#[tokio::test]
async fn named_candidate_leads_next_and_observers_see_no_other_between() {
    let cluster = TestCluster::start().await;
    let mut observer = Election::observe(&cluster.lock_client(), "service/leader");
    assert_eq!(next(&mut observer).await, None);
    let (_a, first) = candidate(&cluster, "a").await;
    let first = elected(first).await;
    assert_eq!(next(&mut observer).await, Some(("a".to_owned(), first.term())));
    let (_b, second) = candidate(&cluster, "b").await;
    let (_c, third) = candidate(&cluster, "c").await;
    let (_d, fourth) = candidate(&cluster, "d").await;
    let first = first.hand_over("nobody").await.unwrap().expect("nobody waits");
    assert!(first.check().is_ok());
    assert!(first.hand_over("d").await.unwrap().is_none());
    let fourth = elected(fourth).await;
    assert!(fourth.check().is_ok() && !second.is_finished() && !third.is_finished());
    let seen = async {
        loop {
            match next(&mut observer).await {
                None => {}
                Some((name, term)) => break (name, term),
            }
        }
    };
    assert_eq!(seen.await, ("d".to_owned(), fourth.term()));

    // A successor that does not wait is passed over, and forgotten.
    let (znodes, path) = (cluster.lock_client().znodes(), "/elections/service%2Fleader");
    assert_eq!(znodes.find(path).await.unwrap(), None, "the hand-over is done");
    znodes
        .create(path, "nobody", CreateMode::Persistent, true)
        .await
        .unwrap();
    fourth.resign().await.unwrap();
    let second = elected(second).await;
    assert_eq!(znodes.find(path).await.unwrap(), None);
    second.resign().await.unwrap();
    elected(third).await.resign().await.unwrap();
}

#[tokio::test]
async fn preferred_candidate_asks_each_leader_to_hand_over() {
    let cluster = TestCluster::start().await;
    let (_a, first) = candidate(&cluster, "a").await;
    let first = elected(first).await;
    let (_b, second) = candidate(&cluster, "b").await;
    let session = cluster.lock_session("preferred").await;
    let election = Election::new(session, "service/leader");
    let preferred = tokio::spawn(async move { election.campaign_as_preferred("preferred").await.unwrap() });
    let asked = tokio::time::timeout(TIMEOUT, first.resign_requested())
        .await
        .unwrap();
    assert_eq!(asked.reason, "preferred");
    // This leader does not hand over, so the next one in the queue leads and is asked too.
    first.resign().await.unwrap();
    let second = elected(second).await;
    let asked = tokio::time::timeout(TIMEOUT, second.resign_requested())
        .await
        .unwrap();
    let (_a, again) = candidate(&cluster, "a again").await;
    assert!(second.hand_over(&asked.reason).await.unwrap().is_none());
    let preferred = elected(preferred).await;
    preferred.check().unwrap();
    preferred.resign().await.unwrap();
    elected(again).await.resign().await.unwrap();
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
