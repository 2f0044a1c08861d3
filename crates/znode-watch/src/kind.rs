//! Kinds of watches, single and as a set, and the events that trigger each.

use core::ops::{BitAnd, BitOr};

use znode_store::ZnodeEventKind;

/// Kind of a watch: the events that trigger it, and whether it persists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WatchKind {
    /// One-shot: the znode is created or deleted, or its data is set. `getData` and `exists` leave
    /// such a watch.
    Data,
    /// One-shot: a child is created or deleted, or the znode itself is deleted. `getChildren`
    /// leaves such a watch.
    Children,
    /// Persistent: all of these events. `addWatch` with the mode `PERSISTENT`.
    Persistent,
    /// Persistent: the znode or a descendant is created or deleted, or its data is set. It does not
    /// fire for changes of children, as the child's own event reports them. `addWatch` with the
    /// mode `PERSISTENT_RECURSIVE`.
    PersistentRecursive,
}

impl WatchKind {
    /// All kinds, in the order of their declaration.
    pub const ALL: [Self; 4] = [
        Self::Data,
        Self::Children,
        Self::Persistent,
        Self::PersistentRecursive,
    ];
}

/// Selector of the watches to remove or to look up. The numbers are ZooKeeper's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WatcherType {
    /// Child watches, left by `getChildren`.
    Children = 1,
    /// Data watches, left by `getData` and `exists`.
    Data = 2,
    /// All watches.
    Any = 3,
    /// Watches that `addWatch` armed with the mode `PERSISTENT`.
    Persistent = 4,
    /// Watches that `addWatch` armed with the mode `PERSISTENT_RECURSIVE`.
    PersistentRecursive = 5,
}

/// Set of kinds: the watches of one watcher at one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kinds(u8);

impl Kinds {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const DATA: Self = Self(1);
    pub(crate) const CHILDREN: Self = Self(2);
    pub(crate) const PERSISTENT: Self = Self(4);
    pub(crate) const RECURSIVE: Self = Self(8);
    pub(crate) const ALL: Self = Self(15);

    /// Kinds that fire once.
    pub(crate) const ONE_SHOT: Self = Self(Self::DATA.0 | Self::CHILDREN.0);

    /// Returns the kinds at a znode that an event of this znode triggers.
    ///
    /// ZooKeeper keeps data and child watches in two tables: a creation and a change of data
    /// consult the one, a change of children the other, a deletion both. Persistent watches are in
    /// both tables.
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
