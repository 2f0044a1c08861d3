//! Chunks of records on disk: which exist, which one is being filled, and which can be removed. The module
//! knows nothing of sled.
//!
//! A record is written once and never moves. A chunk is removed when none of its records is needed any more,
//! and chunks are removed in the order of their numbers. So a record that replaced an earlier one exists for
//! as long as the earlier one does, and a reader of all chunks in order gets the current state.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::error::IndexError;
use crate::record::HoldRecord;
use crate::stored::{self, StoredRecord, VERSION};

/// Size at which a chunk is full, some thirty records; the last record may exceed it. sled's costs are per
/// chunk, but it rewrites up to seventeen neighbours at once, and puts more than 128 KiB into a file of its own.
const FULL_BYTES: usize = 4 * 1024;

/// Location of a record. Later records have greater locations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct RecordLocation {
    /// Number of the chunk.
    pub chunk: u64,
    /// Byte offset of the record in the chunk.
    pub offset: u32,
}

/// All chunks of a share, by number.
#[derive(Debug)]
pub(crate) struct Chunks {
    /// Number of the first chunk.
    first: u64,
    /// Number of needed records in each chunk, from the first on.
    needed: VecDeque<u32>,
    /// Bytes of the last chunk while it is being filled.
    filling: Option<Vec<u8>>,
}

impl Chunks {
    /// Creates an empty set of chunks whose first chunk will have this number.
    pub fn starting_at(first: u64) -> Self {
        Self {
            first,
            needed: VecDeque::new(),
            filling: None,
        }
    }

    /// Returns the number of the next chunk.
    pub fn next(&self) -> u64 {
        self.first + self.needed.len() as u64
    }

    /// Adds a chunk that was read from disk, with no needed records yet.
    ///
    /// # Errors
    ///
    /// If `number` is not the next number, since then a chunk is missing.
    pub fn add_read(&mut self, number: u64) -> Result<(), IndexError> {
        if self.needed.is_empty() {
            self.first = number;
        }
        if number != self.next() {
            return Err(IndexError::Damaged("a chunk of records is missing".to_owned()));
        }
        self.needed.push_back(0);
        Ok(())
    }

    /// Appends a record and returns its location. The caller then checks [`is_full`](Self::is_full).
    pub fn push(&mut self, record: &StoredRecord<'_>) -> RecordLocation {
        if self.filling.is_none() {
            self.needed.push_back(0);
        }
        let filling = self.filling.get_or_insert_with(|| {
            // With some room, so that the buffer need not grow.
            let mut bytes = Vec::with_capacity(FULL_BYTES + FULL_BYTES / 8);
            bytes.push(VERSION);
            bytes
        });
        let offset = u32::try_from(filling.len()).expect("a full chunk takes nothing more");
        stored::append(record, filling);
        let chunk = self.first + self.needed.len() as u64 - 1;
        RecordLocation { chunk, offset }
    }

    /// Returns whether the chunk being filled has to be written now.
    pub fn is_full(&self) -> bool {
        self.filling
            .as_ref()
            .is_some_and(|bytes| bytes.len() >= FULL_BYTES)
    }

    /// Returns the number and the bytes of the chunk being filled, for the caller to write. The next record
    /// begins a new chunk.
    pub fn take_filled(&mut self) -> Option<(u64, Vec<u8>)> {
        let bytes = self.filling.take()?;
        Some((self.next() - 1, bytes))
    }

    /// Marks the record at this location as needed.
    pub fn acquire(&mut self, place: RecordLocation) {
        *self.references(place) += 1;
    }

    /// Marks the record at this location as no longer needed.
    pub fn release(&mut self, place: RecordLocation) {
        *self.references(place) -= 1;
    }

    fn references(&mut self, place: RecordLocation) -> &mut u32 {
        usize::try_from(place.chunk - self.first)
            .ok()
            .and_then(|at| self.needed.get_mut(at))
            .expect("a chunk with a needed record exists")
    }

    /// Removes the first chunk and returns its number, if the chunk is written and has no needed record.
    pub fn pop(&mut self) -> Option<u64> {
        if self.needed.len() <= usize::from(self.filling.is_some()) {
            return None;
        }
        self.needed.pop_front_if(|needed| *needed == 0)?;
        self.first += 1;
        Some(self.first - 1)
    }
}

/// Reads the record at this offset of a chunk.
pub(crate) fn read_at(chunk: &[u8], offset: u32) -> Result<HoldRecord, IndexError> {
    let behind = usize::try_from(offset)
        .ok()
        .and_then(|offset| chunk.get(offset..));
    let (stored, _) = stored::read_first::<StoredRecord<'_>>(behind.unwrap_or_default())?;
    stored.try_into()
}

/// Reads all records of a chunk and passes each with its offset to `each`.
pub(crate) fn read_all(
    chunk: &[u8],
    mut each: impl FnMut(u32, StoredRecord<'_>) -> Result<(), IndexError>,
) -> Result<(), IndexError> {
    let mut rest = stored::behind_version(chunk)?;
    while !rest.is_empty() {
        let offset = u32::try_from(chunk.len() - rest.len());
        let offset = offset.map_err(|_| IndexError::Damaged("a chunk is too large".to_owned()))?;
        let (stored, used) = stored::read_first(rest)?;
        each(offset, stored)?;
        rest = &rest[used..];
    }
    Ok(())
}
