//! Detector of recent reads of a node's state.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use raft_log::sync::Mutex;

/// Time after a read for which another one is expected. It is longer than the usual pause of a program between two related requests.
pub(super) const LATELY: Duration = Duration::from_secs(1);

/// Counter of reads. It stores no times of reads, because there are many reads and few queries.
#[derive(Debug, Default)]
pub(super) struct RecentReads {
    count: AtomicU64,
    found: Mutex<LastCount>,
}

/// Result of the last query.
#[derive(Debug, Default)]
struct LastCount {
    count: u64,
    /// Time of the last query that found new reads.
    at: Option<Instant>,
}

impl RecentReads {
    /// Counts a read.
    pub fn note(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of reads.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns whether there was a recent read.
    pub fn were_lately(&self, now: Instant) -> bool {
        let mut found = self.found.lock();
        let count = self.count();
        if count != found.count {
            *found = LastCount { count, at: Some(now) };
        }
        found.at.is_some_and(|at| now < at + LATELY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_counts_as_recent_for_a_while() {
        let began = Instant::now();
        let reads = RecentReads::default();
        assert!(!reads.were_lately(began));
        reads.note();
        assert_eq!(reads.count(), 1);
        assert!(reads.were_lately(began));
        assert!(reads.were_lately(began + LATELY / 2));
        reads.note();
        assert!(reads.were_lately(began + LATELY * 3 / 4));
        assert!(reads.were_lately(began + LATELY * 3 / 2));
        assert!(!reads.were_lately(began + LATELY * 7 / 4));
    }
}
