//! Index of a node in the slab.

use serde::{Deserialize, Serialize};

/// Index of a node in the slab. It is reused after the removal of its node, and differs between replicas, so nothing visible may depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct NodeIndex(pub(crate) u32);

impl NodeIndex {
    /// Index of the root, which never moves and is its own parent.
    pub(crate) const ROOT: NodeIndex = NodeIndex(0);
    /// Index of `/zookeeper`. It and its first two children exist from the beginning, are never deleted, and never move.
    pub(crate) const SYSTEM: NodeIndex = NodeIndex(1);
    /// Index of `/zookeeper/quota`.
    pub(crate) const QUOTA: NodeIndex = NodeIndex(2);
    /// Index of `/zookeeper/config`.
    pub(crate) const CONFIG: NodeIndex = NodeIndex(3);

    /// Returns whether the node is one of those that exist from the beginning.
    pub(crate) fn is_special(self) -> bool {
        self <= Self::CONFIG
    }
}
