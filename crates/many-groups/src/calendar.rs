//! What will happen, in the order of its time. What happens at the same time happens in the order in which it was put in, so that a
//! seed always gives the same run.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::Nanos;

/// See the module.
#[derive(Debug)]
pub struct Calendar<E> {
    now: Nanos,
    number: u64,
    entries: BinaryHeap<Entry<E>>,
}

#[derive(Debug)]
struct Entry<E> {
    at: Nanos,
    number: u64,
    event: E,
}

impl<E> Calendar<E> {
    /// Nothing will happen yet, and it is the beginning.
    pub fn new() -> Self {
        Self {
            now: 0,
            number: 0,
            entries: BinaryHeap::new(),
        }
    }

    /// What time it is.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Has something happen after this time.
    pub fn after(&mut self, pause: Nanos, event: E) {
        self.number += 1;
        self.entries.push(Entry {
            at: self.now + pause,
            number: self.number,
            event,
        });
    }

    /// What happens next; it is that time then. Not an iterator's `next`, because more is put in meanwhile.
    pub fn advance(&mut self) -> Option<E> {
        let entry = self.entries.pop()?;
        self.now = entry.at;
        Some(entry.event)
    }
}

impl<E> Default for Calendar<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> Ord for Entry<E> {
    /// The heap gives its greatest: the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_at_the_same_time_happens_in_the_order_it_was_put_in() {
        let mut calendar = Calendar::new();
        for (pause, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (1, 'b')] {
            calendar.after(pause, event);
        }
        let order: String = std::iter::from_fn(|| calendar.advance()).collect();
        assert_eq!((order.as_str(), calendar.now()), ("abcd", 5));
    }
}
