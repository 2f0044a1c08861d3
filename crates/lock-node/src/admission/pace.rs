//! Limit of the proposals in flight, such that none waits for long: it follows the measured durations. It is a pure rule, and the caller
//! passes the time.
//!
//! The measure is the *shortest* duration of a proposal in a window, as in CoDel: a burst makes some of them wait, a standing queue makes
//! all of them wait. If it is too long, Little's law gives the limit for the rate at which proposals were applied in the window. If it is
//! short, the limit grows.

use std::time::Duration;

use tokio::time::Instant;

/// Length of a window: several round trips, and a fraction of a client's timeout.
const WINDOW: Duration = Duration::from_millis(100);

/// Divisor of the limit that gives its growth in each window without a queue: from the least to the most in some two seconds.
const GROWTH: usize = 4;

/// See the module.
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
    carried_out: u32,
}

impl Pace {
    /// A pace that wants proposals to take no longer than `target`. It lets between `least` and `most` be on their way, and
    /// begins with `most`: nothing is known against it.
    pub fn new(target: Duration, least: usize, most: usize) -> Self {
        Self {
            target,
            least: least.min(most),
            most,
            limit: most,
            window: None,
        }
    }

    /// Returns the maximum number in flight.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Records that a proposal was applied, and its duration.
    pub fn carried_out(&mut self, now: Instant, took: Duration) {
        let window = self.window.get_or_insert(Window {
            since: now,
            shortest: took,
            carried_out: 0,
        });
        window.carried_out = window.carried_out.saturating_add(1);
        window.shortest = window.shortest.min(took);
        let lasted = now.saturating_duration_since(window.since);
        if lasted >= WINDOW {
            let (shortest, carried_out) = (window.shortest, window.carried_out);
            self.window = None;
            self.learn(shortest, f64::from(carried_out) / lasted.as_secs_f64());
        }
    }

    fn learn(&mut self, shortest: Duration, per_second: f64) {
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
            pace.carried_out(*now, waits);
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
            pace.carried_out(now, Duration::from_millis(1));
            pace.carried_out(now + WINDOW, Duration::from_millis(1));
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
            pace.carried_out(now, Duration::from_millis(took));
        }
        assert_eq!(pace.limit(), MOST);
    }
}
