//! Table of all locks in use, by name, and of the state that some have besides their queues (`state.rs`). The queues follow from the tree: `apply`
//! reports each contender that is created or ends, whatever client made it, and a restore rebuilds them. The states do not follow from anything
//! else, and are in snapshots.

use alloc::boxed::Box;
use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::ops::Bound;

use crate::locks::contender::{Contender, Position};
use crate::locks::queue::{Queue, QueuePosition};
use crate::locks::state::{Closed, LockState, MAX_CONFIGURED_LOCKS, Terms};
use crate::locks::view::{ClosedLock, LockCounts, LockSummary};
use crate::model::damage::Damage;
use crate::model::event::Event;
use crate::model::ids::{SessionId, Zxid};
use crate::model::lock::HoldBounds;
use crate::model::path::{LockName, ZPath};
use crate::model::refusal::{Limited, Refusal};
use crate::stable_hash::{self, Table};

/// Table of all locks in use.
#[derive(Default)]
pub(crate) struct Locks {
    /// Queues of the locks with contenders.
    queues: BTreeMap<ByName, Queue>,
    /// Number of all contenders, counted for metrics.
    contenders: usize,
    holding: usize,
    /// Locks whose waiters this command may have unblocked, in no order, some perhaps twice.
    touched: Vec<LockName>,
    /// Locks whose next waiter may be granted the lock, because the budget of the last entry that touched the lock ended before it. After each
    /// command these are exactly the locks with such a waiter, so a snapshot need not contain them.
    unfinished: BTreeSet<LockName>,
    /// States of the few locks that have one besides their queue.
    states: BTreeMap<ByName, LockState>,
    /// Number of contenders of each scope. Those of other clients are not counted.
    scopes: Table<Scope, u32>,
    /// Waits of each scope: in a queue, or for an upgrade.
    waits: BTreeMap<Scope, BTreeSet<Wait>>,
    /// Holders with an unanswered release request, by session.
    asked: BTreeMap<SessionId, BTreeSet<(LockName, Arc<str>)>>,
    /// Contenders whose holds have bounds in time, by the paths of their znodes.
    bounded: BTreeMap<ZPath, LockName>,
    /// For the bug [`LeakedPermits`](fault_injection::planted::Bug::LeakedPermits): leaked permits of each lock.
    #[cfg(feature = "planted")]
    leaked: BTreeMap<LockName, u64>,
}

/// Capacity above which a list of touched locks is freed, because few commands need a list of that size.
const MAX_KEPT_LIST: usize = 64;

/// Party of deadlock detection: a session, or one of its threads or tasks.
pub(crate) type Scope = (SessionId, Arc<str>);

/// Wait of a scope: the lock, and the position of the contender.
type Wait = (LockName, (Zxid, u64, Arc<str>));

/// State of a lock in a snapshot, with the number of holders, which does not follow from the queue if there is such a state.
pub(crate) type KeptState = (LockName, LockState, u32);

/// Name of a lock as a key that is found by its text.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ByName(LockName);

impl Borrow<str> for ByName {
    fn borrow(&self) -> &str {
        self.0.as_str()
    }
}

impl Locks {
    /// Adds a contender. If the lock `is_free` and the rule allows it, the contender holds the lock at once. Otherwise it waits, and there is no
    /// grant before the end of the command.
    pub(crate) fn enter(&mut self, lock: &LockName, contender: Contender, is_free: bool) -> QueuePosition {
        if let Some(scope) = contender.scope() {
            *self.scopes.entry(scope).or_insert(0) += 1;
        }
        if contender.is_asked_to_release() {
            self.set_release_requested(contender.session, lock, contender.name(), true);
        }
        if contender.bounds().is_some() {
            self.bounded.insert(contender.path.clone(), lock.clone());
        }
        self.contenders += 1;
        let terms = self.terms(lock);
        let queue = self.queues.entry(ByName(lock.clone())).or_default();
        #[cfg(feature = "planted")]
        if queue.is_empty()
            && let Some(leaked) = self.leaked.get(lock)
        {
            queue.leak(*leaked);
        }
        let ahead = queue.insert(contender);
        if is_free && queue.promote(terms).is_some() {
            self.holding += 1;
            return QueuePosition::Holds;
        }
        self.touched.push(lock.clone());
        QueuePosition::Waits {
            ahead: count_u32(ahead),
        }
    }

    /// Plants the bug of the field `leaked`.
    #[cfg(feature = "planted")]
    pub(crate) fn leak(&mut self, lock: &LockName, permits: u32) {
        let permits = u64::from(permits);
        *self.leaked.entry(lock.clone()).or_default() += permits;
        if let Some(queue) = self.queues.get_mut(lock.as_str()) {
            queue.leak(permits);
        }
    }

    /// Removes a contender that has ended, and returns it and whether it held the lock.
    pub(crate) fn remove(&mut self, lock: &LockName, position: Position<'_>) -> (Box<Contender>, bool) {
        let Entry::Occupied(mut queue) = self.queues.entry(ByName(lock.clone())) else {
            unreachable!("a lock with contenders is in the table");
        };
        let (contender, held) = queue
            .get_mut()
            .remove(position)
            .expect("every contender is in its lock's queue");
        let is_last = queue.get().is_empty();
        if is_last {
            queue.remove();
        }
        self.contenders -= 1;
        self.holding -= usize::from(held);
        if contender.bounds().is_some() {
            self.bounded.remove(&contender.path);
        }
        // The last contender may take a part of the lock's state with it.
        if !is_last || self.state(lock).is_some() {
            self.touched.push(lock.clone());
        }
        if !self.asked.is_empty() {
            self.set_release_requested(contender.session, lock, position.2, false);
        }
        if let Some(scope) = contender.scope() {
            match self.scopes.get_mut(&scope) {
                Some(1) => drop(self.scopes.remove(&scope)),
                Some(count) => *count -= 1,
                None => unreachable!("every contender's scope is counted"),
            }
            self.remove_wait(&scope, lock, position);
        }
        (contender, held)
    }

    /// Adds a wait of a scope.
    pub(crate) fn add_wait(&mut self, scope: Scope, lock: &LockName, (czxid, number, name): Position<'_>) {
        let wait = (lock.clone(), (czxid, number, name.into()));
        self.waits.entry(scope).or_default().insert(wait);
    }

    /// Removes a wait of a scope, if there is one.
    pub(crate) fn remove_wait(&mut self, scope: &Scope, lock: &LockName, position: Position<'_>) {
        // Waits are rare.
        if self.waits.is_empty() {
            return;
        }
        if let Some(waits) = self.waits.get_mut(scope) {
            let (czxid, number, name) = position;
            waits.remove(&(lock.clone(), (czxid, number, name.into())));
            if waits.is_empty() {
                self.waits.remove(scope);
            }
        }
    }

    /// Returns the waits of a scope.
    pub(crate) fn waits_of(&self, scope: &Scope) -> impl Iterator<Item = (&LockName, Position<'_>)> {
        let waits = self.waits.get(scope).into_iter().flatten();
        waits.map(|(lock, (czxid, number, name))| (lock, (*czxid, *number, &**name)))
    }

    /// Returns whether a scope holds a lock or waits for one.
    pub(crate) fn knows(&self, scope: &Scope) -> bool {
        self.scopes.contains_key(scope)
    }

    /// Adds or removes a holder with an unanswered release request.
    pub(crate) fn set_release_requested(
        &mut self,
        session: SessionId,
        lock: &LockName,
        name: &str,
        asked: bool,
    ) {
        let of_session = self.asked.entry(session).or_default();
        let key = (lock.clone(), name.into());
        if asked {
            of_session.insert(key);
        } else {
            of_session.remove(&key);
        }
        if of_session.is_empty() {
            self.asked.remove(&session);
        }
    }

    /// Returns the holders of a session with an unanswered release request.
    pub(crate) fn asked(&self, session: SessionId) -> impl Iterator<Item = (&LockName, &str)> {
        let asked = self.asked.get(&session).into_iter().flatten();
        asked.map(|(lock, name)| (lock, &**name))
    }

    /// Returns whether a lock was touched since the last [`Self::take_touched`].
    pub(crate) fn has_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Returns the locks with grants left to make.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = &LockName> {
        self.unfinished.iter()
    }

    /// Returns whether there are any.
    pub(crate) fn has_unfinished(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// Records whether a lock has grants left to make.
    pub(crate) fn set_unfinished(&mut self, lock: &LockName, is_unfinished: bool) {
        if is_unfinished {
            self.unfinished.insert(lock.clone());
        } else if !self.unfinished.is_empty() {
            self.unfinished.remove(lock);
        }
    }

    /// Touches up to `most` of the locks with grants left to make.
    pub(crate) fn touch_unfinished(&mut self, most: usize) {
        self.touched.extend(self.unfinished.iter().take(most).cloned());
    }

    /// Removes and returns the locks whose waiters may be unblocked, by name.
    pub(crate) fn take_touched(&mut self) -> Vec<LockName> {
        let mut touched = core::mem::take(&mut self.touched);
        if touched.len() > 1 {
            touched.sort_unstable();
            touched.dedup();
        }
        touched
    }

    /// Reuses the list of touched locks, which is empty now, for the next command.
    pub(crate) fn recycle_touched(&mut self, list: Vec<LockName>) {
        debug_assert!(list.is_empty());
        if self.touched.capacity() == 0 && list.capacity() <= MAX_KEPT_LIST {
            self.touched = list;
        }
    }

    /// Returns the waiter that [`Locks::promote`] would grant the lock to.
    pub(crate) fn next(&self, lock: &LockName) -> Option<&Contender> {
        self.queue(lock)?.next(self.terms(lock))
    }

    /// Grants the lock to the next waiter, if the rule allows it.
    pub(crate) fn promote(&mut self, lock: &LockName) -> Option<Contender> {
        let terms = self.terms(lock);
        let newcomer = self.queues.get_mut(lock.as_str())?.promote(terms)?.clone();
        self.holding += 1;
        if let Some(scope) = newcomer.scope() {
            self.remove_wait(&scope, lock, newcomer.position());
        }
        Some(newcomer)
    }

    /// Returns the contenders whose holds have bounds in time, by path.
    pub(crate) fn bounded(&self) -> impl Iterator<Item = (&ZPath, &LockName)> {
        self.bounded.iter()
    }

    /// Returns whether there are any.
    pub(crate) fn has_bounded(&self) -> bool {
        !self.bounded.is_empty()
    }

    /// Replaces a contender, which has a new record with the same bounds.
    pub(crate) fn replace(&mut self, lock: &LockName, contender: Contender) {
        let queue = self
            .queues
            .get_mut(lock.as_str())
            .expect("a lock with contenders is in the table");
        queue.replace(contender);
    }

    /// Records that this command may have unblocked waiters of a lock.
    pub(crate) fn touch(&mut self, lock: &LockName) {
        self.touched.push(lock.clone());
    }

    /// Returns the state of a lock besides its queue, or `None`, as for most locks.
    pub(crate) fn state(&self, lock: &LockName) -> Option<&LockState> {
        match self.states.is_empty() {
            true => None,
            false => self.states.get(lock.as_str()),
        }
    }

    /// Returns the number of locks with contenders.
    pub(crate) fn in_use(&self) -> usize {
        self.queues.len()
    }

    /// Refuses another lock with a state if there are as many as allowed.
    pub(crate) fn may_have_state(&self, lock: &LockName) -> Result<(), Refusal> {
        if self.state(lock).is_some() || self.states.len() < MAX_CONFIGURED_LOCKS {
            return Ok(());
        }
        Err(Refusal::LimitReached {
            what: Limited::ConfiguredLocks,
            limit: MAX_CONFIGURED_LOCKS as u32,
        })
    }

    /// Returns the part of a lock's state that decides about grants.
    pub(crate) fn terms(&self, lock: &LockName) -> Terms {
        self.state(lock).map(LockState::terms).unwrap_or_default()
    }

    /// Changes the state of a lock.
    pub(crate) fn change_state(&mut self, lock: &LockName, change: impl FnOnce(&mut LockState)) {
        let mut state = self.states.remove(lock.as_str()).unwrap_or_default();
        change(&mut state);
        if state != LockState::default() {
            self.states.insert(ByName(lock.clone()), state);
        }
        self.touched.push(lock.clone());
    }

    /// Returns the locks that are closed for a lock-delay.
    pub(crate) fn closed(&self) -> impl Iterator<Item = ClosedLock> {
        self.states.iter().filter_map(|(ByName(lock), state)| {
            let closed = state.closed?;
            Some(ClosedLock {
                lock: lock.clone(),
                at: closed.at,
                delay_ms: closed.delay_ms,
                passed_ms: closed.passed_ms,
            })
        })
    }

    /// Returns the states, as they go into a snapshot; also those of locks with unfinished grants, because there the holders do not follow from the
    /// queue.
    pub(crate) fn kept_states(&self) -> Vec<KeptState> {
        let kept = |lock: &LockName, state| {
            let holding = self.queue(lock).map_or(0, Queue::holding);
            (lock.clone(), state, count_u32(holding))
        };
        let states = (self.states.iter()).map(|(ByName(lock), state)| kept(lock, state.clone()));
        let unfinished = (self.unfinished.iter()).filter(|lock| !self.states.contains_key(lock.as_str()));
        states
            .chain(unfinished.map(|lock| kept(lock, LockState::default())))
            .collect()
    }

    /// Returns the states' share of the digest.
    pub(crate) fn digest(&self) -> u64 {
        let states = self.kept_states();
        match states.is_empty() {
            true => 0,
            false => stable_hash::of(&states),
        }
    }

    /// Completes a restore, after all contenders were added. For a lock without a state of its own the rule decides about the holders, as
    /// before.
    pub(crate) fn restored(&mut self, kept: Vec<KeptState>, newest: Zxid) -> Result<(), Damage> {
        self.touched = Vec::new();
        let mut resumed = BTreeSet::new();
        for (lock, state, holding) in kept {
            let is_wrong = |closed: Closed| closed.at > newest || closed.passed_ms >= closed.delay_ms;
            let queue = self.queues.get_mut(lock.as_str());
            let holds = match queue {
                Some(queue) => queue.resume(holding as usize),
                None => holding == 0,
            };
            let is_withheld = || {
                let queue = self.queues.get(lock.as_str());
                queue.is_some_and(|queue| queue.next(Terms::default()).is_some())
            };
            let is_none = state == LockState::default() && !is_withheld();
            if is_none || state.floor > newest || state.closed.is_some_and(is_wrong) {
                return Err("the state of a lock in it is impossible");
            }
            if !holds || !resumed.insert(lock.clone()) {
                return Err("the holders of a lock in it are impossible");
            }
            if state != LockState::default() {
                self.states.insert(ByName(lock), state);
            }
        }
        for (ByName(lock), queue) in &mut self.queues {
            if !resumed.contains(lock) {
                while queue.promote(Terms::default()).is_some() {}
            }
            let upgrading = self
                .states
                .get(lock.as_str())
                .is_some_and(|state| state.upgrading);
            if queue.upgrading().is_some() != upgrading || queue.waiters().any(Contender::is_upgrading) {
                return Err("an upgrade in it cannot be");
            }
            for contender in queue.waiters().chain(queue.upgrading()) {
                if let Some(scope) = contender.scope() {
                    let position = (contender.czxid, contender.number, contender.name().into());
                    self.waits
                        .entry(scope)
                        .or_default()
                        .insert((lock.clone(), position));
                }
            }
        }
        self.holding = self.queues.values().map(Queue::holding).sum();
        let unfinished = (self.queues.iter())
            .filter(|(ByName(lock), queue)| queue.next(self.terms(lock)).is_some())
            .map(|(ByName(lock), _)| lock.clone());
        self.unfinished = unfinished.collect();
        let orphan = |(ByName(lock), state): (&ByName, &LockState)| {
            state.upgrading && !self.queues.contains_key(lock.as_str())
        };
        match self.states.iter().any(orphan) {
            true => Err("an upgrade in it cannot be"),
            false => Ok(()),
        }
    }

    /// Returns the numbers of locks, holders and waiters.
    pub(crate) fn counts(&self) -> LockCounts {
        LockCounts {
            locks: self.queues.len(),
            holders: self.holding,
            waiters: self.contenders - self.holding,
        }
    }

    /// Returns the queue of a lock, or `None` if it has no contenders.
    pub(crate) fn queue(&self, lock: &LockName) -> Option<&Queue> {
        self.queues.get(lock.as_str())
    }

    /// Returns the locks in use whose names begin with `prefix` and are not before `first`, by name.
    pub(crate) fn page_from<'t>(
        &'t self,
        prefix: &'t str,
        first: &str,
    ) -> impl Iterator<Item = (&'t LockName, &'t Queue)> {
        let first = Bound::Included(first.max(prefix));
        self.queues
            .range::<str, _>((first, Bound::Unbounded))
            .map(|(ByName(lock), queue)| (lock, queue))
            .take_while(move |(lock, _)| lock.as_str().starts_with(prefix))
    }

    /// Returns the locks in use whose names begin with `prefix` and follow `after`, by name.
    pub(crate) fn page<'t>(
        &'t self,
        prefix: &'t str,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'t LockName, &'t Queue)> {
        // Prefix and `after` are compared as texts, because they need not be legal names: "orders/" is a sensible prefix.
        let first = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.queues
            .range::<str, _>((first, Bound::Unbounded))
            .map(|(ByName(lock), queue)| (lock, queue))
            .take_while(move |(lock, _)| lock.as_str().starts_with(prefix))
    }

    /// Returns whether the znode is that of a lock with a state. It must then stay, because an operator has configured the lock, or it is closed.
    pub(crate) fn is_configured(&self, path: &ZPath) -> bool {
        !self.states.is_empty() && LockName::of_parent(path).is_some_and(|lock| self.state(&lock).is_some())
    }

    /// Forgets the floor of a lock once all its waiters have larger positions: their tokens are larger anyway.
    pub(crate) fn lower_floor(&mut self, lock: &LockName) {
        let floor = self.state(lock).map_or(Zxid(0), |state| state.floor);
        if floor == Zxid(0) {
            return;
        }
        let waiter = self.queue(lock).and_then(|queue| queue.waiters().next());
        if waiter.is_none_or(|waiter| waiter.czxid > floor) {
            self.change_state(lock, |state| state.floor = Zxid(0));
        }
    }

    /// Closes the lock of a hold that begins, if nobody else may be granted the lock before a time has passed since then.
    pub(crate) fn begin_min_hold(
        &mut self,
        lock: &LockName,
        bounds: HoldBounds,
        at: Zxid,
        at_ms: u64,
    ) -> Option<Event> {
        (bounds.min_ms > 0).then(|| self.close(lock, bounds.min_ms, at, at_ms))
    }

    /// Closes a lock: it grants nothing until the leader has counted the delay.
    pub(crate) fn close(&mut self, lock: &LockName, delay_ms: u32, at: Zxid, at_ms: u64) -> Event {
        let closed = self.state(lock).and_then(|state| state.closed);
        let delay_ms = closed.map_or(0, |closed| closed.delay_ms).max(delay_ms);
        self.change_state(lock, |state| {
            state.closed = Some(Closed {
                at,
                at_ms,
                delay_ms,
                passed_ms: 0,
            });
        });
        let lock = lock.clone();
        Event::LockClosed { lock, delay_ms }
    }

    pub(crate) fn summary_of(&self, lock: &LockName, queue: &Queue) -> LockSummary {
        LockSummary {
            lock: lock.clone(),
            mode: queue.mode(self.terms(lock)),
            holders: count_u32(queue.holding()),
            waiters: count_u32(queue.len() - queue.holding()),
        }
    }
}

/// Converts a count of contenders. No lock has four billion of them, because each is a znode.
fn count_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
