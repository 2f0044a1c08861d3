//! Queries of the history of a lock.

use observers::history::LockHistory;
use raft_node::Unavailable;
use znode_store::LockName;

use super::Node;

/// Reason for which a node returns no history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The node is configured without a history.
    #[error("the lock history of this node is turned off")]
    Off,
    /// The node cannot read its history now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl Node {
    /// Returns past and current holders of a lock as far as this node has stored them, the latest first: at most `count` with a token below `before`.
    /// Holds with the same token, which a transaction of a ZooKeeper client can create, are not separated, so there may be more.
    ///
    /// The history contains everything that an earlier [`Node::read`] on this node has shown.
    pub async fn lock_history(
        &self,
        lock: &LockName,
        before: Option<u64>,
        count: usize,
    ) -> Result<LockHistory, HistoryError> {
        let history = self.inner.history.clone().ok_or(HistoryError::Off)?;
        let (holds, written) = self.read(|store| (store.holds_of(lock), history.written()));
        let lock = lock.clone();
        let page = raft_node::blocking::run(move || history.page(&lock, before, count, holds, written));
        let page = page.await.map_err(|error| Unavailable::new(error.to_string()))?;
        page.map_err(|unavailable| Unavailable::new(unavailable.to_string()).into())
    }
}
