//! The kinds of watches, one at a time and as a set, and which of them an event concerns.

use core::ops::{BitAnd, BitOr};

use znode_store::ZnodeEventKind;

/// What a watch waits for, and whether it stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WatchKind {
    /// Once: the znode is created, deleted, or its data is replaced. `getData` and `exists` leave such a watch.
    Data,
    /// Once: a child comes or goes, or the znode itself is deleted. `getChildren` leaves such a watch.
    Children,
    /// As both, and stays. `addWatch` with the mode `PERSISTENT`.
    Persistent,
    /// The znode or anything below it is created, deleted, or its data is replaced; and stays. That a child came or
    /// went is told by the child's own event. `addWatch` with the mode `PERSISTENT_RECURSIVE`.
    PersistentRecursive,
}

impl WatchKind {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 4] = [
        Self::Data,
        Self::Children,
        Self::Persistent,
        Self::PersistentRecursive,
    ];
}

/// Which watches are to be removed, or looked for. The numbers are ZooKeeper's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WatcherType {
    /// Those of `getChildren`.
    Children = 1,
    /// Those of `getData` and `exists`.
    Data = 2,
    /// Whatever there is.
    Any = 3,
    /// Those of `addWatch` with the mode `PERSISTENT`.
    Persistent = 4,
    /// Those of `addWatch` with the mode `PERSISTENT_RECURSIVE`.
    PersistentRecursive = 5,
}

/// A set of kinds: what one watcher has at one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kinds(u8);

impl Kinds {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const DATA: Self = Self(1);
    pub(crate) const CHILDREN: Self = Self(2);
    pub(crate) const PERSISTENT: Self = Self(4);
    pub(crate) const RECURSIVE: Self = Self(8);
    pub(crate) const ALL: Self = Self(15);

    /// Those that end with the event that they waited for.
    pub(crate) const ONE_SHOT: Self = Self(Self::DATA.0 | Self::CHILDREN.0);

    /// Those of a node itself that an event of it concerns.
    ///
    /// ZooKeeper keeps data and child watches in two tables: a creation and a change of data look into the one, a
    /// change of children into the other, a deletion into both. Persistent watches stand in both.
    pub(crate) fn triggered_by(event: ZnodeEventKind) -> Self {
        match event {
            ZnodeEventKind::Created | ZnodeEventKind::DataChanged => {
                Self::DATA | Self::PERSISTENT | Self::RECURSIVE
            }
            ZnodeEventKind::Deleted => Self::ALL,
            ZnodeEventKind::ChildrenChanged => Self::CHILDREN | Self::PERSISTENT,
        }
    }

    pub(crate) fn contains(self, all: Self) -> bool {
        self & all == all
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Self::NONE
    }

    pub(crate) fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    pub(crate) fn len(self) -> u32 {
        self.0.count_ones()
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = WatchKind> {
        WatchKind::ALL
            .into_iter()
            .filter(move |&kind| self.contains(kind.into()))
    }
}

impl BitOr for Kinds {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Kinds {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl From<WatchKind> for Kinds {
    fn from(kind: WatchKind) -> Self {
        match kind {
            WatchKind::Data => Self::DATA,
            WatchKind::Children => Self::CHILDREN,
            WatchKind::Persistent => Self::PERSISTENT,
            WatchKind::PersistentRecursive => Self::RECURSIVE,
        }
    }
}

impl From<WatcherType> for Kinds {
    fn from(which: WatcherType) -> Self {
        match which {
            WatcherType::Children => Self::CHILDREN,
            WatcherType::Data => Self::DATA,
            WatcherType::Any => Self::ALL,
            WatcherType::Persistent => Self::PERSISTENT,
            WatcherType::PersistentRecursive => Self::RECURSIVE,
        }
    }
}
