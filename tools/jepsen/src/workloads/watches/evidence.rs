//! What really happened to the watched znodes, and what each node was seen to know, when.

use std::collections::BTreeMap;

use lockgate_check::Nanos;
use lockgate_check::watches::Changes;
use parking_lot::Mutex;

/// Collected by all clients of a run.
#[derive(Default)]
pub struct Evidence(Mutex<Known>);

#[derive(Default)]
struct Known {
    changes: Changes,
    /// When each change was acknowledged, by path: the moment and the position, in order of time.
    acknowledged: BTreeMap<String, Vec<(Nanos, u64)>>,
    /// When a node showed a znode as of a position: by node and path, in order of time.
    shown: BTreeMap<(usize, String), Vec<(Nanos, u64)>>,
}

impl Evidence {
    /// A write was acknowledged at this position.
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

    /// A write may have happened.
    pub fn uncertain(&self, path: &str) {
        self.0.lock().changes.uncertain.insert(path.to_owned());
    }

    /// A node showed the znode as it was after this position.
    pub fn shown(&self, at: Nanos, node: usize, path: &str, zxid: u64) {
        let mut known = self.0.lock();
        known
            .shown
            .entry((node, path.to_owned()))
            .or_default()
            .push((at, zxid));
    }

    /// The last position of which a write was acknowledged before this moment.
    pub fn acknowledged_before(&self, path: &str, moment: Nanos) -> Option<u64> {
        greatest_before(self.0.lock().acknowledged.get(path)?, moment)
    }

    /// The last position that this node had shown before this moment.
    pub fn shown_before(&self, node: usize, path: &str, moment: Nanos) -> Option<u64> {
        greatest_before(self.0.lock().shown.get(&(node, path.to_owned()))?, moment)
    }

    /// Whether a change is known to have happened between two positions, without them. (There is nothing between them if they
    /// are in the wrong order: a notice of what was seen already, which the check is to find.)
    pub fn changed_between(&self, path: &str, after: u64, before: u64) -> bool {
        let known = self.0.lock();
        let changes = known.changes.known.get(path);
        changes.is_some_and(|changes| changes.iter().any(|at| (after + 1..before).contains(at)))
    }

    /// All changes.
    pub fn changes(&self) -> Changes {
        self.0.lock().changes.clone()
    }
}

fn greatest_before(seen: &[(Nanos, u64)], moment: Nanos) -> Option<u64> {
    // Clients report a moment after they looked at the clock, so the order is nearly that of time.
    seen.iter()
        .filter(|(at, _)| *at < moment)
        .map(|(_, zxid)| *zxid)
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_known_at_a_moment_is_what_was_told_before() {
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
