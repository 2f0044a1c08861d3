//! All locks that are in use, by name. It follows from the tree and is rebuilt by a restore; it learns of every
//! contender that comes or goes, whoever made it, and of nothing else.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::ops::Bound;

use super::contender::Facts;
use super::queue::{Contender, Queue};
use crate::ids::{Data, SessionId, Zxid};
use crate::path::LockName;

/// See the module.
#[derive(Default)]
pub(crate) struct LockTable {
    /// Locks without contenders are not in it.
    queues: BTreeMap<ByName, Queue>,
    /// Locks whose waiters may have got a chance in this command, in no order, some perhaps twice.
    touched: Vec<LockName>,
}

/// A lock's name as a key that is found by its text.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ByName(LockName);

impl Borrow<str> for ByName {
    fn borrow(&self) -> &str {
        self.0.as_str()
    }
}

impl LockTable {
    /// An ephemeral node came to be below a lock's znode: by a lock command, by a ZooKeeper client, or by a
    /// restore. Most such nodes are contenders; it holds nothing before the end of the command.
    pub(crate) fn contender_created(
        &mut self,
        lock: &LockName,
        name: &str,
        data: &Data,
        session: SessionId,
        czxid: Zxid,
    ) {
        let Some(facts) = Facts::read(name, data.as_bytes()) else {
            return;
        };
        self.touched.push(lock.clone());
        self.queues
            .entry(ByName(lock.clone()))
            .or_default()
            .insert(Contender {
                czxid,
                number: facts.number,
                name: name.into(),
                session,
                claim: facts.claim,
                joined_by: facts
                    .record
                    .filter(|record| record.reentrant)
                    .map(|record| record.owner),
            });
    }

    /// Takes out a contender that is gone; returns it if it held the lock.
    pub(super) fn remove(
        &mut self,
        lock: &LockName,
        number: u64,
        czxid: Zxid,
        name: &str,
    ) -> Option<Box<Contender>> {
        let queue = self
            .queues
            .get_mut(lock.as_str())
            .expect("a lock with contenders is in the table");
        let (contender, held) = queue
            .remove((czxid, number, name))
            .expect("every contender is in its lock's queue");
        if queue.is_empty() {
            self.queues.remove(lock.as_str());
        } else {
            self.touched.push(lock.clone());
        }
        held.then_some(contender)
    }

    /// Takes the locks whose waiters may have got a chance, by name.
    pub(super) fn take_touched(&mut self) -> Vec<LockName> {
        let mut touched = core::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    /// Lets in whoever may get in; returns those who did, in order of arrival.
    pub(super) fn promote(&mut self, lock: &LockName) -> Vec<Contender> {
        let Some(queue) = self.queues.get_mut(lock.as_str()) else {
            return Vec::new();
        };
        let newly = queue.promote();
        newly.filter_map(|at| queue.get(at).cloned()).collect()
    }

    /// After a restore: who holds a lock was the rule's decision then and is it now.
    pub(super) fn promote_all(&mut self) {
        self.touched = Vec::new();
        for queue in self.queues.values_mut() {
            queue.promote();
        }
    }

    /// The queue of a lock; `None` if it has no contenders.
    pub(crate) fn queue(&self, lock: &LockName) -> Option<&Queue> {
        self.queues.get(lock.as_str())
    }

    /// Locks in use whose names begin with `prefix` and come after `after`, by name.
    pub(super) fn page<'t>(
        &'t self,
        prefix: &'t str,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'t LockName, &'t Queue)> {
        // Neither needs to be a legal name: "orders/" is a sensible prefix. So they are compared as texts.
        let first = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.queues
            .range::<str, _>((first, Bound::Unbounded))
            .map(|(ByName(lock), queue)| (lock, queue))
            .take_while(move |(lock, _)| lock.as_str().starts_with(prefix))
    }
}
