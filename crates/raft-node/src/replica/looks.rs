//! Whether anybody outside looks at a node's state.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Whoever has looked is taken for one who looks again for so long: longer than programs leave between two requests that belong
/// together.
pub(super) const LATELY: Duration = Duration::from_secs(1);

/// Who looks leaves a mark, and no time: there are many who look, and few who ask.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// Whether somebody has looked since somebody asked.
    since_asked: AtomicBool,
    /// When somebody asked who found that somebody had looked.
    found: Mutex<Option<Instant>>,
}

impl Looks {
    /// Somebody looks.
    pub fn note(&self) {
        // Those who look at the same time share what is written only if it changes.
        if !self.since_asked.load(Ordering::Relaxed) {
            self.since_asked.store(true, Ordering::Relaxed);
        }
    }

    /// Whether somebody has looked lately.
    pub fn were_lately(&self, now: Instant) -> bool {
        let mut found = self.found.lock();
        if self.since_asked.swap(false, Ordering::Relaxed) {
            *found = Some(now);
        }
        found.is_some_and(|found| now < found + LATELY)
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
        assert!(looks.were_lately(began));
        assert!(looks.were_lately(began + LATELY / 2));
        looks.note();
        assert!(looks.were_lately(began + LATELY * 3 / 4));
        assert!(looks.were_lately(began + LATELY * 3 / 2));
        assert!(!looks.were_lately(began + LATELY * 7 / 4));
    }
}
