//! Death and stall of the leader while clients hold locks and wait.

use std::time::{Duration, Instant};

use load_generator::failover;
use nix::sys::signal::Signal;

use crate::harness::{TestCluster, allowance, rounds};

/// Maximum time between a leader's death and the next grant, as the README promises it.
const FIRST_GRANT_WITHIN: Duration = Duration::from_secs(1);

/// Long election timeouts, so that a test notices a wait for them.
const LONG_TIMEOUTS: &str = "propose_timeout_ms = 60000\n[raft]\nelection_min_ms = 20000\nelection_max_ms = 30000\n\
    [sessions]\nmin_ms = 60000\ndefault_ms = 60000\n";
/// Lease of the leader with these settings.
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
        "the address of the leader refuses connections, but the grant took {took:?}"
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
    let handed_over = holder.acquire(session.id(), "passed on").await.unwrap();
    // A client waits at the leader itself, and gets no answer while the leader is stalled.
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
    assert!(fresh.fencing_token > handed_over.fencing_token);
    let mut giver = cluster.client_of(survivors[0]);
    giver.release(session.id(), &handed_over).await.unwrap();
    assert!(!wait.is_finished());

    cluster.signal(leader, Signal::SIGCONT).unwrap();
    let granted = wait.await.unwrap().unwrap();
    assert!(granted.fencing_token > handed_over.fencing_token);
    for node in cluster.ids() {
        let mut client = cluster.client_of(node);
        for held in [&kept, &fresh, &granted] {
            assert!(
                client.check(held).await.unwrap(),
                "node {node} does not know {held:?}"
            );
        }
        assert!(!client.check(&handed_over).await.unwrap());
    }
}
