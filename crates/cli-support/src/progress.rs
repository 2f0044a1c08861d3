//! How far something has come that may take its time: a bar on a terminal, and a line now and then for whoever reads the standard
//! error otherwise. What is quickly done shows nothing.
//!
//! A page of code in the place of a library: there is one bar at a time, and it says nothing but what is known.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// What takes less shows nothing.
const QUICK: Duration = Duration::from_millis(500);

/// How often a bar is drawn.
const DRAWN_EVERY: Duration = Duration::from_millis(100);

/// How often a line is written.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// How many characters a bar has.
const BAR: u64 = 24;

/// Something that is under way. Its bar goes when it is dropped.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    unit: Unit,
    begun: Instant,
    shown: Option<Instant>,
    on_terminal: bool,
}

/// What is counted.
#[derive(Debug, Clone, Copy)]
enum Unit {
    /// Bytes, which people are told of in MB.
    Bytes,
    /// Anything, and how it is called.
    Things(&'static str),
}

impl Progress {
    /// Begins with something that has bytes.
    pub fn new(what: &'static str) -> Self {
        Self::of(what, Unit::Bytes)
    }

    /// Begins with something that has so many of these.
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

    /// So much is done, of so much.
    pub fn at(&mut self, done: u64, of: u64) {
        let now = Instant::now();
        let since = self.shown.unwrap_or(self.begun);
        let pause = match (self.on_terminal, self.shown) {
            (true, None) => QUICK,
            (true, Some(_)) => DRAWN_EVERY,
            (false, _) => LINE_EVERY,
        };
        if now.duration_since(since) < pause {
            return;
        }
        self.shown = Some(now);
        let text = match self.unit {
            Unit::Bytes => text(self.what, done, of, now.duration_since(self.begun)),
            Unit::Things(things) => counted(self.what, things, done, of),
        };
        // Who does not listen does not need to know.
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
    let full = (done.saturating_mul(BAR) / of.max(1)).min(BAR) as usize;
    format!("[{}{}]", "#".repeat(full), ".".repeat(BAR as usize - full))
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
    fn what_is_known_is_told() {
        let told = text("downloading", 60_000_000, 150_000_000, Duration::from_secs(2));
        assert_eq!(told, "downloading: 40 %, 60 of 150 MB, 30 MB/s, 3 s left");
        assert_eq!(
            text("reading", 0, 0, Duration::from_secs(2)),
            "reading: 0 %, 0 of 0 MB"
        );
        assert_eq!(counted("watched", "s", 3, 10), "watched: 30 %, 3 of 10 s");
        assert_eq!(bar(1, 2), "[############............]");
        assert_eq!(bar(7, 0), format!("[{}]", "#".repeat(24)));
    }
}
