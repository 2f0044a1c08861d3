//! Deadlock detection: finds the cycle that a new wait would close.
//!
//! The parties are scopes: a session, or one of its threads or tasks with an owner of its own. A waiting scope waits for the contenders
//! ahead of it that it conflicts with. A cycle of such waits would never end, so the call that would close it is refused. A call that waits
//! for another call of its own scope in the same lock is not refused: a second call that is not reentrant waits in this way until its
//! timeout.
//!
//! Every cycle that is found is a deadlock. Two kinds are not found and end by their timeouts. One has contenders without a distinct owner:
//! those of other clients, and calls that are not reentrant and name no owner. In the other, several holders of a semaphore block a waiter
//! only together.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::locks::contender::{Contender, Position};
use crate::locks::queue::Queue;
use crate::locks::table::{Locks, Scope};
use crate::locks::view::{OwnerView, WaitView};
use crate::model::lock::LockRequest;
use crate::model::path::LockName;
use crate::model::refusal::{Owner, Refusal};

/// Maximum number of contenders that one search visits. The search blocks the apply loop, and this many take about a tenth of a
/// millisecond. Beyond it the call just waits.
pub const MAX_DEADLOCK_STEPS: usize = 1_000;

/// Maximum number of contenders that [`Store::wait_graph`](crate::Store::wait_graph) visits for each wait. The query blocks the apply loop,
/// and most contenders of a shared lock are behind thousands that they do not wait for.
const MAX_GRAPH_STEPS: usize = 64;

/// Maximum number of owners that a refusal names. A longer cycle is refused all the same.
pub const MAX_NAMED_PARTIES: usize = 16;

/// Maximum number of waits that [`Store::wait_graph`](crate::Store::wait_graph) returns at once.
pub const MAX_GRAPH_WAITS: usize = 10_000;

/// Maximum number of blockers that [`Store::wait_graph`](crate::Store::wait_graph) names for each wait.
pub const MAX_NAMED_BLOCKERS: usize = 16;

/// Wait that a call would begin, for the search of cycles.
pub(crate) enum Ask<'a> {
    /// Wait of a new contender at the end of a queue.
    Enter(&'a LockName, LockRequest),
    /// Wait of a holder to be the only one.
    Upgrade(&'a LockName, Position<'a>),
}

/// Party found in the search, and the path to it.
struct Step {
    scope: Scope,
    /// Index of the step whose scope waits for it. `None` for scopes that the caller itself would wait for.
    by: Option<usize>,
    /// Lock in which that scope waits for it.
    has: LockName,
}

fn party(contender: &Contender, waits: bool) -> OwnerView {
    OwnerView {
        session: contender.session,
        owner: contender.owner().cloned().unwrap_or_default(),
        holder: contender.name().into(),
        waits,
    }
}

/// Returns the contenders that a waiter or an upgrade waits for.
fn awaited_by<'q>(
    queue: &'q Queue,
    waiter: &'q Contender,
    terms: super::state::Terms,
) -> Box<dyn Iterator<Item = Option<&'q Contender>> + 'q> {
    if waiter.is_upgrading() {
        let others = queue
            .holders()
            .filter(|other| other.position() != waiter.position());
        return Box::new(others.map(Some));
    }
    let at = queue
        .place(waiter.position())
        .expect("the waiter is in the queue");
    Box::new(queue.blockers(at, waiter.request, terms))
}

impl Locks {
    /// Returns the cycle of contenders that `stay` which would be closed if a scope waited there.
    fn cycle(&self, scope: &Scope, ask: &Ask<'_>, stays: impl Fn(&Contender) -> bool) -> Option<Vec<Owner>> {
        let mut seen = BTreeSet::from([scope.clone()]);
        let mut steps: Vec<Step> = Vec::new();
        let mut budget = MAX_DEADLOCK_STEPS;
        let (lock, blockers): (_, Box<dyn Iterator<Item = Option<&Contender>>>) = match *ask {
            Ask::Enter(lock, request) => {
                let queue = self.queue(lock)?;
                let blockers = queue.blockers(queue.len(), request, self.terms(lock));
                (lock, Box::new(blockers))
            }
            Ask::Upgrade(lock, position) => {
                let holders = self.queue(lock)?.holders();
                (
                    lock,
                    Box::new(
                        holders
                            .filter(move |other| other.position() != position)
                            .map(Some),
                    ),
                )
            }
        };
        for look in blockers {
            budget = budget.checked_sub(1)?;
            let Some(blocker) = look.filter(|blocker| stays(blocker)) else {
                continue;
            };
            // A wait for another call of its own scope lasts until its timeout, with or without others between them.
            if blocker.session == scope.0 && blocker.owner() == Some(&scope.1) {
                return None;
            }
            note(&mut seen, &mut steps, blocker, None, lock);
        }
        let mut at = 0;
        while at < steps.len() {
            let waiting = steps[at].scope.clone();
            for (lock, position) in self.waits_of(&waiting) {
                let queue = self.queue(lock).expect("a waiter is in a queue");
                let place = queue.place(position).expect("a waiter is in a queue");
                let waiter = queue.get(place).expect("it was just found");
                for look in awaited_by(queue, waiter, self.terms(lock)) {
                    budget = budget.checked_sub(1)?;
                    let Some(blocker) = look.filter(|blocker| stays(blocker)) else {
                        continue;
                    };
                    let Some(owner) = blocker.owner() else { continue };
                    if blocker.session == scope.0 && *owner == scope.1 {
                        return Some(parties(scope, &steps, at, lock));
                    }
                    note(&mut seen, &mut steps, blocker, Some(at), lock);
                }
            }
            at += 1;
        }
        None
    }

    /// Refuses a wait that would close a cycle. Costs nothing if the scope has no other contender.
    ///
    /// The contenders that do not `stay` are about to be removed, so waits for them end soon.
    pub(crate) fn refuse_deadlock(
        &self,
        scope: Scope,
        ask: &Ask<'_>,
        stays: impl Fn(&Contender) -> bool,
    ) -> Result<(), Refusal> {
        if !self.knows(&scope) {
            return Ok(());
        }
        match self.cycle(&scope, ask, stays) {
            Some(cycle) => Err(Refusal::WouldDeadlock {
                lock: cycle[0].awaits.clone(),
                cycle,
            }),
            None => Ok(()),
        }
    }

    /// Describes up to `most` waiters of a lock, after the first `passed` of them. If there are more, returns the number of waiters described so
    /// far.
    pub(crate) fn wait_views(
        &self,
        lock: &LockName,
        queue: &Queue,
        passed: usize,
        most: usize,
        waits: &mut Vec<WaitView>,
    ) -> Option<usize> {
        let terms = self.terms(lock);
        let upgrading = queue.upgrading().into_iter();
        for (told, waiter) in queue.waiters().chain(upgrading).skip(passed).enumerate() {
            if told == most {
                return Some(told);
            }
            let mut looks = awaited_by(queue, waiter, terms);
            let near = looks.by_ref().take(MAX_GRAPH_STEPS).flatten();
            let mut named: Vec<_> = near.take(MAX_NAMED_BLOCKERS + 1).collect();
            let more = named.len() > MAX_NAMED_BLOCKERS || looks.next().is_some();
            named.truncate(MAX_NAMED_BLOCKERS);
            let place = |contender: &Contender| queue.place(contender.position());
            waits.push(WaitView {
                lock: lock.clone(),
                waiter: party(waiter, !waiter.is_upgrading()),
                more,
                waits_for: named
                    .into_iter()
                    .map(|other| party(other, place(other) >= Some(queue.holding())))
                    .collect(),
            });
        }
        None
    }
}

/// Adds a party to the search, unless it was found before.
fn note(
    seen: &mut BTreeSet<Scope>,
    steps: &mut Vec<Step>,
    blocker: &Contender,
    by: Option<usize>,
    lock: &LockName,
) {
    let Some(scope) = blocker.scope() else {
        return;
    };
    if seen.insert(scope.clone()) {
        steps.push(Step {
            scope,
            by,
            has: lock.clone(),
        });
    }
}

/// Returns the cycle whose last party is the step `last`, which waits in the lock `closing` for the caller.
fn parties(caller: &Scope, steps: &[Step], last: usize, closing: &LockName) -> Vec<Owner> {
    let mut backwards = Vec::new();
    let (mut at, mut awaits) = (Some(last), closing);
    while let Some(step) = at.map(|at| &steps[at]) {
        let (session, owner) = step.scope.clone();
        backwards.push(Owner {
            session,
            owner,
            has: step.has.clone(),
            awaits: awaits.clone(),
        });
        (at, awaits) = (step.by, &step.has);
    }
    backwards.push(Owner {
        session: caller.0,
        owner: caller.1.clone(),
        has: closing.clone(),
        awaits: awaits.clone(),
    });
    backwards.reverse();
    backwards.truncate(MAX_NAMED_PARTIES);
    backwards
}
