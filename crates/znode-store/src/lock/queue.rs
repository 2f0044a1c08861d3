//! The queue of one lock, holders in front. It follows the rule (`rule.rs`) step by step: whoever arrives goes to
//! the end, whoever leaves may let others in. It knows nothing of the tree, of sessions' ends or of events.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use core::ops::Range;

use super::contender::Claim;
use crate::command::LockMode;
use crate::ids::{SessionId, Zxid};

/// Up to so many contenders are asked one by one whose they are. Nearly all locks have fewer, and an index costs
/// more than that.
const FEW: usize = 16;

/// A contender's place in the order of arrival: when it was created, its sequence number, its name.
///
/// For sequential znodes that is the order of their numbers. The creation stands first for those who choose their
/// number themselves: a name that ends in ten digits needs not be a sequential one, and nobody may name himself
/// to the front of a lock that others hold, nor make fencing tokens go back.
pub(crate) type Position<'a> = (Zxid, u64, &'a str);

/// Who stands in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contender {
    /// When it was created. Contenders of one multi share it.
    pub czxid: Zxid,
    /// Its sequence number.
    pub number: u64,
    /// Its whole name.
    pub name: Arc<str>,
    /// Whose it is.
    pub session: SessionId,
    /// What it wants.
    pub claim: Claim,
    /// Whoever may join it: later calls of the same owner. `None`: nobody.
    pub joined_by: Option<Arc<str>>,
}

impl Contender {
    /// Where it stands.
    pub fn position(&self) -> Position<'_> {
        (self.czxid, self.number, &self.name)
    }
}

/// The contenders of one lock in order of arrival. The first [`Queue::holding`] of them hold it.
///
/// A sorted ring: the ends are where nearly everything happens. Finding is a binary search; leaving from the middle
/// moves pointers, at most half of [`crate::MAX_CONTENDERS`], which takes a microsecond; letting in costs as much
/// as there are let in. Boxes, so that what moves is small.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    contenders: VecDeque<Box<Contender>>,
    holding: usize,
    /// Permits of the holders. Up to the limit for a semaphore, the number of holders else.
    permits: u64,
    /// Contenders that may be joined, by session and owner. Only while there are more than [`FEW`].
    owners: Option<Box<Owners>>,
}

type Owners = BTreeMap<(SessionId, Arc<str>), (Zxid, u64, Arc<str>)>;

/// Where somebody stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rank {
    /// Among the holders.
    Holds,
    /// In the queue, behind so many that wait too.
    Waits {
        /// How many.
        ahead: u32,
    },
}

impl Queue {
    /// Puts a contender where it belongs, as one who waits. Nobody who came later holds the lock already, because
    /// positions are given in ascending order and grants are made at the end of a command.
    pub fn insert(&mut self, contender: Contender) {
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
    }

    /// Takes a contender out, and says whether it held the lock.
    pub fn remove(&mut self, position: Position<'_>) -> Option<(Box<Contender>, bool)> {
        let at = self.find(position).ok()?;
        let contender = self.contenders.remove(at)?;
        let held = at < self.holding;
        if held {
            self.holding -= 1;
            self.permits -= u64::from(contender.claim.permits);
        }
        if self.contenders.len() <= FEW / 2 {
            self.owners = None;
        } else if let (Some(owners), Some(owner)) = (&mut self.owners, &contender.joined_by) {
            owners.remove(&(contender.session, owner.clone()));
        }
        Some((contender, held))
    }

    /// The contender that a call of this owner joins. There is at most one: a second one would have joined it.
    pub fn of_owner(&self, session: SessionId, owner: &Arc<str>) -> Option<&Contender> {
        let Some(owners) = &self.owners else {
            return self
                .contenders
                .iter()
                .find(|contender| contender.session == session && contender.joined_by.as_ref() == Some(owner))
                .map(|contender| &**contender);
        };
        let (czxid, number, name) = owners.get(&(session, owner.clone()))?;
        let at = self
            .find((*czxid, *number, name))
            .expect("what is in the index is in the queue");
        self.get(at)
    }

    /// Lets in whoever may get in now. Returns where they stand.
    pub fn promote(&mut self) -> Range<usize> {
        let before = self.holding;
        while let Some(next) = self.contenders.get(self.holding)
            && self.has_room_for(next.claim)
        {
            self.permits += u64::from(next.claim.permits);
            self.holding += 1;
        }
        before..self.holding
    }

    /// Whether the rule would let somebody in who arrived now.
    pub fn lets_in(&self, claim: Claim) -> bool {
        self.holding == self.contenders.len() && self.has_room_for(claim)
    }

    /// Whether the holders have room for one more.
    fn has_room_for(&self, claim: Claim) -> bool {
        let Some(first) = self.contenders.front().filter(|_| self.holding > 0) else {
            return true;
        };
        first.claim.mode == claim.mode
            && match claim.mode {
                LockMode::Exclusive => false,
                LockMode::Shared => true,
                LockMode::Semaphore { limit } => self.permits + u64::from(claim.permits) <= u64::from(limit),
            }
    }

    /// The mode that the lock is used in; `None` if it is not.
    pub fn mode(&self) -> Option<LockMode> {
        self.contenders.front().map(|first| first.claim.mode)
    }

    /// Where somebody stands; `None` if nowhere here.
    pub fn rank(&self, position: Position<'_>) -> Option<Rank> {
        let at = self.find(position).ok()?;
        Some(match at.checked_sub(self.holding) {
            None => Rank::Holds,
            Some(ahead) => Rank::Waits {
                ahead: u32::try_from(ahead).unwrap_or(u32::MAX),
            },
        })
    }

    /// The contender at a place counted from the front.
    pub fn get(&self, at: usize) -> Option<&Contender> {
        self.contenders.get(at).map(|contender| &**contender)
    }

    /// Holders and waiters.
    pub fn len(&self) -> usize {
        self.contenders.len()
    }

    /// Whether nobody is left.
    pub fn is_empty(&self) -> bool {
        self.contenders.is_empty()
    }

    /// How many hold the lock.
    pub fn holding(&self) -> usize {
        self.holding
    }

    /// Those who hold the lock, in order of arrival.
    pub fn holders(&self) -> impl Iterator<Item = &Contender> {
        self.contenders
            .iter()
            .take(self.holding)
            .map(|contender| &**contender)
    }

    /// Those who wait, in order of arrival.
    pub fn waiters(&self) -> impl Iterator<Item = &Contender> {
        self.contenders
            .iter()
            .skip(self.holding)
            .map(|contender| &**contender)
    }

    fn find(&self, position: Position<'_>) -> Result<usize, usize> {
        // Whoever arrives goes to the end: one comparison instead of a dozen.
        if self
            .contenders
            .back()
            .is_none_or(|last| last.position() < position)
        {
            return Err(self.contenders.len());
        }
        self.contenders
            .binary_search_by(|contender| contender.position().cmp(&position))
    }
}

fn note_owner(owners: &mut Owners, contender: &Contender) {
    if let Some(owner) = &contender.joined_by {
        let position = (contender.czxid, contender.number, contender.name.clone());
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

    /// Each has an owner of its own; every third one cannot be joined.
    fn contender(number: u64, claim: Claim) -> Contender {
        Contender {
            czxid: Zxid(number + 100),
            number,
            name: format!("n{number:010}").into(),
            session: SessionId(number % 2 + 1),
            claim,
            joined_by: (!number.is_multiple_of(3)).then(|| format!("owner {}", number / 2).into()),
        }
    }

    fn claims(queue: &Queue) -> Vec<Claim> {
        queue.contenders.iter().map(|contender| contender.claim).collect()
    }

    /// Every observation that the queue offers, against the rule and the plain list.
    fn check(queue: &Queue, model: &[Contender]) {
        let holding = rule::holders(&claims(queue));
        assert_eq!(
            queue.holding(),
            holding,
            "the rule says otherwise about {:?}",
            claims(queue)
        );
        assert_eq!(queue.len(), model.len());
        assert_eq!(queue.is_empty(), model.is_empty());
        assert_eq!(queue.mode(), model.first().map(|first| first.claim.mode));
        assert!(queue.holders().eq(&model[..holding]));
        assert!(queue.waiters().eq(&model[holding..]));
        for (at, contender) in model.iter().enumerate() {
            let rank = match at {
                at if at < holding => Rank::Holds,
                at => Rank::Waits {
                    ahead: (at - holding) as u32,
                },
            };
            assert_eq!(queue.rank(contender.position()), Some(rank));
            if let Some(owner) = &contender.joined_by {
                assert_eq!(queue.of_owner(contender.session, owner), Some(contender));
                assert_eq!(queue.of_owner(SessionId(9), owner), None);
            }
        }
        assert_eq!(queue.rank((Zxid(u64::MAX), 0, "")), None);
        assert_eq!(queue.of_owner(SessionId(1), &"nobody".into()), None);
        let permits: u64 = queue
            .holders()
            .map(|holder| u64::from(holder.claim.permits))
            .sum();
        assert_eq!(queue.permits, permits);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Arrive(Claim),
        Leave(usize),
    }

    fn any_claim() -> impl Strategy<Value = Claim> {
        prop_oneof![
            2 => Just(Claim { mode: LockMode::Exclusive, permits: 1 }),
            4 => Just(Claim { mode: LockMode::Shared, permits: 1 }),
            4 => (1u32..=4).prop_map(|permits| Claim { mode: LockMode::Semaphore { limit: 4 }, permits }),
            1 => (1u32..=2).prop_map(|permits| Claim { mode: LockMode::Semaphore { limit: 2 }, permits }),
            1 => Just(Claim { mode: LockMode::Semaphore { limit: u32::MAX }, permits: u32::MAX }),
        ]
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![5 => any_claim().prop_map(Step::Arrive), 4 => (0usize..1000).prop_map(Step::Leave)]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..Default::default() })]

        #[test]
        fn the_queue_follows_the_rule_at_every_step(steps in proptest::collection::vec(any_step(), 0..120)) {
            let mut queue = Queue::default();
            let mut model: Vec<Contender> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                let held_before: Vec<Contender> = queue.holders().cloned().collect();
                let mut left = None;
                match step {
                    Step::Arrive(claim) => {
                        let lets_in = queue.lets_in(claim);
                        let contender = contender(number as u64, claim);
                        queue.insert(contender.clone());
                        model.push(contender);
                        prop_assert_eq!(queue.promote().len(), usize::from(lets_in));
                    }
                    Step::Leave(_) if model.is_empty() => continue,
                    Step::Leave(which) => {
                        let gone = model.remove(which % model.len());
                        let held = held_before.contains(&gone);
                        prop_assert_eq!(queue.remove(gone.position()), Some((Box::new(gone.clone()), held)));
                        prop_assert_eq!(queue.remove(gone.position()), None);
                        if let Some(owner) = &gone.joined_by {
                            prop_assert_eq!(queue.of_owner(gone.session, owner), None);
                        }
                        let promoted = queue.promote();
                        prop_assert_eq!(promoted.end, queue.holding());
                        left = Some(gone);
                    }
                }
                check(&queue, &model);
                // What was granted stays granted.
                for holder in held_before.iter().filter(|holder| Some(*holder) != left.as_ref()) {
                    prop_assert_eq!(queue.rank(holder.position()), Some(Rank::Holds));
                }
            }
        }

        /// As after a restore: all arrive, and then one look at the rule.
        #[test]
        fn a_queue_built_at_once_is_the_same(all in proptest::collection::vec(any_claim(), 0..40)) {
            let mut at_once = Queue::default();
            for (number, claim) in all.iter().enumerate() {
                at_once.insert(contender(number as u64, *claim));
            }
            at_once.promote();
            prop_assert_eq!(at_once.holding(), rule::holders(&all));
        }
    }

    #[test]
    fn contenders_of_one_multi_stand_in_order_of_their_numbers() {
        let claim = Claim {
            mode: LockMode::Exclusive,
            permits: 1,
        };
        let mut queue = Queue::default();
        for number in [7, 5, 6] {
            queue.insert(Contender {
                czxid: Zxid(1),
                ..contender(number, claim)
            });
        }
        assert_eq!(queue.promote(), 0..1);
        assert!(
            queue
                .contenders
                .iter()
                .map(|contender| contender.number)
                .eq([5, 6, 7])
        );
    }
}
