//! Actual changes of the watched znodes, and the positions that each node is known to have shown, with their
//! times.

use std::collections::BTreeMap;

use lockgate_check::Nanos;
use lockgate_check::watches::Changes;
use parking_lot::Mutex;

/// Evidence collected by all clients of a run.
#[derive(Default)]
pub struct Evidence(Mutex<EvidenceState>);

#[derive(Default)]
struct EvidenceState {
    changes: Changes,
    /// Acknowledged changes by path: time and position, in order of time.
    acknowledged: BTreeMap<String, Vec<(Nanos, u64)>>,
    /// Observations of a znode at a position: by node and path, in order of time.
    shown: BTreeMap<(usize, String), Vec<(Nanos, u64)>>,
}

impl Evidence {
    /// Records that a write was acknowledged at this position.
    pub fn acknowledged(&self, at: Nanos, path: &str, zxid: u64) {
        let mut known = self.0.lock();
        let changes = known.changes.known.entry(path.to_owned()).or_default();
        changes.insert(zxid);
        known
            .acknowledged
            .entry(path.to_owned())
            .or_default()
            .push((at, zxid));
    }

    /// Records that a write may have been applied.
    pub fn uncertain(&self, path: &str) {
        self.0.lock().changes.uncertain.insert(path.to_owned());
    }

    /// Records that a node showed the znode in its state after this position.
    pub fn shown(&self, at: Nanos, node: usize, path: &str, zxid: u64) {
        let mut known = self.0.lock();
        known
            .shown
            .entry((node, path.to_owned()))
            .or_default()
            .push((at, zxid));
    }

    /// Returns the last position whose write was acknowledged before this moment.
    pub fn acknowledged_before(&self, path: &str, moment: Nanos) -> Option<u64> {
        greatest_before(self.0.lock().acknowledged.get(path)?, moment)
    }

    /// Returns the last position that this node had shown before this moment.
    pub fn shown_before(&self, node: usize, path: &str, moment: Nanos) -> Option<u64> {
        greatest_before(self.0.lock().shown.get(&(node, path.to_owned()))?, moment)
    }

    /// Returns whether a change is known strictly between two positions. If the positions are in the wrong
    /// order, nothing lies between them: such a notification repeats an old change, which the checker is to
    /// find.
    pub fn changed_between(&self, path: &str, after: u64, before: u64) -> bool {
        let known = self.0.lock();
        let changes = known.changes.known.get(path);
        changes.is_some_and(|changes| changes.iter().any(|at| (after + 1..before).contains(at)))
    }

    /// Returns all changes.
    pub fn changes(&self) -> Changes {
        self.0.lock().changes.clone()
    }
}

fn greatest_before(seen: &[(Nanos, u64)], moment: Nanos) -> Option<u64> {
    // Clients report a moment after they have read the clock, so the list is only nearly in order of time.
    seen.iter()
        .filter(|(at, _)| *at < moment)
        .map(|(_, zxid)| *zxid)
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_before_a_moment_excludes_later_reports() {
        let evidence = Evidence::default();
        evidence.acknowledged(10, "/a", 5);
        evidence.acknowledged(20, "/a", 7);
        evidence.shown(15, 1, "/a", 5);
        assert_eq!(evidence.acknowledged_before("/a", 20), Some(5));
        assert_eq!(evidence.acknowledged_before("/a", 10), None);
        assert_eq!(evidence.shown_before(1, "/a", 16), Some(5));
        assert_eq!(evidence.shown_before(2, "/a", 16), None);
        assert!(evidence.changed_between("/a", 4, 7));
        assert!(!evidence.changed_between("/a", 5, 7));
        assert!(!evidence.changed_between("/a", 7, 4));
    }
}
