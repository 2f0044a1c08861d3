//! Queue of one lock, holders in front. It follows the rule (`rule.rs`) step by step: arrivals go to the end, and an end may make room for
//! a grant. It does not know the tree, sessions or events.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use core::cmp::Ordering;

use fault_injection::planted::{self, Bug};

use crate::locks::contender::{Contender, Position};
use crate::locks::state::Terms;
use crate::model::ids::{SessionId, Zxid};
use crate::model::lock::{LockMode, LockRequest};
use crate::model::path::ZPath;

/// Number of contenders up to which an owner is found by linear search. Nearly all locks have fewer, and an index costs more than that search.
const FEW: usize = 16;

/// Contenders of one lock in order of arrival. The first [`Queue::holding`] of them hold it.
///
/// A sorted ring, because nearly all changes are at the ends. A search is binary. A removal from the middle moves pointers, at most half of
/// [`crate::MAX_CONTENDERS`], which takes a microsecond. A grant costs the same for each contender. Boxes keep the moved elements small.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    contenders: VecDeque<Box<Contender>>,
    holding: usize,
    held: Held,
    /// Contenders that may be joined, by session and owner. Only while there are more than [`FEW`].
    owners: Option<Box<Owners>>,
    /// For [`Bug::OvertakingReader`]: whether the first waiter has ended since the last grant.
    #[cfg(feature = "planted")]
    front_waiter_gone: bool,
}

/// Totals of the holders.
#[derive(Debug, Default)]
struct Held {
    /// Permits. For a semaphore at most the limit (unless that was lowered); otherwise the number of holders.
    permits: u64,
    /// Number of upgradeable holders, at most one.
    upgradeables: u32,
    /// Number of holders that wait to be the only one, at most one.
    upgrading: u32,
}

impl Held {
    fn add(&mut self, holder: &Contender) {
        self.permits += u64::from(holder.request.permits);
        self.upgradeables += u32::from(holder.request.mode == LockMode::Upgradeable);
        self.upgrading += u32::from(holder.is_upgrading());
    }

    fn take(&mut self, holder: &Contender) {
        self.permits -= u64::from(holder.request.permits);
        self.upgradeables -= u32::from(holder.request.mode == LockMode::Upgradeable);
        self.upgrading -= u32::from(holder.is_upgrading());
    }
}

type Owners = BTreeMap<(SessionId, Arc<str>), (Zxid, u64, ZPath)>;

/// Position of a contender: among the holders or the waiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueuePosition {
    /// The contender holds the lock.
    Holds,
    /// The contender waits.
    Waits {
        /// Number of waiters ahead.
        ahead: u32,
    },
}

impl Queue {
    /// Inserts a contender as a waiter, and returns the number of waiters ahead of it. No later contender holds the lock already, because
    /// positions ascend and grants are made at the end of a command.
    pub fn insert(&mut self, contender: Contender) -> usize {
        let Err(at) = self.find(contender.position()) else {
            unreachable!("the tree has no two znodes of one name");
        };
        assert!(
            at >= self.holding,
            "a contender that arrives cannot stand before a holder"
        );
        if let Some(owners) = &mut self.owners {
            note_owner(owners, &contender);
        }
        self.contenders.insert(at, Box::new(contender));
        if self.contenders.len() > FEW && self.owners.is_none() {
            let mut owners = Box::default();
            for contender in &self.contenders {
                note_owner(&mut owners, contender);
            }
            self.owners = Some(owners);
        }
        at - self.holding
    }

    /// Removes a contender, and returns it with whether it held the lock.
    pub fn remove(&mut self, position: Position<'_>) -> Option<(Box<Contender>, bool)> {
        let at = self.find(position).ok()?;
        let contender = self.contenders.remove(at)?;
        let held = at < self.holding;
        if held {
            self.holding -= 1;
            self.held.take(&contender);
        }
        #[cfg(feature = "planted")]
        {
            self.front_waiter_gone = !held && at == self.holding;
        }
        if self.contenders.len() <= FEW / 2 {
            self.owners = None;
        } else if let (Some(owners), Some(owner)) = (&mut self.owners, contender.joined_by()) {
            owners.remove(&(contender.session, owner.clone()));
        }
        Some((contender, held))
    }

    /// Returns the contender that a call of this owner joins. There is at most one, because a second call would have joined it.
    pub fn of_owner(&self, session: SessionId, owner: &Arc<str>) -> Option<&Contender> {
        let Some(owners) = &self.owners else {
            return self
                .contenders
                .iter()
                .find(|contender| contender.session == session && contender.joined_by() == Some(owner))
                .map(|contender| &**contender);
        };
        let (czxid, number, path) = owners.get(&(session, owner.clone()))?;
        let at = self
            .find((*czxid, *number, path.name()))
            .expect("what is in the index is in the queue");
        self.get(at)
    }

    /// Replaces a contender, which has a new record. The next [`Queue::promote`] makes the grants that this allows.
    pub fn replace(&mut self, contender: Contender) {
        let at = self
            .find(contender.position())
            .expect("only a contender that was found is changed");
        if at < self.holding {
            self.held.take(&self.contenders[at]);
            self.held.add(&contender);
        }
        *self.contenders[at] = contender;
    }

    /// Grants the lock to the next waiter, if the rule allows it.
    pub fn promote(&mut self, terms: Terms) -> Option<&Contender> {
        let at = self.holding;
        self.next(terms)?;
        self.held.add(&self.contenders[at]);
        self.holding += 1;
        #[cfg(feature = "planted")]
        {
            self.front_waiter_gone = false;
        }
        Some(&self.contenders[at])
    }

    /// Returns the waiter that [`Queue::promote`] would grant the lock to.
    pub fn next(&self, terms: Terms) -> Option<&Contender> {
        let next = self.contenders.get(self.holding)?;
        let gets_in =
            !terms.is_shut() && (self.has_room_for(next.request, terms) || self.is_overtaking(next));
        gets_in.then_some(next)
    }

    /// Plants [`Bug::OvertakingReader`]: a waiter behind one that ended is granted the lock.
    fn is_overtaking(&self, next: &Contender) -> bool {
        #[cfg(feature = "planted")]
        let gone = self.front_waiter_gone;
        #[cfg(not(feature = "planted"))]
        let gone = false;
        gone && planted::is(Bug::OvertakingReader) && next.request.mode == LockMode::Shared
    }

    /// Plants [`Bug::LeakedPermits`]: these permits are never released.
    #[cfg(feature = "planted")]
    pub(crate) fn leak(&mut self, permits: u64) {
        self.held.permits += permits;
    }

    /// Restores the number of holders: the first `holding` contenders held the lock when the snapshot was taken. Returns false if they cannot have.
    pub fn resume(&mut self, holding: usize) -> bool {
        if self.holding > 0 || holding > self.contenders.len() {
            return false;
        }
        // Holders beyond a limit are possible, because it may have been lowered.
        let lease = |contender: &Contender| matches!(contender.request.mode, LockMode::Semaphore { .. });
        let mut alone = 0;
        let mut leases = 0;
        for contender in self.contenders.iter().take(holding) {
            self.held.add(contender);
            alone += usize::from(contender.request.mode == LockMode::Exclusive);
            leases += usize::from(lease(contender));
        }
        self.holding = holding;
        let by_one = alone == 0 || holding == 1;
        by_one && (leases == 0 || leases == holding) && self.held.upgradeables <= 1
    }

    /// Returns whether the rule would grant the lock to a contender that arrived now.
    pub fn would_grant(&self, request: LockRequest, terms: Terms) -> bool {
        self.holding == self.contenders.len() && !terms.is_shut() && self.has_room_for(request, terms)
    }

    /// Returns whether the lock has room for one more holder. The first holder decides for all: the others are compatible with it, and a limit
    /// that made them compatible stays until they have left (`configure.rs`).
    fn has_room_for(&self, request: LockRequest, terms: Terms) -> bool {
        let Some(first) = self.contenders.front().filter(|_| self.holding > 0) else {
            return true;
        };
        let (first, mode) = (terms.in_force(first.request.mode), terms.in_force(request.mode));
        match mode {
            LockMode::Exclusive => planted::is(Bug::CrowdedLock) && self.holding == 1,
            _ if self.held.upgrading > 0 => false,
            LockMode::Shared => matches!(first, LockMode::Shared | LockMode::Upgradeable),
            LockMode::Upgradeable => first == LockMode::Shared && self.held.upgradeables == 0,
            LockMode::Semaphore { limit } => {
                first == mode && self.held.permits + u64::from(request.permits) <= u64::from(limit)
            }
        }
    }

    /// Returns the holder that waits to be the only one.
    pub fn upgrading(&self) -> Option<&Contender> {
        if self.held.upgrading == 0 {
            return None;
        }
        self.holders().find(|holder| holder.is_upgrading())
    }

    /// Returns the mode in use, or `None` if the lock has no contenders.
    pub fn mode(&self, terms: Terms) -> Option<LockMode> {
        let first = self.contenders.front()?;
        Some(terms.in_force(first.request.mode))
    }

    /// Returns the contenders before the place `at` that block a contender there: holders, and waiters that are granted first. Of
    /// a semaphore it returns only those whose end is necessary in any case.
    ///
    /// `None` stands for each visited contender that does not block. Among thousands of shared holders there may be one blocker, and the
    /// caller counts the visits.
    pub fn blockers(
        &self,
        at: usize,
        request: LockRequest,
        terms: Terms,
    ) -> impl Iterator<Item = Option<&Contender>> {
        // A waiter is granted before all behind it, so they wait for whatever it waits for.
        let waiting = self.contenders.range(self.holding.min(at)..at);
        let need = waiting
            .take(FEW)
            .map(|waiter| waiter.request.permits)
            .fold(request.permits, u32::max);
        let ahead = self.contenders.iter().take(at).enumerate();
        ahead.map(move |(place, other)| {
            let permits = if place < self.holding {
                need
            } else {
                request.permits
            };
            let wanted = LockRequest { permits, ..request };
            (!are_compatible(wanted, other.effective_request(), terms)).then_some(&**other)
        })
    }

    /// Returns the index of a contender, counted from the front.
    pub fn place(&self, position: Position<'_>) -> Option<usize> {
        self.find(position).ok()
    }

    /// Returns a contender and whether it waits; `None` if it is not in this queue.
    pub fn look_up(&self, position: Position<'_>) -> Option<(&Contender, QueuePosition)> {
        let at = self.find(position).ok()?;
        let queue_position = match at.checked_sub(self.holding) {
            None => QueuePosition::Holds,
            Some(ahead) => QueuePosition::Waits {
                ahead: u32::try_from(ahead).unwrap_or(u32::MAX),
            },
        };
        Some((&self.contenders[at], queue_position))
    }

    /// Returns the contender at an index, counted from the front.
    pub fn get(&self, at: usize) -> Option<&Contender> {
        self.contenders.get(at).map(|contender| &**contender)
    }

    /// Returns the number of holders and waiters.
    pub fn len(&self) -> usize {
        self.contenders.len()
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.contenders.is_empty()
    }

    /// Returns the number of holders.
    pub fn holding(&self) -> usize {
        self.holding
    }

    /// Returns the holders, in order of arrival.
    pub fn holders(&self) -> impl Iterator<Item = &Contender> {
        self.contenders
            .iter()
            .take(self.holding)
            .map(|contender| &**contender)
    }

    /// Returns the waiters, in order of arrival.
    pub fn waiters(&self) -> impl Iterator<Item = &Contender> {
        self.contenders
            .iter()
            .skip(self.holding)
            .map(|contender| &**contender)
    }

    fn find(&self, position: Position<'_>) -> Result<usize, usize> {
        // An arrival goes to the end, and most ends are at the front. These cases take one or two comparisons instead of a dozen.
        let count = self.contenders.len();
        let Some(last) = self.contenders.back() else {
            return Err(0);
        };
        match last.position().cmp(&position) {
            Ordering::Less => return Err(count),
            Ordering::Equal => return Ok(count - 1),
            Ordering::Greater if self.contenders[0].position() == position => return Ok(0),
            Ordering::Greater => {}
        }
        self.contenders
            .binary_search_by(|contender| contender.position().cmp(&position))
    }
}

/// Returns whether two contenders may hold a lock at the same time.
fn are_compatible(one: LockRequest, other: LockRequest, terms: Terms) -> bool {
    let (mode, with) = (terms.in_force(one.mode), terms.in_force(other.mode));
    match mode {
        LockMode::Exclusive => false,
        LockMode::Shared => matches!(with, LockMode::Shared | LockMode::Upgradeable),
        LockMode::Upgradeable => with == LockMode::Shared,
        LockMode::Semaphore { limit } => {
            mode == with && u64::from(one.permits) + u64::from(other.permits) <= u64::from(limit)
        }
    }
}

fn note_owner(owners: &mut Owners, contender: &Contender) {
    if let Some(owner) = contender.joined_by() {
        let position = (contender.czxid, contender.number, contender.path.clone());
        owners.insert((contender.session, owner.clone()), position);
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::super::rule;
    use super::*;
    use crate::model::contender::{Attempt, Record, Upgrade, Written};
    use crate::model::lock::{AttemptId, HoldBounds, LockWish};
    use crate::model::path::LockName;

    const ATTEMPT: Attempt = Attempt {
        id: AttemptId(1),
        request_id: None,
    };

    /// Returns a contender with an owner of its own. Every third one cannot be joined.
    fn contender(number: u64, request: LockRequest) -> Contender {
        let wish = LockWish {
            lock: LockName::parse("a").unwrap(),
            mode: request.mode,
            permits: request.permits,
            owner: format!("owner {}", number / 2).into(),
            reentrant: !number.is_multiple_of(3),
            note: "".into(),
            address: "".into(),
            lock_delay_ms: 0,
            names: Default::default(),
        };
        let mut record = Record::new(&wish, HoldBounds::default(), ATTEMPT, 0);
        record.reentrant = wish.reentrant;
        let (session, czxid) = (SessionId(number % 2 + 1), Zxid(number + 100));
        Contender::new(
            ZPath::parse(&format!("/locks/a/n{number:010}")).unwrap(),
            number,
            session,
            czxid,
            Written::new(record),
        )
    }

    /// Changes the mode of a contender, and whether it waits for an upgrade.
    fn rewritten(contender: &mut Contender, mode: LockMode, upgrading: bool) -> Contender {
        let mut record = Record::clone(contender.record.as_ref().unwrap());
        record.request.mode = mode;
        record.upgrade = upgrading.then_some(Upgrade {
            attempt: ATTEMPT,
            since_ms: 0,
            done: false,
        });
        contender.rewrite(Written::new(record));
        contender.clone()
    }

    /// Returns the number of grants.
    fn promote_all(queue: &mut Queue, terms: Terms) -> usize {
        core::iter::from_fn(|| queue.promote(terms).map(|_| ())).count()
    }

    /// Checks every query of the queue against the list of contenders and the number of holders.
    fn check(queue: &Queue, model: &[Contender], holding: usize, terms: Terms) {
        assert_eq!(
            queue.holding(),
            holding,
            "the rule says otherwise about {model:?}"
        );
        assert_eq!(queue.len(), model.len());
        assert_eq!(queue.is_empty(), model.is_empty());
        let first = model.first().map(|first| terms.in_force(first.request.mode));
        assert_eq!(queue.mode(terms), first);
        assert!(queue.holders().eq(&model[..holding]));
        assert!(queue.waiters().eq(&model[holding..]));
        for (at, contender) in model.iter().enumerate() {
            let rank = match at {
                at if at < holding => QueuePosition::Holds,
                at => QueuePosition::Waits {
                    ahead: (at - holding) as u32,
                },
            };
            assert_eq!(queue.look_up(contender.position()), Some((contender, rank)));
            if let Some(owner) = contender.joined_by() {
                assert_eq!(queue.of_owner(contender.session, owner), Some(contender));
                assert_eq!(queue.of_owner(SessionId(9), owner), None);
            }
        }
        assert_eq!(queue.look_up((Zxid(u64::MAX), 0, "")), None);
        assert_eq!(queue.of_owner(SessionId(1), &"nobody".into()), None);
        let permits: u64 = queue
            .holders()
            .map(|holder| u64::from(holder.request.permits))
            .sum();
        assert_eq!(queue.held.permits, permits);
        assert_eq!(
            queue.upgrading(),
            model.iter().find(|contender| contender.is_upgrading())
        );
        // Each waiter has blockers before it, unless the lock grants nothing.
        for (at, waiter) in model.iter().enumerate().skip(holding) {
            let alone =
                |other: &&Contender| !are_compatible(waiter.request, other.effective_request(), terms);
            let named: Vec<_> = queue.blockers(at, waiter.request, terms).flatten().collect();
            assert!(
                model[..at]
                    .iter()
                    .filter(alone)
                    .all(|other| named.contains(&other))
            );
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Arrive(LockRequest),
        Leave(usize),
        /// Downgrade of a holder to a mode that is compatible with more modes.
        Downgrade(usize, bool),
        /// Begin or withdrawal of a holder's upgrade.
        Upgrade(usize),
        Limit(Option<u32>),
        Drain(bool),
    }

    fn any_claim() -> impl Strategy<Value = LockRequest> {
        prop_oneof![
            2 => Just(LockRequest { mode: LockMode::Exclusive, permits: 1 }),
            2 => Just(LockRequest { mode: LockMode::Upgradeable, permits: 1 }),
            4 => Just(LockRequest { mode: LockMode::Shared, permits: 1 }),
            4 => (1u32..=4).prop_map(|permits| LockRequest { mode: LockMode::Semaphore { limit: 4 }, permits }),
            1 => (1u32..=2).prop_map(|permits| LockRequest { mode: LockMode::Semaphore { limit: 2 }, permits }),
            1 => Just(LockRequest { mode: LockMode::Semaphore { limit: u32::MAX }, permits: u32::MAX }),
        ]
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            10 => any_claim().prop_map(Step::Arrive),
            8 => (0usize..1000).prop_map(Step::Leave),
            2 => (0usize..1000, any::<bool>()).prop_map(|(which, shared)| Step::Downgrade(which, shared)),
            2 => (0usize..1000).prop_map(Step::Upgrade),
            1 => prop::option::of(1u32..6).prop_map(Step::Limit),
            1 => any::<bool>().prop_map(Step::Drain),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..Default::default() })]

        #[test]
        fn the_queue_follows_the_rule_at_every_step(steps in proptest::collection::vec(any_step(), 0..120)) {
            let mut queue = Queue::default();
            let mut model: Vec<Contender> = Vec::new();
            let mut terms = Terms::default();
            let mut holding = 0;
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Arrive(request) => {
                        let would_grant = queue.would_grant(request, terms);
                        let contender = contender(number as u64, request);
                        queue.insert(contender.clone());
                        model.push(contender);
                        prop_assert_eq!(promote_all(&mut queue, terms), usize::from(would_grant));
                    }
                    Step::Leave(_) if model.is_empty() => continue,
                    Step::Leave(which) => {
                        let which = which % model.len();
                        let gone = model.remove(which);
                        let held = which < holding;
                        prop_assert_eq!(queue.remove(gone.position()), Some((Box::new(gone.clone()), held)));
                        prop_assert_eq!(queue.remove(gone.position()), None);
                        if let Some(owner) = gone.joined_by() {
                            prop_assert_eq!(queue.of_owner(gone.session, owner), None);
                        }
                        holding -= usize::from(which < holding);
                    }
                    Step::Downgrade(_, _) | Step::Upgrade(_) if holding == 0 => continue,
                    Step::Downgrade(which, shared) => {
                        let holder = &mut model[which % holding];
                        let mode = match holder.request.mode {
                            LockMode::Exclusive if !shared => LockMode::Upgradeable,
                            LockMode::Exclusive | LockMode::Upgradeable => LockMode::Shared,
                            other => other,
                        };
                        queue.replace(rewritten(holder, mode, false));
                    }
                    Step::Upgrade(which) => {
                        let holder = &mut model[which % holding];
                        let upgrading = holder.request.mode == LockMode::Upgradeable && !holder.is_upgrading();
                        queue.replace(rewritten(holder, holder.request.mode, upgrading));
                    }
                    // The store refuses this: there would be as many limits as holders that requested one.
                    Step::Limit(None) if !model.is_empty() => continue,
                    Step::Limit(limit) => terms.limit = limit,
                    Step::Drain(draining) => terms.draining = draining,
                }
                let claims: Vec<LockRequest> = model.iter().map(|contender| contender.request).collect();
                let stays = terms.is_shut() || (holding > 0 && model.iter().any(Contender::is_upgrading));
                if !stays {
                    holding = rule::holders_after(&claims, holding, terms.limit);
                }
                promote_all(&mut queue, terms);
                check(&queue, &model, holding, terms);

                // Restore: all contenders arrive, then the number of holders is restored.
                let mut restored = Queue::default();
                for contender in &model {
                    restored.insert(contender.clone());
                }
                prop_assert!(restored.resume(holding));
                check(&restored, &model, holding, terms);
                prop_assert!(!restored.resume(0) || holding == 0);
            }
        }

        /// Restore of a lock without settings: all contenders arrive, and then the rule decides about the holders once.
        #[test]
        fn a_queue_built_at_once_is_the_same(all in proptest::collection::vec(any_claim(), 0..40)) {
            let mut at_once = Queue::default();
            for (number, request) in all.iter().enumerate() {
                at_once.insert(contender(number as u64, *request));
            }
            promote_all(&mut at_once, Terms::default());
            prop_assert_eq!(at_once.holding(), rule::holders(&all));
        }
    }

    #[test]
    fn contenders_of_one_multi_stand_in_order_of_their_numbers() {
        let request = LockRequest {
            mode: LockMode::Exclusive,
            permits: 1,
        };
        let mut queue = Queue::default();
        for number in [7, 5, 6] {
            let mut contender = contender(number, request);
            contender.czxid = Zxid(1);
            queue.insert(contender);
        }
        assert_eq!(promote_all(&mut queue, Terms::default()), 1);
        assert!(
            queue
                .contenders
                .iter()
                .map(|contender| contender.number)
                .eq([5, 6, 7])
        );
    }
}
