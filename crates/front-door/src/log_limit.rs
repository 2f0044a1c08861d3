//! A limit for log lines that callers cause, so that nobody fills a disk with them.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Lines of one caller in a period: enough to see what it tries.
const OF_ONE: u32 = 20;

/// Lines of all callers in a period. With texts of [`MAX_TEXT_CHARS`] they are less than a megabyte a minute.
const IN_ALL: u32 = 60;

/// How long a period is.
const PERIOD: Duration = Duration::from_secs(10);

/// The longest text of a caller in such a line. Each character may be escaped, by up to ten others.
const MAX_TEXT_CHARS: usize = 120;

/// Rate limit of log lines, with a share for each caller. `Caller` tells callers apart: an address, or the name of a token.
#[derive(Debug)]
pub struct LogLimit<Caller>(Mutex<Period<Caller>>);

#[derive(Debug)]
struct Period<Caller> {
    begin: Option<Instant>,
    lines: u32,
    /// Only callers with a line are in it, so it has at most [`IN_ALL`] entries.
    lines_of: HashMap<Caller, u32>,
    left_out: u64,
}

impl<Caller> Default for LogLimit<Caller> {
    fn default() -> Self {
        Self(Mutex::new(Period {
            begin: None,
            lines: 0,
            lines_of: HashMap::new(),
            left_out: 0,
        }))
    }
}

impl<Caller: Eq + Hash> LogLimit<Caller> {
    /// Returns whether the caller may cause one more line now, and how many lines were left out since the last one.
    pub fn admit(&self, caller: Caller) -> Option<u64> {
        let mut period = self.0.lock();
        if period.begin.is_none_or(|begin| begin.elapsed() >= PERIOD) {
            period.begin = Some(Instant::now());
            period.lines = 0;
            period.lines_of.clear();
        }
        let of_caller = period.lines_of.get(&caller).copied().unwrap_or_default();
        if period.lines >= IN_ALL || of_caller >= OF_ONE {
            period.left_out += 1;
            return None;
        }
        period.lines += 1;
        period.lines_of.insert(caller, of_caller + 1);
        Some(std::mem::take(&mut period.left_out))
    }
}

/// Returns the first `MAX_TEXT_CHARS` characters of a caller's text: as much as a log line may have.
pub fn abridged(text: &str) -> &str {
    match text.char_indices().nth(MAX_TEXT_CHARS) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_of_a_caller_end_before_those_of_others_do() {
        let limit = LogLimit::default();
        for _ in 0..OF_ONE {
            assert_eq!(limit.admit("flood"), Some(0));
        }
        for _ in 0..1_000 {
            assert_eq!(limit.admit("flood"), None);
        }
        assert_eq!(limit.admit("other"), Some(1_000));
        tokio::time::advance(PERIOD).await;
        assert_eq!(limit.admit("flood"), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn lines_of_all_callers_are_bounded() {
        let limit = LogLimit::default();
        let lines = (0..100_000).filter(|caller| limit.admit(*caller).is_some());
        assert_eq!(lines.count(), IN_ALL as usize);
        assert_eq!(limit.0.lock().lines_of.len(), IN_ALL as usize);
        tokio::time::advance(PERIOD).await;
        assert_eq!(limit.admit(0), Some(100_000 - u64::from(IN_ALL)));
    }

    #[test]
    fn text_is_abridged_at_a_character() {
        assert_eq!(abridged("short"), "short");
        assert_eq!(abridged(&"ü".repeat(500)), "ü".repeat(MAX_TEXT_CHARS));
    }
}
