//! When something happened to the cluster, as one who does nothing but ask sees it: a node that did not answer at once, or
//! another term than before. While that lasts nobody can say by when a silent session has to be over.

use std::time::Duration;

use lockgate_check::Nanos;
use parking_lot::Mutex;

use crate::client::{Caller, nanos};
use crate::world::World;

/// Between two rounds.
const EVERY: Duration = Duration::from_millis(150);

/// A healthy node answers within this, also on a busy machine.
const AT_ONCE: Duration = Duration::from_millis(400);

/// What was seen.
#[derive(Default)]
pub struct Weather {
    /// The beginning and end of each round in which all was well, and the term in it.
    fair: Mutex<Vec<(Nanos, Nanos, u64)>>,
}

impl Weather {
    /// Looks until the run is over.
    pub async fn watch(&self, world: &World) {
        let mut callers: Vec<_> = world
            .endpoints
            .iter()
            .map(|endpoint| Caller::to_one(endpoint.http))
            .collect();
        while !world.stop.is_cancelled() {
            let began = world.now();
            if let Some(term) = round(&mut callers).await
                && world.now() - began < nanos(AT_ONCE)
            {
                self.fair.lock().push((began, world.now(), term));
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// From when to when all was not well; nobody looked between these two moments.
    pub fn disturbed(&self, from: Nanos, until: Nanos) -> Vec<(Nanos, Nanos)> {
        let mut disturbed = vec![(from, until)];
        let fair = self.fair.lock();
        let unseen = nanos(EVERY + AT_ONCE);
        for pair in fair.windows(2) {
            let [(before, end, term), (next, after, next_term)] = pair else {
                unreachable!("windows of two have two")
            };
            if term != next_term || next - end > unseen {
                disturbed.push((*before, *after));
            }
        }
        match (fair.first(), fair.last()) {
            (Some((first, ..)), Some((_, last, _))) => {
                disturbed.push((0, *first));
                disturbed.push((*last, until));
            }
            _ => disturbed.push((0, until)),
        }
        disturbed
    }
}

/// Asks all nodes; the term if they answer and agree.
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
    fn a_new_term_and_a_long_silence_are_disturbances() {
        let weather = Weather::default();
        let second = nanos(Duration::from_secs(1));
        let tenth = second / 10;
        *weather.fair.lock() = vec![
            (0, tenth, 1),
            (2 * tenth, 3 * tenth, 1),
            (5 * tenth, 6 * tenth, 2),
            (3 * second, 3 * second + tenth, 2),
        ];
        let disturbed = weather.disturbed(4 * second, 5 * second);
        assert!(disturbed.contains(&(2 * tenth, 6 * tenth)), "{disturbed:?}");
        assert!(
            disturbed.contains(&(5 * tenth, 3 * second + tenth)),
            "{disturbed:?}"
        );
        assert!(!disturbed.contains(&(0, 3 * tenth)), "{disturbed:?}");
        assert!(disturbed.contains(&(4 * second, 5 * second)), "{disturbed:?}");
    }
}
