//! Times of syncs, measured by the log's writer and read by the disk health check, also while a write is in
//! progress. This module only measures; it does not decide whether a disk is healthy.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

/// Upper bounds of the histogram buckets in microseconds: from a fast flash disk to a disk too slow for any
/// lock service.
pub const FSYNC_BUCKETS_US: [u64; 14] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    5_000_000,
];

/// Number of recent syncs of which the median is taken. A majority of them distinguishes a disk that has
/// become slow from single late syncs, for example after the machine was suspended.
const LAST_SYNCS: usize = 15;

/// Minimum number of syncs for a median.
const MIN_SYNCS: usize = 8;

/// Age above which the recent syncs say nothing about the disk's current speed.
const LAST_SYNCS_AGE: Duration = Duration::from_secs(10);

/// Sync times of one log. Written by its writer thread alone, read by any thread.
#[derive(Debug)]
pub struct FsyncStats {
    epoch: Instant,
    /// Start of the write in progress, in microseconds since `epoch`, plus one. 0 if there is none.
    write_since: AtomicU64,
    last_sync_at: AtomicU64,
    /// Ring of the durations of the last syncs.
    last_us: [AtomicU64; LAST_SYNCS],
    counts: [AtomicU64; FSYNC_BUCKETS_US.len() + 1],
    sum_us: AtomicU64,
}

/// Histogram of all syncs since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsyncTimes {
    /// Number of syncs per bucket of [`FSYNC_BUCKETS_US`]; the last one counts all that took longer.
    pub counts: [u64; FSYNC_BUCKETS_US.len() + 1],
    /// Total duration.
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

    /// Marks the start of a write. It ends when the returned guard is dropped.
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

    /// Returns the duration of the write in progress so far, or zero if there is none.
    pub fn current_write_time(&self) -> Duration {
        match self.write_since.load(Relaxed) {
            0 => Duration::ZERO,
            since => Duration::from_micros((self.now_us() + 1).saturating_sub(since)),
        }
    }

    /// Returns the median duration of the last syncs. `None` if there were too few, or none recently.
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

    /// Returns the histogram of all syncs since the start.
    pub fn times(&self) -> FsyncTimes {
        FsyncTimes {
            counts: std::array::from_fn(|class| self.counts[class].load(Relaxed)),
            sum: Duration::from_micros(self.sum_us.load(Relaxed)),
        }
    }
}

/// Guard of a write in progress.
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
    fn current_write_time_grows_until_write_ends() {
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
    fn median_follows_slower_disk_but_not_single_late_syncs() {
        let fsync_stats = FsyncStats::default();
        let ms = Duration::from_millis;
        fsync_stats.record(ms(1));
        assert_eq!(fsync_stats.median(), None, "one sync is too few");
        (0..20).for_each(|_| fsync_stats.record(ms(1)));
        // The machine was suspended now and then.
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
