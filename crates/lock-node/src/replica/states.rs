//! Digests of this node's state at positions at which other nodes compute digests, too.

use std::collections::VecDeque;

use znode_store::Store;

use raft_log::sync::Mutex;
use raft_node::audit::StateDigest;

/// Number of entries between two stored digests: one is stored after each entry whose index is a multiple of this. Without them digests could not
/// be compared under load, because no two nodes are then at the same position when they are asked.
pub(super) const ENTRIES_BETWEEN: u64 = 1_024;

/// Number of stored digests. A follower that is further behind is compared when it has caught up.
const KEPT: usize = 8;

/// Digests of earlier states, the oldest first.
#[derive(Debug, Default)]
pub(super) struct States {
    kept: Mutex<VecDeque<StateDigest>>,
}

impl States {
    /// Stores the digest of the state after the entry at `index`, if that is an index for comparisons.
    pub fn applied(&self, index: u64, store: &Store) {
        if index.is_multiple_of(ENTRIES_BETWEEN) {
            let mut kept = self.kept.lock();
            if kept.len() == KEPT {
                kept.pop_front();
            }
            kept.push_back(digest_of(store));
        }
    }

    /// Returns the stored digests, and after them that of the `present` state.
    pub fn with_present(&self, present: &Store) -> Vec<StateDigest> {
        let present = digest_of(present);
        let mut states: Vec<StateDigest> = self.kept.lock().iter().copied().collect();
        if states.last().is_none_or(|last| last.zxid != present.zxid) {
            states.push(present);
        }
        states
    }

    /// Drops all digests, because a snapshot has replaced the state.
    pub fn replaced(&self) {
        self.kept.lock().clear();
    }
}

fn digest_of(store: &Store) -> StateDigest {
    StateDigest {
        zxid: store.zxid().0,
        digest: store.digest(),
    }
}
