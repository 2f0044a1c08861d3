//! Ids of all nodes that were removed from the cluster. An id is a promise about votes and entries on
//! one disk; a second disk under the same id would break it. So they are recorded permanently.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::ids::NodeId;

/// Maximum number of separate ranges of ids. Consecutive ids form one range, so only a program that draws ids
/// at random reaches this limit; above it the two nearest ranges are merged.
pub const MAX_RETIRED_RANGES: usize = 1024;

/// Set of ids, stored as ranges. It only grows, up to [`MAX_RETIRED_RANGES`] ranges: it includes some unused
/// ids rather than forget a used one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetiredIds {
    /// First id of a range to its last. No two ranges touch.
    ranges: BTreeMap<NodeId, NodeId>,
}

impl RetiredIds {
    /// Returns whether this id must not be assigned again.
    pub fn contains(&self, id: NodeId) -> bool {
        self.range_at(id).is_some_and(|(_, last)| id <= last)
    }

    /// Returns whether no id was retired yet.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Inserts an id. `present` are the members, whose ids are never included to save space.
    pub fn insert(&mut self, id: NodeId, present: &BTreeSet<NodeId>) {
        self.insert_range(id, id);
        while self.ranges.len() > MAX_RETIRED_RANGES && self.join_the_nearest(present) {}
    }

    /// Returns the ranges in order, as first and last id.
    pub fn ranges(&self) -> impl Iterator<Item = (NodeId, NodeId)> + '_ {
        self.ranges.iter().map(|(first, last)| (*first, *last))
    }

    /// Returns the set of these ranges. Returns `None` if they are unordered, touch each other, or are too
    /// many: then they are not the output of [`RetiredIds::ranges`].
    pub fn from_ranges(ranges: Vec<(NodeId, NodeId)>) -> Option<Self> {
        let sound = ranges.iter().all(|(first, last)| *first > 0 && first <= last)
            && ranges
                .windows(2)
                .all(|pair| pair[0].1.checked_add(1).is_some_and(|next| next < pair[1].0));
        (sound && ranges.len() <= MAX_RETIRED_RANGES).then(|| Self {
            ranges: ranges.into_iter().collect(),
        })
    }

    fn range_at(&self, id: NodeId) -> Option<(NodeId, NodeId)> {
        self.ranges
            .range(..=id)
            .next_back()
            .map(|(first, last)| (*first, *last))
    }

    fn insert_range(&mut self, mut first: NodeId, mut last: NodeId) {
        if let Some((before, end)) = self.range_at(first)
            && end.saturating_add(1) >= first
        {
            first = before;
            last = last.max(end);
        }
        while let Some((start, end)) = self
            .ranges
            .range(first..=last.saturating_add(1))
            .next()
            .map(|(start, end)| (*start, *end))
        {
            self.ranges.remove(&start);
            last = last.max(end);
        }
        self.ranges.insert(first, last);
    }

    /// Merges the two nearest ranges that have no member between them.
    fn join_the_nearest(&mut self, present: &BTreeSet<NodeId>) -> bool {
        let pairs = self.ranges().zip(self.ranges().skip(1));
        let free = pairs.filter(|((_, end), (start, _))| present.range(end..start).next().is_none());
        let nearest = free.min_by_key(|((_, end), (start, _))| start - end);
        if let Some(((first, _), (_, last))) = nearest {
            self.insert_range(first, last);
        }
        nearest.is_some()
    }
}

impl fmt::Display for RetiredIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (first, last)) in self.ranges().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ids: &[NodeId]) -> RetiredIds {
        let mut retired = RetiredIds::default();
        ids.iter().for_each(|id| retired.insert(*id, &BTreeSet::new()));
        retired
    }

    #[test]
    fn consecutive_ids_form_one_range_in_any_order() {
        for ids in [[3, 4, 5, 9], [5, 3, 9, 4], [9, 4, 3, 5]] {
            let retired = of(&ids);
            assert_eq!(retired.to_string(), "3-5, 9");
            for id in 1..12 {
                assert_eq!(retired.contains(id), ids.contains(&id), "{id}");
            }
        }
        assert!(of(&[u64::MAX, u64::MAX - 1]).contains(u64::MAX));
        assert_eq!(of(&[7, 7]).to_string(), "7");
    }

    #[test]
    fn recorded_ids_are_never_forgotten() {
        let ids: Vec<NodeId> = (1..=3 * MAX_RETIRED_RANGES as u64).map(|n| n * n).collect();
        let retired = of(&ids);
        assert!(ids.iter().all(|id| retired.contains(*id)));
        assert_eq!(retired.ranges().count(), MAX_RETIRED_RANGES);
    }

    #[test]
    fn member_between_two_ranges_is_not_included() {
        let present = BTreeSet::from([2]);
        let mut retired = RetiredIds::default();
        (0..=MAX_RETIRED_RANGES as u64).for_each(|n| retired.insert(2 * n + 1, &present));
        assert!(!retired.contains(2) && retired.contains(4));
        assert_eq!(retired.ranges().count(), MAX_RETIRED_RANGES);
    }

    #[test]
    fn ranges_round_trip_and_invalid_ones_are_rejected() {
        let retired = of(&[1, 2, 3, 8, u64::MAX]);
        assert_eq!(RetiredIds::from_ranges(retired.ranges().collect()), Some(retired));
        for strange in [
            vec![(0, 1)],
            vec![(3, 2)],
            vec![(1, 2), (3, 4)],
            vec![(5, 6), (1, 2)],
            vec![(1, u64::MAX), (7, 8)],
        ] {
            assert_eq!(RetiredIds::from_ranges(strange.clone()), None, "{strange:?}");
        }
    }
}
