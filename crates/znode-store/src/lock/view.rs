//! Locks as people and front ends see them. Reads only; what is not in the queue is read from the contenders'
//! znodes, so a view costs a little for each contender in it.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::contender::Facts;
use super::queue::{Contender, Queue, Rank};
use crate::command::{AttemptId, HolderId, LockMode};
use crate::event::Hold;
use crate::ids::{SessionId, Zxid};
use crate::path::{LockName, ZPath};
use crate::reply::{Grant, Place};
use crate::store::Store;
use crate::tree::NodeIndex;
use crate::write::lock_of_child;

/// A lock and everybody who has to do with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockView {
    /// Its name.
    pub lock: LockName,
    /// How it is in use; `None` while it has no contenders.
    pub mode: Option<LockMode>,
    /// Those who hold it, in order of arrival.
    pub holders: Vec<ContenderView>,
    /// Those who wait, in order of arrival.
    pub queue: Vec<ContenderView>,
}

/// A holder, or somebody who waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContenderView {
    /// The name of its znode.
    pub holder: HolderId,
    /// Whose it is.
    pub session: SessionId,
    /// The scope of re-entrancy within the session.
    pub owner: Arc<str>,
    /// What its client wrote for people.
    pub note: Arc<str>,
    /// Where its client called from; empty for clients that speak ZooKeeper.
    pub address: Arc<str>,
    /// How it wants (or holds) the lock.
    pub mode: LockMode,
    /// Permits of a semaphore, else 1.
    pub permits: u32,
    /// How often its owner has entered (or, in the queue, would have).
    pub holds: u32,
    /// The position at which it was created.
    pub fencing_token: Zxid,
    /// Since when it holds, or waits, in milliseconds since 1970. When a contender of a ZooKeeper client was let in
    /// is not known; for those it is the time of their creation.
    pub since_ms: u64,
}

/// A lock in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockSummary {
    /// Its name.
    pub lock: LockName,
    /// How it is in use.
    pub mode: Option<LockMode>,
    /// How many hold it.
    pub holders: u32,
    /// How many wait.
    pub waiters: u32,
}

/// Where a contender stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It holds the lock.
    Holds(Grant),
    /// It stands in the queue.
    Waits(Place),
}

impl Store {
    /// A lock with its holders and its queue; `None` if its znode does not exist.
    pub fn lock(&self, lock: &LockName) -> Option<LockView> {
        let index = self.tree.find(lock.znode())?;
        let queue = self.locks.queue(lock);
        let waiters = queue.into_iter().flat_map(Queue::waiters);
        Some(LockView {
            lock: lock.clone(),
            mode: queue.and_then(Queue::mode),
            holders: queue
                .into_iter()
                .flat_map(Queue::holders)
                .map(|holder| self.contender_view(index, holder, true))
                .collect(),
            queue: waiters
                .map(|waiter| self.contender_view(index, waiter, false))
                .collect(),
        })
    }

    /// Those who hold a lock, in order of arrival, as [`Event::HoldBegan`](crate::Event::HoldBegan) tells it; but since
    /// when a ZooKeeper client's contender holds is not known.
    pub fn holds_of(&self, lock: &LockName) -> Vec<Arc<Hold>> {
        let Some(index) = self.tree.find(lock.znode()) else {
            return Vec::new();
        };
        let holders = self.locks.queue(lock).into_iter().flat_map(Queue::holders);
        let hold = |holder: &Contender| {
            let node = self.tree.child(index, &holder.name);
            let node = self.tree.node(node.expect("every contender has a znode"));
            let facts = Facts::read(&node.name, node.data.as_bytes());
            let record = facts.and_then(|facts| facts.record);
            let since_ms = record.as_ref().and_then(|record| record.granted_ms);
            self.hold(lock, holder, record.as_ref(), since_ms)
        };
        holders.map(hold).collect()
    }

    /// Whether a contender holds a lock, by its name and its token.
    pub fn is_held_by(&self, lock: &LockName, token: Zxid, holder: &str) -> bool {
        let mut holders = self.locks.queue(lock).into_iter().flat_map(Queue::holders);
        holders.any(|known| known.czxid == token && *known.name == *holder)
    }

    /// Up to `count` of the locks that are in use (have contenders), by name: those whose names begin with `prefix`
    /// and come after `after`.
    pub fn locks(&self, prefix: &str, after: Option<&str>, count: usize) -> Vec<LockSummary> {
        let page = self.locks.page(prefix, after).take(count);
        page.map(|(lock, queue)| LockSummary {
            lock: lock.clone(),
            mode: queue.mode(),
            holders: count_u32(queue.holding()),
            waiters: count_u32(queue.len() - queue.holding()),
        })
        .collect()
    }

    /// Where the contender `holder` of a lock stands; `None` if there is none of that name.
    pub fn standing(&self, lock: &LockName, holder: &str) -> Option<Standing> {
        let found = self.contender(lock, holder)?;
        Some(match found.rank {
            Rank::Holds => Standing::Holds(found.grant()),
            Rank::Waits { ahead } => Standing::Waits(found.place(ahead)),
        })
    }

    /// The contenders of a session in the order in which they came: the lock, the contender, whether it holds.
    pub fn contenders_of(&self, session: SessionId) -> Vec<(LockName, HolderId, bool)> {
        let Some(state) = self.sessions.get(session) else {
            return Vec::new();
        };
        let mut contenders: Vec<(Zxid, ZPath, LockName, bool)> = state
            .ephemerals
            .iter()
            .filter_map(|&index| {
                let path = self.tree.path(index);
                let lock = lock_of_child(&path)?;
                let found = self.contender(&lock, path.name())?;
                Some((found.czxid, path, lock, found.rank == Rank::Holds))
            })
            .collect();
        contenders.sort_unstable();
        contenders
            .into_iter()
            .map(|(_, path, lock, holds)| (lock, path.name().into(), holds))
            .collect()
    }

    /// Whether a holder of the lock has this fencing token.
    pub fn is_held_with(&self, lock: &LockName, token: Zxid) -> bool {
        let mut holders = self.locks.queue(lock).into_iter().flat_map(Queue::holders);
        holders.any(|holder| holder.czxid == token)
    }

    /// The contender that stands for a call of `acquire`; `None` if none does (any more). For whoever made the call
    /// and did not learn what came of it.
    pub fn holder_of_attempt(
        &self,
        session: SessionId,
        lock: &LockName,
        attempt: AttemptId,
    ) -> Option<HolderId> {
        let queue = self.locks.queue(lock)?;
        let mut own = queue
            .holders()
            .chain(queue.waiters())
            .filter(|contender| contender.session == session);
        own.find_map(|contender| {
            let found = self.contender(lock, &contender.name)?;
            found
                .record?
                .knows(attempt)
                .then(|| String::from(&*contender.name))
        })
    }

    fn contender_view(&self, lock: NodeIndex, contender: &Contender, holds: bool) -> ContenderView {
        let index = self
            .tree
            .child(lock, &contender.name)
            .expect("every contender has a znode");
        let node = self.tree.node(index);
        let facts =
            Facts::read(&node.name, node.data.as_bytes()).expect("a contender's name does not change");
        let holder = String::from(&*contender.name);
        let (holds_count, since_ms) = (facts.holds(), facts.since_ms(holds).unwrap_or(node.ctime_ms));
        let (owner, note, address) = match facts.record {
            Some(record) => (record.owner, record.note, record.address),
            None => ("".into(), "".into(), "".into()),
        };
        ContenderView {
            holder,
            session: contender.session,
            owner,
            note,
            address,
            mode: contender.claim.mode,
            permits: contender.claim.permits,
            holds: holds_count,
            fencing_token: contender.czxid,
            since_ms,
        }
    }
}

/// No lock has four billion contenders: each is a znode, and those are fewer.
fn count_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
