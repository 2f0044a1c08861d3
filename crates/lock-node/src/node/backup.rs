//! Creation of a backup, with a snapshot on the disk that covers the required entries.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Node;
use crate::backup::{Backup, BackupHead};
use raft_node::Unavailable;

/// Backups that are read from one node at a time. Each costs a snapshot, a part of it in memory, and reads of the disk
/// that the log writes to.
pub(super) const BACKUPS_AT_ONCE: usize = 2;

/// Maximum time that a backup waits for its snapshot: a million znodes take a second or two.
const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(120);

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupRefused {
    /// Others are being made.
    #[error("this node makes {limit} backups already; try again, or ask another node")]
    TooMany {
        /// Maximum number.
        limit: usize,
    },
    /// This node cannot make one now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl Node {
    /// A backup of the state. It holds everything that was acknowledged anywhere before this was called, or, if it
    /// need not be `linearizable`, all that this node has applied: so a node without a leader can make one, too.
    pub async fn backup(&self, linearizable: bool) -> Result<Backup, BackupRefused> {
        self.serving()?;
        let inner = &self.inner;
        let limit = BACKUPS_AT_ONCE;
        let place = inner.backups.clone().try_acquire_owned();
        let place = place.map_err(|_| BackupRefused::TooMany { limit })?;
        let head = BackupHead {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            cluster: inner.config.raft.cluster.clone(),
            cluster_id: inner.raft.cluster_id().map(|id| id.0).unwrap_or_default(),
            node_id: self.id(),
            // Before anything is looked at: what is not in the backup happens later.
            made_at_ms: self.now_ms(),
            term: 0,
            index: 0,
            members: Vec::new(),
        };
        if linearizable {
            self.read_barrier().await?;
        }
        let made = tokio::time::timeout(SNAPSHOT_PATIENCE, inner.raft.covering_snapshot());
        let file = match made.await {
            Ok(file) => file?,
            Err(_) => {
                let reason = format!("no snapshot was written within {SNAPSHOT_PATIENCE:?}");
                return Err(Unavailable::new(reason).into());
            }
        };
        Backup::of(&file, head, place)
            .map_err(|error| Unavailable::new(format!("the snapshot cannot be read: {error}")).into())
    }

    /// A backup that was made at this time has gone out to its last byte.
    pub fn backup_drawn(&self, made_at_ms: u64) {
        let newest = &self.inner.last_backup_ms;
        newest.fetch_max(made_at_ms, Ordering::Relaxed);
    }

    /// Of which time the newest backup is that was drawn from this node since it started, in milliseconds since 1970.
    pub fn last_backup_ms(&self) -> Option<u64> {
        match self.inner.last_backup_ms.load(Ordering::Relaxed) {
            0 => None,
            made_at_ms => Some(made_at_ms),
        }
    }
}
