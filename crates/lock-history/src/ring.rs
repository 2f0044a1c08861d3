//! Where the records are, in memory: by lock, to find them, and by the position of their end, to let the oldest go. It
//! follows from the records on the disk and knows nothing of bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::keys::HoldId;
use crate::record::{End, Position};

/// Some 300 bytes a record.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    by_lock: BTreeMap<Arc<HoldId>, Place>,
    by_end: BTreeMap<(u64, Arc<HoldId>), u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// The zxid in its key.
    zxid: u64,
    is_hidden: bool,
}

/// What became of a record that was to be put in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// It is new.
    New,
    /// It takes the place of what was known before, whose key has this zxid.
    Instead(u64),
    /// What is known already is more.
    Known,
}

impl Ring {
    pub fn len(&self) -> usize {
        self.by_lock.len()
    }

    /// Puts a record in. One whose end is known takes the place of one whose end was hidden, and not the other way round.
    pub fn put(&mut self, id: HoldId, end: &End) -> Put {
        let over = end.over();
        let place = Place {
            zxid: over.zxid,
            is_hidden: matches!(end, End::Hidden { .. }),
        };
        let id = Arc::new(id);
        let before = self.by_lock.get(&id).copied();
        if before.is_some_and(|before| place.is_hidden || before == place) {
            return Put::Known;
        }
        if let Some(before) = before {
            self.by_end.remove(&(before.zxid, id.clone()));
        }
        self.by_lock.insert(id.clone(), place);
        self.by_end.insert((place.zxid, id), over.time_ms);
        before.map_or(Put::New, |before| Put::Instead(before.zxid))
    }

    /// Takes out the record that ended first if there are more than `records`, or if it ended before `before_ms`.
    pub fn pop(&mut self, records: usize, before_ms: u64) -> Option<(Arc<HoldId>, Position)> {
        let oldest = self.by_end.first_entry()?;
        let time_ms = *oldest.get();
        if self.by_lock.len() <= records && time_ms >= before_ms {
            return None;
        }
        let (zxid, id) = oldest.remove_entry().0;
        self.by_lock.remove(&id);
        Some((id, Position { zxid, time_ms }))
    }

    /// The records of a lock that came before the token, the latest first, each with the zxid in its key.
    pub fn of_lock(&self, lock: &str, before: Option<u64>) -> impl Iterator<Item = (&HoldId, u64)> {
        let at = |token| HoldId {
            lock: lock.into(),
            token,
            holder: "".into(),
        };
        // No token is as large as that: they are below 2^53.
        let range = at(0)..at(before.unwrap_or(u64::MAX));
        self.by_lock
            .range(range)
            .rev()
            .map(|(id, place)| (&**id, place.zxid))
    }
}
