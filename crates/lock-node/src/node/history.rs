//! Questions about the history of a lock.

use observers::history::LockHistory;
use raft_node::Unavailable;
use znode_store::LockName;

use super::Node;

/// Why there is no history to see.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The node is configured to keep none.
    #[error("this node keeps no history of locks")]
    Off,
    /// Not now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl Node {
    /// Returns past and present holders of a lock: what this node has stored, the latest first, at most `count` of those whose token is
    /// smaller than `before`. Holds with one token, which a transaction of a ZooKeeper client can create, stay together: then there may be
    /// more.
    ///
    /// It contains everything that an earlier [`Node::read`] here has shown.
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
