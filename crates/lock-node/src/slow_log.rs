//! The log of what took long, with where the time went. A node on which everything is slow writes a bounded number of lines.

use std::time::Duration;

use tokio::time::Instant;

use crate::command_label::CommandLabel;
use crate::metrics::node_counters::Ended;
use crate::pending_proposals::Times;
use raft_log::sync::{Mutex, RwLock};

/// Target of its log lines.
const TARGET: &str = "lockgate::slow";

/// Maximum number of lines in a period; the others are counted. That shows a pattern, and fills no disk.
const MAX_LINES: u32 = 20;

/// The while.
const EVERY: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub struct SlowLog {
    /// Requests that take longer are logged; `None`: none.
    threshold: RwLock<Option<Duration>>,
    lately: Mutex<Lately>,
}

#[derive(Debug, Default)]
struct Lately {
    since: Option<Instant>,
    told: u32,
    left_out: u64,
}

impl SlowLog {
    /// Returns a log of requests that take longer than `threshold`.
    pub fn new(threshold: Option<Duration>) -> Self {
        Self {
            threshold: RwLock::new(threshold),
            lately: Mutex::default(),
        }
    }

    /// Changes the threshold.
    pub fn set(&self, threshold: Option<Duration>) {
        *self.threshold.write() = threshold;
    }

    fn is_quick(&self, took: Duration) -> bool {
        self.threshold.read().is_none_or(|threshold| took < threshold)
    }

    /// Something is over.
    pub fn note(&self, subject: &CommandLabel, times: &Times, outcome: &str) {
        if self.is_quick(times.in_all()) {
            return;
        }
        let Some(left_out) = self.admit() else {
            return;
        };
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let note = match is_spared(subject, outcome) {
            true => "slow, and harmless: these sessions were heard of in time, or another leader ended them",
            false => "slow",
        };
        tracing::warn!(
            target: TARGET,
            what = %subject,
            took_ms = ms(times.in_all()),
            queue_ms = ms(times.queued()),
            commit_ms = ms(times.committing()),
            apply_ms = ms(times.applying()),
            reply_ms = ms(times.replying()),
            outcome,
            others_not_told = left_out,
            "{note}"
        );
    }

    /// Logs a request that timed out with an unknown outcome.
    pub fn note_unanswered(&self, subject: &CommandLabel, took: Duration, outcome: &str) {
        if self.is_quick(took) {
            return;
        }
        if let Some(left_out) = self.admit() {
            let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(
                target: TARGET,
                what = %subject,
                took_ms,
                outcome,
                others_not_told = left_out,
                "slow, and not answered"
            );
        }
    }

    /// Returns whether one more line is logged, with the number of omitted ones before it.
    fn admit(&self) -> Option<u64> {
        let mut lately = self.lately.lock();
        if lately.since.is_none_or(|since| since.elapsed() >= EVERY) {
            (lately.since, lately.told) = (Some(Instant::now()), 0);
        }
        if lately.told >= MAX_LINES {
            lately.left_out += 1;
            return None;
        }
        lately.told += 1;
        Some(std::mem::take(&mut lately.left_out))
    }
}

/// Returns whether the state refused to end sessions. That is its task: a proposal of a busy machine may be wrong when it is applied.
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
