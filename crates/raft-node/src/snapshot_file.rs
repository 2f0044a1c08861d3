//! Snapshot files as states, for async callers: every touch of the disk happens on a thread that may block.

use std::io;

use bytes::Bytes;
use znode_store::{Restorer, SnapshotPart, Store};

use crate::codec;
use crate::storage::log_entry::{decode_membership, encode_membership, id_at, position};
use crate::storage::{SnapshotFile, SnapshotMeta, SnapshotReceiver, SnapshotStore};
use crate::types::{self, Snapshot};

/// Runs `work` where it may block.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(io::Error::other(error)),
    }
}

/// A snapshot that lies on this node's disk, complete and verified.
#[derive(Clone)]
pub struct SnapshotHandle {
    /// `None`: it could not be written, and there is no older one. openraft is only told so by its empty coverage, and
    /// never asks such a handle for anything.
    file: Option<SnapshotFile>,
}

impl SnapshotHandle {
    /// The state that is in the file. Blocks.
    pub fn restore(&self) -> io::Result<Store> {
        restore(self.file()?)
    }

    fn file(&self) -> io::Result<&SnapshotFile> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "the snapshot was never written");
        self.file.as_ref().ok_or_else(missing)
    }

    /// The bytes of the file from `offset` on, at most `max`; none at its end.
    pub async fn read_raw(&self, offset: u64, max: usize) -> io::Result<Bytes> {
        let file = self.file()?.clone();
        blocking(move || Ok(file.read_raw(offset, max)?)).await
    }
}

/// A snapshot that comes from a peer.
pub struct Incoming {
    file: SnapshotReceiver,
}

impl Incoming {
    /// Begins a file beside the others.
    pub async fn begin(store: SnapshotStore) -> io::Result<Self> {
        blocking(move || {
            Ok(Self {
                file: store.receive()?,
            })
        })
        .await
    }

    /// Appends bytes.
    pub async fn write(self, chunk: Bytes) -> io::Result<Self> {
        let mut file = self.file;
        blocking(move || {
            file.write(&chunk)?;
            Ok(Self { file })
        })
        .await
    }

    /// Syncs the file, reads it again from the beginning to the end, and only then puts it among the others.
    pub async fn finish(self) -> io::Result<SnapshotHandle> {
        blocking(move || {
            Ok(SnapshotHandle {
                file: Some(self.file.finish()?),
            })
        })
        .await
    }
}

/// The state that is in a snapshot file. Blocks.
pub fn restore(file: &SnapshotFile) -> io::Result<Store> {
    let mut parts = file.read()?;
    let mut restorer = Restorer::new();
    while let Some(bytes) = parts.next_part()? {
        let part: SnapshotPart = codec::decode(&bytes).map_err(io::Error::other)?;
        restorer.add(part).map_err(io::Error::other)?;
    }
    restorer.finish().map_err(io::Error::other)
}

/// Writes a snapshot from the parts that `next` gives, and makes it the current one. Blocks.
pub fn write(
    store: &SnapshotStore,
    meta: &types::SnapshotMeta,
    mut next: impl FnMut() -> io::Result<Option<Vec<u8>>>,
) -> io::Result<SnapshotHandle> {
    let last = meta.last_log_id.as_ref().map(position);
    let snapshot_id = last.map_or("empty".to_owned(), |last| last.to_string());
    let membership = encode_membership(&meta.last_membership);
    let mut writer = store.create(SnapshotMeta {
        last,
        membership,
        snapshot_id,
    })?;
    while let Some(part) = next()? {
        writer.write_part(&part)?;
    }
    Ok(SnapshotHandle {
        file: Some(writer.finish()?),
    })
}

/// The current snapshot, if there is one.
pub fn current(store: &SnapshotStore) -> io::Result<Option<Snapshot>> {
    let Some(file) = store.latest() else {
        return Ok(None);
    };
    let meta = types::SnapshotMeta {
        last_log_id: file.meta().last.map(id_at),
        last_membership: decode_membership(&file.meta().membership)?,
    };
    Ok(Some(Snapshot {
        meta,
        snapshot: SnapshotHandle { file: Some(file) },
    }))
}

/// What openraft is answered when a snapshot could not be written for want of space: the newest that there is, or one
/// that covers nothing. It then purges nothing, and tries again later.
pub fn instead_of_new(store: &SnapshotStore) -> io::Result<Snapshot> {
    Ok(current(store)?.unwrap_or_else(|| Snapshot {
        meta: types::SnapshotMeta::default(),
        snapshot: SnapshotHandle { file: None },
    }))
}
