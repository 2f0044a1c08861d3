//! The example `tickets` as a test: the concert is sold out and no ticket is sold twice, although the leader
//! dies halfway.

#[path = "../../examples/tickets/sale.rs"]
mod sale;

use crate::harness::TestCluster;

const BUYERS: usize = 30;
const TICKETS: usize = 100;

#[tokio::test]
async fn under_the_lock_every_ticket_is_sold_once() {
    let mut cluster = TestCluster::start().await;
    let dir = tempfile::tempdir().unwrap();
    let sale = sale::sell_out(&mut cluster, &dir.path().join("ledger.txt"), BUYERS, TICKETS)
        .await
        .unwrap();
    assert!(sale.is_fair(), "{sale}");
    assert_eq!(sale.sold_twice(), 0);
    assert!(sale.tokens_increase());
    assert!(sale.killed.is_some());
}

#[tokio::test]
async fn without_the_lock_the_concert_is_oversold() {
    let dir = tempfile::tempdir().unwrap();
    let sale = sale::sell_out_without_lock(&dir.path().join("ledger.txt"), BUYERS, TICKETS)
        .await
        .unwrap();
    assert!(!sale.is_fair(), "{sale}");
    assert!(sale.sold_twice() > 0, "{sale}");
}
