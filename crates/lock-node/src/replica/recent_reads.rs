//! Whether anybody outside looks at a node's state, and how often.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use raft_log::sync::Mutex;

/// Whoever has looked is taken for one who looks again for so long: longer than programs leave between two requests that belong
/// together.
pub(super) const LATELY: Duration = Duration::from_secs(1);

/// Who looks is counted, and leaves no time: there are many who look, and few who ask.
#[derive(Debug, Default)]
pub(super) struct Looks {
    count: AtomicU64,
    found: Mutex<Found>,
}

/// What the last one has found who asked.
#[derive(Debug, Default)]
struct Found {
    count: u64,
    /// When somebody asked who found that somebody had looked.
    at: Option<Instant>,
}

impl Looks {
    /// Somebody looks.
    pub fn note(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// How often somebody has looked.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether somebody has looked lately.
    pub fn were_lately(&self, now: Instant) -> bool {
        let mut found = self.found.lock();
        let count = self.count();
        if count != found.count {
            *found = Found { count, at: Some(now) };
        }
        found.at.is_some_and(|at| now < at + LATELY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_looked_is_remembered_for_a_while() {
        let began = Instant::now();
        let looks = Looks::default();
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
