//! Changes of the mode of a held lock, lock sets, release requests, lock delay, drained locks and limits.

use std::time::{Duration, Instant};

use lock_client::{AcquireOptions, Code, Error, LockSet, Loss, Mode, Wait};

use super::proxy::Proxy;
use super::{BRISK_TTL, SHORT_TTL};
use crate::harness::{TIMEOUT, TestCluster, eventually};

#[tokio::test]
async fn upgradeable_holder_upgrades_and_downgrades() {
    let cluster = TestCluster::start().await;
    let (one, other) = (
        cluster.lock_session("one").await,
        cluster.lock_session("other").await,
    );
    let reader = other.acquire("book", AcquireOptions::shared()).await.unwrap();
    let mine = || AcquireOptions::upgradeable().reentrant("main");
    let mut guard = one.acquire("book", mine()).await.unwrap();
    let again = one.acquire("book", mine()).await.unwrap();
    let first = guard.fencing_token();
    assert_eq!(guard.mode(), Mode::Upgradeable);
    let second = other
        .acquire("book", AcquireOptions::upgradeable().try_only())
        .await;
    assert!(
        second.unwrap_err().is(Code::LockBusy),
        "a lock has one upgradeable holder"
    );
    assert!(guard.upgrade(Wait::Try).await.unwrap_err().is(Code::LockBusy));
    let timed_out = guard.upgrade(Wait::AtMost(Duration::from_millis(50))).await;
    assert!(timed_out.unwrap_err().is(Code::LockTimeout));
    assert_eq!((guard.mode(), guard.fencing_token()), (Mode::Upgradeable, first));

    // An upgrade that is dropped while it waits leaves the mode, also if the readers release at that moment.
    let upgrading = async || {
        let view = cluster.lock_client().lock("book").await.unwrap().unwrap();
        view.holders
            .iter()
            .any(|holder| holder.more.contains_key("upgrading_since_at"))
    };
    {
        let mut upgrade = Box::pin(guard.upgrade(Wait::Forever));
        while !upgrading().await {
            assert!(futures_util::poll!(&mut upgrade).is_pending());
        }
        let released = reader.release();
        drop(upgrade);
        released.await.unwrap();
    }
    let reader = other
        .acquire("book", AcquireOptions::shared().wait_at_most(TIMEOUT))
        .await
        .unwrap();
    assert_eq!(guard.mode(), Mode::Upgradeable);

    let upgraded = tokio::spawn(async move {
        guard.upgrade(Wait::Forever).await.unwrap();
        guard
    });
    eventually("the upgrade waits", upgrading).await;
    let late = other.acquire("book", AcquireOptions::shared().try_only()).await;
    assert!(
        late.unwrap_err().is(Code::LockBusy),
        "a waiting upgrade blocks new readers"
    );
    let readers = reader.fencing_token();
    reader.release().await.unwrap();
    let mut guard = tokio::time::timeout(TIMEOUT, upgraded).await.unwrap().unwrap();
    assert_eq!(guard.mode(), Mode::Exclusive);
    assert!(guard.fencing_token() > first && guard.fencing_token() > readers);
    assert!(guard.verify().await.unwrap());
    // Both guards of the reentrant hold have the new mode.
    assert_eq!(
        (again.mode(), again.fencing_token()),
        (Mode::Exclusive, guard.fencing_token())
    );
    again.release().await.unwrap();

    guard.downgrade_to_upgradeable().await.unwrap();
    let reader = other
        .acquire("book", AcquireOptions::shared().try_only())
        .await
        .unwrap();
    assert_eq!(guard.mode(), Mode::Upgradeable);
    guard.downgrade().await.unwrap();
    assert_eq!(guard.mode(), Mode::Shared);
    let next = other
        .acquire("book", AcquireOptions::upgradeable().try_only())
        .await
        .unwrap();
    assert!(
        guard
            .upgrade(Wait::Try)
            .await
            .unwrap_err()
            .is(Code::WouldDeadlock)
    );
    assert_eq!(guard.mode(), Mode::Shared);
    drop((reader, next));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn lock_set_survives_a_failover_and_is_released_together() {
    let mut cluster = TestCluster::start().await;
    let (one, other) = (
        cluster.lock_session("one").await,
        cluster.lock_session("other").await,
    );
    let set = || {
        LockSet::new()
            .with("a", AcquireOptions::exclusive())
            .with("b", AcquireOptions::shared())
            .with("c", AcquireOptions::semaphore(3).permits(2))
    };
    let held = other.acquire("b", AcquireOptions::exclusive()).await.unwrap();
    let wait = {
        let one = one.clone();
        tokio::spawn(async move { one.acquire_all(set()).await })
    };
    cluster.wait_queued(1, "b", 1).await;
    // A dropped acquire leaves all queues.
    wait.abort();
    let client = cluster.lock_client();
    let is_free = async |name: &str, but: usize| {
        let view = client.lock(name).await.unwrap();
        view.is_none_or(|view| view.holders.len() == but && view.queue.is_empty())
    };
    eventually("all locks are left", async || {
        is_free("a", 0).await && is_free("b", 1).await && is_free("c", 0).await
    })
    .await;
    // The next acquire survives the death of the leader.
    let wait = {
        let one = one.clone();
        tokio::spawn(async move { one.acquire_all(set()).await })
    };
    cluster.wait_queued(1, "b", 1).await;
    let leader = cluster.leader_now().await;
    cluster.kill(leader).await.unwrap();
    held.release().await.unwrap();
    let guards = tokio::time::timeout(TIMEOUT, wait)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let modes: Vec<Mode> = guards.guards().iter().map(|guard| guard.mode()).collect();
    assert_eq!(modes, [Mode::Exclusive, Mode::Shared, Mode::Semaphore]);
    assert_eq!(guards.get("c").unwrap().permits(), 2);
    for guard in guards.guards() {
        assert!(guard.verify().await.unwrap(), "{}", guard.lock());
    }
    // One of the locks is broken: the others are released all the same, and the caller gets the loss.
    let holder = guards.get("a").unwrap().holder().to_owned();
    client.break_lock("a", &holder, "maintenance").await.unwrap();
    let lost = guards.release().await;
    // The cause of the loss comes with the event stream, if there is one at that moment.
    assert!(
        matches!(lost, Err(Error::Lost(Loss::Broken { .. } | Loss::TakenAway))),
        "{lost:?}"
    );
    for name in ["a", "b", "c"] {
        assert!(is_free(name, 0).await, "{name}");
    }
    // Dropped guards are released.
    drop(one.acquire_all(set()).await.unwrap());
    for name in ["a", "b", "c"] {
        eventually("the lock is released", async || is_free(name, 0).await).await;
    }
}

#[tokio::test]
async fn deadlock_is_rejected_with_its_cycle() {
    let cluster = TestCluster::start().await;
    let (one, other) = (
        cluster.lock_session("one").await,
        cluster.lock_session("other").await,
    );
    let mine = || AcquireOptions::exclusive().owner("main");
    let _a = one.acquire("a", mine()).await.unwrap();
    let b = other.acquire("b", mine()).await.unwrap();
    let wait = {
        let one = one.clone();
        tokio::spawn(async move { one.acquire("b", mine()).await })
    };
    cluster.wait_queued(1, "b", 1).await;
    let refused = other.acquire("a", mine()).await.unwrap_err();
    assert!(refused.is(Code::WouldDeadlock), "{refused:?}");
    let Error::Refused(refusal) = refused else {
        unreachable!("checked above")
    };
    let cycle = refusal.facts["cycle"].as_array().unwrap();
    let parties: Vec<_> = cycle
        .iter()
        .map(|party| party["session"].as_str().unwrap())
        .collect();
    assert_eq!(parties, [other.id(), one.id()]);
    b.release().await.unwrap();
    drop(wait.await.unwrap().unwrap());
}

#[tokio::test]
async fn holder_receives_and_answers_a_release_request() {
    let cluster = TestCluster::start().await;
    let client = cluster.lock_client();
    let session = client.session().ttl(BRISK_TTL).open().await.unwrap();
    let guard = session
        .acquire("seat", AcquireOptions::exclusive())
        .await
        .unwrap();
    let kept = session
        .acquire("other", AcquireOptions::exclusive())
        .await
        .unwrap();
    assert_eq!(guard.release_request(), None);
    assert_eq!(client.request_release("seat", None, "maintenance").await, Ok(1));
    let asked = tokio::time::timeout(TIMEOUT, guard.release_requested())
        .await
        .unwrap();
    assert!(
        asked.reason == "maintenance" && asked.by.starts_with("127.0.0.1"),
        "{asked:?}"
    );
    assert_eq!(
        (guard.release_request(), kept.release_request()),
        (Some(asked), None)
    );
    guard.answer("in a minute").await.unwrap();
    eventually("the answer is recorded", async || {
        guard.release_request().is_none()
    })
    .await;
    let view = client.lock("seat").await.unwrap().unwrap();
    assert_eq!(view.holders[0].more["release_requested"]["answer"], "in a minute");
    assert!(guard.check().is_ok(), "a release request does not end the hold");
    guard.release().await.unwrap();
    assert!(
        client
            .request_release("seat", Some("nobody"), "x")
            .await
            .unwrap_err()
            .is(Code::NotHolder)
    );
}

#[tokio::test]
async fn lock_delay_closes_the_lock_after_its_holder_vanished() {
    let cluster = TestCluster::start().await;
    let proxy = Proxy::start(cluster.http(1)).await;
    let client = lock_client::LockClient::new([proxy.address()]).unwrap();
    let session = client.session().ttl(SHORT_TTL).open().await.unwrap();
    let delay = Duration::from_secs(1);
    let options = AcquireOptions::exclusive().lock_delay(delay);
    let guard = session.acquire("tape", options).await.unwrap();
    let heir = cluster.lock_session("heir").await;
    let begin = Instant::now();
    proxy.block();
    let loss = guard.lost();
    assert_eq!(loss.await, Loss::NoHeartbeat);
    let inherited = heir.acquire("tape", AcquireOptions::exclusive()).await.unwrap();
    assert!(begin.elapsed() >= delay + SHORT_TTL / 2, "{:?}", begin.elapsed());
    // After a regular release the lock is free at once.
    inherited.release().await.unwrap();
    let next = heir
        .acquire("tape", AcquireOptions::exclusive().try_only())
        .await
        .unwrap();
    next.release().await.unwrap();
}

#[tokio::test]
async fn drained_lock_grants_nothing_and_limit_changes_while_in_use() {
    let cluster = TestCluster::start().await;
    let client = cluster.lock_client();
    let session = cluster.lock_session("one").await;
    let held = session
        .acquire("pool", AcquireOptions::semaphore(2))
        .await
        .unwrap();
    client.drain("pool", true).await.unwrap();
    let refused = session
        .acquire("pool", AcquireOptions::semaphore(2))
        .await
        .unwrap_err();
    assert!(refused.is(Code::Draining), "{refused:?}");
    assert!(client.lock("pool").await.unwrap().unwrap().draining && held.verify().await.unwrap());
    client.drain("pool", false).await.unwrap();
    client.set_limit("pool", Some(1)).await.unwrap();
    let any = || AcquireOptions::semaphore_of_any_limit().try_only();
    assert!(
        session
            .acquire("pool", any())
            .await
            .unwrap_err()
            .is(Code::LockBusy)
    );
    client.set_limit("pool", Some(3)).await.unwrap();
    let more = session.acquire("pool", any().permits(2)).await.unwrap();
    assert!(
        client
            .set_limit("pool", None)
            .await
            .unwrap_err()
            .is(Code::ModeConflict)
    );
    drop((held, more));
}
