//! Size limits of the index.

use std::time::Duration;

/// Maximum number of recorded gaps. Each gap is a failure or an overload of its own; beyond this number the
/// end of the oldest gap becomes the beginning of the history.
pub const MAX_GAPS: usize = 64;

/// Limits on the size of the index and on the age of its records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Maximum number of records; beyond it the oldest are evicted. 50,000 records take about 12 MB of
    /// memory. On disk they take some 25 MB if many were written per batch, and 60 MB if each was written alone.
    pub records: usize,
    /// Maximum age: records that ended longer ago are evicted.
    pub max_age: Duration,
    /// Size of sled's page cache, in bytes.
    pub cache_bytes: u64,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self {
            records: 50_000,
            max_age: Duration::from_secs(7 * 24 * 60 * 60),
            // Writes go to the end of the ring, and reads are rare.
            cache_bytes: 4 * 1024 * 1024,
        }
    }
}
