//! Monitor of disturbances of the cluster, seen from a client that only queries it: a node that did not
//! answer in time, or a change of the term. During a disturbance there is no bound for the expiry of a silent
//! session.

use std::time::Duration;

use lockgate_check::Nanos;
use parking_lot::Mutex;

use crate::client::{Caller, nanos};
use crate::world::World;

/// Interval between two rounds.
const INTERVAL: Duration = Duration::from_millis(150);

/// Time limit within which a healthy node answers, even on a busy machine.
const RESPONSE_LIMIT: Duration = Duration::from_millis(400);

/// Observations of the monitor.
#[derive(Default)]
pub struct DisturbanceMonitor {
    /// Begin and end of each undisturbed round, with its term.
    undisturbed: Mutex<Vec<(Nanos, Nanos, u64)>>,
}

impl DisturbanceMonitor {
    /// Queries the nodes until the run is over.
    pub async fn watch(&self, world: &World) {
        let mut callers: Vec<_> = world
            .endpoints
            .iter()
            .map(|endpoint| Caller::to_one(endpoint.http))
            .collect();
        while !world.stop.is_cancelled() {
            let began = world.now();
            if let Some(term) = round(&mut callers).await
                && world.now() - began < nanos(RESPONSE_LIMIT)
            {
                self.undisturbed.lock().push((began, world.now(), term));
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Returns the disturbed periods; `from` to `until` counts as disturbed, since the monitor did not run
    /// then.
    pub fn disturbed(&self, from: Nanos, until: Nanos) -> Vec<(Nanos, Nanos)> {
        let mut disturbed = vec![(from, until)];
        let undisturbed = self.undisturbed.lock();
        let unseen = nanos(INTERVAL + RESPONSE_LIMIT);
        for pair in undisturbed.windows(2) {
            let [(before, end, term), (next, after, next_term)] = pair else {
                unreachable!("windows of two have two")
            };
            if term != next_term || next - end > unseen {
                disturbed.push((*before, *after));
            }
        }
        match (undisturbed.first(), undisturbed.last()) {
            (Some((first, ..)), Some((_, last, _))) => {
                disturbed.push((0, *first));
                disturbed.push((*last, until));
            }
            _ => disturbed.push((0, until)),
        }
        disturbed
    }
}

/// Queries all nodes; returns the term if all of them answer and agree.
async fn round(callers: &mut [Caller]) -> Option<u64> {
    let mut terms = Vec::new();
    for caller in callers {
        let document = caller.get("/v1/cluster").await.done().ok()?;
        terms.push(document["term"].as_u64()?);
        caller
            .get("/v1/znodes/jepsen?linearizable=true")
            .await
            .done()
            .ok()?;
    }
    terms.dedup();
    match terms[..] {
        [term] => Some(term),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_term_and_long_silence_are_disturbances() {
        let disturbances = DisturbanceMonitor::default();
        let second = nanos(Duration::from_secs(1));
        let tenth = second / 10;
        *disturbances.undisturbed.lock() = vec![
            (0, tenth, 1),
            (2 * tenth, 3 * tenth, 1),
            (5 * tenth, 6 * tenth, 2),
            (3 * second, 3 * second + tenth, 2),
        ];
        let disturbed = disturbances.disturbed(4 * second, 5 * second);
        assert!(disturbed.contains(&(2 * tenth, 6 * tenth)), "{disturbed:?}");
        assert!(
            disturbed.contains(&(5 * tenth, 3 * second + tenth)),
            "{disturbed:?}"
        );
        assert!(!disturbed.contains(&(0, 3 * tenth)), "{disturbed:?}");
        assert!(disturbed.contains(&(4 * second, 5 * second)), "{disturbed:?}");
    }
}
