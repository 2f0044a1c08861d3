//! Limited log of the moments at which a node stood still: on a busy machine there are many.

use std::time::Duration;

use tokio::time::Instant;

/// After a line the next one comes so much later, and counts what happened in between.
const EVERY: Duration = Duration::from_secs(60);

/// Stalls that were not logged yet.
#[derive(Debug, Default)]
pub struct StallLog {
    logged: Option<Instant>,
    stalls: u32,
    longest: Duration,
}

impl StallLog {
    /// Notes that the node stood still for `late`, and logs that if the last line is long enough ago.
    pub fn note(&mut self, late: Duration) {
        if let Some((stalls, longest)) = self.due(late) {
            tracing::warn!(
                stalls,
                ?longest,
                "this node stood still; sessions get that time back. The machine or its disk is busy: see docs/operate/busy-hosts.md"
            );
        }
    }

    /// How many stalls a line is to tell of, and the longest of them.
    fn due(&mut self, late: Duration) -> Option<(u32, Duration)> {
        self.stalls += 1;
        self.longest = self.longest.max(late);
        if self.logged.is_some_and(|logged| logged.elapsed() < EVERY) {
            return None;
        }
        self.logged = Some(Instant::now());
        Some((
            std::mem::take(&mut self.stalls),
            std::mem::take(&mut self.longest),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn stalls_are_one_line_a_minute_which_counts_them() {
        let ms = Duration::from_millis;
        let mut log = StallLog::default();
        assert_eq!(log.due(ms(300)), Some((1, ms(300))));
        for _ in 0..9 {
            tokio::time::advance(EVERY / 10).await;
            assert_eq!(log.due(ms(500)), None);
        }
        tokio::time::advance(EVERY / 10).await;
        assert_eq!(log.due(ms(250)), Some((10, ms(500))));
        assert_eq!(log.due(ms(250)), None);
    }
}
