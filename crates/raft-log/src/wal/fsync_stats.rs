//! Times of syncs: measured where the log waits for the disk, read by the judge of the disk's health, also during a write.
//! This module does not judge.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

/// Upper bounds of the classes in which syncs are counted, in microseconds: from a fast flash disk's to what no lock
/// service can live with.
pub const FSYNC_BUCKETS_US: [u64; 14] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    5_000_000,
];

/// The last syncs that are looked at: most of them tell a disk that has become slow from late syncs, as on a machine that stood
/// still.
const LAST_SYNCS: usize = 15;

/// Minimum number of syncs before a usual time is reported.
const MIN_SYNCS: usize = 8;

/// The last syncs say nothing about the disk as it is now when they are longer ago.
const LAST_SYNCS_AGE: Duration = Duration::from_secs(10);

/// Times of the syncs of one log. Only its writer writes them; any thread reads them.
#[derive(Debug)]
pub struct FsyncStats {
    epoch: Instant,
    /// Start of the current write in microseconds since `epoch`, plus one. 0: no write is in progress.
    write_since: AtomicU64,
    last_sync_at: AtomicU64,
    /// Durations of the last syncs, a ring.
    last_us: [AtomicU64; LAST_SYNCS],
    counts: [AtomicU64; FSYNC_BUCKETS_US.len() + 1],
    sum_us: AtomicU64,
}

/// Durations of all syncs since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsyncTimes {
    /// Number of syncs per class: those that took at most the time at the same place in [`FSYNC_BUCKETS_US`] and more than the
    /// one before it. The last element counts all longer ones.
    pub counts: [u64; FSYNC_BUCKETS_US.len() + 1],
    /// Sum of all durations.
    pub sum: Duration,
}

impl Default for FsyncStats {
    fn default() -> Self {
        Self {
            epoch: Instant::now(),
            write_since: AtomicU64::new(0),
            last_sync_at: AtomicU64::new(0),
            last_us: Default::default(),
            counts: Default::default(),
            sum_us: AtomicU64::new(0),
        }
    }
}

impl FsyncStats {
    fn now_us(&self) -> u64 {
        micros(self.epoch.elapsed())
    }

    /// The writer has something to write. It is idle again when the answer is dropped.
    pub(super) fn start_write(&self) -> WriteInProgress<'_> {
        self.write_since.store(self.now_us() + 1, Relaxed);
        WriteInProgress { fsync_stats: self }
    }

    /// Records the duration of a sync.
    pub(super) fn record(&self, took: Duration) {
        let took_us = micros(took);
        self.last_us[self.syncs() as usize % LAST_SYNCS].store(took_us, Relaxed);
        let class = FSYNC_BUCKETS_US.partition_point(|class| *class < took_us);
        self.counts[class].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(took_us, Relaxed);
        self.last_sync_at.store(self.now_us(), Relaxed);
    }

    fn syncs(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// Returns the time that the current write has taken so far, or zero without one.
    pub fn current_write_time(&self) -> Duration {
        match self.write_since.load(Relaxed) {
            0 => Duration::ZERO,
            since => Duration::from_micros((self.now_us() + 1).saturating_sub(since)),
        }
    }

    /// Returns the usual duration of a sync: the median of the last ones. `None` after too few syncs, or if the last ones are old.
    pub fn median(&self) -> Option<Duration> {
        let age = self.now_us().saturating_sub(self.last_sync_at.load(Relaxed));
        let made = LAST_SYNCS.min(self.syncs() as usize);
        if made < MIN_SYNCS || age > micros(LAST_SYNCS_AGE) {
            return None;
        }
        let mut last: Vec<u64> = self.last_us[..made].iter().map(|us| us.load(Relaxed)).collect();
        last.sort_unstable();
        Some(Duration::from_micros(last[made / 2]))
    }

    /// All syncs since the start.
    pub fn times(&self) -> FsyncTimes {
        FsyncTimes {
            counts: std::array::from_fn(|class| self.counts[class].load(Relaxed)),
            sum: Duration::from_micros(self.sum_us.load(Relaxed)),
        }
    }
}

/// The writer is at work.
pub(super) struct WriteInProgress<'p> {
    fsync_stats: &'p FsyncStats,
}

impl Drop for WriteInProgress<'_> {
    fn drop(&mut self) {
        self.fsync_stats.write_since.store(0, Relaxed);
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
        let fsync_stats = FsyncStats::default();
        assert_eq!(fsync_stats.current_write_time(), Duration::ZERO);
        let working = fsync_stats.start_write();
        while fsync_stats.current_write_time() < Duration::from_millis(2) {
            std::thread::yield_now();
        }
        drop(working);
        assert_eq!(fsync_stats.current_write_time(), Duration::ZERO);
    }

    #[test]
    fn usual_time_follows_the_disk_but_not_late_syncs() {
        let fsync_stats = FsyncStats::default();
        let ms = Duration::from_millis;
        fsync_stats.record(ms(1));
        assert_eq!(fsync_stats.median(), None, "one sync says nothing");
        (0..20).for_each(|_| fsync_stats.record(ms(1)));
        // The machine paused several times.
        (0..5).for_each(|_| fsync_stats.record(ms(200)));
        assert_eq!(fsync_stats.median(), Some(ms(1)));
        (0..36).for_each(|_| fsync_stats.record(ms(200)));
        assert_eq!(fsync_stats.median(), Some(ms(200)));
        let times = fsync_stats.times();
        assert_eq!(times.counts.iter().sum::<u64>(), 62);
        assert_eq!((times.counts[3], times.counts[10]), (21, 41));
        assert_eq!(times.sum, ms(21 + 41 * 200));
    }
}
