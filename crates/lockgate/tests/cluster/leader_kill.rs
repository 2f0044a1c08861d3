//! The leader dies while many hold and wait.

use lockgate::bench::failover;

use crate::harness::{TestCluster, rounds};

/// What the README promises: a new leader is elected within two election timeouts of at most 600 ms, and the
/// first grant follows at once. With room for a machine that does other things as well.
const FIRST_GRANT_WITHIN_MS: u64 = 3000;

#[tokio::test]
async fn no_lock_is_lost_and_none_granted_twice() {
    let mut cluster = TestCluster::start().await;
    let kills = rounds(2);
    let report = failover::measure(&mut cluster, kills, 50, |_, _| {})
        .await
        .unwrap();
    println!("first new grant after {:?} ms", report.first_grant_ms);
    assert_eq!(report.violations, Vec::<String>::new());
    assert_eq!(report.first_grant_ms.len(), kills);
    for ms in report.first_grant_ms {
        assert!(ms <= FIRST_GRANT_WITHIN_MS, "the first new grant took {ms} ms");
    }
}
