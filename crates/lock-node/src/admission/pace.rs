//! Limit of the proposals in flight. It follows the measured durations, so that no proposal waits for long. The rule is pure: the caller
//! passes the time.
//!
//! The measure is the *shortest* duration of a proposal in a window, as in CoDel. A burst makes some proposals wait; a standing queue makes
//! all of them wait. If the shortest duration is too long, Little's law gives the limit for the rate at which proposals were applied in the
//! window. If it is short, the limit grows.

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
}

#[derive(Debug)]
struct Window {
    since: Instant,
    shortest: Duration,
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
        }
    }

    /// Returns the maximum number of proposals in flight.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Records that a proposal was applied, and its duration.
    pub fn record_applied(&mut self, now: Instant, took: Duration) {
        let window = self.window.get_or_insert(Window {
            since: now,
            shortest: took,
            applied: 0,
        });
        window.applied = window.applied.saturating_add(1);
        window.shortest = window.shortest.min(took);
        let lasted = now.saturating_duration_since(window.since);
        if lasted >= WINDOW {
            let (shortest, applied) = (window.shortest, window.applied);
            self.window = None;
            self.adjust(shortest, f64::from(applied) / lasted.as_secs_f64());
        }
    }

    fn adjust(&mut self, shortest: Duration, per_second: f64) {
        if shortest > self.target {
            let in_time = (per_second * self.target.as_secs_f64()) as usize;
            self.limit = in_time.clamp(self.least, self.limit);
        } else if shortest < self.target / 2 {
            self.limit = (self.limit + self.limit / GROWTH).min(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_millis(200);
    const LEAST: usize = 100;
    const MOST: usize = 10_000;

    /// Server that applies this many proposals in a second, in order, with clients that always fill it up to the limit.
    fn settle(pace: &mut Pace, per_second: f64, seconds: f64, now: &mut Instant) {
        let step = Duration::from_secs_f64(1.0 / per_second);
        let end = *now + Duration::from_secs_f64(seconds);
        while *now < end {
            *now += step;
            let waits = Duration::from_secs_f64(pace.limit() as f64 / per_second);
            pace.record_applied(*now, waits);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_standing_queue_is_cut_to_what_is_carried_out_in_time() {
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
    async fn a_slow_server_keeps_the_least_and_an_idle_one_gets_the_most() {
        let (mut pace, mut now) = (Pace::new(TARGET, LEAST, MOST), Instant::now());
        settle(&mut pace, 50.0, 10.0, &mut now);
        assert_eq!(pace.limit(), LEAST);
        for _ in 0..50 {
            now += WINDOW;
            pace.record_applied(now, Duration::from_millis(1));
            pace.record_applied(now + WINDOW, Duration::from_millis(1));
            now += WINDOW;
        }
        assert_eq!(pace.limit(), MOST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_no_queue() {
        let (mut pace, mut now) = (Pace::new(TARGET, LEAST, MOST), Instant::now());
        for round in 0..1_000_u64 {
            now += Duration::from_millis(1);
            // One in twenty waits for long.
            let took = if round.is_multiple_of(20) { 5 } else { 900 };
            pace.record_applied(now, Duration::from_millis(took));
        }
        assert_eq!(pace.limit(), MOST);
    }
}
