//! Cache of recently written contender records, by the data that they were written as. Nearly every lock is
//! released soon after its acquire, and each step in between needs its record, so most records are never
//! parsed.
//!
//! The cache is not part of the state. A cached record equals the one that parsing the data would give, which
//! every build with debug assertions asserts; only the time differs from replica to replica.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::locks::contender::{Facts, Record};
use crate::model::data::Data;
use crate::model::path::{LockName, ZPath};

/// Maximum number of cached records: more than calls in flight. Each takes about half a kilobyte.
const SLOTS: usize = 4096;

/// See the module.
#[derive(Default)]
pub(crate) struct Memo {
    /// Empty until the first record is kept.
    slots: Vec<Option<CachedRecord>>,
}

struct CachedRecord {
    /// While this is here, no other data can have its address.
    data: Data,
    /// Of the contender.
    path: ZPath,
    /// The sequence number in its name.
    number: u64,
    record: Arc<Record>,
}

impl Memo {
    /// `record` was written as `data`, for the contender `path` with this sequence number.
    pub fn keep(&mut self, data: &Data, path: &ZPath, number: u64, record: &Arc<Record>) {
        if self.slots.is_empty() {
            self.slots.resize_with(SLOTS, || None);
        }
        let kept = CachedRecord {
            data: data.clone(),
            path: path.clone(),
            number,
            record: record.clone(),
        };
        self.slots[slot_of(data)] = Some(kept);
    }

    /// Returns the facts of a znode below a lock, as [`Facts::read`] does.
    pub fn facts(&self, name: &str, data: &Data) -> Option<Facts> {
        let Some(kept) = self.kept(data).filter(|kept| kept.path.name() == name) else {
            return Facts::read(name, data.as_bytes());
        };
        let facts = Facts {
            number: kept.number,
            request: kept.record.request,
            record: Some(kept.record.clone()),
        };
        debug_assert_eq!(Some(&facts), Facts::read(name, data.as_bytes()).as_ref());
        Some(facts)
    }

    /// The path of a contender, which saves to put it together again. `None`: it is not known, or not any more.
    pub fn path(&self, lock: &LockName, name: &str, data: &Data) -> Option<&ZPath> {
        let path = &self.kept(data)?.path;
        let below = path.as_str().strip_prefix(lock.znode().as_str())?;
        (below.strip_prefix('/') == Some(name)).then_some(path)
    }

    fn kept(&self, data: &Data) -> Option<&CachedRecord> {
        let kept = self.slots.get(slot_of(data))?.as_ref()?;
        kept.data.is_same_as(data).then_some(kept)
    }
}

/// Data that is allocated next to each other is kept next to each other.
fn slot_of(data: &Data) -> usize {
    /// No record is shorter.
    const GRAIN: usize = 64;
    data.address() / GRAIN % SLOTS
}

#[cfg(test)]
mod tests {
    use crate::locks::json;

    use super::*;
    use crate::locks::contender::Attempt;
    use crate::locks::name::make;
    use crate::model::lock::{AttemptId, LockMode, LockWish};

    fn contender() -> ZPath {
        let name = make(5, LockMode::Exclusive, Default::default(), 7);
        LockName::parse("a").unwrap().znode().join(&name).unwrap()
    }

    fn record(note: &str) -> Arc<Record> {
        let wish = LockWish {
            lock: LockName::parse("a").unwrap(),
            mode: LockMode::Exclusive,
            permits: 1,
            owner: "".into(),
            reentrant: true,
            note: note.into(),
            address: "".into(),
            names: Default::default(),
            lock_delay_ms: 0,
        };
        let id = AttemptId(1);
        Arc::new(Record::new(&wish, Attempt { id, request_id: None }, 5))
    }

    #[test]
    fn memo_finds_records_by_allocation_and_not_by_equal_bytes() {
        let path = contender();
        let mut memo = Memo::default();
        let written = record("written");
        let data = json::data(&written);
        memo.keep(&data, &path, 7, &written);
        assert!(memo.kept(&data.clone()).is_some());
        assert!(memo.kept(&json::data(&written)).is_none());
        for data in [&data, &json::data(&written), &Data::empty()] {
            for name in [path.name(), "lock-0000000008", "no contender"] {
                assert_eq!(memo.facts(name, data), Facts::read(name, data.as_bytes()));
            }
        }
        let [lock, other] = ["a", "a/b"].map(|lock| LockName::parse(lock).unwrap());
        assert_eq!(memo.path(&lock, path.name(), &data), Some(&path));
        assert_eq!(memo.path(&other, path.name(), &data), None);
        assert_eq!(memo.path(&lock, &path.name()[1..], &data), None);
        assert_eq!(memo.path(&lock, path.name(), &json::data(&written)), None);
    }

    #[test]
    fn it_keeps_no_more_than_it_has_slots_for() {
        let mut memo = Memo::default();
        let written = record("x");
        let all: Vec<Data> = (0..2 * SLOTS).map(|_| json::data(&written)).collect();
        for data in &all {
            memo.keep(data, &contender(), 7, &written);
        }
        let found = all.iter().filter(|data| memo.kept(data).is_some());
        let found = found.count();
        assert!((1..=SLOTS).contains(&found), "{found}");
    }
}
