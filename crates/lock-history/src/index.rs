//! The index: what is told goes into a batch, batches go to sled, pages come out. Every step that touches sled is one
//! that may fail, and after the first failure all fail.

use std::collections::{HashMap, VecDeque, hash_map};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use znode_store::{ContenderEnd, Hold, LockName, Zxid};

use crate::bounds::{Bounds, MAX_GAPS};
use crate::chunks::{self, Chunks, Place};
use crate::contents::{self, Contents};
use crate::error::{IndexError, contained};
use crate::keys::{self, HoldKey, Names};
use crate::record::{Gap, Page, Position, Record};
use crate::ring::{Ring, Slot};
use crate::stored::{self, Meta, StoredEnd, StoredRecord};

/// An open hold goes to the disk when it is so old, in milliseconds. Most locks are given back much sooner, and then never
/// cost more than their record.
const KEPT_AFTER_MS: u64 = 1_000;

/// So many changes are one batch at most: some 200 KB.
const MAX_BATCH: usize = 1_000;

/// How often sled syncs its file, in milliseconds. It is the only real sync there is, it costs the log's disk some time,
/// and all that depends on it is how much history a loss of power takes.
const SYNC_EVERY_MS: u64 = 30_000;

/// Permissions of the directory: its owner alone may look into it, because sled makes files that everybody may read.
const PRIVATE: u32 = 0o700;

/// One node's index. See the [crate's page](crate).
#[derive(Debug)]
pub struct Index {
    db: sled::Db,
    bounds: Bounds,
    names: Names,
    ring: Ring,
    chunks: Chunks,
    open: HashMap<HoldKey, OpenHold>,
    /// Open holds that are not on the disk, in the order in which they began; some may have ended.
    unkept: VecDeque<HoldKey>,
    meta: Meta,
    /// Of the ends up to this zxid there may be records from before the index was opened.
    told_before: u64,
    batch: sled::Batch,
    changes: usize,
    /// Whether the disk lags behind what was committed.
    unflushed: bool,
    was_lost: bool,
    failed: Option<IndexError>,
}

#[derive(Debug)]
pub(crate) struct OpenHold {
    pub hold: Arc<Hold>,
    /// Whether it is on the disk.
    pub is_kept: bool,
}

/// Makes the directory if it is missing, and its owner's alone in any case.
fn private(dir: &Path) -> Result<(), IndexError> {
    let made = std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::set_permissions(dir, Permissions::from_mode(PRIVATE)));
    made.map_err(|error| IndexError::Disk(error.to_string()))
}

impl Index {
    /// Opens the index in `dir`, or makes it. `owner` is the data directory that it belongs to.
    pub fn open(dir: &Path, owner: [u8; 16], bounds: Bounds) -> Result<Self, IndexError> {
        private(dir)?;
        // sled takes a file that is spoilt from its beginning for a new one.
        let was_there = std::fs::metadata(dir.join("db")).is_ok_and(|file| file.len() > 0);
        let config = sled::Config::new()
            .path(dir)
            .cache_capacity(bounds.cache_bytes)
            .flush_every_ms(Some(SYNC_EVERY_MS));
        let db = contents::open_sled(&config)?;
        let names = Names::default();
        match contained(|| Contents::read(&db, owner, &names)) {
            Ok(contents) => {
                let was_lost = was_there && contents.is_new;
                if contents.is_new {
                    // On the disk at once: an index without records that is found again was not lost.
                    db.insert(keys::META, stored::meta_bytes(&contents.meta))?;
                    db.flush()?;
                }
                Ok(Self::new(db, bounds, names, contents, was_lost))
            }
            Err(error) => {
                // Not while a panic unwinds: sled writes when it is dropped, and a second panic would end the process.
                contents::shut_down(db)?;
                Err(error)
            }
        }
    }

    fn new(db: sled::Db, bounds: Bounds, names: Names, contents: Contents, was_lost: bool) -> Self {
        let Contents {
            meta,
            ring,
            chunks,
            open,
            is_new: _,
        } = contents;
        Self {
            db,
            bounds,
            names,
            told_before: ring.last_end().unwrap_or_default(),
            ring,
            chunks,
            open,
            unkept: VecDeque::new(),
            meta,
            batch: sled::Batch::default(),
            changes: 0,
            unflushed: false,
            was_lost,
            failed: None,
        }
    }

    /// Up to where it has been told everything, but for the gaps. What was told and not committed before the index was
    /// last closed does not count.
    pub fn reached(&self) -> Position {
        self.meta.reached
    }

    /// Whether its file was there before, and not even the beginning of an index in it: it was lost by damage or a crash.
    pub fn was_lost(&self) -> bool {
        self.was_lost
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ring.len() == 0
    }

    /// Somebody holds a lock from now on.
    pub fn began(&mut self, hold: &Arc<Hold>) {
        // Without it the hold's end will be recorded all the same, unless that is missed, too.
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

    /// Somebody holds a lock no more. When all that its command ended was told, [`Self::told_until`] says so: what is told again
    /// is known by its position.
    pub fn ended(
        &mut self,
        hold: &Hold,
        at: Position,
        how: &ContenderEnd,
        by: Option<&str>,
    ) -> Result<(), IndexError> {
        self.close(hold, StoredEnd::known(at, how, by))
    }

    /// Somebody who held a lock does not any more, and since when is not known.
    pub fn hidden(
        &mut self,
        hold: &Hold,
        not_before: Position,
        not_after: Position,
    ) -> Result<(), IndexError> {
        self.close(hold, StoredEnd::Hidden(not_before, not_after))
    }

    /// Everything up to `position` was told. An earlier position than before is one that is told again.
    pub fn told_until(&mut self, position: Position) {
        if position.zxid > self.meta.reached.zxid {
            self.meta.reached = position;
        }
    }

    /// What happened from where everything had been told up to `until` will not be told, or not all of it. Whoever says
    /// so looks at the [`Index::open_holds`] next. Returns the gap; `None` if nothing was missed, or if the index is new and
    /// begins there.
    pub fn missed_until(&mut self, until: Position) -> Option<Gap> {
        let after = self.meta.reached;
        if until.zxid <= after.zxid {
            return None;
        }
        self.meta.reached = until;
        self.changes += 1;
        if after.zxid == 0 {
            // It knows nothing of what was before it.
            self.meta.since = until;
            return None;
        }
        let gap = Gap { after, until };
        match self.meta.gaps.last_mut() {
            // Nothing was told in between.
            Some(last) if last.until.zxid == after.zxid => last.until = until,
            _ => self.meta.gaps.push(gap),
        }
        if self.meta.gaps.len() > MAX_GAPS {
            self.meta.since = self.meta.gaps.remove(0).until;
        }
        Some(gap)
    }

    /// Those of which the beginning was told and the end was not, by their locks.
    pub fn open_holds(&self) -> Vec<Arc<Hold>> {
        let mut open: Vec<_> = self.open.values().map(|open| open.hold.clone()).collect();
        open.sort_unstable_by(|one, other| by_name(one).cmp(&by_name(other)));
        open
    }

    /// Since when an open hold is held, if its beginning was told.
    pub fn since_of(&self, hold: &Hold) -> Option<u64> {
        self.open.get(&self.names.of(hold))?.hold.since_ms
    }

    /// Lets those records go whose end is too long ago at `now_ms`, in milliseconds since 1970.
    pub fn let_go(&mut self, now_ms: u64) -> Result<(), IndexError> {
        let max_age = u64::try_from(self.bounds.max_age.as_millis()).unwrap_or(u64::MAX);
        self.pop_until(now_ms.saturating_sub(max_age))
    }

    /// Writes what was told. With `all` also open holds that are so young that they may still be spared it: for when there
    /// is nothing else to do, and for the end.
    pub fn commit(&mut self, all: bool) -> Result<(), IndexError> {
        let old_enough = self.meta.reached.time_ms.saturating_sub(KEPT_AFTER_MS);
        while let Some(key) = self.unkept.front() {
            if let Some(open) = self.open.get_mut(key) {
                if !all && open.hold.since_ms.is_some_and(|since_ms| since_ms > old_enough) {
                    break;
                }
                self.batch
                    .insert(keys::open_key(&open.hold), stored::hold_bytes(&open.hold));
                self.changes += 1;
                open.is_kept = true;
            }
            self.unkept.pop_front();
        }
        if self.changes == 0 {
            return self.alive();
        }
        self.write_chunk();
        self.meta.next_chunk = self.chunks.next();
        self.batch.insert(keys::META, stored::meta_bytes(&self.meta));
        let batch = std::mem::take(&mut self.batch);
        self.changes = 0;
        self.unflushed = true;
        self.step(|db| Ok(db.apply_batch(batch)?))
    }

    /// Hands what was committed to the operating system: a process that is killed afterwards loses none of it.
    pub fn flush(&mut self) -> Result<(), IndexError> {
        if !std::mem::take(&mut self.unflushed) {
            return self.alive();
        }
        self.step(|db| {
            db.flush()?;
            Ok(())
        })
    }

    /// The records of a lock that came before the token `before` (`None`: all), at most `count` of them, the latest first.
    /// Holds with one token, which a transaction of a ZooKeeper client can create, are not parted: then there may be more.
    pub fn page(&mut self, lock: &LockName, before: Option<u64>, count: usize) -> Result<Page, IndexError> {
        self.commit(false)?;
        let mut places = Vec::new();
        let mut last = None;
        let mut next_before = None;
        for (token, place) in self.ring.of_lock(self.names.lock(lock.as_str()), before) {
            if places.len() >= count && last != Some(token) {
                next_before = last;
                break;
            }
            last = Some(token);
            places.push(place);
        }
        let mut records = self.read(&places)?;
        records.retain(|record| record.hold.lock == *lock);
        records.sort_by(|one, other| by_name(&other.hold).cmp(&by_name(&one.hold)));
        let gaps = self.meta.gaps.iter().filter(|gap| {
            gap.until.zxid >= next_before.unwrap_or(0) && before.is_none_or(|before| gap.after.zxid < before)
        });
        Ok(Page {
            records,
            next_before,
            gaps: gaps.copied().collect(),
            since: self.meta.since,
        })
    }

    /// Writes what is not written yet and gives the files back. What cannot be written is not; the next one who opens the
    /// index sees how far it got.
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
                self.changes += 1;
            }
        }
        let over = end.over();
        // It is told again, and was let go before.
        if over.zxid <= self.meta.since.zxid {
            return Ok(());
        }
        if over.zxid > self.told_before.max(self.meta.reached.zxid) {
            self.ring.forget_keys();
        } else {
            // A hold has one end, and what is known of it is not forgotten for what is not.
            if self.ring.knows(&key) {
                return Ok(());
            }
            if let Some(before) = self.ring.find_hidden(&key) {
                if end.is_hidden() {
                    return Ok(());
                }
                if since_ms.is_none() {
                    self.commit(false)?;
                    since_ms = self.read(&[before.place])?[0].hold.since_ms;
                }
            }
        }
        let is_hidden = end.is_hidden();
        let place = self.chunks.push(&StoredRecord::of(hold, since_ms, end));
        self.changes += 1;
        let slot = Slot { key, over, place };
        if is_hidden {
            self.ring.put_hidden(slot);
        } else if let Some(before) = self.ring.put_known(slot) {
            self.chunks.let_go(before.place);
        }
        self.chunks.need(place);
        if self.chunks.is_full() {
            self.write_chunk();
        }
        self.pop_until(0)
    }

    fn pop_until(&mut self, before_ms: u64) -> Result<(), IndexError> {
        let since = self.meta.since.zxid;
        while let Some(popped) = self.ring.pop(self.bounds.records, before_ms) {
            self.chunks.let_go(popped.place);
            self.changes += 1;
            if popped.over.zxid > self.meta.since.zxid {
                self.meta.since = popped.over;
            }
            self.meta.gone = Some((popped.over.zxid, popped.place));
        }
        while let Some(number) = self.chunks.pop() {
            self.batch.remove(&keys::chunk_key(number));
            self.changes += 1;
        }
        if self.meta.since.zxid > since {
            let since = self.meta.since.zxid;
            self.meta.gaps.retain(|gap| gap.until.zxid > since);
        }
        match self.changes >= MAX_BATCH {
            true => self.commit(false),
            false => self.alive(),
        }
    }

    fn write_chunk(&mut self) {
        if let Some((number, bytes)) = self.chunks.take_filled() {
            self.batch.insert(&keys::chunk_key(number), bytes);
        }
    }

    /// Reads records that are on the disk.
    fn read(&mut self, places: &[Place]) -> Result<Vec<Record>, IndexError> {
        self.step(|db| {
            let mut chunk: Option<(u64, sled::IVec)> = None;
            let mut records = Vec::with_capacity(places.len());
            for place in places {
                let bytes = match &chunk {
                    Some((number, bytes)) if *number == place.chunk => bytes,
                    _ => {
                        let bytes = db.get(keys::chunk_key(place.chunk))?;
                        let bytes = bytes.ok_or_else(|| {
                            IndexError::Damaged("a chunk of records has vanished".to_owned())
                        })?;
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

/// The name of a hold. In this order those of one lock lie side by side, the latest last: contenders are let in in the
/// order in which they came.
fn by_name(hold: &Hold) -> (&str, Zxid, &str) {
    (hold.lock.as_str(), hold.fencing_token, &hold.holder)
}
