//! Watches fire once, for the first change after the read, and for nothing else; a client that waits at a
//! node that keeps running is notified.

use std::collections::{BTreeMap, BTreeSet};

use znode_store::{ZPath, ZnodeEvent, ZnodeEventKind, Zxid};

use super::Check;

/// Checker with the changes of each znode, and the snapshots installed on each machine.
#[derive(Default)]
pub struct Watches {
    changes: BTreeMap<ZPath, BTreeSet<u64>>,
    replaced: BTreeMap<usize, u64>,
    fired: u64,
}

impl Watches {
    /// Returns the number of watches that have fired.
    pub fn fired(&self) -> u64 {
        self.fired
    }

    /// Records a change of a znode, at a position that no machine had reached before.
    pub fn changed(&mut self, event: &ZnodeEvent, at: Zxid) {
        if event.kind != ZnodeEventKind::ChildrenChanged {
            self.changes.entry(event.path.clone()).or_default().insert(at.0);
        }
    }

    /// Records that a snapshot replaced a machine's state: its watches then fire with the position of the
    /// snapshot.
    pub fn replaced(&mut self, machine: usize) {
        *self.replaced.entry(machine).or_default() += 1;
    }

    /// Returns the number of replacements on a machine.
    pub fn replacements(&self, machine: usize) -> u64 {
        self.replaced.get(&machine).copied().unwrap_or_default()
    }

    fn first_after(&self, path: &ZPath, read: Zxid) -> Option<u64> {
        self.changes.get(path)?.range(read.0 + 1..).next().copied()
    }

    /// Checks a watch that was set at position `read` and fired with `notified`. With `surely` that is the
    /// position of the change, otherwise the last one that it can have been.
    pub fn notified(&mut self, path: &ZPath, read: Zxid, notified: Zxid, surely: bool) -> Check {
        self.fired += 1;
        match self.first_after(path, read) {
            Some(first) if first == notified.0 || !surely && first <= notified.0 => Ok(()),
            Some(first) => Err(format!(
                "a watch of {path}, set at {read}, fired for {notified}, although the first change was at {first}"
            )),
            None => Err(format!(
                "a watch of {path}, set at {read}, fired for {notified}, although nothing was changed"
            )),
        }
    }

    /// Checks a watch that was set at `read` and has not fired up to `now`, the position of its node.
    pub fn not_notified(&self, path: &ZPath, read: Zxid, now: Zxid) -> Check {
        match self.first_after(path, read) {
            Some(first) if first <= now.0 => Err(format!(
                "a watch of {path}, set at {read}, had not fired at {now}, although there was a change at {first}"
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use znode_store::Acl;

    use super::*;

    #[test]
    fn spurious_or_missing_notification_is_a_violation() {
        let path = ZPath::parse("/a").expect("a path");
        let mut watches = Watches::default();
        let event = ZnodeEvent {
            kind: ZnodeEventKind::DataChanged,
            path: path.clone(),
            acl: Acl::open(),
        };
        for at in [5, 8] {
            watches.changed(&event, Zxid(at));
        }
        assert_eq!(watches.notified(&path, Zxid(4), Zxid(5), true), Ok(()));
        assert!(
            watches.notified(&path, Zxid(4), Zxid(8), true).is_err(),
            "the second change"
        );
        assert_eq!(watches.notified(&path, Zxid(4), Zxid(8), false), Ok(()));
        assert!(
            watches.notified(&path, Zxid(8), Zxid(9), true).is_err(),
            "no change"
        );
        assert_eq!(watches.not_notified(&path, Zxid(5), Zxid(7)), Ok(()));
        assert!(watches.not_notified(&path, Zxid(4), Zxid(7)).is_err());
    }
}
