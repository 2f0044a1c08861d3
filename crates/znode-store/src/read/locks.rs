//! Queries of locks for front ends and operators.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::locks::contender::Contender;
use crate::locks::deadlock::MAX_GRAPH_WAITS;
use crate::locks::name;
use crate::locks::queue::{Queue, QueuePosition};
use crate::locks::view::{
    BoundedHold, ClosedLock, ClosedView, ContenderState, ContenderView, HoldingLease, LeaseView, LockCounts,
    LockSummary, LockUse, LockView, WaitView,
};
use crate::model::address::CallerAddress;
use crate::model::event::Hold;
use crate::model::ids::{LeaseKey, SessionId, Zxid};
use crate::model::lock::{AttemptId, HolderId, LockMode, Revocation};
use crate::model::path::{LockName, ZPath};
use crate::read::pages::MAX_LOOKED_AT;
use crate::store::Store;
use crate::tree::index::NodeIndex;

/// Maximum number of znodes in a view of a lock that block recipes of ZooKeeper clients.
const MAX_BLOCKING_ZNODES: usize = 100;

impl Store {
    /// Returns a lock with its holders and its queue; `None` if its znode does not exist.
    pub fn lock(&self, lock: &LockName) -> Option<LockView> {
        self.lock_within(lock, usize::MAX)
    }

    /// Returns a lock with at most `most` of its holders, and of its waiters.
    pub fn lock_within(&self, lock: &LockName, most: usize) -> Option<LockView> {
        let index = self.tree.find(lock.znode())?;
        let terms = self.locks.terms(lock);
        let closed = self.locks.state(lock).and_then(|state| state.closed);
        let queue = self.locks.queue(lock);
        let waiters = queue.into_iter().flat_map(Queue::waiters);
        let contenders = queue.map_or(0, Queue::len);
        let blocking_znodes = match self.tree.node(index).num_children() > contenders {
            true => self.blocking_znodes(index),
            false => Vec::new(),
        };
        Some(LockView {
            lock: lock.clone(),
            mode: queue.and_then(|queue| queue.mode(terms)),
            limit: terms.limit,
            draining: terms.draining,
            closed: closed.map(|closed| ClosedView {
                since_ms: closed.at_ms,
                delay_ms: closed.delay_ms,
                passed_ms: closed.passed_ms,
            }),
            holders: queue
                .into_iter()
                .flat_map(Queue::holders)
                .take(most)
                .map(|holder| self.contender_view(index, holder, true))
                .collect(),
            queue: waiters
                .take(most)
                .map(|waiter| self.contender_view(index, waiter, false))
                .collect(),
            blocking_znodes,
        })
    }

    /// Returns the names of children of a lock's znode that are named like contenders and belong to no session, by name:
    /// [`MAX_BLOCKING_ZNODES`] at most, among [`MAX_LOOKED_AT`] children.
    fn blocking_znodes(&self, lock: NodeIndex) -> Vec<Arc<str>> {
        let children = self.tree.children(lock).take(MAX_LOOKED_AT);
        let nodes = children.map(|child| self.tree.node(child));
        let blocking = nodes.filter(|node| node.session().is_none() && name::recognise(&node.name).is_some());
        let mut names: Vec<Arc<str>> = blocking
            .take(MAX_BLOCKING_ZNODES)
            .map(|node| Arc::from(&*node.name))
            .collect();
        names.sort_unstable();
        names
    }

    /// Returns the holders of a lock, in order of arrival, as in [`Event::HoldBegan`](crate::Event::HoldBegan). The beginning of a
    /// ZooKeeper client's hold is not known.
    pub fn holds_of(&self, lock: &LockName) -> Vec<Arc<Hold>> {
        self.first_holds_of(lock, usize::MAX)
    }

    /// Returns the first `count` holders of a lock, as [`Store::holds_of`] does.
    pub fn first_holds_of(&self, lock: &LockName, count: usize) -> Vec<Arc<Hold>> {
        let holders = self.locks.queue(lock).into_iter().flat_map(Queue::holders);
        holders
            .take(count)
            .map(|holder| self.hold(lock, holder))
            .collect()
    }

    /// Returns whether a contender holds a lock, by its name and its token.
    pub fn is_held_by(&self, lock: &LockName, token: Zxid, holder: &str) -> bool {
        let mut holders = self.locks.queue(lock).into_iter().flat_map(Queue::holders);
        holders.any(|known| known.token() == token && known.name() == holder)
    }

    /// Returns up to `count` of the locks in use (with contenders), by name: with names that begin with `prefix` and follow `after`.
    pub fn locks(&self, prefix: &str, after: Option<&str>, count: usize) -> Vec<LockSummary> {
        let page = self.locks.page(prefix, after).take(count);
        page.map(|(lock, queue)| self.locks.summary_of(lock, queue))
            .collect()
    }

    /// Returns the summary of a lock, or `None` if it is not in use.
    pub fn lock_summary(&self, lock: &LockName) -> Option<LockSummary> {
        self.locks
            .queue(lock)
            .map(|queue| self.locks.summary_of(lock, queue))
    }

    /// Returns the number of locks in use.
    pub fn lock_count(&self) -> usize {
        self.locks.in_use()
    }

    /// Returns the number of locks in use, of holders and of waiters. Costs nothing.
    pub fn lock_counts(&self) -> LockCounts {
        self.locks.counts()
    }

    /// Counts locks, holders and waiters over up to `count` locks with names that begin with `prefix` and follow `after`. Also returns the last of
    /// these locks, if there may be more. It visits each lock, and copies none.
    pub fn lock_counts_below(
        &self,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> (LockCounts, Option<LockName>) {
        let mut counts = LockCounts::default();
        let mut last = None;
        for (lock, queue) in self.locks.page(prefix, after).take(count) {
            counts.locks += 1;
            counts.holders += queue.holding();
            counts.waiters += queue.len() - queue.holding();
            last = Some(lock);
        }
        let last = last.filter(|_| counts.locks == count).cloned();
        (counts, last)
    }

    /// Returns the time of a contender's creation in milliseconds since 1970, from which the duration of its wait follows.
    pub fn contender_came_ms(&self, lock: &LockName, holder: &str) -> Option<u64> {
        let lock = self.tree.find(lock.znode())?;
        let node = self.tree.child(lock, holder)?;
        Some(self.tree.node(node).ctime_ms)
    }

    /// Returns the state of the contender `holder` of a lock; `None` if it does not exist.
    pub fn contender_state(&self, lock: &LockName, holder: &str) -> Option<ContenderState> {
        Some(self.contender(lock, holder)?.state())
    }

    /// Returns the contenders of a session in order of creation: the lock, the contender, and whether it holds.
    pub fn contenders_of(&self, session: SessionId) -> Vec<(LockName, HolderId, bool)> {
        self.first_contenders_of(session, usize::MAX).0
    }

    /// Returns the contenders among the first `most` of a session's ephemeral znodes, or fewer if their paths are long; and whether these
    /// are all.
    pub fn first_contenders_of(
        &self,
        session: SessionId,
        most: usize,
    ) -> (Vec<(LockName, HolderId, bool)>, bool) {
        let Some(state) = self.sessions.get(session) else {
            return (Vec::new(), true);
        };
        let (oldest, _) = state.oldest_ephemerals(&self.tree, most);
        let is_all = oldest.len() == state.ephemerals.len();
        let standing = |(_, path, _): (Zxid, ZPath, NodeIndex)| {
            let lock = LockName::of_contender(&path)?;
            let found = self.contender(&lock, path.name())?;
            Some((
                lock,
                path.name().into(),
                found.queue_position == QueuePosition::Holds,
            ))
        };
        (oldest.into_iter().filter_map(standing).collect(), is_all)
    }

    /// Returns whether a holder of the lock has this fencing token.
    pub fn is_held_with(&self, lock: &LockName, token: Zxid) -> bool {
        let mut holders = self.locks.queue(lock).into_iter().flat_map(Queue::holders);
        holders.any(|holder| holder.token() == token)
    }

    /// Returns the contender that stands for a call of `acquire` or `upgrade`; `None` if there is none (any more). It is for callers
    /// that did not receive the outcome.
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
            let record = contender.record.as_ref()?;
            let is_its = record.knows(attempt) || record.upgrades_by(attempt);
            is_its.then(|| String::from(contender.name()))
        })
    }

    fn contender_view(&self, lock: NodeIndex, contender: &Contender, holds: bool) -> ContenderView {
        let none = ContenderView {
            holder: String::from(contender.name()),
            session: contender.session,
            owner: Arc::default(),
            note: Arc::default(),
            address: CallerAddress::default(),
            mode: contender.request.mode,
            permits: contender.request.permits,
            holds: contender.holds(),
            fencing_token: contender.token(),
            since_ms: 0,
            lock_delay_ms: 0,
            bounds: contender.bounds(),
            upgrading_since_ms: None,
            revoke: None,
        };
        let Some(record) = &contender.record else {
            let index = self.tree.child(lock, contender.name());
            let node = self.tree.node(index.expect("every contender has a znode"));
            return ContenderView {
                since_ms: node.ctime_ms,
                ..none
            };
        };
        let upgrade = record.upgrade.as_ref().filter(|upgrade| !upgrade.done);
        ContenderView {
            owner: record.owner.clone(),
            note: record.note.clone(),
            address: record.address.clone(),
            since_ms: record.granted_ms.filter(|_| holds).unwrap_or(record.since_ms),
            lock_delay_ms: record.lock_delay_ms,
            upgrading_since_ms: upgrade.map(|upgrade| upgrade.since_ms),
            revoke: record.revoke.clone(),
            ..none
        }
    }

    /// Returns the waits over the locks whose names begin with `prefix`: at most [`MAX_GRAPH_WAITS`] of all waits, and whether these are
    /// all.
    pub fn wait_graph(&self, prefix: &str) -> (Vec<WaitView>, bool) {
        let mut waits = Vec::new();
        for (lock, queue) in self.locks.page(prefix, None) {
            let room = MAX_GRAPH_WAITS - waits.len();
            if self.locks.wait_views(lock, queue, 0, room, &mut waits).is_some() {
                return (waits, false);
            }
        }
        (waits, true)
    }

    /// Returns the live lease with this key; `None` if there is none.
    pub fn lease(&self, key: &LeaseKey) -> Option<LeaseView> {
        let found = self.leased(key)?;
        Some(LeaseView {
            timeout_ms: self.sessions.get(key.session)?.timeout_ms,
            note: found.record.as_ref()?.note.clone(),
            contender: found.state(),
            lock: found.lock,
        })
    }

    /// Returns how a lock is used. A lease whose end is being applied does not hold its lock any more.
    pub fn lock_use(&self, lock: &LockName) -> LockUse {
        let Some(queue) = self.locks.queue(lock).filter(|queue| !queue.is_empty()) else {
            return LockUse::Free;
        };
        let holder = queue
            .holders()
            .next()
            .filter(|holder| holder.request.mode == LockMode::Exclusive);
        let leased = holder.and_then(|holder| {
            let session = self
                .sessions
                .get(holder.session)
                .filter(|session| session.is_lease)?;
            Some(HoldingLease {
                session: holder.session,
                timeout_ms: session.timeout_ms,
                note: holder.record.as_ref()?.note.clone(),
                fencing_token: holder.token(),
            })
        });
        leased.map_or(LockUse::Other, LockUse::Leased)
    }

    /// Returns the hold of a contender if it has bounds in time.
    pub fn bounded_hold(&self, lock: &LockName, holder: &str) -> Option<BoundedHold> {
        let found = match self.locks.has_bounded() {
            true => self.contender(lock, holder)?,
            false => return None,
        };
        let record = found.record.as_ref()?;
        let (bounds, granted_ms) = (record.bounds, record.granted_ms?);
        (bounds.is_some() && found.queue_position == QueuePosition::Holds).then(|| BoundedHold {
            lock: lock.clone(),
            holder: holder.into(),
            granted_ms,
            bounds,
        })
    }

    /// Returns all holds that have bounds in time.
    pub fn bounded_holds(&self) -> Vec<BoundedHold> {
        let bounded = self.locks.bounded();
        bounded
            .filter_map(|(path, lock)| self.bounded_hold(lock, path.name()))
            .collect()
    }

    /// Returns the locks that are closed for a lock-delay. The leader counts the time and proposes to open them.
    pub fn closed_locks(&self) -> Vec<ClosedLock> {
        self.locks.closed().collect()
    }

    /// Returns the unanswered release requests of a session's holders: the lock, the contender, the request.
    pub fn revocations(&self, session: SessionId) -> Vec<(LockName, HolderId, Revocation)> {
        let asked = self.locks.asked(session).filter_map(|(lock, holder)| {
            let found = self.contender(lock, holder)?;
            let revoke = found.record.as_ref()?.revoke.clone()?;
            Some((lock.clone(), String::from(holder), revoke))
        });
        asked.collect()
    }
}
