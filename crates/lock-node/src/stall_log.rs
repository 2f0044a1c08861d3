//! Rate-limited log of pauses of a node, because on a busy machine there are many.

use std::time::Duration;

use tokio::time::Instant;

/// Minimum time between two lines. A line counts the pauses since the last one.
const EVERY: Duration = Duration::from_secs(60);

/// Pauses since the last line.
#[derive(Debug, Default)]
pub struct StallLog {
    logged: Option<Instant>,
    stalls: u32,
    longest: Duration,
}

impl StallLog {
    /// Records a pause of `late`, and logs it if the last line is long enough ago.
    pub fn note(&mut self, late: Duration) {
        if let Some((stalls, longest)) = self.due(late) {
            tracing::warn!(
                stalls,
                ?longest,
                "this node did not run; sessions get that time back. The machine or its disk is busy: see docs/operate/busy-hosts.md"
            );
        }
    }

    /// Returns the number of pauses since the last line and the longest of them, if another line is due.
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
