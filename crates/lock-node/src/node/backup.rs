//! Creation of a backup from a snapshot on the disk that covers the required entries.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Node;
use crate::backup::{Backup, BackupHead};
use raft_node::Unavailable;

/// Maximum number of backups that clients download from one node at a time. Each costs a snapshot, a part of it in memory, and reads from the disk
/// of the log.
pub(super) const BACKUPS_AT_ONCE: usize = 2;

/// Maximum time that a backup waits for its snapshot. A million znodes take a second or two.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(120);

/// Reason for which a node makes no backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupRefused {
    /// The node already makes the maximum number of backups.
    #[error("this node already makes {limit} backups: retry later, or use another node")]
    TooMany {
        /// Maximum number.
        limit: usize,
    },
    /// This node cannot make a backup now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl Node {
    /// Makes a backup of the state. If it is `linearizable`, it contains every write that any node acknowledged before this call. Otherwise it
    /// contains all that this node has applied, so a node without a leader can make one, too.
    pub async fn backup(&self, linearizable: bool) -> Result<Backup, BackupRefused> {
        self.serving()?;
        let inner = &self.inner;
        let limit = BACKUPS_AT_ONCE;
        let permit = inner.backups.clone().try_acquire_owned();
        let permit = permit.map_err(|_| BackupRefused::TooMany { limit })?;
        let head = BackupHead {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            cluster: inner.config.raft.cluster.clone(),
            cluster_id: inner.raft.cluster_id().map(|id| id.0).unwrap_or_default(),
            node_id: self.id(),
            // Read before the state, so that everything that is not in the backup happens after this time.
            made_at_ms: self.now_ms(),
            term: 0,
            index: 0,
            members: Vec::new(),
        };
        if linearizable {
            self.read_barrier().await?;
        }
        let made = tokio::time::timeout(SNAPSHOT_TIMEOUT, inner.raft.covering_snapshot());
        let file = match made.await {
            Ok(file) => file?,
            Err(_) => {
                let reason = format!("no snapshot was written within {SNAPSHOT_TIMEOUT:?}");
                return Err(Unavailable::new(reason).into());
            }
        };
        Backup::of(&file, head, permit)
            .map_err(|error| Unavailable::new(format!("the snapshot cannot be read: {error}")).into())
    }

    /// Records that a client has received the whole backup that was made at `made_at_ms`.
    pub fn backup_drawn(&self, made_at_ms: u64) {
        let newest = &self.inner.last_backup_ms;
        newest.fetch_max(made_at_ms, Ordering::Relaxed);
    }

    /// Returns the time of the newest backup that a client downloaded from this node since it started, in milliseconds since 1970.
    pub fn last_backup_ms(&self) -> Option<u64> {
        match self.inner.last_backup_ms.load(Ordering::Relaxed) {
            0 => None,
            made_at_ms => Some(made_at_ms),
        }
    }
}
