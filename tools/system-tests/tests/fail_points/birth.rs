//! Faults at the first start of a node: what it leaves of its directory is a beginning that the next start takes up.

use std::time::Duration;

use crate::bench::{Bench, within};
use crate::cell::{Cell, Outcome};

/// A node alone starts, elects itself and serves within this, wherever its first start has ended.
const SERVES_WITHIN: Duration = Duration::from_secs(15);

/// Starts a new node with the fault, and once more without it if it has ended.
pub async fn run(cell: &Cell) -> Outcome {
    let mut outcome = Outcome::default();
    let mut bench = Bench::configure(1);
    let fault = format!("{}={}", cell.point.name, cell.fault.spelled());
    bench.cluster().start_with(1, &[("FAILPOINTS", &fault)]).unwrap();
    let reached = within(SERVES_WITHIN, async || {
        bench.log_since(1, 0).contains(cell.point.name)
    })
    .await;
    if !reached {
        outcome.problems.push("the node never came to it".to_owned());
    }
    if bench.cluster().wait_ready(&[1], SERVES_WITHIN).await.is_err() {
        outcome.ended = true;
        bench.cluster().start(1).unwrap();
        if let Err(error) = bench.cluster().wait_ready(&[1], SERVES_WITHIN).await {
            outcome
                .problems
                .push(format!("it does not start again: {error:#}"));
        }
    }
    outcome
}
