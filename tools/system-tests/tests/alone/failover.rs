//! How long nobody is granted a lock after the leader was killed.

use load_generator::failover;

use crate::harness::{TestCluster, rounds};

/// What the README promises is a second. With room for a build that is not optimised.
const FIRST_GRANT_WITHIN_MS: u64 = 3000;

#[tokio::test]
async fn a_killed_leader_is_succeeded_and_grants_go_on() {
    let mut cluster = TestCluster::start().await;
    let kills = rounds(2);
    let report = failover::measure(&mut cluster, failover::Loss::Killed, kills, 50, |_, _, _| {})
        .await
        .unwrap();
    assert_eq!(report.first_grant_ms.len(), kills);
    for ms in report.first_grant_ms {
        assert!(ms <= FIRST_GRANT_WITHIN_MS, "the first new grant took {ms} ms");
    }
}
