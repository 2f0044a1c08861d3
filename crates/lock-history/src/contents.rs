//! Loads an index from disk; opens and closes its files.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::chunks::{self, RecordLocation};
use crate::error::{IndexError, contained};
use crate::index::OpenHold;
use crate::keys::{self, HoldKey, Names};
use crate::record::Position;
use crate::share::{SHARES, Share};
use crate::stored::{self, Meta, ShareMeta};

/// Contents of an index on disk.
pub(crate) struct Contents {
    pub meta: Meta,
    pub shares: Vec<Share>,
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
        let damaged = |what: &str| IndexError::Damaged(what.to_owned());
        let stored = db.get(keys::META)?;
        let is_new = stored.is_none();
        let (meta, of_shares) = match stored {
            Some(bytes) => stored::read_meta(&bytes)?,
            None if db.is_empty() => {
                let meta = Meta {
                    owner,
                    reached: Position::default(),
                    gaps: Vec::new(),
                };
                (meta, vec![ShareMeta::default(); SHARES])
            }
            None => return Err(damaged("the metadata of the index is missing")),
        };
        if meta.owner != owner {
            return Err(IndexError::Foreign);
        }
        if of_shares.len() != SHARES {
            return Err(damaged("the index has another number of shares"));
        }
        let mut shares: Vec<Share> = of_shares.iter().map(Share::of).collect();
        for entry in db.scan_prefix(keys::CHUNK) {
            let (key, value) = entry?;
            let (share, chunk) = keys::chunk_of(&key)?;
            let share = &mut shares[share];
            share.chunks.add_read(chunk)?;
            chunks::read_all(&value, |offset, record| {
                let place = RecordLocation { chunk, offset };
                share.put_read(record.key(names), record.end(), place);
                Ok(())
            })?;
        }
        for (share, meta) in shares.iter_mut().zip(&of_shares) {
            if share.chunks.next() != meta.next_chunk {
                return Err(damaged("the last records are missing"));
            }
            share.remove_gone();
        }
        let mut open = HashMap::new();
        for entry in db.scan_prefix(keys::OPEN) {
            let hold = Arc::new(stored::read_hold(&entry?.1)?);
            let is_kept = true;
            open.insert(names.of(&hold), OpenHold { hold, is_kept });
        }
        Ok(Self {
            meta,
            shares,
            open,
            is_new,
        })
    }
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
