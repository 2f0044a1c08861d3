//! Looks at locks, for those who may read their znodes.

use znode_store::{LockName, LockSummary, LockView, Refusal, Store, WaitView, Zxid};

use super::{LockError, Locks};

/// Some of the locks in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockPage {
    /// By name, without those that the caller may not read: perhaps fewer than were asked for.
    pub locks: Vec<LockSummary>,
    /// After which name the next page begins; `None` on the last one.
    pub next_after: Option<LockName>,
}

impl Locks {
    /// Who waits for whom as this node knows it, over the locks whose names begin with `prefix` and that the caller may
    /// read; and whether that is all of it.
    pub fn graph(&self, prefix: &str) -> Result<(Vec<WaitView>, bool), Refusal> {
        let node = &self.shared.node;
        node.read(|store| store.seen_by(&self.caller).wait_graph(prefix))
    }

    /// A lock with its holders and its queue as this node knows them. Like its check it is for those who may read its
    /// znode.
    pub fn get(&self, lock: &LockName) -> Result<LockView, Refusal> {
        let node = &self.shared.node;
        node.read(|store| store.seen_by(&self.caller).lock(lock))
    }

    /// The first `count` of the locks in use as this node knows them: by name, beginning with `prefix`, after `after`.
    /// Refused is a caller that is not let in at all.
    pub fn list(&self, prefix: &str, after: Option<&str>, count: usize) -> Result<LockPage, Refusal> {
        self.shared.node.read(|store| {
            store.seen_by(&self.caller).admission()?;
            // One more than is shown tells whether there is a next page.
            let mut locks = store.locks(prefix, after, count.saturating_add(1));
            let more = locks.len() > count;
            locks.truncate(count);
            let next_after = locks.last().filter(|_| more).map(|last| last.lock.clone());
            // Only now: a page takes as long as its length says, however much the caller may not see.
            locks.retain(|summary| self.may_read(store, &summary.lock).is_ok());
            Ok(LockPage { locks, next_after })
        })
    }

    /// Whether a holder of the lock has this token now: linearizable, because whoever asks guards something with the
    /// answer. A lock that does not exist has no holder.
    pub async fn check(&self, lock: &LockName, token: Zxid) -> Result<bool, LockError> {
        self.shared.node.read_barrier().await?;
        let held = self.shared.node.read(|store| match self.may_read(store, lock) {
            Ok(()) => Ok(store.is_held_with(lock, token)),
            Err(Refusal::NoLock(_)) => Ok(false),
            Err(refusal) => Err(refusal),
        });
        Ok(held?)
    }

    /// Refuses to show a lock to a caller that may not read its znode.
    fn may_read(&self, store: &Store, lock: &LockName) -> Result<(), Refusal> {
        match store.seen_by(&self.caller).get(lock.znode()) {
            Ok(_) => Ok(()),
            Err(Refusal::NoNode(_)) => Err(Refusal::NoLock(lock.clone())),
            Err(refusal) => Err(refusal),
        }
    }
}
