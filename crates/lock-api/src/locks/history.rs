//! Who may see a lock's history. What is in it is the node's business.

use raft_node::LockHistory;
use znode_store::LockName;

use super::{LockHistoryError, Locks};

impl Locks {
    /// Who held a lock and who holds it, as this node remembers it: the latest first, at most `count` of those whose token
    /// is smaller than `before`. A lock that nobody remembers has an empty history.
    ///
    /// It is for those who may read the lock's znode; when that is gone, for those who may read the next one above it.
    pub async fn history(
        &self,
        lock: &LockName,
        before: Option<u64>,
        count: usize,
    ) -> Result<LockHistory, LockHistoryError> {
        self.shared
            .node
            .read(|store| store.seen_by(&self.caller).lock_history(lock))?;
        Ok(self.shared.node.lock_history(lock, before, count).await?)
    }
}
