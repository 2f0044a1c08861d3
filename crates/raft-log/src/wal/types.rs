//! The words of the log: what it holds, whose it is, and its limits. Nothing here does anything.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::error::StorageError;

/// A segment is created ahead and filled with zeros, so that a sync has no new lengths and blocks to write.
/// Large enough that the change to the next one (three syncs) is rare, small enough that a first start does
/// not wait for long.
pub const DEFAULT_SEGMENT_BYTES: usize = 16 * 1024 * 1024;
/// So much payload of the newest entries is kept in memory, for followers that lag a little and for the apply: half a second
/// of what a cluster commits at its fastest. Who lags more reads what the kernel most likely has in memory still. While nothing is
/// written none is kept.
pub const DEFAULT_CACHED_BYTES: usize = 16 * 1024 * 1024;
/// When so much payload waits for the disk, [`super::Wal::room`] lets nobody on.
pub const MAX_QUEUED_BYTES: usize = 64 * 1024 * 1024;
/// No entry is larger: it is written as one record of one segment, whose offsets have 32 bits.
pub const MAX_PAYLOAD_BYTES: usize = 256 * 1024 * 1024;
/// No term and no index is larger: numbers that JSON can carry, which zxids have to stay below, too. What comes close to the
/// end of 64 bits is nobody's log, and the number after it is none.
pub const MAX_POSITION: u64 = (1 << 53) - 1;
/// When nothing else has been written for so long, a waiting commit mark is written for itself, without a
/// sync. Long enough to never happen under load, short enough that a killed process restarts where it was.
pub const DEFAULT_IDLE_FLUSH: Duration = Duration::from_millis(100);

/// The place of an entry in Raft's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPos {
    /// The term of the leader that appended it.
    pub term: u64,
    /// Its number, without holes.
    pub index: u64,
}

impl fmt::Display for LogPos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.term, self.index)
    }
}

/// What a node has promised in a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VoteRecord {
    /// The term.
    pub term: u64,
    /// Who got the vote, if anybody has.
    pub node_id: Option<u64>,
    /// Whether a majority voted for the same node: it leads.
    pub committed: bool,
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalEntry {
    /// Its place.
    pub pos: LogPos,
    /// What it carries. Bytes to the log.
    pub payload: Bytes,
}

/// Whose log it is. Stands in the header of every segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalIdentity {
    /// The cluster. Zero until it has been formed; segments written before stay valid.
    pub cluster_id: [u8; 16],
    /// The data directory.
    pub disk_id: [u8; 16],
    /// The node.
    pub node_id: u64,
}

/// What can be set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalOptions {
    /// How long a segment is. A larger entry gets a larger one for itself.
    pub segment_bytes: usize,
    /// How much payload is kept in memory.
    pub cached_bytes: usize,
    /// After how long without other writes a commit mark is written for itself. `None`: never.
    pub idle_flush: Option<Duration>,
    /// Whether a thread of its own makes segments ahead and removes old ones. Without it the writer does that
    /// between two writes, which a simulation wants for its determinism.
    pub janitor_thread: bool,
}

impl Default for WalOptions {
    fn default() -> Self {
        Self {
            segment_bytes: DEFAULT_SEGMENT_BYTES,
            cached_bytes: DEFAULT_CACHED_BYTES,
            idle_flush: Some(DEFAULT_IDLE_FLUSH),
            janitor_thread: true,
        }
    }
}

/// Called once, from the writer thread: what was queued with it is durable, or the log has failed.
pub type OnDurable = Box<dyn FnOnce(Result<(), StorageError>) + Send>;
