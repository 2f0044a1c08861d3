//! The leader dies while many hold and wait.

use std::time::{Duration, Instant};

use load_generator::failover;
use nix::sys::signal::Signal;

use crate::harness::{TestCluster, allowance, rounds};

/// The longest time after a leader's death without a grant, as the README promises it.
const FIRST_GRANT_WITHIN: Duration = Duration::from_secs(1);

/// Whoever waits for elections waits for long, so that it is seen who does.
const LONG_TIMEOUTS: &str = "propose_timeout_ms = 60000\n[raft]\nelection_min_ms = 20000\nelection_max_ms = 30000\n\
    [sessions]\nmin_ms = 60000\ndefault_ms = 60000\n";
/// The leader's, by these settings.
const LEASE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn no_lock_is_lost_and_none_granted_twice() {
    let mut cluster = TestCluster::start().await;
    let kills = rounds(2);
    let report = failover::measure(&mut cluster, failover::Loss::Killed, kills, 50, |_, _, _| Ok(()))
        .await
        .unwrap();
    println!(
        "first new grant after {:?} ms, no write for {:?} ms",
        report.first_grant_ms, report.write_gap_ms
    );
    assert_eq!(report.write_gap_ms.len(), kills);
    assert_eq!(report.violations, Vec::<String>::new());
    assert_eq!(report.first_grant_ms.len(), kills);
    for ms in report.first_grant_ms {
        let bound = FIRST_GRANT_WITHIN + allowance();
        assert!(
            Duration::from_millis(ms) <= bound,
            "the first new grant took {ms} ms"
        );
    }
}

#[tokio::test]
async fn lease_of_a_dead_leader_delays_no_election() {
    let cluster = TestCluster::start_with(LONG_TIMEOUTS).await;
    let leader = cluster.leader_now().await;
    let survivors = cluster.followers().await;
    let (_holder, session) = cluster.session(survivors[0], "holder").await;
    let mut elsewhere = cluster.client_of(survivors[1]);
    let killed = Instant::now();
    cluster.signal(leader, Signal::SIGKILL).unwrap();
    let held = elsewhere.acquire(session.id(), "after").await.unwrap();
    let took = killed.elapsed();
    assert!(
        took < LEASE,
        "its address refuses connections, and yet it took {took:?}"
    );
    assert!(elsewhere.check(&held).await.unwrap());
}

#[tokio::test]
async fn stalled_leader_is_replaced_and_reverts_nothing_when_it_resumes() {
    let cluster = TestCluster::start().await;
    let leader = cluster.leader_now().await;
    let survivors = cluster.followers().await;
    let (mut holder, session) = cluster.session(survivors[0], "holder").await;
    let kept = holder.acquire(session.id(), "kept").await.unwrap();
    let passed_on = holder.acquire(session.id(), "passed on").await.unwrap();
    // One waits at the leader itself, and hears nothing while that is stalled.
    let mut waiter = cluster.client_of(leader);
    let waiting = waiter
        .open_session(crate::harness::LONG_TTL, "waiter")
        .await
        .unwrap();
    let wait = tokio::spawn(async move { waiter.acquire(&waiting, "passed on").await });
    cluster.wait_queued(survivors[0], "passed%20on", 1).await;

    cluster.signal(leader, Signal::SIGSTOP).unwrap();
    let mut elsewhere = cluster.client_of(survivors[1]);
    let fresh = elsewhere.acquire(session.id(), "fresh").await.unwrap();
    assert!(fresh.fencing_token > passed_on.fencing_token);
    let mut giver = cluster.client_of(survivors[0]);
    giver.release(session.id(), &passed_on).await.unwrap();
    assert!(!wait.is_finished());

    cluster.signal(leader, Signal::SIGCONT).unwrap();
    let granted = wait.await.unwrap().unwrap();
    assert!(granted.fencing_token > passed_on.fencing_token);
    for node in cluster.ids() {
        let mut client = cluster.client_of(node);
        for held in [&kept, &fresh, &granted] {
            assert!(
                client.check(held).await.unwrap(),
                "node {node} does not know {held:?}"
            );
        }
        assert!(!client.check(&passed_on).await.unwrap());
    }
}
