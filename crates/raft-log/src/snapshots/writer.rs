//! Writer of snapshot files: this node's own part by part, a peer's byte by byte. A file becomes a snapshot
//! only after all of it was read again and verified.

use std::path::PathBuf;
use std::sync::Arc;

use super::format::{Footer, Header, MAX_HEADER_BYTES, MAX_PART_BYTES, encode_frame};
use super::{SnapshotFile, SnapshotKey, SnapshotMeta, SnapshotStore};
use crate::disk::{Disk, DiskFile};
use crate::error::StorageError;
use fault_injection::fail_step;

/// Number of bytes between syncs, so that the log's syncs wait for little data each time, and not for the
/// whole file at the end.
const SYNC_EVERY_BYTES: u64 = 4 * 1024 * 1024;

/// File under a temporary name. Removed when dropped, unless it became a snapshot.
struct Temporary {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    at: u64,
    synced_to: u64,
    adopted: bool,
}

impl Temporary {
    fn create(store: &SnapshotStore) -> Result<Self, StorageError> {
        let path = store.temporary_path();
        fail_step!("snapshot::before_create", |e| StorageError::io(
            "create", &path, e
        ));
        let file = store
            .inner
            .disk
            .create(&path)
            .map_err(|source| StorageError::io("create", &path, source))?;
        Ok(Self {
            disk: store.inner.disk.clone(),
            path,
            file,
            at: 0,
            synced_to: 0,
            adopted: false,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        fail_step!("snapshot::before_write", |e| StorageError::io(
            "write to", &self.path, e
        ));
        let written = self.file.write_all_at(bytes, self.at);
        written.map_err(|source| StorageError::io("write to", &self.path, source))?;
        fail_step!("snapshot::after_write", |e| StorageError::io(
            "write to", &self.path, e
        ));
        self.at += bytes.len() as u64;
        if self.at - self.synced_to >= SYNC_EVERY_BYTES {
            self.sync()
        } else {
            Ok(())
        }
    }

    fn sync(&mut self) -> Result<(), StorageError> {
        fail_step!("snapshot::before_sync", |e| StorageError::io(
            "sync", &self.path, e
        ));
        self.file
            .sync_data()
            .map_err(|source| StorageError::io("sync", &self.path, source))?;
        fail_step!("snapshot::after_sync", |e| StorageError::io(
            "sync", &self.path, e
        ));
        self.synced_to = self.at;
        Ok(())
    }

    fn finish(mut self, store: &SnapshotStore) -> Result<SnapshotFile, StorageError> {
        self.sync()?;
        let adopted = store.adopt(&self.path)?;
        self.adopted = true;
        Ok(adopted)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.adopted
            && let Err(error) = self.disk.remove(&self.path)
        {
            // The next start removes it.
            tracing::warn!(path = %self.path.display(), %error, "snapshots: an unfinished snapshot could not be removed");
        }
    }
}

/// A snapshot that this node is writing. If dropped unfinished, it leaves no file.
pub struct SnapshotWriter {
    store: SnapshotStore,
    temporary: Temporary,
    buffer: Vec<u8>,
    footer: Footer,
}

impl SnapshotWriter {
    pub(super) fn new(store: &SnapshotStore, meta: SnapshotMeta) -> Result<Self, StorageError> {
        let variable = meta.snapshot_id.len() + meta.membership.len();
        if variable > MAX_HEADER_BYTES / 2 {
            let text =
                format!("the id and membership of a snapshot have {variable} bytes, more than the maximum");
            return Err(StorageError::Contract(text));
        }
        let cluster_id = *store.inner.cluster_id.lock();
        let (header, chain) = Header {
            cluster_id,
            node_id: store.inner.node_id,
            meta,
        }
        .encode();
        let mut temporary = Temporary::create(store)?;
        temporary.write(&header)?;
        let footer = Footer {
            parts: 0,
            part_bytes: 0,
            chain,
        };
        Ok(Self {
            store: store.clone(),
            temporary,
            buffer: Vec::new(),
            footer,
        })
    }

    /// Appends a part.
    pub fn write_part(&mut self, part: &[u8]) -> Result<(), StorageError> {
        if part.len() > MAX_PART_BYTES {
            let text = format!(
                "a part of a snapshot has {} bytes, more than the maximum",
                part.len()
            );
            return Err(StorageError::Contract(text));
        }
        let (frame, chain) = encode_frame(self.footer.chain, part);
        self.buffer.clear();
        self.buffer.extend_from_slice(&frame);
        self.buffer.extend_from_slice(part);
        self.temporary.write(&self.buffer)?;
        self.footer.parts += 1;
        self.footer.part_bytes += part.len() as u64;
        self.footer.chain = chain;
        Ok(())
    }

    /// Makes the file durable, verifies it and renames it to a snapshot.
    pub fn finish(mut self) -> Result<SnapshotFile, StorageError> {
        self.temporary.write(&self.footer.encode())?;
        self.temporary.finish(&self.store)
    }
}

/// Received bytes of a snapshot whose connection broke.
pub(super) struct Partial {
    pub key: SnapshotKey,
    temporary: Temporary,
}

/// A snapshot that this node receives from a peer. If dropped unfinished, it leaves the received bytes to the
/// next reception of the same file, as long as this process runs: after a crash it is unknown which of the
/// bytes are on the disk.
pub struct SnapshotReceiver {
    store: SnapshotStore,
    key: SnapshotKey,
    /// `None` once finished.
    temporary: Option<Temporary>,
}

impl SnapshotReceiver {
    pub(super) fn new(store: &SnapshotStore, key: SnapshotKey) -> Result<Self, StorageError> {
        let temporary = match store.inner.partial.lock().take() {
            Some(partial) if partial.key == key => partial.temporary,
            // The file of another reception is removed before a new one is created, so that there is never
            // more than one.
            other => {
                drop(other);
                Temporary::create(store)?
            }
        };
        Ok(Self {
            store: store.clone(),
            key,
            temporary: Some(temporary),
        })
    }

    /// Appends bytes of the peer's file.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        let Some(temporary) = self.temporary.as_mut() else {
            return Err(StorageError::Contract(
                "the reception of a snapshot has failed".into(),
            ));
        };
        if temporary.at + bytes.len() as u64 > self.key.bytes {
            let text = format!(
                "a snapshot was announced with {} bytes, but the peer sent more",
                self.key.bytes
            );
            self.temporary = None;
            return Err(StorageError::Contract(text));
        }
        match temporary.write(bytes) {
            Ok(()) => Ok(()),
            Err(error) => {
                // After a failed write or sync the contents are unknown, and a full disk needs the space.
                self.temporary = None;
                Err(error)
            }
        }
    }

    /// Returns the number of bytes received so far.
    pub fn received(&self) -> u64 {
        self.temporary.as_ref().map_or(0, |temporary| temporary.at)
    }

    /// Makes the file durable, verifies it and renames it to a snapshot. If that fails, nothing was replaced
    /// and the received bytes are removed.
    pub fn finish(mut self) -> Result<SnapshotFile, StorageError> {
        let Some(temporary) = self.temporary.take() else {
            return Err(StorageError::Contract(
                "the reception of a snapshot has failed".into(),
            ));
        };
        if temporary.at != self.key.bytes {
            let text = format!(
                "a snapshot of {} bytes ended after {}",
                self.key.bytes, temporary.at
            );
            return Err(StorageError::Contract(text));
        }
        temporary.finish(&self.store)
    }
}

impl Drop for SnapshotReceiver {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            let key = self.key;
            let older = self
                .store
                .inner
                .partial
                .lock()
                .replace(Partial { key, temporary });
            drop(older);
        }
    }
}
