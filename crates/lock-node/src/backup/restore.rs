//! Restore: makes the data directory of a new cluster's founder from a backup.
//!
//! The new cluster has an id of its own, which distinguishes its members from nodes of the old one. Its state is the backup's state, with its
//! position moved forward. It is unknown what the old cluster did after the backup, but it cannot have used more positions than fit into the
//! time since. So a client with a fencing token of the old cluster gets only larger tokens from the new one.
//!
//! An interrupted restore leaves a directory in which no node starts, and the next restore starts from the beginning. For this the state is
//! written first, and the identity, which makes the directory a data directory, last.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use znode_store::{Store, TooFar, Zxid};

use super::inspect::open;
use super::seed;
use super::{BackupError, BackupHead, BackupReader};
use crate::config::NodeConfig;
use raft_log::{DataDir, Disk, Identity, RealDisk, StorageError};
use raft_node::error::StartError;
use raft_node::formation;

/// Maximum number of commands that a cluster applies in a second, however short the period. The state machine alone, without network and
/// disk, applies 2.6 million of the cheapest (docs/internals/benchmarks/results.md); a cluster commits a tenth of that.
pub const COMMANDS_PER_SECOND_AT_MOST: u64 = 4_000_000;

/// Distance by which a restore moves the position forward in addition to the distance for the time since the backup. It is three days of
/// [`COMMANDS_PER_SECOND_AT_MOST`], or months of a busy cluster. So different clocks do no harm, nor does an old cluster that goes on for a
/// while beside the new one. 4,000 restores, each from a backup of the previously restored cluster, fit below
/// [`znode_store::LAST_MOVED_POSITION`].
pub const MOVED_AT_LEAST: u64 = 1 << 40;

/// Options of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RestoreOptions {
    /// Minimum distance by which the position is moved. The distance is never less than the time since the backup and [`MOVED_AT_LEAST`]
    /// require.
    pub move_at_least: u64,
    /// True if the sessions of the backup stay alive, with their locks. That is correct only if the old cluster has done nothing after the
    /// backup: otherwise it may have granted the locks to other sessions.
    pub keep_sessions: bool,
    /// Current time, in milliseconds since 1970.
    pub now_ms: u64,
}

/// Result of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Head of the backup.
    pub backup: BackupHead,
    /// Id of the new cluster.
    pub cluster_id: [u8; 16],
    /// Position of the backup's state.
    pub zxid_before: Zxid,
    /// Position of the new cluster's first state.
    pub zxid: Zxid,
    /// Distance by which the position was moved.
    pub moved_by: u64,
    /// Number of sessions that the restore ended.
    pub ended_sessions: u32,
    /// Number of znodes.
    pub znodes: u64,
}

/// Reason for which nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The file is no complete backup.
    #[error("{}: {error}", file.display())]
    Backup {
        /// File of the backup.
        file: PathBuf,
        /// Fault of the file.
        error: BackupError,
    },
    /// The configuration is not one of a node that can start a cluster.
    #[error(transparent)]
    Config(#[from] StartError),
    /// Another node of the configuration is the founder. The number is its node id.
    #[error(
        "the cluster begins at the member with the lowest id: restore with the configuration of node {0}, and start the \
         others with empty data directories; they get everything from it"
    )]
    NotTheFounder(u64),
    /// The configuration is one of a node that joins a cluster.
    #[error(
        "the node is configured to join a cluster (join = true), and a restore begins one: restore with the \
         configuration of a first member"
    )]
    Joins,
    /// The data directory is not empty.
    #[error(
        "the data directory {} is not empty ({found}). A restore makes a new cluster and replaces nothing: give it an \
         empty directory",
        path.display()
    )]
    NotEmpty {
        /// Data directory.
        path: PathBuf,
        /// Name of one of its entries.
        found: String,
    },
    /// The clock of this machine is behind the time of the backup. Either it is wrong, or the clock of the node that made the backup was.
    #[error(
        "the backup was made {ahead_ms} ms after the time that this machine's clock shows. Without the time since \
         the backup nobody knows how far the position has to be moved: set the clock, or say how far"
    )]
    ClockBehind {
        /// Difference in milliseconds.
        ahead_ms: u64,
    },
    /// The position cannot be moved that far.
    #[error(transparent)]
    TooFar(#[from] TooFar),
    /// The directory could not be written.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Makes the data directory of `config` from the backup in `file`. Reads and checks the whole backup first, and writes nothing if it has a
/// fault.
pub fn restore(file: &Path, config: &NodeConfig, options: RestoreOptions) -> Result<Restored, RestoreError> {
    restore_with_progress(file, config, options, &mut |_| {})
}

/// Restores a backup as [`restore`] does. `progress` is called after each read with the number of bytes of the backup so far.
pub fn restore_with_progress(
    file: &Path,
    config: &NodeConfig,
    options: RestoreOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<Restored, RestoreError> {
    // `Disk` lists only files, but a directory or a link in the way must stop the restore, too.
    if let Some(found) = foreign_entry_in(&config.raft.data_dir)
        .map_err(|source| StorageError::io("list", &config.raft.data_dir, source))?
    {
        let path = config.raft.data_dir.clone();
        return Err(RestoreError::NotEmpty { path, found });
    }
    let mut backup = open(file, progress).map_err(|error| bad_backup(file, error))?;
    restore_on_disk(Arc::new(RealDisk), &mut backup, file, config, options)
}

/// Restores an open backup as [`restore`] does, with all access to the data directory through `disk`. Tests pass disks that lose power and
/// fail. `file` is the name of the backup in errors.
pub fn restore_on_disk<R: io::Read>(
    disk: Arc<dyn Disk>,
    backup: &mut BackupReader<R>,
    file: &Path,
    config: &NodeConfig,
    options: RestoreOptions,
) -> Result<Restored, RestoreError> {
    config.validate()?;
    if config.raft.join {
        return Err(RestoreError::Joins);
    }
    match formation::founder(&config.raft.members) {
        Some(founder) if founder != config.raft.node_id => return Err(RestoreError::NotTheFounder(founder)),
        _ => {}
    }
    let mut store = backup.load().map_err(|error| bad_backup(file, error))?;
    let backup = backup.head().clone();
    let zxid_before = store.zxid();
    let moved_by = move_by(&backup, &options)?;
    store.move_position(moved_by)?;
    let ended_sessions = match options.keep_sessions {
        true => {
            store.forget_silences();
            0
        }
        false => store.end_all_sessions(),
    };
    let restored = Restored {
        cluster_id: random_id()?,
        zxid_before,
        zxid: store.zxid(),
        moved_by,
        ended_sessions,
        znodes: store.node_count() as u64,
        backup,
    };
    write(disk, config, &restored, &mut store)?;
    Ok(restored)
}

/// Returns the distance by which the position has to be moved, so that it is beyond every position that the old cluster used after the backup.
fn move_by(backup: &BackupHead, options: &RestoreOptions) -> Result<u64, RestoreError> {
    let since_ms = match options.now_ms.checked_sub(backup.made_at_ms) {
        Some(since_ms) => since_ms,
        // The operator named a distance, so the clocks are not needed.
        None if options.move_at_least > 0 => 0,
        None => {
            let ahead_ms = backup.made_at_ms - options.now_ms;
            return Err(RestoreError::ClockBehind { ahead_ms });
        }
    };
    let used = since_ms
        .div_ceil(1000)
        .saturating_mul(COMMANDS_PER_SECOND_AT_MOST);
    Ok(used.saturating_add(MOVED_AT_LEAST).max(options.move_at_least))
}

fn write(
    disk: Arc<dyn Disk>,
    config: &NodeConfig,
    restored: &Restored,
    store: &mut Store,
) -> Result<(), RestoreError> {
    let path = &config.raft.data_dir;
    let head = BackupHead {
        program: env!("CARGO_PKG_VERSION").to_owned(),
        cluster: config.raft.cluster.clone(),
        cluster_id: restored.cluster_id,
        node_id: config.raft.node_id,
        made_at_ms: restored.backup.made_at_ms,
        term: 0,
        index: 0,
        members: Vec::new(),
    };
    let identity = Identity {
        cluster: config.raft.cluster.clone(),
        cluster_id: Some(restored.cluster_id),
        node_id: config.raft.node_id,
        disk_id: random_id()?,
    };
    let made = DataDir::create(disk.clone(), path, identity, || {
        seed::write(disk.as_ref(), path, &head, store)
    })?;
    match made {
        Ok(_) => Ok(()),
        Err(found) => Err(RestoreError::NotEmpty {
            path: path.clone(),
            found,
        }),
    }
}

/// Returns the name of an entry of a directory that is not a leftover of an interrupted restore, if there is one.
fn foreign_entry_in(dir: &Path) -> io::Result<Option<String>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !DataDir::is_creation_leftover(&name) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn random_id() -> Result<[u8; 16], StorageError> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| StorageError::Io {
        what: "draw an id".into(),
        source: Arc::new(io::Error::other(error.to_string())),
    })?;
    Ok(id)
}

fn bad_backup(file: &Path, error: BackupError) -> RestoreError {
    RestoreError::Backup {
        file: file.to_owned(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(made_at_ms: u64) -> BackupHead {
        BackupHead {
            program: "0".into(),
            cluster: "c".into(),
            cluster_id: [1; 16],
            node_id: 1,
            made_at_ms,
            term: 1,
            index: 1,
            members: Vec::new(),
        }
    }

    fn moved(made_at_ms: u64, now_ms: u64, move_at_least: u64) -> Result<u64, RestoreError> {
        let options = RestoreOptions {
            move_at_least,
            keep_sessions: false,
            now_ms,
        };
        move_by(&head(made_at_ms), &options)
    }

    #[test]
    fn position_moves_beyond_all_commands_since_the_backup() {
        assert_eq!(moved(1000, 1000, 0).unwrap(), MOVED_AT_LEAST);
        let second = COMMANDS_PER_SECOND_AT_MOST;
        assert_eq!(moved(1000, 1001, 0).unwrap(), MOVED_AT_LEAST + second);
        assert_eq!(moved(1000, 61_000, 5).unwrap(), MOVED_AT_LEAST + 60 * second);
        assert_eq!(moved(1000, 61_000, 1 << 50).unwrap(), 1 << 50);
        assert_eq!(
            moved(0, u64::MAX, 0).unwrap(),
            u64::MAX,
            "the distance saturates, and `move_position` rejects it"
        );
    }

    #[test]
    fn clock_behind_the_backup_is_rejected_without_an_explicit_distance() {
        assert!(matches!(
            moved(1000, 999, 0),
            Err(RestoreError::ClockBehind { ahead_ms: 1 })
        ));
        assert_eq!(moved(1000, 999, 7).unwrap(), MOVED_AT_LEAST);
        assert_eq!(moved(1000, 999, 1 << 50).unwrap(), 1 << 50);
    }

    #[test]
    fn thousands_of_successive_restores_fit_below_the_last_position() {
        let year = 365 * 24 * 3600 * COMMANDS_PER_SECOND_AT_MOST;
        assert!(MOVED_AT_LEAST + year < znode_store::LAST_MOVED_POSITION.0 / 30);
        assert_eq!(znode_store::LAST_MOVED_POSITION.0 / MOVED_AT_LEAST, 4096);
    }
}
