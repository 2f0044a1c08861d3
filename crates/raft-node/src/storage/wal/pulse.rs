//! How long the disk takes: measured where the log waits for it, read by whoever judges the disk's health, also while
//! a write is still under way. Nothing here judges.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

/// Upper bounds of the classes in which syncs are counted, in microseconds: from a fast flash disk's to what no lock
/// service can live with.
pub const SYNC_CLASSES_US: [u64; 14] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    5_000_000,
];

/// A new sync counts for one part of so many in the average: some ten syncs tell a disk that has become slow from one
/// late sync.
const AVERAGE_PARTS: u64 = 8;

/// So many syncs must have been made before there is an average.
const MIN_SYNCS: u64 = 8;

/// The average says nothing about the disk as it is now when the last sync is longer ago.
const AVERAGE_AGE: Duration = Duration::from_secs(10);

/// The clock of one log's writer. Written by its thread alone, read by anybody.
#[derive(Debug)]
pub struct Pulse {
    epoch: Instant,
    /// When the write under way began, in microseconds since `epoch`, plus one. 0: none is.
    working_since: AtomicU64,
    last_sync_at: AtomicU64,
    average_us: AtomicU64,
    counts: [AtomicU64; SYNC_CLASSES_US.len() + 1],
    sum_us: AtomicU64,
}

/// What was measured of all syncs since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncTimes {
    /// How many took at most as long as the class at the same place in [`SYNC_CLASSES_US`] and longer than the one before;
    /// the last counts all that took longer.
    pub counts: [u64; SYNC_CLASSES_US.len() + 1],
    /// How long they took together.
    pub sum: Duration,
}

impl Default for Pulse {
    fn default() -> Self {
        Self {
            epoch: Instant::now(),
            working_since: AtomicU64::new(0),
            last_sync_at: AtomicU64::new(0),
            average_us: AtomicU64::new(0),
            counts: Default::default(),
            sum_us: AtomicU64::new(0),
        }
    }
}

impl Pulse {
    fn now_us(&self) -> u64 {
        micros(self.epoch.elapsed())
    }

    /// The writer has something to write. It is idle again when the answer is dropped.
    pub(super) fn working(&self) -> Working<'_> {
        self.working_since.store(self.now_us() + 1, Relaxed);
        Working { pulse: self }
    }

    /// A sync has taken so long.
    pub(super) fn synced(&self, took: Duration) {
        let took_us = micros(took);
        let average = self.average_us.load(Relaxed);
        let average = match self.syncs() {
            0 => took_us,
            _ => average - average / AVERAGE_PARTS + took_us / AVERAGE_PARTS,
        };
        self.average_us.store(average, Relaxed);
        let class = SYNC_CLASSES_US.partition_point(|class| *class < took_us);
        self.counts[class].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(took_us, Relaxed);
        self.last_sync_at.store(self.now_us(), Relaxed);
    }

    fn syncs(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// How long the write under way has taken so far; zero if none is.
    pub fn working_for(&self) -> Duration {
        match self.working_since.load(Relaxed) {
            0 => Duration::ZERO,
            since => Duration::from_micros((self.now_us() + 1).saturating_sub(since)),
        }
    }

    /// How long a sync takes these days. `None` while there were too few, or none lately.
    pub fn average(&self) -> Option<Duration> {
        let age = self.now_us().saturating_sub(self.last_sync_at.load(Relaxed));
        let known = self.syncs() >= MIN_SYNCS && age <= micros(AVERAGE_AGE);
        known.then(|| Duration::from_micros(self.average_us.load(Relaxed)))
    }

    /// All syncs since the start.
    pub fn sync_times(&self) -> SyncTimes {
        SyncTimes {
            counts: std::array::from_fn(|class| self.counts[class].load(Relaxed)),
            sum: Duration::from_micros(self.sum_us.load(Relaxed)),
        }
    }
}

/// The writer is at work.
pub(super) struct Working<'p> {
    pulse: &'p Pulse,
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.pulse.working_since.store(0, Relaxed);
    }
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_under_way_shows_before_it_ends() {
        let pulse = Pulse::default();
        assert_eq!(pulse.working_for(), Duration::ZERO);
        let working = pulse.working();
        while pulse.working_for() < Duration::from_millis(2) {
            std::thread::yield_now();
        }
        drop(working);
        assert_eq!(pulse.working_for(), Duration::ZERO);
    }

    #[test]
    fn the_average_follows_the_disk_but_not_one_late_sync() {
        let pulse = Pulse::default();
        let ms = Duration::from_millis;
        pulse.synced(ms(1));
        assert_eq!(pulse.average(), None, "one sync says nothing");
        (0..20).for_each(|_| pulse.synced(ms(1)));
        pulse.synced(ms(200));
        assert!(pulse.average().unwrap() < ms(30));
        (0..40).for_each(|_| pulse.synced(ms(200)));
        assert!(pulse.average().unwrap() > ms(180));
        let times = pulse.sync_times();
        assert_eq!(times.counts.iter().sum::<u64>(), 62);
        assert_eq!((times.counts[3], times.counts[10]), (21, 41));
        assert_eq!(times.sum, ms(21 + 41 * 200));
    }
}
