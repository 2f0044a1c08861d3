//! Looks at locks, for those who may read their znodes.

use znode_store::{LockName, LockSummary, LockView, Refusal, Store, WaitView, Zxid};

use super::{LockError, Locks};

/// So many locks are looked at in one go for those who may not see most of them: nothing is applied meanwhile, and with fewer
/// most of the time would go into beginning again.
const LOOKED_AT_ONCE: usize = 256;

/// Some of the locks in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockPage {
    /// By name, without those that the caller may not read.
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

    /// The same with at most `most` of those who hold it, and of those who wait; and how many there are in all.
    pub fn get_within(&self, lock: &LockName, most: usize) -> Result<(LockView, LockSummary), Refusal> {
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

    /// The first `count` of the locks in use as this node knows them, of those that the caller may read: by name, beginning
    /// with `prefix`, after `after`. Refused is a caller that is not let in at all.
    ///
    /// What it may not see is passed over, however much there is of it: a page that ended at such a lock would have to name it,
    /// for the next one to go on. The state is free between the looks of one call, so who may see little keeps nobody waiting,
    /// and a list is not of one moment.
    pub fn list(&self, prefix: &str, after: Option<&str>, count: usize) -> Result<LockPage, Refusal> {
        // One more than is shown tells whether there is a next page.
        let wanted = count.saturating_add(1);
        let (mut seen, mut after, mut at_once) = (Vec::new(), after.map(str::to_owned), wanted);
        loop {
            let (some, last) = self.look_on(prefix, after.as_deref(), at_once)?;
            seen.extend(some);
            match last {
                Some(last) if seen.len() < wanted => after = Some(last.as_str().to_owned()),
                _ => break,
            }
            at_once = at_once.max(LOOKED_AT_ONCE);
        }
        let more = seen.len() > count;
        seen.truncate(count);
        let next_after = seen.last().filter(|_| more).map(|last| last.lock.clone());
        let locks = seen;
        Ok(LockPage { locks, next_after })
    }

    /// The next `count` of all locks in use, without those that the caller may not read; and the last one of them all, if
    /// others may follow it.
    fn look_on(
        &self,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> Result<(Vec<LockSummary>, Option<LockName>), Refusal> {
        self.shared.node.read(|store| {
            store.seen_by(&self.caller).admission()?;
            let mut locks = store.locks(prefix, after, count);
            let is_full = locks.len() == count;
            let last = locks.last().filter(|_| is_full).map(|last| last.lock.clone());
            locks.retain(|summary| self.may_read(store, &summary.lock).is_ok());
            Ok((locks, last))
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
