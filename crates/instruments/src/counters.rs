//! Counters and histograms: atomic numbers, without locks. Counting allocates nothing. Their owners give them names.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

/// Number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn up(&self) {
        self.add(1);
    }

    /// Adds a number.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    /// Returns the number.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Classes of a histogram: upper bounds in a small unit, and how many of it make the unit that is shown.
#[derive(Debug, PartialEq)]
pub struct Classes {
    bounds: &'static [u64],
    in_one: f64,
}

impl Classes {
    /// Times of requests and of their parts, in microseconds, shown in seconds: from a commit on a flash disk to a client's timeout.
    pub const LATENCY: Self = Self {
        bounds: &[
            500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
            2_500_000, 10_000_000,
        ],
        in_one: 1e6,
    };

    /// Waiting and holding times of locks, in milliseconds, shown in seconds: up to a working day.
    pub const LONG_WAITS: Self = Self {
        bounds: &[
            5, 25, 100, 500, 1_000, 5_000, 15_000, 60_000, 300_000, 1_800_000, 7_200_000, 28_800_000,
        ],
        in_one: 1e3,
    };

    /// Sizes of batches.
    pub const BATCH: Self = Self {
        bounds: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024],
        in_one: 1.0,
    };
}

/// Counts of values by class.
#[derive(Debug)]
pub struct Histogram {
    classes: &'static Classes,
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// Returns an empty histogram.
    pub fn new(classes: &'static Classes) -> Self {
        Self {
            classes,
            counts: (0..=classes.bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    /// Counts a value, in the small unit of the classes.
    pub fn count(&self, value: u64) {
        let class = self.classes.bounds.partition_point(|bound| *bound < value);
        self.counts[class].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    /// Counts a time, for classes whose small unit is a microsecond.
    pub fn took(&self, time: Duration) {
        self.count(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// Returns the counts so far.
    pub fn measured(&self) -> Measured {
        let in_one = self.classes.in_one;
        let bounds = self.classes.bounds.iter().map(|bound| *bound as f64 / in_one);
        let counts = self.counts.iter().map(|count| count.load(Relaxed));
        Measured {
            classes: bounds.chain([f64::INFINITY]).zip(counts).collect(),
            sum: self.sum.load(Relaxed) as f64 / in_one,
        }
    }

    /// Returns whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| count.load(Relaxed) == 0)
    }
}

/// Maximum of times, over the last one to two periods.
#[derive(Debug)]
pub struct Longest {
    began: Instant,
    /// Number of the period of `now`.
    period: AtomicU64,
    /// Maximum in it, in microseconds.
    now: AtomicU64,
    /// Maximum in the period before.
    before: AtomicU64,
}

impl Default for Longest {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            period: AtomicU64::new(0),
            now: AtomicU64::new(0),
            before: AtomicU64::new(0),
        }
    }
}

impl Longest {
    /// Period of a maximum: a scraper that reads twice a minute misses none.
    const PERIOD: Duration = Duration::from_secs(60);

    /// Counts something by the times of its beginning and of its end.
    pub fn note(&self, began: Instant, ended: Instant) {
        let micros = u64::try_from((ended - began).as_micros()).unwrap_or(u64::MAX);
        // It is nearly always below the maximum.
        if micros > self.now.load(Relaxed) || self.is_over(ended) {
            self.turn(ended);
            self.now.fetch_max(micros, Relaxed);
        }
    }

    /// Returns the maximum.
    pub fn get(&self, at: Instant) -> Duration {
        self.turn(at);
        Duration::from_micros(self.now.load(Relaxed).max(self.before.load(Relaxed)))
    }

    fn number(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.began).as_secs() / Self::PERIOD.as_secs()
    }

    fn is_over(&self, at: Instant) -> bool {
        self.number(at) > self.period.load(Relaxed)
    }

    /// Begins the period of `at`, unless it has begun.
    fn turn(&self, at: Instant) {
        let (number, known) = (self.number(at), self.period.load(Relaxed));
        if number > known
            && self
                .period
                .compare_exchange(known, number, Relaxed, Relaxed)
                .is_ok()
        {
            let ended = self.now.swap(0, Relaxed);
            let is_next = number == known + 1;
            self.before.store(if is_next { ended } else { 0 }, Relaxed);
        }
    }
}

/// Counts of a histogram at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Upper bound of each class, and its count.
    pub classes: Vec<(f64, u64)>,
    /// Sum of all values.
    pub sum: f64,
}

impl Measured {
    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.classes.iter().map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_first_class_that_has_room_for_it() {
        let histogram = Histogram::new(&Classes::BATCH);
        assert!(histogram.is_empty());
        for value in [1, 1, 2, 3, 1024, 1025, 5000] {
            histogram.count(value);
        }
        let measured = histogram.measured();
        let in_class = |bound: f64| {
            let class = measured.classes.iter().find(|(class, _)| *class == bound);
            class.expect("there is such a class").1
        };
        assert_eq!(
            [1.0, 2.0, 4.0, 8.0, 1024.0, f64::INFINITY].map(in_class),
            [2, 1, 1, 0, 1, 2]
        );
        assert_eq!((measured.count(), measured.sum), (7, 7056.0));
    }

    #[test]
    fn the_longest_of_the_last_periods_is_known() {
        let longest = Longest::default();
        let at = |seconds| longest.began + Duration::from_secs(seconds);
        let ms = Duration::from_millis;
        longest.note(at(1), at(1) + ms(30));
        longest.note(at(2), at(2) + ms(20));
        assert_eq!(longest.get(at(59)), ms(30));
        longest.note(at(61), at(61) + ms(10));
        assert_eq!(longest.get(at(119)), ms(30), "of the period before");
        assert_eq!(longest.get(at(121)), ms(10));
        assert_eq!(longest.get(at(600)), ms(0));
    }

    #[test]
    fn times_are_shown_in_seconds() {
        let histogram = Histogram::new(&Classes::LATENCY);
        histogram.took(Duration::from_micros(500));
        histogram.took(Duration::from_secs(60));
        let measured = histogram.measured();
        assert_eq!(measured.classes[0], (0.0005, 1));
        assert_eq!(measured.classes.last(), Some(&(f64::INFINITY, 1)));
        assert_eq!(measured.sum, 60.0005);
    }
}
