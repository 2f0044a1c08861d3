//! Watches tell of the first change after what was read, once, and of nothing else; and whoever waits at a node that lives
//! on hears of it.

use std::collections::{BTreeMap, BTreeSet};

use znode_store::{ZPath, ZnodeEvent, ZnodeEventKind, Zxid};

use super::Check;

/// When which znode was changed, and which machines have taken a snapshot's state since when.
#[derive(Default)]
pub struct Watches {
    changes: BTreeMap<ZPath, BTreeSet<u64>>,
    replaced: BTreeMap<usize, u64>,
    fired: u64,
}

impl Watches {
    /// How many watches have fired.
    pub fn fired(&self) -> u64 {
        self.fired
    }

    /// A znode was changed, at a position that no machine had reached before.
    pub fn changed(&mut self, event: &ZnodeEvent, at: Zxid) {
        if event.kind != ZnodeEventKind::ChildrenChanged {
            self.changes.entry(event.path.clone()).or_default().insert(at.0);
        }
    }

    /// A machine's state was replaced: what its watches are told then has the position of the snapshot.
    pub fn replaced(&mut self, machine: usize) {
        *self.replaced.entry(machine).or_default() += 1;
    }

    /// How often that has happened to a machine.
    pub fn replacements(&self, machine: usize) -> u64 {
        self.replaced.get(&machine).copied().unwrap_or_default()
    }

    fn first_after(&self, path: &ZPath, read: Zxid) -> Option<u64> {
        self.changes.get(path)?.range(read.0 + 1..).next().copied()
    }

    /// A watch that was left when `read` was the position told of a change at `told`. With `surely` that is the position of
    /// the change, else the last one that it can have been.
    pub fn told(&mut self, path: &ZPath, read: Zxid, told: Zxid, surely: bool) -> Check {
        self.fired += 1;
        match self.first_after(path, read) {
            Some(first) if first == told.0 || !surely && first <= told.0 => Ok(()),
            Some(first) => Err(format!(
                "a watch of {path}, left at {read}, told of {told}, and the first change was at {first}"
            )),
            None => Err(format!(
                "a watch of {path}, left at {read}, told of {told}, when nothing was changed"
            )),
        }
    }

    /// A watch that was left at `read` has told nothing until its node had applied up to `now`.
    pub fn silent(&self, path: &ZPath, read: Zxid, now: Zxid) -> Check {
        match self.first_after(path, read) {
            Some(first) if first <= now.0 => Err(format!(
                "a watch of {path}, left at {read}, told nothing until {now}, and there was a change at {first}"
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
    fn a_notice_too_many_or_too_few_is_noticed() {
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
        assert_eq!(watches.told(&path, Zxid(4), Zxid(5), true), Ok(()));
        assert!(watches.told(&path, Zxid(4), Zxid(8), true).is_err(), "the second");
        assert_eq!(watches.told(&path, Zxid(4), Zxid(8), false), Ok(()));
        assert!(watches.told(&path, Zxid(8), Zxid(9), true).is_err(), "nothing");
        assert_eq!(watches.silent(&path, Zxid(5), Zxid(7)), Ok(()));
        assert!(watches.silent(&path, Zxid(4), Zxid(7)).is_err());
    }
}
