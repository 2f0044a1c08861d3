//! One share of the records: those of the locks with some top-level names.
//!
//! The records of all shares together are bounded, and the share with the most loses its oldest. So a program with many short holds
//! evicts its own records, and not the last holds of other programs' locks.

use crate::chunks::{Chunks, RecordLocation};
use crate::keys::HoldKey;
use crate::record::Position;
use crate::ring::{End, Ring, Slot};
use crate::stored::{ShareMeta, StoredEnd};

/// Number of shares. With more, names rarely fall into one; but each batch writes a chunk for each share that it changes.
pub(crate) const SHARES: usize = 16;

/// One share.
#[derive(Debug)]
pub(crate) struct Share {
    pub ring: Ring,
    pub chunks: Chunks,
    /// Position from which on there are records.
    pub since: Position,
    /// End and location of the record that was evicted last. It and earlier ones may still be in a chunk.
    pub gone: Option<End>,
}

impl Share {
    /// Creates the share, still without its chunks.
    pub fn of(meta: &ShareMeta) -> Self {
        Self {
            ring: Ring::default(),
            chunks: Chunks::starting_at(meta.next_chunk),
            since: meta.since,
            gone: meta.gone,
        }
    }

    /// Returns the metadata.
    pub fn meta(&self) -> ShareMeta {
        ShareMeta {
            since: self.since,
            next_chunk: self.chunks.next(),
            gone: self.gone,
        }
    }

    /// Inserts a record that was read. When it was written, it was already decided that it supersedes the earlier ones of its hold.
    pub fn put_read(&mut self, key: HoldKey, end: &StoredEnd<'_>, place: RecordLocation) {
        let over = end.over();
        self.put(Slot { key, over, place }, end.is_hidden());
    }

    /// Inserts a record.
    pub fn put(&mut self, slot: Slot, is_hidden: bool) {
        if is_hidden {
            self.ring.put_hidden(slot);
        } else if let Some(before) = self.ring.put_known(slot) {
            self.chunks.release(before.place);
        }
        self.chunks.acquire(slot.place);
    }

    /// Removes the records that were evicted and are still in chunks, after all chunks were read: an evicted record may have replaced
    /// another evicted one.
    pub fn remove_gone(&mut self) {
        while let Some(gone) = self.gone.and_then(|gone| self.ring.pop_gone(gone)) {
            self.chunks.release(gone.place);
        }
    }

    /// Evicts the oldest record if it `is_due`. Returns whether it was.
    pub fn evict_if(&mut self, is_due: impl FnOnce(&Slot) -> bool) -> bool {
        let Some(evicted) = self.ring.pop_if(is_due) else {
            return false;
        };
        self.chunks.release(evicted.place);
        if evicted.over.zxid > self.since.zxid {
            self.since = evicted.over;
        }
        self.gone = Some((evicted.over.zxid, evicted.place));
        true
    }

    /// Moves the beginning of the history to this position, unless it is later already.
    pub fn begin_at(&mut self, position: Position) {
        if position.zxid > self.since.zxid {
            self.since = position;
        }
    }
}
