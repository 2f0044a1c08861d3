//! Snapshot files: written under a temporary name, synced, verified by reading them again, and only then
//! renamed.
//!
//! All calls block and belong on threads that may block. A file with a final name is complete, because it was
//! synced before the rename. Two files are kept, so that a snapshot that is being sent to a peer, or from
//! which the log still continues, does not vanish with the next one. This module does not know what the parts
//! mean, and does not purge the log.

mod format;
mod reader;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use fault_injection::planted::{self, Bug};

pub use self::format::MAX_PART_BYTES;
pub use self::reader::{SnapshotFile, SnapshotReader};
use self::writer::Partial;
pub use self::writer::{SnapshotReceiver, SnapshotWriter};
use super::disk::Disk;
use super::error::StorageError;
use super::identity::hex;
use super::wal::LogPos;
use crate::sync::Mutex;
use fault_injection::fail_step;

/// Number of snapshots kept: the newest, and the one before it.
const KEPT_SNAPSHOTS: usize = 2;

/// Number of snapshots kept while disk space is low. One is enough, because the newest was verified before
/// its rename.
const KEPT_WHEN_SPACE_IS_LOW: usize = 1;

/// Description of a snapshot, without its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotMeta {
    /// Last entry that it covers.
    pub last: Option<LogPos>,
    /// Membership at that entry, opaque to the storage.
    pub membership: Bytes,
    /// Unique id among all snapshots of the cluster.
    pub snapshot_id: String,
    /// Time at which it was begun, in milliseconds since 1970, by the clock of the node that wrote it.
    /// Informational.
    pub made_ms: u64,
}

/// Identity of a snapshot file: two files with the same key have the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotKey {
    /// Index of the last entry that it covers.
    pub index: u64,
    /// Length of the file.
    pub bytes: u64,
    /// Checksum of its header, which contains writer, time and last entry.
    pub header_crc: u32,
    /// Checksum of its last part, which covers all earlier parts.
    pub parts_crc: u32,
}

struct Inner {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    node_id: u64,
    cluster_id: Mutex<[u8; 16]>,
    /// Complete snapshots, oldest first.
    files: Mutex<Vec<SnapshotFile>>,
    /// Received bytes of a snapshot whose connection broke.
    partial: Mutex<Option<Partial>>,
    next_temporary: AtomicU64,
    /// Disk space is low.
    space_low: AtomicBool,
}

/// Snapshots of a node. Clones share the same store.
#[derive(Clone)]
pub struct SnapshotStore {
    inner: Arc<Inner>,
}

impl SnapshotStore {
    /// Opens the directory of snapshots, which is created if missing, and removes unfinished files. The
    /// cluster's id is zero until it is known.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        cluster_id: [u8; 16],
        node_id: u64,
    ) -> Result<Self, StorageError> {
        disk.create_dir_all(dir)
            .map_err(|source| StorageError::io("create", dir, source))?;
        let mut files = Vec::new();
        for name in disk
            .list(dir)
            .map_err(|source| StorageError::io("list", dir, source))?
        {
            let path = dir.join(&name);
            if name.ends_with(".tmp") {
                disk.remove(&path)
                    .map_err(|source| StorageError::io("remove", &path, source))?;
            } else if name.ends_with(".snap") {
                files.push(SnapshotFile::open(disk.as_ref(), &path)?);
            }
        }
        disk.sync_dir(dir)
            .map_err(|source| StorageError::io("sync", dir, source))?;
        files.sort_by_key(SnapshotFile::order);
        for file in &files {
            check_cluster(&file.path().display().to_string(), file.cluster_id(), cluster_id)?;
        }
        let inner = Inner {
            disk,
            dir: dir.to_owned(),
            node_id,
            cluster_id: Mutex::new(cluster_id),
            files: Mutex::new(files),
            partial: Mutex::new(None),
            next_temporary: AtomicU64::new(0),
            space_low: AtomicBool::new(false),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Sets the id of the cluster once it is formed. Later snapshots carry it.
    pub fn set_cluster_id(&self, id: [u8; 16]) {
        *self.inner.cluster_id.lock() = id;
    }

    /// Returns the newest snapshot.
    pub fn latest(&self) -> Option<SnapshotFile> {
        self.inner.files.lock().last().cloned()
    }

    /// Begins to write a snapshot of this node.
    pub fn create(&self, meta: SnapshotMeta) -> Result<SnapshotWriter, StorageError> {
        SnapshotWriter::new(self, meta)
    }

    /// Begins to receive the snapshot with this key: the bytes of a peer's file, in order. Resumes an earlier
    /// interrupted reception of the same file; received bytes of another snapshot are removed.
    pub fn receive(&self, key: SnapshotKey) -> Result<SnapshotReceiver, StorageError> {
        SnapshotReceiver::new(self, key)
    }

    fn temporary_path(&self) -> PathBuf {
        let number = self.inner.next_temporary.fetch_add(1, Ordering::Relaxed);
        self.inner.dir.join(format!("{number}.tmp"))
    }

    /// Verifies a finished, synced temporary file and renames it to a snapshot.
    fn adopt(&self, temporary: &Path) -> Result<SnapshotFile, StorageError> {
        let Inner { disk, dir, files, .. } = &*self.inner;
        fail_step!("snapshot::before_verify", |e| StorageError::io(
            "read", temporary, e
        ));
        let new = SnapshotFile::open(disk.as_ref(), temporary)?;
        check_cluster(
            "the snapshot that was received",
            new.cluster_id(),
            *self.inner.cluster_id.lock(),
        )?;
        let mut parts = new.read()?;
        while parts.next_part()?.is_some() {}
        drop(parts);

        let (index, term) = new.order();
        let path = dir.join(format!("{index:016x}-{term:016x}.snap"));
        // Locked to the end, so that two snapshots that finish at the same time cannot remove each other's
        // file.
        let mut files = files.lock();
        fail_step!("snapshot::before_rename", |e| StorageError::io(
            "rename to",
            &path,
            e
        ));
        disk.rename(temporary, &path)
            .map_err(|source| StorageError::io("rename to", &path, source))?;
        fail_step!("snapshot::after_rename", |e| StorageError::io("sync", dir, e));
        if !planted::is(Bug::UnsyncedName) {
            disk.sync_dir(dir)
                .map_err(|source| StorageError::io("sync", dir, source))?;
        }
        fail_step!("snapshot::after_dir_sync", |e| StorageError::io("sync", dir, e));
        let new = new.renamed(path);
        files.retain(|file| file.path() != new.path());
        files.push(new.clone());
        files.sort_by_key(SnapshotFile::order);
        self.remove_surplus(&mut files)?;
        // No peer will send an older snapshot again, so its partial reception is dropped.
        let mut partial = self.inner.partial.lock();
        if partial.as_ref().is_some_and(|partial| partial.key.index <= index) {
            *partial = None;
        }
        Ok(new)
    }

    /// Sets whether disk space is low. While it is, one snapshot is kept instead of two. Surplus files are
    /// removed at once, also to make room for the next snapshot.
    pub fn set_space_low(&self, space_low: bool) -> Result<(), StorageError> {
        if self.inner.space_low.swap(space_low, Ordering::Relaxed) == space_low {
            return Ok(());
        }
        self.remove_surplus(&mut self.inner.files.lock())
    }

    fn remove_surplus(&self, files: &mut Vec<SnapshotFile>) -> Result<(), StorageError> {
        let Inner {
            disk, dir, space_low, ..
        } = &*self.inner;
        let kept = match space_low.load(Ordering::Relaxed) {
            true => KEPT_WHEN_SPACE_IS_LOW,
            false => KEPT_SNAPSHOTS,
        };
        let surplus = files.len().saturating_sub(kept);
        for old in files.drain(..surplus) {
            let path = old.path();
            fail_step!("snapshot::before_remove", |e| StorageError::io("remove", path, e));
            disk.remove(path)
                .map_err(|source| StorageError::io("remove", path, source))?;
        }
        if surplus > 0 && !planted::is(Bug::UnsyncedName) {
            fail_step!("snapshot::after_remove", |e| StorageError::io("sync", dir, e));
            disk.sync_dir(dir)
                .map_err(|source| StorageError::io("sync", dir, source))?;
        }
        Ok(())
    }
}

fn check_cluster(what: &str, found: [u8; 16], ours: [u8; 16]) -> Result<(), StorageError> {
    if found == ours || found == [0; 16] || ours == [0; 16] {
        return Ok(());
    }
    let text = format!(
        "{what} belongs to cluster {}, but this is cluster {}. Data directories must not be mixed or reused; give \
         each node its own",
        hex(&found),
        hex(&ours)
    );
    Err(StorageError::Foreign(text))
}

#[cfg(test)]
mod tests;
