//! Configuration of replication: timing of Raft, and snapshots.

use std::time::Duration;

/// Lowest rate at which snapshots are sent. At a lower rate a follower with a large snapshot would never catch up.
pub const MIN_SEND_BYTES_PER_SECOND: u64 = 64 * 1024;

/// Timing of Raft. A new leader is elected as soon as a majority knows that the old one is dead. That takes a
/// round trip if the old leader's address refuses connections, and otherwise the longest election timeout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaftTiming {
    /// Interval of the leader's heartbeats.
    pub heartbeat: Duration,
    /// Shortest time without a heartbeat after which a follower starts an election.
    pub election_min: Duration,
    /// Longest such time; also the duration of the leader's lease.
    pub election_max: Duration,
}

impl Default for RaftTiming {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(60),
            election_min: Duration::from_millis(300),
            election_max: Duration::from_millis(600),
        }
    }
}

/// Limits that trigger snapshots, the part of the log that is kept behind them, and the rate at which they are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotConfig {
    /// Number of log entries after which a snapshot is built.
    pub every_entries: u64,
    /// Bytes of log entries after which a snapshot is built; the size of the last snapshot, if that is larger. So snapshots at most double
    /// the bytes that a node writes, however large the state is.
    pub every_bytes: u64,
    /// Maximum number of entries covered by a snapshot that are kept for followers that lag a little.
    pub keep_entries: u64,
    /// Maximum size of these entries in bytes.
    pub keep_bytes: u64,
    /// Total rate at which snapshots are sent, in bytes per second.
    pub send_bytes_per_second: u64,
}

impl Default for SnapshotConfig {
    fn default() -> Self {
        Self {
            every_entries: 50_000,
            // About the amount that a starting node applies in half a second.
            every_bytes: 64 * 1024 * 1024,
            keep_entries: 5_000,
            keep_bytes: 16 * 1024 * 1024,
            // A million znodes of 100 bytes (150 MB) take two and a half seconds, and half of a gigabit line
            // remains free.
            send_bytes_per_second: 64 * 1024 * 1024,
        }
    }
}
