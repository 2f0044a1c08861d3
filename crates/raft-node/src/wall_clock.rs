//! This machine's wall clock: for times shown to people, times in znodes, the expiry of tokens, and the
//! removal of unused data. Neither locks nor sessions depend on it.
//!
//! A node's own clock is a [`SteadyClock`], which does not follow jumps of the wall clock. The times of log
//! entries are from the cluster clock, see `cluster_clock.rs`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use instruments::counters::Counter;
use raft_log::sync::Mutex;

/// Change of the difference between wall clock and monotonic clock, between two readings, that counts as a
/// jump. A gradual adjustment changes it by less within minutes, and readings are moments apart.
const MIN_JUMP: Duration = Duration::from_secs(1);

/// Time after which a wall clock that jumped is followed: by then the jump was a correction and not a
/// temporary error.
const ACCEPTED_AFTER: Duration = Duration::from_secs(600);

/// Wall clock that continues with the monotonic clock when the machine's clock jumps. A clock that is wrong
/// for a short time thus causes no wrong times.
#[derive(Debug, Default)]
pub struct SteadyClock {
    line: Mutex<Option<Line>>,
    /// Number of jumps of the wall clock.
    pub jumps: Counter,
}

#[derive(Debug, Clone, Copy)]
struct Line {
    /// Time at `at`.
    time_ms: u64,
    at: Instant,
    /// Time since when the machine's clock deviates.
    jumped: Option<Instant>,
}

impl SteadyClock {
    /// Returns the time at `now` in milliseconds since 1970.
    pub fn now_ms(&self, now: Instant) -> u64 {
        self.at(now_ms(), now)
    }

    /// Returns the time when the machine's clock shows `wall_ms`.
    fn at(&self, wall_ms: u64, now: Instant) -> u64 {
        let mut line = self.line.lock();
        let followed = Line {
            time_ms: wall_ms,
            at: now,
            jumped: None,
        };
        let Some(known) = *line else {
            *line = Some(followed);
            return wall_ms;
        };
        let passed = now.saturating_duration_since(known.at).as_millis();
        let expected = known
            .time_ms
            .saturating_add(passed.try_into().unwrap_or(u64::MAX));
        let is_near = u128::from(wall_ms.abs_diff(expected)) <= MIN_JUMP.as_millis();
        let lasted = known.jumped.map(|since| now.saturating_duration_since(since));
        match (is_near, lasted) {
            (true, None) => {
                *line = Some(followed);
                wall_ms
            }
            (true, Some(lasted)) => {
                tracing::info!(?lasted, "clock: this machine's wall clock is right again");
                *line = Some(followed);
                wall_ms
            }
            (false, Some(lasted)) if lasted >= ACCEPTED_AFTER => {
                tracing::warn!(
                    ?lasted,
                    "clock: this machine's wall clock has jumped and stayed, and is followed now"
                );
                *line = Some(followed);
                wall_ms
            }
            (false, Some(_)) => expected,
            (false, None) => {
                self.jumps.up();
                tracing::warn!(
                    wall_ms,
                    expected_ms = expected,
                    "clock: this machine's wall clock has jumped and is not followed; check how the clock is set"
                );
                *line = Some(Line {
                    jumped: Some(now),
                    ..known
                });
                expected
            }
        }
    }
}

/// Returns the wall clock's time in milliseconds since 1970. A time before that counts as 1970.
pub fn now_ms() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(now_ms) = crate::simulation::request(|host| host.wall_clock_ms()) {
        return now_ms;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MINUTE: Duration = Duration::from_secs(60);
    const DAYS_60_MS: u64 = 60 * 86_400_000;
    const EPOCH_MS: u64 = 1_780_000_000_000;

    /// Returns a function from the time since the beginning, and the lead of the machine's clock, to the clock's time.
    fn clock() -> impl Fn(Duration, i64) -> u64 {
        let (clock, begin) = (SteadyClock::default(), Instant::now());
        move |after, ahead_ms| {
            let after_ms = after.as_millis() as u64;
            let wall_ms = (EPOCH_MS + after_ms).saturating_add_signed(ahead_ms);
            clock.at(wall_ms, begin + after) - EPOCH_MS
        }
    }

    #[test]
    fn clock_that_is_wrong_for_a_while_is_not_followed() {
        for ahead_ms in [DAYS_60_MS as i64, -(DAYS_60_MS as i64), -(EPOCH_MS as i64)] {
            let clock = clock();
            assert_eq!(clock(SECOND, 0), 1_000);
            assert_eq!(clock(SECOND * 2, ahead_ms), 2_000);
            assert_eq!(clock(MINUTE, ahead_ms), 60_000);
            assert_eq!(clock(MINUTE * 2, 0), 120_000);
            assert_eq!(clock(MINUTE * 20, 300), 1_200_300, "the clock is followed again");
        }
    }

    #[test]
    fn each_jump_is_counted_once() {
        let (clock, begin) = (SteadyClock::default(), Instant::now());
        for (second, wall_ms, jumps) in [
            (0, 0, 0),
            (1, 90_000, 1),
            (2, 91_000, 1),
            (3, 3_000, 1),
            (4, 0, 2),
        ] {
            clock.at(EPOCH_MS + wall_ms, begin + SECOND * second);
            assert_eq!(clock.jumps.get(), jumps, "after {second} s");
        }
    }

    #[test]
    fn clock_that_is_adjusted_gradually_is_followed() {
        let clock = clock();
        for minute in 0..60 {
            let ahead_ms = i64::from(minute) * 900;
            assert_eq!(
                clock(MINUTE * minute, ahead_ms),
                u64::from(minute) * 60_000 + ahead_ms as u64
            );
        }
    }

    #[test]
    fn clock_that_was_corrected_is_followed_in_the_end() {
        let clock = clock();
        let corrected = -3_600_000;
        let begin = Duration::from_secs(7_200);
        assert_eq!(clock(begin - SECOND, 0), 7_199_000);
        assert_eq!(clock(begin, corrected), 7_200_000);
        assert_eq!(clock(begin + MINUTE * 9, corrected), 7_740_000);
        assert_eq!(clock(begin + MINUTE * 10, corrected), 4_200_000);
    }
}
