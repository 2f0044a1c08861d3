//! Which chunks of records there are, which one is being filled, and which can go. It knows nothing of sled.
//!
//! A record is written once and never moves. Its chunk goes when none of its records is needed any more, and the chunks
//! go in the order in which they came. So a record that took the place of another one is there for as long as that other
//! one is, and whoever reads all chunks in their order learns what is true.

use std::collections::VecDeque;

use crate::error::IndexError;
use crate::record::Record;
use crate::stored::{self, StoredRecord, VERSION};

/// A chunk is full with so many bytes, some fifteen records; the last one may lie across it. sled's work is for each chunk,
/// but it rewrites up to sixteen neighbours at once, and with larger ones its file and its memory become larger, too.
const FULL_BYTES: usize = 2 * 1024;

/// Where a record is. What is told later lies behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The number of its chunk.
    pub chunk: u64,
    /// At which byte of the chunk it begins.
    pub offset: u32,
}

impl Place {
    /// Behind all records that there can be.
    pub const LAST: Self = Self {
        chunk: u64::MAX,
        offset: u32::MAX,
    };
}

/// The chunks.
#[derive(Debug)]
pub(crate) struct Chunks {
    /// The number of the first.
    first: u64,
    /// How many records of each are still needed, from the first on.
    needed: VecDeque<u32>,
    /// The bytes of the last chunk, if it is still being filled.
    filling: Option<Vec<u8>>,
}

impl Chunks {
    /// No chunks; the first one will have this number.
    pub fn starting_at(first: u64) -> Self {
        Self {
            first,
            needed: VecDeque::new(),
            filling: None,
        }
    }

    /// The number of the next chunk.
    pub fn next(&self) -> u64 {
        self.first + self.needed.len() as u64
    }

    /// Counts one in that was read, with none of its records yet. `number` has to be the next one's.
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

    /// Puts a record at the end. Whoever does so looks next whether the chunk [is full](Self::is_full).
    pub fn push(&mut self, record: &StoredRecord<'_>) -> Place {
        if self.filling.is_none() {
            self.needed.push_back(0);
        }
        let filling = self.filling.get_or_insert_with(|| {
            // With some room, so that it does not have to grow.
            let mut bytes = Vec::with_capacity(FULL_BYTES + FULL_BYTES / 8);
            bytes.push(VERSION);
            bytes
        });
        let offset = u32::try_from(filling.len()).expect("a full chunk takes nothing more");
        stored::append(record, filling);
        let chunk = self.first + self.needed.len() as u64 - 1;
        Place { chunk, offset }
    }

    /// Whether the chunk that is being filled has to be written now.
    pub fn is_full(&self) -> bool {
        self.filling
            .as_ref()
            .is_some_and(|bytes| bytes.len() >= FULL_BYTES)
    }

    /// The number and the bytes of the chunk that was being filled, if there is one. From now on it is written.
    pub fn take_filled(&mut self) -> Option<(u64, Vec<u8>)> {
        let bytes = self.filling.take()?;
        Some((self.next() - 1, bytes))
    }

    /// The record at this place is needed.
    pub fn need(&mut self, place: Place) {
        *self.needed_of(place) += 1;
    }

    /// The record at this place is not needed any more.
    pub fn let_go(&mut self, place: Place) {
        *self.needed_of(place) -= 1;
    }

    fn needed_of(&mut self, place: Place) -> &mut u32 {
        usize::try_from(place.chunk - self.first)
            .ok()
            .and_then(|at| self.needed.get_mut(at))
            .expect("a chunk with a record that is needed is there")
    }

    /// Forgets the first chunk and returns its number, if it is written and nothing in it is needed.
    pub fn pop(&mut self) -> Option<u64> {
        if self.needed.len() <= usize::from(self.filling.is_some()) {
            return None;
        }
        self.needed.pop_front_if(|needed| *needed == 0)?;
        self.first += 1;
        Some(self.first - 1)
    }
}

/// Reads the record at this byte of a chunk.
pub(crate) fn read_at(chunk: &[u8], offset: u32) -> Result<Record, IndexError> {
    let behind = usize::try_from(offset)
        .ok()
        .and_then(|offset| chunk.get(offset..));
    let (stored, _) = stored::read_first::<StoredRecord<'_>>(behind.unwrap_or_default())?;
    stored.try_into()
}

/// Reads all records of a chunk, each with the byte at which it begins.
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
