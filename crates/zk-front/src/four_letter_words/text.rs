//! Formats of numbers, sessions and times as ZooKeeper, that is Java, writes them.

use std::fmt::{self, Write as _};
use std::time::SystemTime;

use chrono::{DateTime, Utc};
use znode_store::SessionId;

/// Appends a line.
pub(super) fn line(text: &mut String, line: fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a String takes everything");
}

/// Session id as `0x10003ac24050000`, without leading zeros.
pub(super) struct Hex(pub SessionId);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0.0)
    }
}

/// Mean with one to four decimal places.
pub(super) struct Mean(pub f64);

impl fmt::Display for Mean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const PLACES: f64 = 10_000.0;
        write!(f, "{:?}", (self.0 * PLACES).round() / PLACES)
    }
}

/// Truncates a mean to whole milliseconds.
pub(super) fn whole(ms: f64) -> u64 {
    ms as u64
}

/// Formats a time as `Sun Nov 22 00:36:44 UTC 2026`.
pub(super) fn date(time: SystemTime) -> impl fmt::Display {
    DateTime::<Utc>::from(time).format("%a %b %d %H:%M:%S UTC %Y")
}

/// Formats a time as `2024-12-29 17:54 UTC`.
pub(super) fn minute(time: SystemTime) -> impl fmt::Display {
    DateTime::<Utc>::from(time).format("%Y-%m-%d %H:%M UTC")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn formats_equal_those_of_java() {
        assert_eq!(Hex(SessionId(0x0100_03ac)).to_string(), "0x10003ac");
        assert_eq!(Hex(SessionId(0)).to_string(), "0x0");
        for (mean, shown) in [
            (0.0, "0.0"),
            (25.25, "25.25"),
            (32.0 / 15.0, "2.1333"),
            (0.000_1, "0.0001"),
        ] {
            assert_eq!(Mean(mean).to_string(), shown);
        }
        assert_eq!((whole(0.999), whole(84.0)), (0, 84));
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_307_804);
        assert_eq!(date(time).to_string(), "Sun Nov 22 00:36:44 UTC 2026");
        assert_eq!(minute(time).to_string(), "2026-11-22 00:36 UTC");
        let early = SystemTime::UNIX_EPOCH + Duration::from_secs(3_600);
        assert_eq!(date(early).to_string(), "Thu Jan 01 01:00:00 UTC 1970");
    }
}
