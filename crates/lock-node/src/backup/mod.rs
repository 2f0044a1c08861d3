//! Backups: a file that holds a whole state, taken from any running node, and the beginning of a new cluster made
//! of one.
//!
//! ```text
//!   Node::backup ──► Backup (chunks of a file) ──► anywhere
//!                                                     │
//!   inspect ◄───────────────── the file ◄─────────────┘
//!                                 │
//!   restore ──► DATA_DIR/restored ──► formation: the first snapshot of the new cluster
//! ```
//!
//! A backup is made of a snapshot on the node's disk, so a slow receiver costs the state nothing. Its head says what
//! it is; checksums chain all of it, and its end says how much there was, so that a file that was cut off or changed
//! is never taken for a whole one. `docs/internals/format.md` shows the bytes.
//!
//! What is not here: HTTP, and how a cluster forms (`raft_node::formation`). Nothing here knows what a znode is: how a
//! state moves forward, and how its sessions end, is decided by the store.

mod format;
mod inspect;
mod reader;
mod restore;
mod seed;
mod source;

use std::io;

pub use self::format::{BackupHead, BackupMember};
pub use self::inspect::{Inspection, inspect, inspect_told, inspect_with};
pub use self::reader::BackupReader;
pub use self::restore::{
    COMMANDS_PER_SECOND_AT_MOST, MOVED_AT_LEAST, RestoreError, RestoreOptions, Restored, restore,
    restore_on_disk, restore_told,
};
pub(crate) use self::seed::Seed;
#[cfg(test)]
pub(crate) use self::seed::write as write_backup;
pub use self::source::Backup;
use raft_node::codec::BadBytes;

/// Why a file is no backup, or no whole one.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Io(io::Error),
    /// It begins as something else.
    #[error("it is no backup of Lockgate")]
    Foreign,
    /// It was made by a program that writes another format.
    #[error(
        "it has version {0} of the format, and this program reads version {known}: use the program that made it, or \
         a newer one than this",
        known = format::VERSION
    )]
    UnknownVersion(u32),
    /// It ends too early.
    #[error("it is cut off after {0} bytes: the download or the copy was not completed")]
    Cut(u64),
    /// It is not what was written.
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
