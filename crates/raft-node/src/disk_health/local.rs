//! Health of this node's own disk: whether it is nearly full. Two thresholds prevent every temporary file
//! from changing the result.

use std::time::Duration;

use super::config::DiskConfig;
use super::report::DiskReport;
use raft_log::sync::{Mutex, RwLock};

/// Measurements of one check.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiskSample {
    /// Free bytes in the file system, if it answered.
    pub free_bytes: Option<u64>,
    /// Size of the newest snapshot. The next one needs as much space, and must be written before the log can
    /// be truncated.
    pub snapshot_bytes: u64,
    /// Set if the log has no room for entries.
    pub log_full: bool,
    /// Set if the disk had no space for a segment of the log.
    pub starved: bool,
    /// Median duration of recent syncs.
    pub sync: Option<Duration>,
    /// Duration so far of the write in progress.
    pub working: Duration,
}

/// Health of this node's disk.
pub struct LocalDisk {
    config: RwLock<DiskConfig>,
    last: Mutex<DiskReport>,
}

impl LocalDisk {
    /// Creates the state without measurements.
    pub fn new(config: DiskConfig) -> Self {
        let last = DiskReport {
            low_water_bytes: config.low_water_bytes,
            ..DiskReport::default()
        };
        Self {
            config: RwLock::new(config),
            last: Mutex::new(last),
        }
    }

    /// Sets the thresholds for the next check.
    pub fn reconfigure(&self, config: DiskConfig) {
        *self.config.write() = config;
    }

    /// Returns the result of the last check.
    pub fn report(&self) -> DiskReport {
        self.last.lock().clone()
    }

    /// Evaluates the measurements of one check, and returns the resulting report.
    pub fn record(&self, sample: DiskSample) -> DiskReport {
        let config = self.config.read().clone();
        let mut last = self.last.lock();
        let micros = |duration: Duration| duration.as_micros().try_into().unwrap_or(u64::MAX);
        let mark = match last.low {
            true => config.resume_bytes,
            false => config.low_water_bytes,
        };
        let low = match sample.free_bytes {
            _ if sample.starved => true,
            Some(free) => free < mark.saturating_add(sample.snapshot_bytes),
            // Without an answer the last result stays; such a disk is recognised by the durations of its syncs.
            None => last.low,
        };
        *last = DiskReport {
            free_bytes: sample.free_bytes,
            low_water_bytes: config.low_water_bytes.saturating_add(sample.snapshot_bytes),
            low,
            log_full: sample.log_full,
            sync_us: sample.sync.map(micros),
            working_us: micros(sample.working),
        };
        last.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local() -> LocalDisk {
        LocalDisk::new(DiskConfig {
            low_water_bytes: 100,
            resume_bytes: 150,
            ..DiskConfig::default()
        })
    }

    #[test]
    fn disk_is_low_below_one_mark_until_above_the_other() {
        let local = local();
        let low = |free, snapshot_bytes| {
            let sample = DiskSample {
                free_bytes: Some(free),
                snapshot_bytes,
                ..DiskSample::default()
            };
            local.record(sample).low
        };
        assert!(!low(100, 0));
        assert!(low(99, 0));
        assert!(low(149, 0), "not before the upper mark");
        assert!(!low(150, 0));
        assert!(!low(100, 0));
        // The state has grown: the next snapshot needs more space.
        assert!(low(119, 20));
        assert!(low(169, 20));
        assert!(!low(170, 20));
    }

    #[test]
    fn new_marks_apply_from_the_next_check() {
        let local = local();
        let low = || {
            let sample = DiskSample {
                free_bytes: Some(120),
                ..DiskSample::default()
            };
            local.record(sample).low
        };
        assert!(!low());
        local.reconfigure(DiskConfig {
            low_water_bytes: 121,
            resume_bytes: 121,
            ..DiskConfig::default()
        });
        assert!(low());
        assert_eq!(local.report().low_water_bytes, 121);
    }

    #[test]
    fn log_without_space_is_low_regardless_of_free_bytes() {
        let local = local();
        let mut sample = DiskSample {
            free_bytes: Some(1_000),
            starved: true,
            ..DiskSample::default()
        };
        assert!(local.record(sample).low);
        sample.starved = false;
        sample.free_bytes = None;
        assert!(local.record(sample).low, "nothing new is known");
        sample.free_bytes = Some(1_000);
        assert!(!local.record(sample).low);
    }
}
