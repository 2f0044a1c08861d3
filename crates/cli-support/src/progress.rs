//! Progress of a long operation on standard error: a bar on a terminal, otherwise a line now and then. Quick
//! operations show nothing.
//!
//! This one page of code replaces a library: there is only one bar at a time, and it shows nothing but
//! measured values.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Duration below which an operation shows nothing.
const FIRST_BAR_AFTER: Duration = Duration::from_millis(500);

/// Interval at which the bar is redrawn.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// Interval of lines without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Length of the bar in characters.
const BAR_LENGTH: u64 = 24;

/// Progress of one operation. Its bar is cleared when the value is dropped.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    unit: Unit,
    begun: Instant,
    shown: Option<Instant>,
    on_terminal: bool,
}

/// Unit of the progress.
#[derive(Debug, Clone, Copy)]
enum Unit {
    /// Bytes, shown in MB.
    Bytes,
    /// Items with this name in the plural.
    Things(&'static str),
}

impl Progress {
    /// Creates the progress of an operation that is measured in bytes.
    pub fn new(what: &'static str) -> Self {
        Self::of(what, Unit::Bytes)
    }

    /// Creates the progress of an operation that is measured in items.
    pub fn counting(what: &'static str, things: &'static str) -> Self {
        Self::of(what, Unit::Things(things))
    }

    fn of(what: &'static str, unit: Unit) -> Self {
        Self {
            what,
            unit,
            begun: Instant::now(),
            shown: None,
            on_terminal: io::stderr().is_terminal(),
        }
    }

    /// Reports that `done` of `of` units are done.
    pub fn at(&mut self, done: u64, of: u64) {
        let now = Instant::now();
        let since = self.shown.unwrap_or(self.begun);
        let pause = match (self.on_terminal, self.shown) {
            (true, None) => FIRST_BAR_AFTER,
            (true, Some(_)) => REDRAW_INTERVAL,
            (false, _) => LINE_INTERVAL,
        };
        if now.duration_since(since) < pause {
            return;
        }
        self.shown = Some(now);
        let text = match self.unit {
            Unit::Bytes => text(self.what, done, of, now.duration_since(self.begun)),
            Unit::Things(things) => counted(self.what, things, done, of),
        };
        // Progress is best effort: a closed standard error is ignored.
        let _ = match self.on_terminal {
            true => write!(io::stderr(), "\r\x1b[K{} {text}", bar(done, of)),
            false => writeln!(io::stderr(), "{text}"),
        };
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.on_terminal && self.shown.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn bar(done: u64, of: u64) -> String {
    let full = (done.saturating_mul(BAR_LENGTH) / of.max(1)).min(BAR_LENGTH) as usize;
    format!("[{}{}]", "#".repeat(full), ".".repeat(BAR_LENGTH as usize - full))
}

/// `downloading: 42 %, 61 of 145 MB, 30 MB/s, 3 s left`
fn text(what: &str, done: u64, of: u64, elapsed: Duration) -> String {
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let percent = done.saturating_mul(100) / of.max(1);
    let mut text = format!(
        "{what}: {percent} %, {:.0} of {:.0} MB",
        megabytes(done),
        megabytes(of)
    );
    let per_second = done as f64 / elapsed.as_secs_f64();
    if per_second >= 1.0 {
        let left = of.saturating_sub(done) as f64 / per_second;
        write!(text, ", {:.0} MB/s, {left:.0} s left", per_second / 1e6).expect("memory takes it");
    }
    text
}

/// `opened: 42 %, 420 of 1000 sessions`
fn counted(what: &str, things: &str, done: u64, of: u64) -> String {
    let percent = done.saturating_mul(100) / of.max(1);
    format!("{what}: {percent} %, {done} of {of} {things}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_text_shows_known_values() {
        let line = text("downloading", 60_000_000, 150_000_000, Duration::from_secs(2));
        assert_eq!(line, "downloading: 40 %, 60 of 150 MB, 30 MB/s, 3 s left");
        assert_eq!(
            text("reading", 0, 0, Duration::from_secs(2)),
            "reading: 0 %, 0 of 0 MB"
        );
        assert_eq!(counted("watched", "s", 3, 10), "watched: 30 %, 3 of 10 s");
        assert_eq!(bar(1, 2), "[############............]");
        assert_eq!(bar(7, 0), format!("[{}]", "#".repeat(24)));
    }
}
