//! The index: events go into a batch, batches go to sled, and pages are read from it. Every access to sled
//! may fail, and after the first failure all further operations fail.

use std::collections::{HashMap, VecDeque, hash_map};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use znode_store::{ContenderEnd, Hold, LockName, Zxid};

use crate::bounds::{HistoryLimits, MAX_GAPS};
use crate::chunks::{self, RecordLocation};
use crate::contents::{self, Contents};
use crate::error::{IndexError, contained};
use crate::keys::{self, HoldKey, Names};
use crate::record::{HistoryGap, HistoryPage, HoldRecord, Position};
use crate::ring::Slot;
use crate::share::{SHARES, Share};
use crate::stored::{self, Meta, ShareMeta, StoredEnd, StoredRecord};

/// Age at which an open hold is written to disk, in milliseconds. Most locks are released much sooner and
/// then cost only their record.
const KEPT_AFTER_MS: u64 = 1_000;

/// Maximum number of keys per batch: a second's records of a busy node, up to 4 MB. sled writes out its buffers and wakes all its threads twice
/// for each batch, and frees what a batch replaces, a page for each key, when the batch is over.
const MAX_BATCH: usize = 1_000;

/// Interval of sled's fsync, in milliseconds. It is the only fsync of the index and delays the log's disk. It
/// bounds only how much history a power failure loses.
const SYNC_EVERY_MS: u64 = 30_000;

/// Permissions of the directory: only its owner may read it, because sled creates world-readable files.
const PRIVATE: u32 = 0o700;

/// Lock history of one node. See the [crate's page](crate).
#[derive(Debug)]
pub struct Index {
    db: sled::Db,
    bounds: HistoryLimits,
    names: Names,
    shares: Vec<Share>,
    open: HashMap<HoldKey, OpenHold>,
    /// Open holds that are not yet on disk, in the order of their grants. Some may have ended.
    unkept: VecDeque<HoldKey>,
    meta: Meta,
    /// Greatest zxid of an end that may have been recorded before the index was opened.
    last_end_on_open: u64,
    batch: sled::Batch,
    /// Number of keys in the batch.
    keys: usize,
    /// True if something was recorded since the last batch, in the batch or only in memory.
    has_changed: bool,
    /// True if committed batches have not been flushed to the operating system.
    unflushed: bool,
    was_lost: bool,
    failed: Option<IndexError>,
}

#[derive(Debug)]
pub(crate) struct OpenHold {
    pub hold: Arc<Hold>,
    /// True if the open hold is on disk.
    pub is_kept: bool,
}

/// Creates the directory if it is missing, and makes it readable for its owner alone in any case.
fn private(dir: &Path) -> Result<(), IndexError> {
    let made = std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::set_permissions(dir, Permissions::from_mode(PRIVATE)));
    made.map_err(|error| IndexError::Disk(error.to_string()))
}

impl Index {
    /// Opens the index in `dir`, or creates it. `owner` identifies the data directory that the index belongs
    /// to.
    pub fn open(dir: &Path, owner: [u8; 16], bounds: HistoryLimits) -> Result<Self, IndexError> {
        private(dir)?;
        // sled takes a file that is damaged at its beginning for a new one.
        let was_there = std::fs::metadata(dir.join("db")).is_ok_and(|file| file.len() > 0);
        let config = sled::Config::new()
            .path(dir)
            .cache_capacity(bounds.cache_bytes)
            .flush_every_ms(Some(SYNC_EVERY_MS));
        let db = contents::open_sled(&config)?;
        let names = Names::new(owner);
        match contained(|| Contents::read(&db, owner, &names)) {
            Ok(contents) => {
                let was_lost = was_there && contents.is_new;
                if contents.is_new {
                    // Write the metadata to disk at once, so that an index without records is not mistaken
                    // for a lost one when it is opened again.
                    let shares = [(); SHARES].map(|()| ShareMeta::default());
                    db.insert(keys::META, stored::meta_bytes(&contents.meta, &shares))?;
                    db.flush()?;
                }
                Ok(Self::new(db, bounds, names, contents, was_lost))
            }
            Err(error) => {
                // Not while a panic unwinds: sled writes when it is dropped, and a second panic would abort
                // the process.
                contents::shut_down(db)?;
                Err(error)
            }
        }
    }

    fn new(db: sled::Db, bounds: HistoryLimits, names: Names, contents: Contents, was_lost: bool) -> Self {
        let Contents {
            meta,
            shares,
            open,
            is_new: _,
        } = contents;
        Self {
            db,
            bounds,
            names,
            last_end_on_open: shares
                .iter()
                .filter_map(|share| share.ring.last_end())
                .max()
                .unwrap_or_default(),
            shares,
            open,
            unkept: VecDeque::new(),
            meta,
            batch: sled::Batch::default(),
            keys: 0,
            has_changed: false,
            unflushed: false,
            was_lost,
            failed: None,
        }
    }

    /// Returns the position up to which the index has recorded everything, except for the gaps. Events that
    /// were recorded but not committed before the index was last closed do not count.
    pub fn reached(&self) -> Position {
        self.meta.reached
    }

    /// Returns whether the index had a file without any metadata when it was opened, which means that damage
    /// or a crash destroyed it.
    pub fn was_lost(&self) -> bool {
        self.was_lost
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.shares.iter().map(|share| share.ring.len()).sum()
    }

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Records that a contender was granted a lock.
    pub fn began(&mut self, hold: &Arc<Hold>) {
        // If this hold is not tracked, its end is recorded all the same, unless the end falls into a gap,
        // too.
        if self.open.len() >= self.bounds.records {
            return;
        }
        let key = self.names.of(hold);
        if let hash_map::Entry::Vacant(place) = self.open.entry(key) {
            let (hold, is_kept) = (hold.clone(), false);
            place.insert(OpenHold { hold, is_kept });
            self.unkept.push_back(key);
        }
    }

    /// Records that a hold has ended. When all ends of the command at `at` are recorded, the caller calls
    /// [`Self::advance_to`]. Repeated events are recognized by their position.
    pub fn ended(
        &mut self,
        hold: &Hold,
        at: Position,
        how: &ContenderEnd,
        by: Option<&str>,
    ) -> Result<(), IndexError> {
        self.close(hold, StoredEnd::known(at, how, by))
    }

    /// Records that a hold has ended at an unknown position within a gap.
    pub fn hidden(
        &mut self,
        hold: &Hold,
        not_before: Position,
        not_after: Position,
    ) -> Result<(), IndexError> {
        self.close(hold, StoredEnd::Hidden(not_before, not_after))
    }

    /// Marks everything up to `position` as recorded. Earlier positions, which a node repeats after a
    /// restart, have no effect.
    pub fn advance_to(&mut self, position: Position) {
        if position.zxid > self.meta.reached.zxid {
            self.meta.reached = position;
        }
    }

    /// Records a gap from the last recorded position up to `until`, of which the index missed all or some
    /// events. The caller then checks the [`Index::open_holds`]. Returns the gap, or `None` if nothing was
    /// missed or if the index is new and begins there.
    pub fn missed_until(&mut self, until: Position) -> Option<HistoryGap> {
        let after = self.meta.reached;
        if until.zxid <= after.zxid {
            return None;
        }
        self.meta.reached = until;
        self.has_changed = true;
        if after.zxid == 0 {
            // A new index knows nothing of the time before.
            self.begin_at(until);
            return None;
        }
        let gap = HistoryGap { after, until };
        match self.meta.gaps.last_mut() {
            // Nothing was recorded between the two gaps.
            Some(last) if last.until.zxid == after.zxid => last.until = until,
            _ => self.meta.gaps.push(gap),
        }
        if self.meta.gaps.len() > MAX_GAPS {
            let until = self.meta.gaps.remove(0).until;
            self.begin_at(until);
        }
        Some(gap)
    }

    fn begin_at(&mut self, position: Position) {
        self.shares.iter_mut().for_each(|share| share.begin_at(position));
    }

    /// Returns the holds whose beginning was recorded and whose end was not, sorted by lock.
    pub fn open_holds(&self) -> Vec<Arc<Hold>> {
        let mut open: Vec<_> = self.open.values().map(|open| open.hold.clone()).collect();
        open.sort_unstable_by(|one, other| by_name(one).cmp(&by_name(other)));
        open
    }

    /// Returns the time of an open hold's grant in milliseconds since 1970, if the grant was recorded.
    pub fn since_of(&self, hold: &Hold) -> Option<u64> {
        self.open.get(&self.names.of(hold))?.hold.since_ms
    }

    /// Evicts records that ended longer than the maximum age before `now_ms`, in milliseconds since 1970.
    pub fn remove_expired(&mut self, now_ms: u64) -> Result<(), IndexError> {
        let max_age = u64::try_from(self.bounds.max_age.as_millis()).unwrap_or(u64::MAX);
        let before_ms = now_ms.saturating_sub(max_age);
        for share in 0..SHARES {
            while self.shares[share].evict_if(|slot| slot.over.time_ms < before_ms) {
                self.has_changed = true;
            }
            self.remove_unneeded(share);
        }
        self.commit_if_large()
    }

    /// Writes the recorded events. With `all`, also writes open holds that are still so young that they may
    /// end before they need to be written: for idle times and for the end.
    pub fn commit(&mut self, all: bool) -> Result<(), IndexError> {
        let old_enough = self.meta.reached.time_ms.saturating_sub(KEPT_AFTER_MS);
        while let Some(key) = self.unkept.front() {
            if let Some(open) = self.open.get_mut(key) {
                if !all && open.hold.since_ms.is_some_and(|since_ms| since_ms > old_enough) {
                    break;
                }
                self.batch
                    .insert(keys::open_key(&open.hold), stored::hold_bytes(&open.hold));
                self.keys += 1;
                self.has_changed = true;
                open.is_kept = true;
            }
            self.unkept.pop_front();
            if self.keys >= MAX_BATCH {
                self.write_batch()?;
            }
        }
        match self.has_changed {
            true => self.write_batch(),
            false => self.alive(),
        }
    }

    /// Writes what is recorded so far as one batch.
    fn write_batch(&mut self) -> Result<(), IndexError> {
        for share in 0..SHARES {
            self.write_chunk(share);
        }
        let shares: Vec<ShareMeta> = self.shares.iter().map(Share::meta).collect();
        self.batch
            .insert(keys::META, stored::meta_bytes(&self.meta, &shares));
        let batch = std::mem::take(&mut self.batch);
        (self.keys, self.has_changed) = (0, false);
        self.unflushed = true;
        self.step(|db| Ok(db.apply_batch(batch)?))
    }

    /// Flushes committed batches to the operating system, so that a process that is killed afterwards loses
    /// none of them.
    pub fn flush(&mut self) -> Result<(), IndexError> {
        if !std::mem::take(&mut self.unflushed) {
            return self.alive();
        }
        self.step(|db| {
            db.flush()?;
            Ok(())
        })
    }

    /// Returns at most `count` records of a lock with tokens below `before` (`None`: all), the newest first.
    /// Holds that share a token, which a transaction of a ZooKeeper client can create, stay on one page,
    /// which may then have more records.
    pub fn page(
        &mut self,
        lock: &LockName,
        before: Option<u64>,
        count: usize,
    ) -> Result<HistoryPage, IndexError> {
        self.commit(false)?;
        let share = self.names.share(lock.as_str());
        let since = self.shares[share].since;
        let mut places = Vec::new();
        let mut last = None;
        let mut next_before = None;
        for (token, place) in self.shares[share]
            .ring
            .of_lock(self.names.lock(lock.as_str()), before)
        {
            if places.len() >= count && last != Some(token) {
                next_before = last;
                break;
            }
            last = Some(token);
            places.push(place);
        }
        let mut records = self.read(share, &places)?;
        records.retain(|record| record.hold.lock == *lock);
        records.sort_by(|one, other| by_name(&other.hold).cmp(&by_name(&one.hold)));
        let gaps = self.meta.gaps.iter().filter(|gap| {
            gap.until.zxid > since.zxid
                && gap.until.zxid >= next_before.unwrap_or(0)
                && before.is_none_or(|before| gap.after.zxid < before)
        });
        Ok(HistoryPage {
            records,
            next_before,
            gaps: gaps.copied().collect(),
            since,
        })
    }

    /// Writes everything and releases the files. If writing fails, the files are released all the same, and
    /// the next [`Index::open`] finds how far the index got.
    pub fn shut(mut self) -> Result<(), IndexError> {
        let written = self.commit(true).and_then(|()| self.flush());
        contents::shut_down(self.db)?;
        written
    }

    fn close(&mut self, hold: &Hold, end: StoredEnd<'_>) -> Result<(), IndexError> {
        let key = self.names.of(hold);
        let mut since_ms = hold.since_ms;
        if let Some(open) = self.open.remove(&key) {
            since_ms = since_ms.or(open.hold.since_ms);
            if open.is_kept {
                self.batch.remove(keys::open_key(hold));
                self.keys += 1;
                self.has_changed = true;
            }
        }
        let (over, number) = (end.over(), self.names.share(hold.lock.as_str()));
        let share = &mut self.shares[number];
        // A repeated event of a record that was already evicted.
        if over.zxid <= share.since.zxid {
            return Ok(());
        }
        if over.zxid > self.last_end_on_open.max(self.meta.reached.zxid) {
            share.ring.forget_keys();
        } else {
            // A hold has one end, and a known end is not replaced by a hidden one.
            if share.ring.knows(&key) {
                return Ok(());
            }
            if let Some(before) = share.ring.find_hidden(&key) {
                if end.is_hidden() {
                    return Ok(());
                }
                if since_ms.is_none() {
                    self.commit(false)?;
                    since_ms = self.read(number, &[before.place])?[0].hold.since_ms;
                }
            }
        }
        let share = &mut self.shares[number];
        let is_hidden = end.is_hidden();
        let place = share.chunks.push(&StoredRecord::of(hold, since_ms, end));
        self.has_changed = true;
        share.put(Slot { key, over, place }, is_hidden);
        if share.chunks.is_full() {
            self.write_chunk(number);
        }
        if self.len() > self.bounds.records {
            let largest = (0..SHARES).max_by_key(|share| self.shares[*share].ring.len());
            let largest = largest.expect("there are some");
            self.shares[largest].evict_if(|_| true);
            self.remove_unneeded(largest);
        }
        self.commit_if_large()
    }

    /// Removes chunks of a share, and gaps, that nothing needs any more.
    fn remove_unneeded(&mut self, share: usize) {
        while let Some(chunk) = self.shares[share].chunks.pop() {
            self.batch.remove(&keys::chunk_key(share, chunk));
            self.keys += 1;
        }
        if !self.meta.gaps.is_empty() {
            let since = self.shares.iter().map(|share| share.since.zxid).min();
            self.meta.gaps.retain(|gap| Some(gap.until.zxid) > since);
        }
    }

    fn commit_if_large(&mut self) -> Result<(), IndexError> {
        match self.keys >= MAX_BATCH {
            true => self.write_batch(),
            false => self.alive(),
        }
    }

    fn write_chunk(&mut self, share: usize) {
        if let Some((number, bytes)) = self.shares[share].chunks.take_filled() {
            self.batch.insert(&keys::chunk_key(share, number), bytes);
            self.keys += 1;
        }
    }

    /// Reads records of a share from disk.
    fn read(&mut self, share: usize, places: &[RecordLocation]) -> Result<Vec<HoldRecord>, IndexError> {
        self.step(|db| {
            let mut chunk: Option<(u64, sled::IVec)> = None;
            let mut records = Vec::with_capacity(places.len());
            for place in places {
                let bytes = match &chunk {
                    Some((number, bytes)) if *number == place.chunk => bytes,
                    _ => {
                        let bytes = db.get(keys::chunk_key(share, place.chunk))?;
                        let bytes = bytes
                            .ok_or_else(|| IndexError::Damaged("a chunk of records is missing".to_owned()))?;
                        &chunk.insert((place.chunk, bytes)).1
                    }
                };
                records.push(chunks::read_at(bytes, place.offset)?);
            }
            Ok(records)
        })
    }

    fn alive(&self) -> Result<(), IndexError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn step<T>(&mut self, work: impl FnOnce(&sled::Db) -> Result<T, IndexError>) -> Result<T, IndexError> {
        self.alive()?;
        let done = contained(|| work(&self.db));
        if let Err(error) = &done {
            self.failed = Some(error.clone());
        }
        done
    }
}

/// Returns the sort key of a hold. It sorts the holds of one lock side by side, the newest last, because
/// contenders are granted in the order of their tokens.
fn by_name(hold: &Hold) -> (&str, Zxid, &str) {
    (hold.lock.as_str(), hold.fencing_token, &hold.holder)
}
