//! In-memory index of the log for reads: appended entries are in it at once, on disk or not.
//!
//! The newest entries keep their payloads in memory, up to a bound; for older ones the index has only the
//! location on disk. This module does not write, and does not wait for the disk while the index is locked.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::format::{HeaderBytes, RECORD_HEADER_BYTES, RecordHeader, RecordKind};
use super::{LogPos, VoteRecord, WalEntry};
use crate::disk::DiskFile;
use crate::error::StorageError;

/// Sequence number that no segment has.
const NOWHERE: u64 = 0;

/// Location of a record on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordLocation {
    /// Sequence number of the segment; [`NOWHERE`] while unwritten.
    pub segment: u64,
    /// Offset of its header.
    pub offset: u32,
    /// Length of its payload in bytes.
    pub payload_len: u32,
}

impl RecordLocation {
    pub(super) const NONE: RecordLocation = RecordLocation {
        segment: NOWHERE,
        offset: 0,
        payload_len: 0,
    };
}

struct Slot {
    term: u64,
    /// Distinguishes this entry from another one that takes its index after a truncation.
    stamp: u64,
    place: RecordLocation,
    payload: Option<Bytes>,
    /// Bytes of all records of entries that were appended before this one.
    begins_at: u64,
}

/// The index.
pub(super) struct LogIndex {
    pub vote: Option<VoteRecord>,
    pub committed: Option<LogPos>,
    purged: Option<LogPos>,
    /// Index of the first slot.
    first: u64,
    slots: VecDeque<Slot>,
    /// Number of slots at the front whose payload is on disk only.
    evicted: usize,
    cached_bytes: usize,
    max_cached_bytes: usize,
    next_stamp: u64,
    /// Bytes of the records of all entries that were ever pushed.
    appended: u64,
    files: BTreeMap<u64, Arc<dyn DiskFile>>,
}

impl LogIndex {
    pub fn new(max_cached_bytes: usize) -> Self {
        Self {
            vote: None,
            committed: None,
            purged: None,
            first: 0,
            slots: VecDeque::new(),
            evicted: 0,
            cached_bytes: 0,
            max_cached_bytes,
            next_stamp: 0,
            appended: 0,
            files: BTreeMap::new(),
        }
    }

    pub fn purged(&self) -> Option<LogPos> {
        self.purged
    }

    /// Returns the position of the last entry, or the purge point if there is no entry after it.
    pub fn last(&self) -> Option<LogPos> {
        match self.slots.back() {
            Some(slot) => Some(LogPos {
                term: slot.term,
                index: self.end() - 1,
            }),
            None => self.purged,
        }
    }

    /// Returns the range of indexes in the log.
    pub fn range(&self) -> Range<u64> {
        self.first..self.end()
    }

    fn end(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    fn slot(&self, index: u64) -> Option<&Slot> {
        let at = usize::try_from(index.checked_sub(self.first)?).ok()?;
        self.slots.get(at)
    }

    /// Appends an entry and returns its stamp.
    ///
    /// # Panics
    ///
    /// If the log is not empty and the entry is not the next one.
    pub fn push(&mut self, pos: LogPos, payload: Bytes, place: RecordLocation) -> u64 {
        if self.slots.is_empty() {
            self.first = pos.index;
        }
        assert_eq!(pos.index, self.end(), "the log has no gaps");
        let stamp = self.next_stamp;
        self.next_stamp += 1;
        self.cached_bytes += payload.len();
        let begins_at = self.appended;
        self.appended += (RECORD_HEADER_BYTES + payload.len()) as u64;
        self.slots.push_back(Slot {
            term: pos.term,
            stamp,
            place,
            payload: Some(payload),
            begins_at,
        });
        stamp
    }

    /// Drops the entries after `last`, or all if it is `None`.
    pub fn truncate_after(&mut self, last: Option<u64>) {
        let keep_to = last.map_or(self.first, |last| last.saturating_add(1));
        while self.end() > keep_to && !self.slots.is_empty() {
            self.forget(|slots| slots.pop_back());
        }
        self.evicted = self.evicted.min(self.slots.len());
    }

    /// Drops the entries up to `upto`, which becomes the predecessor of the first entry.
    pub fn purge(&mut self, upto: LogPos) {
        if self.purged.is_some_and(|purged| purged.index >= upto.index) {
            return;
        }
        while self.first <= upto.index && !self.slots.is_empty() {
            self.forget(|slots| slots.pop_front());
            self.first += 1;
            self.evicted = self.evicted.saturating_sub(1);
        }
        self.purged = Some(upto);
        if self.slots.is_empty() {
            self.first = upto.index.saturating_add(1);
        }
    }

    fn forget(&mut self, pop: impl FnOnce(&mut VecDeque<Slot>) -> Option<Slot>) {
        if let Some(Slot {
            payload: Some(payload),
            ..
        }) = pop(&mut self.slots)
        {
            self.cached_bytes -= payload.len();
        }
    }

    /// Returns the number of bytes of the records after `index`. Includes entries that were truncated since,
    /// which stay on the disk until their segment is removed.
    pub fn bytes_after(&self, index: u64) -> u64 {
        self.appended - self.begins_at(index.saturating_add(1).max(self.first))
    }

    /// Returns the lowest index from which the entries up to `upto` have at most `max` bytes.
    pub fn first_within(&self, upto: u64, max: u64) -> u64 {
        let floor = self.begins_at(upto.saturating_add(1)).saturating_sub(max);
        self.first + self.slots.partition_point(|slot| slot.begins_at < floor) as u64
    }

    /// Returns the number of bytes that were appended before the entry at `index`, which must not precede the
    /// first entry.
    fn begins_at(&self, index: u64) -> u64 {
        self.slot(index).map_or(self.appended, |slot| slot.begins_at)
    }

    /// Records that an entry has reached the disk. Ignored if the entry was truncated or purged in the
    /// meantime.
    pub fn written(&mut self, index: u64, stamp: u64, place: RecordLocation) {
        let Some(at) = index
            .checked_sub(self.first)
            .and_then(|at| usize::try_from(at).ok())
        else {
            return;
        };
        if let Some(slot) = self.slots.get_mut(at)
            && slot.stamp == stamp
        {
            slot.place = place;
        }
    }

    /// Evicts the oldest payloads that are on disk until the rest fits into the bound.
    pub fn evict(&mut self) {
        self.evict_to(self.max_cached_bytes);
    }

    /// Evicts all payloads that are on disk.
    pub fn evict_all(&mut self) {
        self.evict_to(0);
    }

    fn evict_to(&mut self, max_cached_bytes: usize) {
        while self.cached_bytes > max_cached_bytes
            && let Some(slot) = self.slots.get_mut(self.evicted)
            && slot.place != RecordLocation::NONE
        {
            if let Some(payload) = slot.payload.take() {
                self.cached_bytes -= payload.len();
            }
            self.evicted += 1;
        }
    }

    pub fn add_file(&mut self, sequence: u64, file: Arc<dyn DiskFile>) {
        self.files.insert(sequence, file);
    }

    pub fn remove_file(&mut self, sequence: u64) {
        self.files.remove(&sequence);
    }

    /// Plans a read: the entries of `range` in the log, from the first one, until `max_bytes` of payload are
    /// reached, but at least one if there is any.
    pub fn plan(&self, range: Range<u64>, max_bytes: usize) -> ReadPlan {
        let from = range.start.max(self.first);
        let to = range.end.min(self.end());
        let mut parts = Vec::new();
        let mut bytes = 0;
        for index in from..to {
            if bytes >= max_bytes && !parts.is_empty() {
                break;
            }
            let Some(slot) = self.slot(index) else { break };
            let pos = LogPos {
                term: slot.term,
                index,
            };
            let part = match &slot.payload {
                Some(payload) => {
                    bytes += payload.len();
                    Part::Cached(WalEntry {
                        pos,
                        payload: payload.clone(),
                    })
                }
                None => {
                    bytes += slot.place.payload_len as usize;
                    let file = self.files.get(&slot.place.segment).cloned();
                    let file = file.expect("the segment of an indexed entry is open");
                    Part::OnDisk {
                        pos,
                        place: slot.place,
                        file,
                    }
                }
            };
            parts.push(part);
        }
        ReadPlan { parts }
    }
}

enum Part {
    Cached(WalEntry),
    OnDisk {
        pos: LogPos,
        place: RecordLocation,
        file: Arc<dyn DiskFile>,
    },
}

/// Entries to be read, determined while the index was locked. Later changes of the log do not affect them: a
/// removed segment stays readable while its file is open.
pub struct ReadPlan {
    parts: Vec<Part>,
}

impl ReadPlan {
    /// Returns whether [`ReadPlan::load`] reads from the disk, which must not happen on a thread of the async
    /// runtime.
    pub fn needs_disk(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::OnDisk { .. }))
    }

    /// Reads the entries.
    pub fn load(self) -> Result<Vec<WalEntry>, StorageError> {
        self.parts
            .into_iter()
            .map(|part| match part {
                Part::Cached(entry) => Ok(entry),
                Part::OnDisk { pos, place, file } => read_entry(pos, place, file.as_ref()),
            })
            .collect()
    }
}

fn read_entry(pos: LogPos, place: RecordLocation, file: &dyn DiskFile) -> Result<WalEntry, StorageError> {
    let mut bytes = vec![0; RECORD_HEADER_BYTES + place.payload_len as usize];
    file.read_exact_at(&mut bytes, u64::from(place.offset))
        .map_err(|source| StorageError::Io {
            what: format!("read entry {pos} from segment {:016x} of the log", place.segment),
            source: Arc::new(source),
        })?;
    let damaged = || {
        StorageError::Damaged(format!(
            "entry {pos} in segment {:016x} of the log, at byte {}, is not what was written",
            place.segment, place.offset
        ))
    };
    let header: &[u8; RECORD_HEADER_BYTES] = bytes[..RECORD_HEADER_BYTES]
        .try_into()
        .expect("the slice has the length of a header");
    match RecordHeader::decode(header, place.segment) {
        HeaderBytes::Valid(header, _)
            if header.kind == RecordKind::Entry
                && (header.term, header.index) == (pos.term, pos.index)
                && header.payload_matches(&bytes[RECORD_HEADER_BYTES..]) => {}
        _ => return Err(damaged()),
    }
    let payload = Bytes::from(bytes).slice(RECORD_HEADER_BYTES..);
    Ok(WalEntry { pos, payload })
}
