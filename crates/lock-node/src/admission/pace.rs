//! Limit of the proposals in flight. It follows the rate at which proposals are applied, so that they take about the target duration. The rule
//! is pure: the caller passes the time.
//!
//! Little's law gives the duration: the number in flight, divided by the rate. Durations of single proposals do not, because callers take turns,
//! and a proposal may overtake thousands. The *smallest* number in flight in a window counts, as in CoDel: a burst is over at some time, and a
//! standing queue is not. If the duration is too long in two consecutive windows, the limit becomes the number that is applied within the
//! target. (One window may include a pause, as between two leaders.) If it is short, the limit grows.

use std::time::Duration;

use tokio::time::Instant;

/// Length of a window: several round trips, and a fraction of a client's timeout.
const WINDOW: Duration = Duration::from_millis(100);

/// The limit grows by the quotient of itself and this divisor in each window without a queue: from minimum to maximum in about two seconds.
const GROWTH: usize = 4;

/// Adaptive limit of the proposals in flight.
#[derive(Debug)]
pub struct Pace {
    target: Duration,
    least: usize,
    most: usize,
    limit: usize,
    window: Option<Window>,
    /// True if proposals took too long in the last window.
    was_slow: bool,
}

#[derive(Debug)]
struct Window {
    since: Instant,
    fewest: usize,
    applied: u32,
}

impl Pace {
    /// Returns a limit between `least` and `most` that aims at proposals which take no longer than `target`. It starts at `most`, because no
    /// measurement speaks against it yet.
    pub fn new(target: Duration, least: usize, most: usize) -> Self {
        Self {
            target,
            least: least.min(most),
            most,
            limit: most,
            window: None,
            was_slow: false,
        }
    }

    /// Returns the maximum number of proposals in flight.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Records that a proposal was applied, and that so many others are in flight.
    pub fn record_applied(&mut self, now: Instant, in_flight: usize) {
        let Some(window) = &mut self.window else {
            self.window = Some(Window {
                since: now,
                fewest: in_flight,
                applied: 0,
            });
            return;
        };
        window.applied = window.applied.saturating_add(1);
        window.fewest = window.fewest.min(in_flight);
        let lasted = now.saturating_duration_since(window.since);
        if lasted >= WINDOW {
            let (fewest, applied) = (window.fewest, window.applied);
            self.window = None;
            self.adjust(fewest, f64::from(applied) / lasted.as_secs_f64());
        }
    }

    fn adjust(&mut self, in_flight: usize, per_second: f64) {
        let took = in_flight as f64 / per_second;
        let target = self.target.as_secs_f64();
        let is_slow = took > target;
        if is_slow && self.was_slow {
            let in_time = (per_second * target) as usize;
            self.limit = in_time.clamp(self.least, self.limit);
        } else if took < target / 2.0 {
            self.limit = (self.limit + self.limit / GROWTH).min(self.most);
        }
        self.was_slow = is_slow;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_millis(200);
    const LEAST: usize = 100;
    const MOST: usize = 10_000;

    /// Server that applies this many proposals in a second, with clients that always fill it up to the limit.
    fn settle(pace: &mut Pace, per_second: f64, seconds: f64, now: &mut Instant) {
        let step = Duration::from_secs_f64(1.0 / per_second);
        let end = *now + Duration::from_secs_f64(seconds);
        while *now < end {
            *now += step;
            pace.record_applied(*now, pace.limit() - 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn standing_queue_is_cut_to_what_is_applied_in_time() {
        let (mut pace, mut now) = (Pace::new(TARGET, LEAST, MOST), Instant::now());
        for per_second in [20_000.0, 2_000.0, 8_000.0] {
            settle(&mut pace, per_second, 5.0, &mut now);
            let waits = pace.limit() as f64 / per_second;
            assert!(
                (0.09..0.21).contains(&waits),
                "{per_second}/s: each waits for {waits} s"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_server_keeps_the_least_and_idle_one_gets_the_most() {
        let (mut pace, mut now) = (Pace::new(TARGET, LEAST, MOST), Instant::now());
        settle(&mut pace, 50.0, 10.0, &mut now);
        assert_eq!(pace.limit(), LEAST);
        // One client at a time, however slow.
        for _ in 0..50 {
            now += 5 * TARGET;
            pace.record_applied(now, 0);
        }
        assert_eq!(pace.limit(), MOST);
    }

    #[tokio::test(start_paused = true)]
    async fn burst_is_no_queue() {
        let (mut pace, mut now) = (Pace::new(TARGET, LEAST, MOST), Instant::now());
        for round in 0..10_000 {
            now += Duration::from_millis(1);
            // A hundred proposals at a time, for each of which the server takes a millisecond.
            pace.record_applied(now, 99 - round % 100);
        }
        assert_eq!(pace.limit(), MOST);
    }

    #[tokio::test(start_paused = true)]
    async fn pause_is_no_queue() {
        let (mut pace, mut now) = (Pace::new(TARGET, LEAST, MOST), Instant::now());
        for _ in 0..10 {
            for _ in 0..10_000 {
                now += Duration::from_micros(100);
                pace.record_applied(now, 500);
            }
            now += 10 * TARGET;
        }
        assert_eq!(pace.limit(), MOST);
    }
}
