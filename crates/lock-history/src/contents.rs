//! Loads an index from disk; opens and closes its files.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::chunks::{self, Chunks, RecordLocation};
use crate::error::{IndexError, contained};
use crate::index::OpenHold;
use crate::keys::{self, HoldKey, Names};
use crate::record::Position;
use crate::ring::{Ring, Slot};
use crate::stored::{self, Meta, StoredEnd};

/// Contents of an index on disk.
pub(crate) struct Contents {
    pub meta: Meta,
    pub ring: Ring,
    pub chunks: Chunks,
    pub open: HashMap<HoldKey, OpenHold>,
    /// True if the database was empty and had not even the index's metadata.
    pub is_new: bool,
}

impl Contents {
    /// Reads the contents.
    ///
    /// # Errors
    ///
    /// [`IndexError::Foreign`] if the index belongs to another `owner`; [`IndexError::Damaged`] if something
    /// is missing.
    pub fn read(db: &sled::Db, owner: [u8; 16], names: &Names) -> Result<Self, IndexError> {
        let stored = db.get(keys::META)?;
        let is_new = stored.is_none();
        let meta = match stored {
            Some(bytes) => stored::read_meta(&bytes)?,
            None if db.is_empty() => Meta {
                owner,
                reached: Position::default(),
                since: Position::default(),
                gaps: Vec::new(),
                next_chunk: 0,
                gone: None,
            },
            None => {
                return Err(IndexError::Damaged(
                    "the metadata of the index is missing".to_owned(),
                ));
            }
        };
        if meta.owner != owner {
            return Err(IndexError::Foreign);
        }
        let mut ring = Ring::default();
        let mut chunks = Chunks::starting_at(meta.next_chunk);
        for entry in db.scan_prefix(keys::CHUNK) {
            let (key, value) = entry?;
            let number = keys::chunk_number(&key)?;
            chunks.add_read(number)?;
            chunks::read_all(&value, |offset, record| {
                let place = RecordLocation {
                    chunk: number,
                    offset,
                };
                let key = record.key(names);
                put(&mut ring, &mut chunks, key, record.end(), place);
                Ok(())
            })?;
        }
        if chunks.next() != meta.next_chunk {
            return Err(IndexError::Damaged("the last records are missing".to_owned()));
        }
        // Only after all records were read: an evicted record may have replaced another evicted one.
        while let Some(gone) = meta.gone.and_then(|gone| ring.pop_gone(gone)) {
            chunks.release(gone.place);
        }
        let mut open = HashMap::new();
        for entry in db.scan_prefix(keys::OPEN) {
            let hold = Arc::new(stored::read_hold(&entry?.1)?);
            let is_kept = true;
            open.insert(names.of(&hold), OpenHold { hold, is_kept });
        }
        Ok(Self {
            meta,
            ring,
            chunks,
            open,
            is_new,
        })
    }
}

/// Inserts a record that was read. When it was written, it was already decided that it supersedes the earlier
/// ones of its hold.
fn put(ring: &mut Ring, chunks: &mut Chunks, key: HoldKey, end: &StoredEnd<'_>, place: RecordLocation) {
    let over = end.over();
    let slot = Slot { key, over, place };
    if end.is_hidden() {
        ring.put_hidden(slot);
    } else if let Some(before) = ring.put_known(slot) {
        chunks.release(before.place);
    }
    chunks.acquire(place);
}

/// Maximum wait for the lock file of an index that was just closed, and the interval between attempts. sled's
/// threads release the file some moments after its handle was dropped.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_millis(5);

/// Opens the database, or creates it.
pub(crate) fn open_sled(config: &sled::Config) -> Result<sled::Db, IndexError> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match contained(|| Ok(config.open())) {
            Ok(Err(sled::Error::Io(error))) if is_locked(&error) && Instant::now() < deadline => {
                std::thread::sleep(LOCK_RETRY);
            }
            opened => return Ok(opened??),
        }
    }
}

/// Returns whether the error says that another process or thread holds the lock file. sled wraps that error
/// and keeps only its text.
fn is_locked(error: &io::Error) -> bool {
    error.to_string().starts_with("could not acquire lock on")
}

/// Closes the database: sled writes and syncs when it is dropped.
pub(crate) fn shut_down(db: sled::Db) -> Result<(), IndexError> {
    contained(|| {
        drop(db);
        Ok(())
    })
}
