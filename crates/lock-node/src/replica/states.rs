//! Digests of this node's state at positions that other nodes have digests of, too.

use std::collections::VecDeque;

use znode_store::Store;

use raft_log::sync::Mutex;
use raft_node::audit::StateDigest;

/// Every entry whose index is a multiple of this leaves a digest: under load no two nodes are at one position when they
/// are asked. A digest costs a look at each session.
pub(super) const ENTRIES_BETWEEN: u64 = 1_024;

/// Digests that are kept. A follower that is further behind is compared when it has caught up.
const KEPT: usize = 8;

/// The digests of earlier states, the oldest first.
#[derive(Debug, Default)]
pub(super) struct States {
    kept: Mutex<VecDeque<StateDigest>>,
}

impl States {
    /// Notes the state as it is after the entry at `index`, if that is one to compare at.
    pub fn applied(&self, index: u64, store: &Store) {
        if index.is_multiple_of(ENTRIES_BETWEEN) {
            let mut kept = self.kept.lock();
            if kept.len() == KEPT {
                kept.pop_front();
            }
            kept.push_back(digest_of(store));
        }
    }

    /// Returns the digests, and that of the `present` state behind them.
    pub fn with_present(&self, present: &Store) -> Vec<StateDigest> {
        let present = digest_of(present);
        let mut states: Vec<StateDigest> = self.kept.lock().iter().copied().collect();
        if states.last().is_none_or(|last| last.zxid != present.zxid) {
            states.push(present);
        }
        states
    }

    /// Another state has taken the place of this one.
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
