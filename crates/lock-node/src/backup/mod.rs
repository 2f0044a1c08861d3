//! Backups: files that contain a whole state. Any running node makes one, and a restore starts a new cluster from one.
//!
//! ```text
//!   Node::backup ──► Backup (chunks of a file) ──► anywhere
//!                                                     │
//!   inspect ◄───────────────── the file ◄─────────────┘
//!                                 │
//!   restore ──► DATA_DIR/restored ──► formation: the first snapshot of the new cluster
//! ```
//!
//! A node makes a backup from a snapshot on its disk, so a slow receiver does not hold up the state. The head identifies the backup, a chain of
//! checksums covers all of it, and the end contains the number of parts and bytes. So a reader never takes a truncated or changed file for a
//! complete one. `docs/internals/format.md` shows the bytes.
//!
//! HTTP and the formation of a cluster (`raft_node::formation`) are elsewhere. This module does not know what a znode is: the store decides how
//! a state moves forward, and how its sessions end.

mod format;
mod inspect;
mod reader;
mod restore;
mod seed;
mod source;

use std::io;

pub use self::format::{BackupHead, BackupMember};
pub use self::inspect::{Inspection, inspect, inspect_with, inspect_with_progress};
pub use self::reader::BackupReader;
pub use self::restore::{
    COMMANDS_PER_SECOND_AT_MOST, MOVED_AT_LEAST, RestoreError, RestoreOptions, Restored, restore,
    restore_on_disk, restore_with_progress,
};
pub(crate) use self::seed::Seed;
#[cfg(test)]
pub(crate) use self::seed::write as write_backup;
pub use self::source::Backup;
use raft_node::codec::BadBytes;

/// Reason for which a file is no backup, or no complete one.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Io(io::Error),
    /// The file does not begin like a backup.
    #[error("it is no backup of Lockgate")]
    Foreign,
    /// The backup was made by a program that writes another version of the format.
    #[error(
        "it has version {0} of the format, and this program reads version {known}: use the program that made it, or \
         a newer one than this",
        known = format::VERSION
    )]
    UnknownVersion(u32),
    /// The file ends too early. The number is its size in bytes.
    #[error("it is cut off after {0} bytes: the download or the copy was not completed")]
    Cut(u64),
    /// The file contains other bytes than were written.
    #[error("it is damaged: {0}")]
    Damaged(String),
}

impl From<io::Error> for BackupError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<BadBytes> for BackupError {
    fn from(error: BadBytes) -> Self {
        Self::Damaged(error.0)
    }
}

impl From<znode_store::SnapshotError> for BackupError {
    fn from(error: znode_store::SnapshotError) -> Self {
        Self::Damaged(error.to_string())
    }
}
