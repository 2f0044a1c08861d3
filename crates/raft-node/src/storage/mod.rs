//! Storage of a node: its data directory with the log, snapshots and the witness (`witness.rs`), and the log
//! behind openraft's interface.
//!
//! The crate `raft-log` manages the files; [`log_store`] and [`log_entry`] add openraft's traits and types.

pub mod log_entry;
pub mod log_store;

use std::path::Path;
use std::sync::Arc;

use fault_injection::fail_step;
use raft_log::{
    DataDir, Disk, Identity, LOG_DIR, SNAPSHOT_DIR, SnapshotStore, StorageError, Wal, WalIdentity, WalOptions,
};

use crate::ids::DiskId;
use crate::witness::Witness;

pub use self::log_store::LogStore;

/// All storage of a node, opened and locked. Dropping it closes the log.
pub struct Storage {
    /// Log and vote. Closed before the directory's lock is released.
    pub wal: Wal,
    /// Snapshots.
    pub snapshots: SnapshotStore,
    /// Record of this directory's starts, and of the members' progress.
    pub witness: Arc<Witness>,
    /// Data directory with the node's identity.
    pub dir: DataDir,
}

impl Storage {
    /// Opens the data directory of a node, or creates a new one.
    pub fn open(
        disk: Arc<dyn Disk>,
        path: &Path,
        cluster: &str,
        node_id: u64,
        options: WalOptions,
    ) -> Result<Self, StorageError> {
        fail_step!("start::before_identity", |e| StorageError::io("open", path, e));
        let dir = DataDir::open(disk.clone(), path, cluster, node_id)?;
        fail_step!("start::before_snapshots", |e| StorageError::io("open", path, e));
        let Identity {
            cluster_id, disk_id, ..
        } = dir.identity();
        let cluster_id = cluster_id.unwrap_or_default();
        let snapshots = SnapshotStore::open(disk.clone(), &path.join(SNAPSHOT_DIR), cluster_id, node_id)?;
        let identity = WalIdentity {
            cluster_id,
            disk_id,
            node_id,
        };
        fail_step!("start::before_log", |e| StorageError::io("open", path, e));
        let (wal, writer) = Wal::open(disk.clone(), &path.join(LOG_DIR), identity, options)?;
        fail_step!("start::after_log", |e| StorageError::io("open", path, e));
        check_snapshot_covers_purged(path, &snapshots, &wal)?;
        let term = wal.vote().map_or(0, |vote| vote.term);
        let covered = snapshots.latest().and_then(|latest| latest.meta().last);
        let last = wal.last().max(covered).map_or(0, |last| last.index);
        let witness = Witness::begin(disk.as_ref(), path, (node_id, DiskId(disk_id)), (term, last))?;
        wal.start_writer(writer)?;
        Ok(Self {
            wal,
            snapshots,
            witness: Arc::new(witness),
            dir,
        })
    }

    /// Records the id of the cluster once it is formed or this node has learned it. Everything written later
    /// carries it. Blocks until the identity is durable.
    pub fn set_cluster_id(&self, id: [u8; 16]) -> Result<(), StorageError> {
        self.dir.set_cluster_id(id)?;
        self.snapshots.set_cluster_id(id);
        self.wal.set_cluster_id(id)
    }

    /// Returns the log behind openraft's interface.
    pub fn log_store(&self) -> LogStore {
        LogStore::new(self.wal.clone())
    }

    /// Writes the queue and closes the log. Blocks.
    pub fn close(&self) -> Result<(), StorageError> {
        self.wal.close()
    }
}

/// Checks that a snapshot covers the purge point. The log was purged only because a snapshot covered it;
/// without that snapshot, the node would start with a state that lacks promised entries.
fn check_snapshot_covers_purged(
    path: &Path,
    snapshots: &SnapshotStore,
    wal: &Wal,
) -> Result<(), StorageError> {
    let Some(purged) = wal.purged() else { return Ok(()) };
    let last = snapshots.latest().and_then(|latest| latest.meta().last);
    if last.is_some_and(|last| last.index >= purged.index) {
        return Ok(());
    }
    let newest = last.map_or("there is no snapshot".to_owned(), |last| {
        format!("the newest ends at {last}")
    });
    Err(StorageError::Damaged(format!(
        "the data directory {} needs a snapshot that covers entry {purged}, and {newest}. Restore the file, or \
         keep a copy of the directory, remove this member from the cluster, and let a new member with a new node \
         id and an empty data directory take its place; it gets everything from the others",
        path.display()
    )))
}

impl Drop for Storage {
    fn drop(&mut self) {
        // A second close returns the same result as the first one; callers that need it have called `close`.
        if let Err(error) = self.wal.close() {
            tracing::warn!(%error, "storage: the log was closed after a failure");
        }
    }
}
