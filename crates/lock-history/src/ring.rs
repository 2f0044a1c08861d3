//! In-memory index of the records on disk, in the order in which they ended, so that the oldest are evicted
//! first. It is derived from the records on disk and knows nothing of their encoding.
//!
//! Under load each record is added and evicted within seconds, and its entry is no longer in a CPU cache when
//! it is evicted. So an entry is a few numbers in one contiguous ring, appended at its end and removed at its
//! beginning. A query for a lock's records scans all entries: queries are rare.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use crate::chunks::RecordLocation;
use crate::keys::HoldKey;
use crate::record::Position;

/// Order of eviction: by the zxid at which a hold is over, and among equal ones by the order of recording.
pub(crate) type End = (u64, RecordLocation);

/// Ring of entries, some 60 bytes each.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    /// Records with a known end, sorted by [`End`]. Almost always a new event ended after all earlier ones.
    known: VecDeque<Slot>,
    /// Keys of the known records. Present only while events are repeated after a restart.
    known_keys: Option<HashSet<HoldKey>>,
    /// Records with a hidden end, which exist only after a gap.
    hidden: BTreeMap<End, Slot>,
    /// Ends of the hidden records, by hold.
    hidden_ends: HashMap<HoldKey, End>,
}

/// Entry of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Key of the hold.
    pub key: HoldKey,
    /// Position from which on the hold is over.
    pub over: Position,
    /// Location of the record.
    pub place: RecordLocation,
}

impl Slot {
    fn end(&self) -> End {
        (self.over.zxid, self.place)
    }
}

impl Ring {
    pub fn len(&self) -> usize {
        self.known.len() + self.hidden.len()
    }

    /// Returns the greatest zxid at which a recorded hold is over.
    pub fn last_end(&self) -> Option<u64> {
        let known = self.known.back().map(|slot| slot.over.zxid);
        let hidden = self.hidden.last_key_value().map(|(end, _)| end.0);
        known.max(hidden)
    }

    /// Returns the record of a hold whose end is hidden.
    pub fn find_hidden(&self, key: &HoldKey) -> Option<Slot> {
        self.hidden.get(self.hidden_ends.get(key)?).copied()
    }

    /// Returns whether there is a record of this hold with a known end. The first call builds a set of all
    /// keys, which takes memory until [`Self::forget_keys`].
    pub fn knows(&mut self, key: &HoldKey) -> bool {
        let known = &self.known;
        let keys = self
            .known_keys
            .get_or_insert_with(|| known.iter().map(|slot| slot.key).collect());
        keys.contains(key)
    }

    /// Drops the set of keys. The caller does so once all further events are new ones.
    pub fn forget_keys(&mut self) {
        self.known_keys = None;
    }

    /// Inserts a record with a known end, usually behind all others. Returns the record that it replaces:
    /// that of the same hold with a hidden end.
    pub fn put_known(&mut self, slot: Slot) -> Option<Slot> {
        let before = self.hidden_ends.remove(&slot.key);
        if let Some(keys) = &mut self.known_keys {
            keys.insert(slot.key);
        }
        match self.known.back() {
            Some(last) if last.end() > slot.end() => {
                let at = self.known.partition_point(|other| other.end() < slot.end());
                self.known.insert(at, slot);
            }
            _ => self.known.push_back(slot),
        }
        before.map(|end| self.hidden.remove(&end).expect("every hidden end has a record"))
    }

    /// Inserts a record with a hidden end, of a hold that has no record yet.
    pub fn put_hidden(&mut self, slot: Slot) {
        self.hidden_ends.insert(slot.key, slot.end());
        self.hidden.insert(slot.end(), slot);
    }

    /// Removes the oldest record if it is the one that is `gone`, or an earlier one.
    pub fn pop_gone(&mut self, gone: End) -> Option<Slot> {
        self.pop_if(|slot| slot.end() <= gone)
    }

    /// Removes the oldest record if it `is_due`.
    pub fn pop_if(&mut self, is_due: impl FnOnce(&Slot) -> bool) -> Option<Slot> {
        let known = self.known.front().map(Slot::end);
        let hidden = self.hidden.first_key_value().map(|(end, _)| *end);
        let is_hidden = hidden.is_some_and(|hidden| known.is_none_or(|known| hidden < known));
        if !is_hidden {
            let slot = self.known.pop_front_if(|slot| is_due(slot))?;
            if let Some(keys) = &mut self.known_keys {
                keys.remove(&slot.key);
            }
            return Some(slot);
        }
        let oldest = self.hidden.first_entry()?;
        if !is_due(oldest.get()) {
            return None;
        }
        let slot = oldest.remove();
        self.hidden_ends.remove(&slot.key);
        Some(slot)
    }

    /// Returns the token and location of a lock's records with tokens below `before`, the newest first.
    /// `lock` is the hash of its name.
    pub fn of_lock(&self, lock: u64, before: Option<u64>) -> Vec<(u64, RecordLocation)> {
        let all = self.known.iter().chain(self.hidden.values()).rev();
        let matches =
            |slot: &&Slot| slot.key.lock == lock && before.is_none_or(|before| slot.key.token < before);
        let mut found: Vec<_> = all
            .filter(matches)
            .map(|slot| (slot.key.token, slot.place))
            .collect();
        // Holds mostly end in the order in which they began, so there is little to sort.
        found.sort_by_key(|(token, _)| std::cmp::Reverse(*token));
        found
    }
}
