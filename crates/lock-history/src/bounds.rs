//! How much there may be of what.

use std::time::Duration;

/// How many gaps are remembered. Each is a failure or an overload of its own; of more than these the oldest are told as
/// the beginning of the history.
pub const MAX_GAPS: usize = 64;

/// How large the index may become, and how old what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// The most records; beyond it the oldest go. 50,000 take about 12 MB of memory, and of disk 20 MB if many were told at
    /// a time, 60 MB if each was told alone.
    pub records: usize,
    /// Records whose end is longer ago go.
    pub max_age: Duration,
    /// How much of the disk's contents is kept in memory, in bytes.
    pub cache_bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            records: 50_000,
            max_age: Duration::from_secs(7 * 24 * 60 * 60),
            // What is written is at the end of the ring, what is read is rare.
            cache_bytes: 4 * 1024 * 1024,
        }
    }
}
