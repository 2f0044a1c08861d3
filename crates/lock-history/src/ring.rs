//! Where the records are, in memory: in the order in which they ended, so that the oldest go first. It follows from the
//! records on the disk and knows nothing of bytes.
//!
//! Under load each record comes and goes within seconds, and of what is kept of it nothing is in a cache when it goes. So
//! it is a few numbers in one piece of memory, written at its end and taken from its beginning, and whoever looks for a
//! lock's records passes over all: that is rare.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use crate::chunks::Place;
use crate::keys::HoldKey;
use crate::record::Position;

/// The order in which records go: by the zxid from which on they are over, and of those that have it in common, as they
/// were told.
pub(crate) type End = (u64, Place);

/// Some 60 bytes a record.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    /// Those whose end is known, by their [`End`]s. Almost always what is told ended after all that was told before.
    known: VecDeque<Slot>,
    /// Whose these are, for as long as what was told before is told again.
    known_keys: Option<HashSet<HoldKey>>,
    /// Those whose end was hidden. There are some after a gap, and otherwise none.
    hidden: BTreeMap<End, Slot>,
    /// Their ends.
    hidden_ends: HashMap<HoldKey, End>,
}

/// What is known of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Whose it is.
    pub key: HoldKey,
    /// From where on it is over.
    pub over: Position,
    /// Where it is.
    pub place: Place,
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

    /// The last zxid from which on a record is over.
    pub fn last_end(&self) -> Option<u64> {
        let known = self.known.back().map(|slot| slot.over.zxid);
        let hidden = self.hidden.last_key_value().map(|(end, _)| end.0);
        known.max(hidden)
    }

    /// The record of a hold whose end was hidden.
    pub fn find_hidden(&self, key: &HoldKey) -> Option<Slot> {
        self.hidden.get(self.hidden_ends.get(key)?).copied()
    }

    /// Whether there is a record of a hold whose end is known. Who asks once asks again: until [`Self::forget_keys`] it takes
    /// memory for it.
    pub fn knows(&mut self, key: &HoldKey) -> bool {
        let known = &self.known;
        let keys = self
            .known_keys
            .get_or_insert_with(|| known.iter().map(|slot| slot.key).collect());
        keys.contains(key)
    }

    /// Nobody asks any more, for what is told from now on was never told before.
    pub fn forget_keys(&mut self) {
        self.known_keys = None;
    }

    /// Puts in a record whose end is known, and which lies behind all others. Returns the one whose place it takes: that of
    /// the same hold, if its end was hidden.
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
        before.map(|end| self.hidden.remove(&end).expect("what has an end is there"))
    }

    /// Puts in a record whose end was hidden, of a hold of which there is none.
    pub fn put_hidden(&mut self, slot: Slot) {
        self.hidden_ends.insert(slot.key, slot.end());
        self.hidden.insert(slot.end(), slot);
    }

    /// Takes out the record that ended first if there are more than `records`, or if it ended before `before_ms`.
    pub fn pop(&mut self, records: usize, before_ms: u64) -> Option<Slot> {
        let is_too_much = self.len() > records;
        self.pop_if(|slot| is_too_much || slot.over.time_ms < before_ms)
    }

    /// Takes out the record that ended first if it is the one that is `gone`, or ended before that.
    pub fn pop_gone(&mut self, gone: End) -> Option<Slot> {
        self.pop_if(|slot| slot.end() <= gone)
    }

    fn pop_if(&mut self, is_due: impl FnOnce(&Slot) -> bool) -> Option<Slot> {
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

    /// The records of a lock, by its hash, that came before the token, the latest first: their tokens and where they are.
    pub fn of_lock(&self, lock: u64, before: Option<u64>) -> Vec<(u64, Place)> {
        let all = self.known.iter().chain(self.hidden.values()).rev();
        let is_asked_for =
            |slot: &&Slot| slot.key.lock == lock && before.is_none_or(|before| slot.key.token < before);
        let mut found: Vec<_> = all
            .filter(is_asked_for)
            .map(|slot| (slot.key.token, slot.place))
            .collect();
        // Who came first ended first, most of the time, so there is little to sort.
        found.sort_by_key(|(token, _)| std::cmp::Reverse(*token));
        found
    }
}
