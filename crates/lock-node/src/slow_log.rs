//! Log of slow requests, with the duration of each step. A node on which every request is slow writes a bounded number of lines.

use std::time::Duration;

use tokio::time::Instant;

use crate::command_label::CommandLabel;
use crate::metrics::node_counters::Ended;
use crate::pending_proposals::Times;
use raft_log::sync::{Mutex, RwLock};

/// Target of its log lines.
const TARGET: &str = "lockgate::slow";

/// Maximum number of lines in a period. Further ones are only counted. So the lines show a pattern, but do not fill the disk.
const MAX_LINES: u32 = 20;

/// Length of a period.
const EVERY: Duration = Duration::from_secs(10);

/// Rate-limited log of slow requests.
#[derive(Debug)]
pub struct SlowLog {
    /// Duration above which a request is logged; `None` turns the log off.
    threshold: RwLock<Option<Duration>>,
    period: Mutex<Period>,
}

#[derive(Debug, Default)]
struct Period {
    since: Option<Instant>,
    lines: u32,
    omitted: u64,
}

impl SlowLog {
    /// Returns a log of requests that take longer than `threshold`.
    pub fn new(threshold: Option<Duration>) -> Self {
        Self {
            threshold: RwLock::new(threshold),
            period: Mutex::default(),
        }
    }

    /// Changes the threshold.
    pub fn set(&self, threshold: Option<Duration>) {
        *self.threshold.write() = threshold;
    }

    fn is_quick(&self, took: Duration) -> bool {
        self.threshold.read().is_none_or(|threshold| took < threshold)
    }

    /// Logs a request that was applied, if it was slow.
    pub fn note(&self, subject: &CommandLabel, times: &Times, outcome: &str) {
        if self.is_quick(times.total()) {
            return;
        }
        let Some(omitted) = self.admit() else {
            return;
        };
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let note = match is_spared(subject, outcome) {
            true => {
                "slow, and harmless: these sessions sent a heartbeat in time, or another leader ended them"
            }
            false => "slow",
        };
        tracing::warn!(
            target: TARGET,
            what = %subject,
            took_ms = ms(times.total()),
            queue_ms = ms(times.queued()),
            commit_ms = ms(times.committing()),
            apply_ms = ms(times.applying()),
            reply_ms = ms(times.replying()),
            outcome,
            omitted,
            "{note}"
        );
    }

    /// Logs a request that timed out with an unknown outcome.
    pub fn note_unanswered(&self, subject: &CommandLabel, took: Duration, outcome: &str) {
        if self.is_quick(took) {
            return;
        }
        if let Some(omitted) = self.admit() {
            let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(
                target: TARGET,
                what = %subject,
                took_ms,
                outcome,
                omitted,
                "slow, and its outcome is unknown"
            );
        }
    }

    /// Returns the number of lines omitted before this one, or `None` if this one is omitted as well.
    fn admit(&self) -> Option<u64> {
        let mut period = self.period.lock();
        if period.since.is_none_or(|since| since.elapsed() >= EVERY) {
            (period.since, period.lines) = (Some(Instant::now()), 0);
        }
        if period.lines >= MAX_LINES {
            period.omitted += 1;
            return None;
        }
        period.lines += 1;
        Some(std::mem::take(&mut period.omitted))
    }
}

/// Returns whether the state refused to end sessions. That is no fault: the proposal of a leader on a busy machine may be outdated when it is
/// applied.
fn is_spared(subject: &CommandLabel, outcome: &str) -> bool {
    subject.what == "expire_sessions" && outcome == Ended::Refused.word()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_end_of_sessions_is_harmless_and_nothing_else_is() {
        let about = |what| CommandLabel { what, at: None };
        assert!(is_spared(&about("expire_sessions"), Ended::Refused.word()));
        assert!(!is_spared(&about("expire_sessions"), Ended::Done.word()));
        assert!(!is_spared(&about("acquire"), Ended::Refused.word()));
    }

    #[tokio::test(start_paused = true)]
    async fn flood_of_slow_requests_is_counted_in_one_line() {
        let log = SlowLog::new(Some(Duration::from_millis(5)));
        for _ in 0..MAX_LINES {
            assert_eq!(log.admit(), Some(0));
        }
        for _ in 0..1000 {
            assert_eq!(log.admit(), None);
        }
        tokio::time::advance(EVERY).await;
        assert_eq!(log.admit(), Some(1000));
        assert_eq!(log.admit(), Some(0));
    }
}
