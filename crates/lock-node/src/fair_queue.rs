//! Queue of this node's proposals on their way to the leader, in which callers take turns: the queue gives out one proposal of each caller in
//! turn, so a caller with many proposals does not delay those of others. It passes over a caller without
//! room, which then comes first as soon as it has room. It is pure: it has the numbers of proposals, and nothing else of them.

use std::collections::{BTreeMap, BTreeSet};

/// Queue of numbers, each of a caller or of the cluster itself.
#[derive(Debug)]
pub struct FairQueue<C> {
    /// The cluster's own proposals.
    own: BTreeSet<u64>,
    /// Callers with queued proposals.
    callers: BTreeMap<C, CallerQueue>,
    /// The same callers in the order of their turns.
    turns: BTreeMap<u64, C>,
    next_turn: u64,
}

/// Queued proposals of one caller.
#[derive(Debug)]
struct CallerQueue {
    /// Turn in which the first one is taken.
    turn: u64,
    /// Their numbers. A proposal that returns to the queue has a smaller number than later ones, and is taken before them.
    numbers: BTreeSet<u64>,
}

impl<C> Default for FairQueue<C> {
    fn default() -> Self {
        Self {
            own: BTreeSet::new(),
            callers: BTreeMap::new(),
            turns: BTreeMap::new(),
            next_turn: 0,
        }
    }
}

impl<C: Clone + Ord> FairQueue<C> {
    /// Adds a proposal of a caller, or, without one, of the cluster itself. The first proposal of a caller waits for one of each other caller.
    pub fn insert(&mut self, caller: Option<&C>, number: u64) {
        let Some(caller) = caller else {
            self.own.insert(number);
            return;
        };
        if let Some(queue) = self.callers.get_mut(caller) {
            queue.numbers.insert(number);
            return;
        }
        let turn = self.append_turn(caller.clone());
        let numbers = BTreeSet::from([number]);
        self.callers.insert(caller.clone(), CallerQueue { turn, numbers });
    }

    /// Removes a proposal, if it is queued.
    pub fn remove(&mut self, caller: Option<&C>, number: u64) {
        let Some(caller) = caller else {
            self.own.remove(&number);
            return;
        };
        let Some(queue) = self.callers.get_mut(caller) else {
            return;
        };
        queue.numbers.remove(&number);
        if queue.numbers.is_empty() {
            self.turns.remove(&queue.turn);
            self.callers.remove(caller);
        }
    }

    /// Returns the next proposal: one of the cluster itself, or else the first one of the next caller in turn for which `has_room` holds.
    pub fn first(&self, has_room: impl Fn(&C) -> bool) -> Option<u64> {
        if let Some(number) = self.own.first() {
            return Some(*number);
        }
        let caller = self.turns.values().find(|caller| has_room(caller))?;
        self.callers.get(caller)?.numbers.first().copied()
    }

    /// Takes the proposal that [`FairQueue::first`] returns.
    pub fn take(&mut self, has_room: impl Fn(&C) -> bool) -> Option<u64> {
        if let Some(number) = self.own.pop_first() {
            return Some(number);
        }
        let (turn, _) = self.turns.iter().find(|(_, caller)| has_room(caller))?;
        let turn = *turn;
        let caller = self.turns.remove(&turn)?;
        let queue = self.callers.get_mut(&caller)?;
        let number = queue.numbers.pop_first();
        if queue.numbers.is_empty() {
            self.callers.remove(&caller);
        } else {
            queue.turn = self.next_turn;
            self.append_turn(caller);
        }
        number
    }

    fn append_turn(&mut self, caller: C) -> u64 {
        let turn = self.next_turn;
        self.next_turn += 1;
        self.turns.insert(turn, caller);
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(proposals: &[(&'static str, u64)]) -> FairQueue<&'static str> {
        let mut queue = FairQueue::default();
        for (caller, number) in proposals {
            queue.insert(Some(caller), *number);
        }
        queue
    }

    fn take_all(queue: &mut FairQueue<&'static str>) -> Vec<u64> {
        let taken = std::iter::from_fn(|| take(queue)).collect();
        assert!(queue.own.is_empty() && queue.callers.is_empty() && queue.turns.is_empty());
        taken
    }

    fn take(queue: &mut FairQueue<&'static str>) -> Option<u64> {
        let first = queue.first(|_| true);
        assert_eq!(queue.take(|_| true), first);
        first
    }

    #[test]
    fn callers_take_turns() {
        let mut queue = queue(&[("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6)]);
        assert_eq!(take_all(&mut queue), [1, 4, 5, 2, 6, 3]);
    }

    #[test]
    fn new_caller_waits_for_one_proposal_of_each_other_caller() {
        let mut queue = queue(&[("a", 1), ("a", 2), ("a", 3), ("b", 4), ("b", 5)]);
        assert_eq!((take(&mut queue), take(&mut queue)), (Some(1), Some(4)));
        queue.insert(Some(&"c"), 6);
        assert_eq!(take_all(&mut queue), [2, 5, 6, 3]);
    }

    #[test]
    fn caller_does_not_gain_a_turn_when_its_queue_empties() {
        let mut queue = queue(&[("a", 1), ("b", 2), ("b", 3), ("b", 4)]);
        assert_eq!(take(&mut queue), Some(1));
        queue.insert(Some(&"a"), 5);
        queue.insert(Some(&"a"), 6);
        assert_eq!(take_all(&mut queue), [2, 5, 3, 6, 4]);
    }

    #[test]
    fn own_proposals_go_first() {
        let mut queue = queue(&[("a", 1), ("b", 2)]);
        queue.insert(None, 4);
        queue.insert(None, 3);
        assert_eq!(take_all(&mut queue), [3, 4, 1, 2]);
    }

    #[test]
    fn returned_proposals_go_before_later_ones_of_their_caller() {
        let mut queue = queue(&[("a", 1), ("a", 2), ("a", 3), ("a", 4)]);
        let sent = [take(&mut queue).unwrap(), take(&mut queue).unwrap()];
        queue.insert(Some(&"b"), 5);
        for number in sent.into_iter().rev() {
            queue.insert(Some(&"a"), number);
        }
        assert_eq!(take_all(&mut queue), [1, 5, 2, 3, 4]);
    }

    #[test]
    fn removed_proposals_take_no_turn() {
        let mut queue = queue(&[("a", 1), ("a", 2), ("b", 3), ("c", 4), ("a", 5)]);
        queue.insert(None, 6);
        for (caller, number) in [
            (Some("a"), 1),
            (Some("b"), 3),
            (None, 6),
            (Some("b"), 7),
            (Some("c"), 7),
        ] {
            queue.remove(caller.as_ref(), number);
        }
        assert_eq!(take_all(&mut queue), [2, 4, 5]);
    }

    #[test]
    fn caller_that_was_passed_over_comes_first_when_it_has_room() {
        let mut queue = queue(&[("a", 1), ("a", 2), ("b", 3), ("b", 4), ("c", 5)]);
        let has_room = |caller: &&str| *caller != "a";
        assert_eq!(queue.first(has_room), Some(3));
        assert_eq!(queue.take(has_room), Some(3));
        assert_eq!(queue.first(|_| false), None);
        assert_eq!(queue.take(|_| false), None);
        assert_eq!(take_all(&mut queue), [1, 5, 4, 2]);
    }
}
