//! Storage of a Raft node: the log with the vote, snapshots, and the identity of the data directory.
//!
//! ```text
//! DATA_DIR/
//!   lock                     held while a process runs on the directory
//!   identity                 cluster, node and directory           identity.rs
//!   log/                     segments of the write-ahead log       wal/
//!   snapshots/               the newest two                        snapshots/
//! ```
//!
//! `docs/internals/format.md` describes every byte. All access goes through [`disk::Disk`], so the same code
//! also runs on a [simulated disk](sim_disk), which loses power at the moments that a test chooses.
//!
//! This crate uses log positions and votes as the Raft paper defines them. It must not know a Raft
//! implementation, nor what the bytes of an entry or of a snapshot mean: it depends neither on openraft nor
//! on the state machine.

pub mod disk;
pub mod error;
pub mod identity;
pub mod sim_disk;
pub mod snapshots;
pub mod two_slots;
pub mod wal;

#[cfg(feature = "simulation")]
pub mod simulation;

mod sizes;
#[doc(hidden)]
pub mod sync;

pub use self::disk::{Disk, RealDisk};
pub use self::error::StorageError;
pub use self::identity::{DataDir, Identity};
pub use self::sizes::FileSizes;
pub use self::snapshots::{
    SnapshotFile, SnapshotKey, SnapshotMeta, SnapshotReader, SnapshotReceiver, SnapshotStore, SnapshotWriter,
};
pub use self::wal::{LogPos, VoteRecord, Wal, WalEntry, WalIdentity, WalOptions};

/// Directory of the log within the data directory.
pub const LOG_DIR: &str = "log";
/// Directory of snapshots within the data directory.
pub const SNAPSHOT_DIR: &str = "snapshots";
