//! Snapshot files for async callers: all disk I/O happens on threads that may block.

use std::io;

use bytes::Bytes;

use crate::membership::RetiredIds;
use crate::replicated_state::SnapshotParts;
use crate::storage::log_entry::{SnapshotMembers, decode_membership, encode_membership, id_at, position};
use crate::types::{self, TypeConfig};
use crate::wall_clock;
use raft_log::{SnapshotFile, SnapshotKey, SnapshotMeta, SnapshotReceiver, SnapshotStore};

/// Runs `work` on a thread that may block.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    crate::blocking::run(work).await?
}

/// openraft's snapshot: its coverage and its file.
pub type Snapshot = openraft::alias::SnapshotOf<TypeConfig, SnapshotHandle>;

/// Complete and verified snapshot on this node's disk.
#[derive(Clone)]
pub struct SnapshotHandle {
    file: SnapshotFile,
}

impl SnapshotHandle {
    /// Returns the parts of the state, as the state encoded them. Blocks.
    pub fn parts(&self) -> io::Result<SnapshotParts> {
        let mut reader = self.file.read()?;
        Ok(Box::new(move || Ok(reader.next_part()?)))
    }

    /// Returns the key of its file.
    pub fn key(&self) -> SnapshotKey {
        self.file.key()
    }

    /// Returns the ids that had been retired when the snapshot was made.
    pub fn retired(&self) -> io::Result<RetiredIds> {
        Ok(decode_membership(&self.file.meta().membership)?.retired)
    }

    /// Returns the bytes of the file from `offset`, at most `max`; none at its end.
    pub async fn read_raw(&self, offset: u64, max: usize) -> io::Result<Bytes> {
        let file = self.file.clone();
        blocking(move || Ok(file.read_raw(offset, max)?)).await
    }
}

/// A snapshot that this node receives from a peer.
pub struct Incoming {
    file: SnapshotReceiver,
}

impl Incoming {
    /// Begins a new file, or continues an interrupted reception of the same one.
    pub async fn begin(store: SnapshotStore, key: SnapshotKey) -> io::Result<Self> {
        blocking(move || {
            Ok(Self {
                file: store.receive(key)?,
            })
        })
        .await
    }

    /// Returns the number of bytes received.
    pub fn received(&self) -> u64 {
        self.file.received()
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

    /// Syncs and verifies the file, and only then adds it to the snapshots.
    pub async fn finish(self) -> io::Result<SnapshotHandle> {
        blocking(move || {
            Ok(SnapshotHandle {
                file: self.file.finish()?,
            })
        })
        .await
    }
}

/// Writes a snapshot from the parts that `next` returns, and makes it the current one. Blocks.
pub fn write(
    store: &SnapshotStore,
    meta: &types::SnapshotMeta,
    retired: RetiredIds,
    mut next: impl FnMut() -> io::Result<Option<Vec<u8>>>,
) -> io::Result<SnapshotHandle> {
    let last = meta.last_log_id.as_ref().map(position);
    let snapshot_id = last.map_or("empty".to_owned(), |last| last.to_string());
    let membership = encode_membership(&SnapshotMembers {
        membership: meta.last_membership.clone(),
        retired,
    });
    let mut writer = store.create(SnapshotMeta {
        last,
        membership,
        snapshot_id,
        made_ms: wall_clock::now_ms(),
    })?;
    while let Some(part) = next()? {
        writer.write_part(&part)?;
    }
    Ok(SnapshotHandle {
        file: writer.finish()?,
    })
}

/// Returns the current snapshot, if there is one.
pub fn current(store: &SnapshotStore) -> io::Result<Option<Snapshot>> {
    store.latest().map(of).transpose()
}

/// Describes a file as openraft's snapshot.
pub fn of(file: SnapshotFile) -> io::Result<Snapshot> {
    let meta = types::SnapshotMeta {
        last_log_id: file.meta().last.map(id_at),
        last_membership: decode_membership(&file.meta().membership)?.membership,
    };
    Ok(Snapshot {
        meta,
        snapshot: SnapshotHandle { file },
    })
}
