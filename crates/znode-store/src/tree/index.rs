//! Index of a node in the slab.

use serde::{Deserialize, Serialize};

/// Where a node lies in the slab. An index is reused after its node is gone, and it is different on
/// another replica: nothing visible may depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct NodeIndex(pub(crate) u32);

impl NodeIndex {
    /// The root never moves. It is its own parent.
    pub(crate) const ROOT: NodeIndex = NodeIndex(0);
    /// `/zookeeper`. It and its first two children are there from the beginning, are never deleted, and never move.
    pub(crate) const SYSTEM: NodeIndex = NodeIndex(1);
    /// `/zookeeper/quota`.
    pub(crate) const QUOTA: NodeIndex = NodeIndex(2);
    /// `/zookeeper/config`.
    pub(crate) const CONFIG: NodeIndex = NodeIndex(3);

    /// Whether the node is one of those that are there from the beginning.
    pub(crate) fn is_special(self) -> bool {
        self <= Self::CONFIG
    }
}
