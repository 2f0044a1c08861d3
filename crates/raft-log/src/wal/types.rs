//! Types of the log: its entries, its owner and its limits.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::error::StorageError;

/// A segment is created ahead and filled with zeros, so that a sync has no new lengths and blocks to write.
/// Large enough that the change to the next one (three syncs) is rare, small enough that a first start does
/// not wait for long.
pub const DEFAULT_SEGMENT_BYTES: usize = 16 * 1024 * 1024;
/// Payload of the newest entries that is kept in memory, for followers that lag a little and for the apply: half a second
/// of what a cluster commits at its fastest. A follower that lags more reads pages that the kernel most likely still caches. An idle
/// log keeps none.
pub const DEFAULT_CACHED_BYTES: usize = 16 * 1024 * 1024;
/// Maximum payload that may wait for the disk. Above it, [`super::Wal::room`] waits.
pub const MAX_QUEUED_BYTES: usize = 64 * 1024 * 1024;
/// No entry is larger: it is written as one record of one segment, whose offsets have 32 bits.
pub const MAX_PAYLOAD_BYTES: usize = 256 * 1024 * 1024;
/// Maximum term and index: numbers that JSON can carry, below which zxids must stay, too. A number close to 2^64
/// belongs to no real log and has no successor.
pub const MAX_POSITION: u64 = (1 << 53) - 1;
/// Idle time after which a waiting commit mark is written by itself, without a sync. Long enough to never happen under load,
/// short enough that a killed process restarts where it was.
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

/// Promise of a node in a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VoteRecord {
    /// The term.
    pub term: u64,
    /// Node that got the vote, if any.
    pub node_id: Option<u64>,
    /// True when a majority voted for the same node, which is then the leader.
    pub committed: bool,
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalEntry {
    /// Its place.
    pub pos: LogPos,
    /// Payload. The log does not interpret it.
    pub payload: Bytes,
}

/// Owner of the log. It is in the header of every segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalIdentity {
    /// The cluster. Zero until it has been formed; segments written before stay valid.
    pub cluster_id: [u8; 16],
    /// The data directory.
    pub disk_id: [u8; 16],
    /// The node.
    pub node_id: u64,
}

/// Options of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalOptions {
    /// Length of a segment. An entry that does not fit gets a longer segment of its own.
    pub segment_bytes: usize,
    /// Maximum payload in memory.
    pub cached_bytes: usize,
    /// After how long without other writes a commit mark is written for itself. `None`: never.
    pub idle_flush: Option<Duration>,
    /// Set if a thread makes segments ahead and removes old ones. Otherwise the writer does that between two writes, as a
    /// deterministic simulation needs.
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

/// Called once, from the writer thread: what was queued with it is durable, or the log has failed.
pub type OnDurable = Box<dyn FnOnce(Result<(), StorageError>) + Send>;
