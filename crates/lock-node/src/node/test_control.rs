//! Controls for tests besides fail points: they trigger a step at once, and return the exact position of the state. The module exists only with the
//! feature `failpoints`.

use super::{Node, NodeId};

/// Position of a node's state. Two nodes at the same position have the same digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatePosition {
    /// Index of the last log entry that was applied.
    pub index: u64,
    /// Last position of the tree.
    pub zxid: u64,
    /// Digest of the state at that position.
    pub digest: u64,
}

impl Node {
    /// Returns the position of this node's state.
    pub fn state_position(&self) -> StatePosition {
        let replica = &self.inner.replica;
        let store = replica.store.read();
        StatePosition {
            index: self.inner.raft.applied().get().index,
            zxid: store.zxid().0,
            digest: store.digest(),
        }
    }

    /// Begins the transfer of leadership to `to`, and returns before it is complete. Fails if `to` is no voter or openraft has stopped.
    pub async fn hand_leadership_to(&self, to: NodeId) -> Result<(), String> {
        self.inner.raft.hand_leadership_to(to).await
    }
}
