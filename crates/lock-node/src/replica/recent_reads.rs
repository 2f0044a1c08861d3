//! Detector of recent reads of a node's state.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use raft_log::sync::Mutex;

/// Time after a read for which another one is expected: longer than the pause of programs between two requests that belong together.
pub(super) const LATELY: Duration = Duration::from_secs(1);

/// Counter of reads, without times: there are many reads, and few questions.
#[derive(Debug, Default)]
pub(super) struct RecentReads {
    count: AtomicU64,
    found: Mutex<LastCount>,
}

/// Result of the last question.
#[derive(Debug, Default)]
struct LastCount {
    count: u64,
    /// Time of the last question that found new reads.
    at: Option<Instant>,
}

impl RecentReads {
    /// Somebody looks.
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
        let looks = RecentReads::default();
        assert!(!looks.were_lately(began));
        looks.note();
        assert_eq!(looks.count(), 1);
        assert!(looks.were_lately(began));
        assert!(looks.were_lately(began + LATELY / 2));
        looks.note();
        assert!(looks.were_lately(began + LATELY * 3 / 4));
        assert!(looks.were_lately(began + LATELY * 3 / 2));
        assert!(!looks.were_lately(began + LATELY * 7 / 4));
    }
}
