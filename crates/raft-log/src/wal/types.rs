//! Types of the log: entries, votes, identity, options and limits.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::error::StorageError;

/// Default length of a segment. A segment is preallocated and filled with zeros, so that a sync has no new
/// file length or blocks to write. Large enough that rolling over (three syncs) is rare, small enough that
/// the first start is quick.
pub const DEFAULT_SEGMENT_BYTES: usize = 16 * 1024 * 1024;
/// Default size of the in-memory cache of newest payloads. It serves followers that lag a little and the
/// apply loop: half a second of entries at a cluster's highest rate. Older entries are read from the file,
/// most likely from the kernel's page cache. While nothing is written, nothing is cached.
pub const DEFAULT_CACHED_BYTES: usize = 16 * 1024 * 1024;
/// Maximum number of payload bytes queued for the disk. Above it [`super::Wal::wait_for_room`] waits.
pub const MAX_QUEUED_BYTES: usize = 64 * 1024 * 1024;
/// Maximum length of an entry: it is written as one record of one segment, whose offsets have 32 bits.
pub const MAX_PAYLOAD_BYTES: usize = 256 * 1024 * 1024;
/// Highest valid term and index: 2^53 - 1, the highest integer that JSON represents exactly, which also
/// bounds zxids. A value near the end of 64 bits is damage, and its successor would overflow.
pub const MAX_POSITION: u64 = (1 << 53) - 1;
/// Default idle time after which a pending commit mark is written alone, without a sync. Long enough to never
/// happen under load, short enough that a killed process restarts at its last position.
pub const DEFAULT_IDLE_FLUSH: Duration = Duration::from_millis(100);

/// Position of an entry in Raft's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPos {
    /// Term of the leader that appended the entry.
    pub term: u64,
    /// Index, without gaps.
    pub index: u64,
}

impl fmt::Display for LogPos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.term, self.index)
    }
}

/// Vote of a node in a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VoteRecord {
    /// Term of the vote.
    pub term: u64,
    /// Node that received the vote, if any.
    pub node_id: Option<u64>,
    /// Set if a majority voted for that node, so that it leads.
    pub committed: bool,
}

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalEntry {
    /// Position.
    pub pos: LogPos,
    /// Contents, opaque to the log.
    pub payload: Bytes,
}

/// Owner of a log, recorded in the header of every segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalIdentity {
    /// Id of the cluster. Zero until it has been formed; segments written before stay valid.
    pub cluster_id: [u8; 16],
    /// Id of the data directory.
    pub disk_id: [u8; 16],
    /// Id of the node.
    pub node_id: u64,
}

/// Options of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalOptions {
    /// Length of a segment in bytes. A larger entry gets a segment of its own with sufficient length.
    pub segment_bytes: usize,
    /// Maximum number of payload bytes in memory.
    pub cached_bytes: usize,
    /// Idle time after which a commit mark is written alone. `None` disables it.
    pub idle_flush: Option<Duration>,
    /// Set if a thread preallocates segments and removes old ones. Otherwise the writer does both between
    /// two writes; simulations choose this for determinism.
    pub preallocator_thread: bool,
}

impl Default for WalOptions {
    fn default() -> Self {
        Self {
            segment_bytes: DEFAULT_SEGMENT_BYTES,
            cached_bytes: DEFAULT_CACHED_BYTES,
            idle_flush: Some(DEFAULT_IDLE_FLUSH),
            preallocator_thread: true,
        }
    }
}

/// Completion of a queued operation. Called once by the writer thread: the operation is durable, or the log
/// has failed.
pub type OnDurable = Box<dyn FnOnce(Result<(), StorageError>) + Send>;
