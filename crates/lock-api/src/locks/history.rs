//! Access to a lock's history. The node keeps its contents.

use lock_node::LockHistory;
use znode_store::LockName;

use super::{LockHistoryError, Locks};

impl Locks {
    /// Returns past and present holds of a lock, as this node remembers them: the latest first, at most `count` of
    /// those whose token is smaller than `before`. A lock without remembered holds has an empty history.
    ///
    /// It requires the right to read the lock's znode, or, when that is gone, the next one above it.
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
