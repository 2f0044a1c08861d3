//! Where the records are, in memory: by lock, to find them, and by the position of their end, to let the oldest go. It
//! follows from the records on the disk and knows nothing of bytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use znode_store::LockName;

use crate::chunks::Place;
use crate::keys::HoldId;
use crate::record::Position;

/// Some 300 bytes a record.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    locks: HashMap<LockName, Lock>,
    /// The number of the next lock that comes.
    next_lock: u64,
    by_lock: BTreeMap<Name, Entry>,
    /// With the times of the ends.
    by_end: BTreeMap<(u64, HoldId), u64>,
}

/// A lock's number, a token, and a holder: to compare numbers is cheaper than to compare names.
type Name = (u64, u64, Arc<str>);

#[derive(Debug)]
struct Lock {
    number: u64,
    /// How many there are. A lock with none is forgotten.
    records: usize,
}

/// What is known of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// From where on it is over.
    pub over: Position,
    /// Whether its end was hidden.
    pub is_hidden: bool,
    /// Where it is.
    pub place: Place,
}

/// Whether an end is more than what was known `before` of the same hold. One that is known takes the place of one that was
/// hidden, and not the other way round.
pub(crate) fn is_more(zxid: u64, is_hidden: bool, before: &Entry) -> bool {
    !is_hidden && (before.is_hidden || before.over.zxid != zxid)
}

/// One that was let go.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Popped {
    pub id: HoldId,
    pub over: Position,
    pub place: Place,
}

impl Ring {
    pub fn len(&self) -> usize {
        self.by_lock.len()
    }

    /// What is known of a hold's end.
    pub fn find(&self, id: &HoldId) -> Option<Entry> {
        let lock = self.locks.get(&id.lock)?;
        self.by_lock
            .get(&(lock.number, id.token, id.holder.clone()))
            .copied()
    }

    /// Puts a record in. Returns the one of the same hold whose place it takes.
    pub fn put(&mut self, mut id: HoldId, entry: Entry) -> Option<Entry> {
        let known = self.locks.entry(id.lock);
        // One copy of a lock's name is enough for all.
        id.lock = known.key().clone();
        let lock = known.or_insert_with(|| {
            self.next_lock += 1;
            Lock {
                number: self.next_lock,
                records: 0,
            }
        });
        let name = (lock.number, id.token, id.holder.clone());
        let before = self.by_lock.insert(name, entry);
        match before {
            Some(before) => {
                self.by_end.remove(&(before.over.zxid, id.clone()));
            }
            None => lock.records += 1,
        }
        self.by_end.insert((entry.over.zxid, id), entry.over.time_ms);
        before
    }

    /// Takes out the record that ended first if there are more than `records`, or if it ended before `before_ms`.
    pub fn pop(&mut self, records: usize, before_ms: u64) -> Option<Popped> {
        let is_too_much = self.by_lock.len() > records;
        self.pop_if(|_, time_ms| is_too_much || time_ms < before_ms)
    }

    /// Takes out the record that ended first if it is `gone` or ended before that; of those that ended together the order
    /// is that of their names.
    pub fn pop_gone(&mut self, gone: &(u64, HoldId)) -> Option<Popped> {
        self.pop_if(|end, _| end <= gone)
    }

    fn pop_if(&mut self, is_due: impl FnOnce(&(u64, HoldId), u64) -> bool) -> Option<Popped> {
        let oldest = self.by_end.first_entry()?;
        let time_ms = *oldest.get();
        if !is_due(oldest.key(), time_ms) {
            return None;
        }
        let (zxid, id) = oldest.remove_entry().0;
        let lock = self.locks.get_mut(&id.lock).expect("it has this record");
        let removed = self.by_lock.remove(&(lock.number, id.token, id.holder.clone()));
        let place = removed.expect("what has an end has a name").place;
        lock.records -= 1;
        if lock.records == 0 {
            self.locks.remove(&id.lock);
        }
        let over = Position { zxid, time_ms };
        Some(Popped { id, over, place })
    }

    /// The records of a lock that came before the token, the latest first: their tokens and where they are.
    pub fn of_lock(&self, lock: &LockName, before: Option<u64>) -> impl Iterator<Item = (u64, Place)> {
        // No lock has the number 0, and no token is as large as that: they are below 2^53.
        let number = self.locks.get(lock).map_or(0, |lock| lock.number);
        let at = |token| (number, token, Arc::from(""));
        self.by_lock
            .range(at(0)..at(before.unwrap_or(u64::MAX)))
            .rev()
            .map(|((_, token, _), entry)| (*token, entry.place))
    }
}
