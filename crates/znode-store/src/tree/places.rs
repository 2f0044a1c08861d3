//! Where nodes lie now, by where they lay when a snapshot was taken: a list as long as it has to be, since a snapshot shows nodes
//! in the order of their places and nearly all places have one. What lies far beyond that is in a table, for a damaged
//! record must not ask for all the memory.

use alloc::vec::Vec;

use crate::stable_hash::Table;
use crate::tree::index::NodeIndex;

/// The list reaches so many times as far as there are nodes, and a bit: a tree that was once larger than it is has holes.
const SPREAD: usize = 4;

/// The bit.
const FIRST: usize = 1024;

/// No place of a node: there are never so many.
const NOWHERE: u32 = u32::MAX;

/// See the module.
#[derive(Default)]
pub(crate) struct Places {
    near: Vec<u32>,
    far: Table<NodeIndex, NodeIndex>,
    count: usize,
}

impl Places {
    /// Notes where the node is that lay at `before`. Answers whether that was not known.
    pub(crate) fn insert(&mut self, before: NodeIndex, now: NodeIndex) -> bool {
        if self.get(before).is_some() {
            return false;
        }
        let at = before.0 as usize;
        self.count += 1;
        if at < self.near.len() || at < SPREAD * self.count + FIRST {
            if at >= self.near.len() {
                self.near.resize(at + 1, NOWHERE);
            }
            self.near[at] = now.0;
        } else {
            self.far.insert(before, now);
        }
        true
    }

    /// Where the node is that lay at `before`.
    pub(crate) fn get(&self, before: NodeIndex) -> Option<NodeIndex> {
        match self.near.get(before.0 as usize) {
            Some(&now) if now != NOWHERE => Some(NodeIndex(now)),
            // It may have been noted when the list was shorter.
            _ if self.far.is_empty() => None,
            _ => self.far.get(&before).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_wherever_they_were() {
        let mut places = Places::default();
        // Some far away at first, which the list reaches later.
        let before = (0..50_000_u32).map(|n| {
            if n % 5 == 0 {
                u32::MAX - n
            } else {
                n.wrapping_mul(7_919) % 50_000
            }
        });
        let mut all: Vec<u32> = Vec::new();
        for before in before {
            let now = NodeIndex(all.len() as u32);
            let is_new = !all.contains(&before);
            assert_eq!(places.insert(NodeIndex(before), now), is_new, "{before}");
            if is_new {
                all.push(before);
            }
            if all.len() == 3_000 {
                break;
            }
        }
        for (now, &before) in all.iter().enumerate() {
            assert_eq!(places.get(NodeIndex(before)), Some(NodeIndex(now as u32)));
        }
        assert_eq!(places.get(NodeIndex(123_456_789)), None);
    }

    #[test]
    fn a_place_far_away_takes_no_more_memory_than_a_near_one() {
        let mut places = Places::default();
        assert!(places.insert(NodeIndex(u32::MAX - 1), NodeIndex(0)));
        assert!(places.near.len() <= FIRST + SPREAD);
        assert!(!places.insert(NodeIndex(u32::MAX - 1), NodeIndex(1)));
    }
}
