//! Views of locks, for callers that may read their znodes.

use znode_store::{LockName, LockSummary, LockView, MAX_GRAPH_WAITS, Refusal, Store, WaitView, Zxid};

pub use znode_store::LockPage;

use super::{LockError, Locks};

impl Locks {
    /// Returns the waits in this node's state, of the locks whose names begin with `prefix` and that the caller may
    /// read, at most [`MAX_GRAPH_WAITS`]; and `true` if these are all. They are collected in portions between which
    /// other tasks run, so they are not a snapshot of one moment.
    pub async fn graph(&self, prefix: &str) -> Result<(Vec<WaitView>, bool), Refusal> {
        let node = &self.shared.node;
        let (mut waits, mut from) = (Vec::new(), None);
        loop {
            let part = node.read(|store| store.seen_by(&self.caller).wait_graph_part(prefix, from.as_ref()));
            let (more, next) = part?;
            waits.extend(more);
            from = next;
            if from.is_none() || waits.len() >= MAX_GRAPH_WAITS {
                break;
            }
            tokio::task::yield_now().await;
        }
        let complete = from.is_none() && waits.len() <= MAX_GRAPH_WAITS;
        waits.truncate(MAX_GRAPH_WAITS);
        Ok((waits, complete))
    }

    /// Returns a lock in this node's state, with at most `most` of its holders and of its waiters, and their total
    /// numbers. Like [`Locks::check`], it requires the right to read the lock's znode.
    pub fn get(&self, lock: &LockName, most: usize) -> Result<(LockView, LockSummary), Refusal> {
        self.shared.node.read(|store| {
            let view = store.seen_by(&self.caller).lock_within(lock, most)?;
            let unused = || LockSummary {
                lock: lock.clone(),
                mode: None,
                holders: 0,
                waiters: 0,
            };
            Ok((view, store.lock_summary(lock).unwrap_or_else(unused)))
        })
    }

    /// Returns the first `count` of the locks in use that the caller may read, in this node's state: by name, beginning
    /// with `prefix`, after `after`. An unauthenticated caller is rejected.
    ///
    /// The number of locks examined for a page is bounded, so a page may have fewer locks, or none, and not be the last
    /// one.
    pub fn list(&self, prefix: &str, after: Option<&str>, count: usize) -> Result<LockPage, Refusal> {
        let node = &self.shared.node;
        node.read(|store| store.seen_by(&self.caller).locks_page(prefix, after, count))
    }

    /// Returns `true` if a holder of the lock has this fencing token now. The read is linearizable, because the caller
    /// protects a resource with the answer. A lock that does not exist has no holder.
    pub async fn check(&self, lock: &LockName, token: Zxid) -> Result<bool, LockError> {
        self.shared.node.read_barrier().await?;
        let held = self.shared.node.read(|store| match self.may_read(store, lock) {
            Ok(()) => Ok(store.is_held_with(lock, token)),
            Err(Refusal::NoLock(_)) => Ok(false),
            Err(refusal) => Err(refusal),
        });
        Ok(held?)
    }

    /// Rejects a caller that may not read the lock's znode.
    fn may_read(&self, store: &Store, lock: &LockName) -> Result<(), Refusal> {
        match store.seen_by(&self.caller).get(lock.znode()) {
            Ok(_) => Ok(()),
            Err(Refusal::NoNode(_)) => Err(Refusal::NoLock(lock.clone())),
            Err(refusal) => Err(refusal),
        }
    }
}
