//! Rate limit for log lines that clients cause, so that no client can fill a disk with them.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Maximum number of lines per period that one client causes: enough to see what it tries.
const LINES_PER_CALLER: u32 = 20;

/// Maximum number of lines per period that all clients cause. With texts of [`MAX_TEXT_CHARS`] they are less
/// than a megabyte a minute.
const LINES_IN_TOTAL: u32 = 60;

/// Length of a period.
const PERIOD: Duration = Duration::from_secs(10);

/// Maximum length of a client's text in such a line, in characters. Each character may be escaped, as up to
/// ten others.
const MAX_TEXT_CHARS: usize = 120;

/// Rate limit of log lines with a share for each client. `Caller` identifies the client: an address, or the
/// name of a token.
#[derive(Debug)]
pub struct LogLimit<Caller>(Mutex<Period<Caller>>);

#[derive(Debug)]
struct Period<Caller> {
    begin: Option<Instant>,
    lines: u32,
    /// Lines of each client in this period. Only clients with a line have an entry, so there are at most
    /// [`LINES_IN_TOTAL`].
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
    /// Admits one more line of the client and returns the number of lines suppressed since the last admitted
    /// one. Returns `None` if the client or all clients together have reached their limit.
    pub fn admit(&self, caller: Caller) -> Option<u64> {
        let mut period = self.0.lock();
        if period.begin.is_none_or(|begin| begin.elapsed() >= PERIOD) {
            period.begin = Some(Instant::now());
            period.lines = 0;
            period.lines_of.clear();
        }
        let of_caller = period.lines_of.get(&caller).copied().unwrap_or_default();
        if period.lines >= LINES_IN_TOTAL || of_caller >= LINES_PER_CALLER {
            period.left_out += 1;
            return None;
        }
        period.lines += 1;
        period.lines_of.insert(caller, of_caller + 1);
        Some(std::mem::take(&mut period.left_out))
    }
}

/// Returns the first `MAX_TEXT_CHARS` characters of a client's text, the maximum in a log line.
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
    async fn flooding_client_leaves_lines_to_others() {
        let limit = LogLimit::default();
        for _ in 0..LINES_PER_CALLER {
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
    async fn lines_of_all_clients_are_bounded() {
        let limit = LogLimit::default();
        let lines = (0..100_000).filter(|caller| limit.admit(*caller).is_some());
        assert_eq!(lines.count(), LINES_IN_TOTAL as usize);
        assert_eq!(limit.0.lock().lines_of.len(), LINES_IN_TOTAL as usize);
        tokio::time::advance(PERIOD).await;
        assert_eq!(limit.admit(0), Some(100_000 - u64::from(LINES_IN_TOTAL)));
    }

    #[test]
    fn text_is_abridged_at_a_character() {
        assert_eq!(abridged("short"), "short");
        assert_eq!(abridged(&"ü".repeat(500)), "ü".repeat(MAX_TEXT_CHARS));
    }
}
