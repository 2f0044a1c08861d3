//! Map from the index of a node in a snapshot to its present index. It is a list, because a snapshot has nodes in the order of their indices, and
//! nearly all indices have a node. Indices far beyond the list are in a table, because a damaged record must not make the list take all memory.

use alloc::vec::Vec;

use crate::stable_hash::Table;
use crate::tree::index::NodeIndex;

/// Number of indices of the list per node: a tree that was once larger has unused indices. With [`FIRST`] it bounds the length of the list.
const SPREAD: usize = 4;

/// Constant part of the bound on the length of the list.
const FIRST: usize = 1024;

/// Index of no node, because there are never as many nodes.
const NOWHERE: u32 = u32::MAX;

/// Map from former to present indices.
#[derive(Default)]
pub(crate) struct Places {
    near: Vec<u32>,
    far: Table<NodeIndex, NodeIndex>,
    count: usize,
}

impl Places {
    /// Maps the index `before` to `now`, unless it has an entry. Returns whether it had none.
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

    /// Returns the present index of the node that had the index `before`.
    pub(crate) fn get(&self, before: NodeIndex) -> Option<NodeIndex> {
        match self.near.get(before.0 as usize) {
            Some(&now) if now != NOWHERE => Some(NodeIndex(now)),
            // The entry may have been made when the list was shorter.
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
        // Some indices are far beyond the list at first, and the list reaches them later.
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
