//! Data directory of a new cluster's founder, made of a backup.
//!
//! The new cluster has an id of its own, which distinguishes its members from nodes of the old one. Its state is the backup's, moved
//! forward: what the old cluster did after the backup is unknown, but it cannot have used more positions than fit into the time since. So a
//! client that got a fencing token from the old cluster gets only larger ones from the new one.
//!
//! An interrupted restore leaves a directory in which no node starts, and the next restore begins anew: the state is written first, and the
//! identity, which makes it a data directory, last.

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

/// A restore moves the position forward at least so far, beside what the time since the backup asks for: three days of
/// [`COMMANDS_PER_SECOND_AT_MOST`], or months of a busy cluster. So clocks that differ do not matter, nor does an old
/// cluster that goes on for a while beside the new one. And 4,000 restores, each of a backup of the cluster that the
/// last one made, find room below [`znode_store::LAST_MOVED_POSITION`].
pub const MOVED_AT_LEAST: u64 = 1 << 40;

/// Options of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RestoreOptions {
    /// Least distance by which the position is moved. It is never moved less than the time since the backup and [`MOVED_AT_LEAST`] require.
    pub move_at_least: u64,
    /// Leave the sessions of the backup alive, with their locks: right only if the old cluster has done nothing after
    /// the backup, for else the locks may have been given to others.
    pub keep_sessions: bool,
    /// The time now, in milliseconds since 1970.
    pub now_ms: u64,
}

/// Result of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Of which backup.
    pub backup: BackupHead,
    /// The new cluster's id.
    pub cluster_id: [u8; 16],
    /// The position of the backup's state.
    pub zxid_before: Zxid,
    /// The position of the new cluster's first state.
    pub zxid: Zxid,
    /// Distance by which the position was moved.
    pub moved_by: u64,
    /// Number of sessions that were ended.
    pub ended_sessions: u32,
    /// Number of znodes.
    pub znodes: u64,
}

/// Why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The file is no whole backup.
    #[error("{}: {error}", file.display())]
    Backup {
        /// File.
        file: PathBuf,
        /// Error.
        error: BackupError,
    },
    /// The configuration is not that of a node that can begin a cluster.
    #[error(transparent)]
    Config(#[from] StartError),
    /// Another node of the cluster has to begin it.
    #[error(
        "the cluster begins at the member with the lowest id: restore with the configuration of node {0}, and start the \
         others with empty data directories; they get everything from it"
    )]
    NotTheFounder(u64),
    /// The configuration is that of a node that joins a cluster.
    #[error(
        "the node is configured to join a cluster (join = true), and a restore begins one: restore with the \
         configuration of a first member"
    )]
    Joins,
    /// There is something in the data directory.
    #[error(
        "the data directory {} is not empty ({found}). A restore makes a new cluster and replaces nothing: give it an \
         empty directory",
        path.display()
    )]
    NotEmpty {
        /// Directory.
        path: PathBuf,
        /// One of the things in it.
        found: String,
    },
    /// This machine's clock cannot be right, or the one of the node that made the backup was not.
    #[error(
        "the backup was made {ahead_ms} ms after the time that this machine's clock shows. Without the time since \
         the backup nobody knows how far the position has to be moved: set the clock, or say how far"
    )]
    ClockBehind {
        /// Difference.
        ahead_ms: u64,
    },
    /// The position cannot be moved so far.
    #[error(transparent)]
    TooFar(#[from] TooFar),
    /// The directory could not be written.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Makes the data directory of `config` out of the backup in `file`. Reads all of it first; nothing is written if
/// anything is wrong with it.
pub fn restore(file: &Path, config: &NodeConfig, options: RestoreOptions) -> Result<Restored, RestoreError> {
    restore_told(file, config, options, &mut |_| {})
}

/// The same; `told` learns how many bytes of the backup were read so far.
pub fn restore_told(
    file: &Path,
    config: &NodeConfig,
    options: RestoreOptions,
    told: &mut dyn FnMut(u64),
) -> Result<Restored, RestoreError> {
    // The disk lists only files; the restore must not touch anything else either.
    if let Some(found) = something_in(&config.raft.data_dir)
        .map_err(|source| StorageError::io("list", &config.raft.data_dir, source))?
    {
        let path = config.raft.data_dir.clone();
        return Err(RestoreError::NotEmpty { path, found });
    }
    let mut backup = open(file, told).map_err(|error| bad_backup(file, error))?;
    restore_on_disk(Arc::new(RealDisk), &mut backup, file, config, options)
}

/// As [`restore`], of a backup that is open, with all access to the data directory going through `disk`: for tests,
/// whose disks lose power and fail. `file` is the backup's name in errors.
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

/// Returns the distance by which the position has to be moved, so that everything that the old cluster did after the backup is behind it.
fn move_by(backup: &BackupHead, options: &RestoreOptions) -> Result<u64, RestoreError> {
    let since_ms = match options.now_ms.checked_sub(backup.made_at_ms) {
        Some(since_ms) => since_ms,
        // An explicit distance is better than two clocks.
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

/// The first thing in a directory that no interrupted restore has left there.
fn something_in(dir: &Path) -> io::Result<Option<String>> {
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
    fn the_position_moves_by_more_than_fits_into_the_time_since() {
        assert_eq!(moved(1000, 1000, 0).unwrap(), MOVED_AT_LEAST);
        let second = COMMANDS_PER_SECOND_AT_MOST;
        assert_eq!(moved(1000, 1001, 0).unwrap(), MOVED_AT_LEAST + second);
        assert_eq!(moved(1000, 61_000, 5).unwrap(), MOVED_AT_LEAST + 60 * second);
        assert_eq!(moved(1000, 61_000, 1 << 50).unwrap(), 1 << 50);
        assert_eq!(
            moved(0, u64::MAX, 0).unwrap(),
            u64::MAX,
            "too far, and said so later"
        );
    }

    #[test]
    fn a_clock_that_is_behind_the_backup_is_not_believed() {
        assert!(matches!(
            moved(1000, 999, 0),
            Err(RestoreError::ClockBehind { ahead_ms: 1 })
        ));
        assert_eq!(moved(1000, 999, 7).unwrap(), MOVED_AT_LEAST);
        assert_eq!(moved(1000, 999, 1 << 50).unwrap(), 1 << 50);
    }

    #[test]
    fn thousands_of_restores_in_a_row_find_room() {
        let year = 365 * 24 * 3600 * COMMANDS_PER_SECOND_AT_MOST;
        assert!(MOVED_AT_LEAST + year < znode_store::LAST_MOVED_POSITION.0 / 30);
        assert_eq!(znode_store::LAST_MOVED_POSITION.0 / MOVED_AT_LEAST, 4096);
    }
}
