//! Faults during the first start of a node: the next start must continue with the partial directory.

use std::time::Duration;

use crate::cell::{Cell, Outcome};
use crate::faulty_cluster::{FaultyCluster, within};

/// Time limit within which a single node starts, elects itself and serves, wherever its first start ended.
const SERVES_WITHIN: Duration = Duration::from_secs(15);

/// Starts a new node with the fault, and again without it if it has exited.
pub async fn run(cell: &Cell) -> Outcome {
    let mut outcome = Outcome::default();
    let mut cluster = FaultyCluster::configure(1);
    let fault = format!("{}={}", cell.point.name, cell.fault.spelled());
    cluster
        .cluster()
        .start_with(1, &[("FAILPOINTS", &fault)])
        .unwrap();
    let reached = within(SERVES_WITHIN, async || {
        cluster.log_since(1, 0).contains(cell.point.name)
    })
    .await;
    if !reached {
        outcome
            .problems
            .push("the node never reached the fail point".to_owned());
    }
    if cluster.cluster().wait_ready(&[1], SERVES_WITHIN).await.is_err() {
        outcome.ended = !cluster.is_running(1);
        if outcome.ended {
            cluster.cluster().start(1).unwrap();
        }
        if let Err(error) = cluster.cluster().wait_ready(&[1], SERVES_WITHIN).await {
            outcome
                .problems
                .push(format!("the node does not start again: {error:#}"));
        }
    }
    outcome
}
