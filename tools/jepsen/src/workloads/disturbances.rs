//! Monitor of disturbances of the cluster, seen from a client that only queries it: a node that did not
//! answer in time, or a change of the term. During a disturbance there is no bound for the expiry of a silent
//! session.

use std::time::Duration;

use futures_util::future::join_all;
use lockgate_check::Nanos;
use parking_lot::Mutex;

use crate::client::{Caller, nanos};
use crate::world::World;

/// Interval between two rounds.
const INTERVAL: Duration = Duration::from_millis(150);

/// Time limit within which a healthy node answers, even on a busy machine.
const RESPONSE_LIMIT: Duration = Duration::from_millis(400);

/// Nodes that have to answer in time in an undisturbed round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Required {
    /// All nodes.
    All,
    /// More than half of them: a leader stays, and can commit.
    Majority,
}

/// Observations of the monitor.
pub struct DisturbanceMonitor {
    required: Required,
    /// Begin and end of each undisturbed round, with its term.
    undisturbed: Mutex<Vec<(Nanos, Nanos, u64)>>,
}

impl DisturbanceMonitor {
    /// Creates a monitor without observations.
    pub fn new(required: Required) -> Self {
        Self {
            required,
            undisturbed: Mutex::default(),
        }
    }

    /// Queries the nodes until the run is over.
    pub async fn watch(&self, world: &World) {
        let mut callers: Vec<_> = world
            .endpoints
            .iter()
            .map(|endpoint| Caller::to_one(endpoint.http))
            .collect();
        while !world.stop.is_cancelled() {
            let began = world.now();
            let terms = join_all(callers.iter_mut().map(term)).await;
            if let Some(term) = self.required.common_term(&terms) {
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

impl Required {
    /// Returns the term if enough nodes answered and agree on it.
    fn common_term(self, terms: &[Option<u64>]) -> Option<u64> {
        let term = terms.iter().flatten().copied().max()?;
        let agreeing = terms.iter().filter(|answer| **answer == Some(term)).count();
        let needed = match self {
            Self::All => terms.len(),
            Self::Majority => terms.len() / 2 + 1,
        };
        (agreeing >= needed).then_some(term)
    }
}

/// Queries a node; returns its term if it answers in time.
async fn term(caller: &mut Caller) -> Option<u64> {
    let answers = async {
        let document = caller.get("/v1/cluster").await.done().ok()?;
        let read = caller.get("/v1/znodes/jepsen?linearizable=true").await;
        read.done().ok()?;
        document["term"].as_u64()
    };
    tokio::time::timeout(RESPONSE_LIMIT, answers).await.ok()?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_term_and_long_silence_are_disturbances() {
        let disturbances = DisturbanceMonitor::new(Required::All);
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
    #[test]
    fn majority_is_enough_only_where_it_is_required() {
        let terms = [Some(3), None, Some(3)];
        assert_eq!(Required::Majority.common_term(&terms), Some(3));
        assert_eq!(Required::All.common_term(&terms), None);
        assert_eq!(Required::All.common_term(&[Some(3); 3]), Some(3));
        assert_eq!(Required::Majority.common_term(&[Some(3), None, Some(2)]), None);
        assert_eq!(Required::Majority.common_term(&[None; 3]), None);
    }
}
