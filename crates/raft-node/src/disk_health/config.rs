//! Settings of the disk health check.

use std::time::Duration;

use crate::invalid_setting::InvalidSetting;

/// Space for eight segments of the default length: for releases until the next snapshot, for other growth of
/// the log meanwhile, and for other programs' writes until an operator reacts to the alarm.
const DEFAULT_LOW_WATER_BYTES: u64 = 128 * 1024 * 1024;

/// A quarter above the low-water mark, so that a temporary snapshot does not toggle the cluster's mode.
const DEFAULT_RESUME_BYTES: u64 = 160 * 1024 * 1024;

/// A check costs one system call and a message to each member; disks do not fill within less time.
const DEFAULT_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Longer than the longest election timeout: another leader can be elected in less time than the write has
/// already taken.
const DEFAULT_STALL: Duration = Duration::from_secs(1);

/// Minimum interval between hand-overs because of disks. Each costs an election, so leadership must not
/// circulate among disks that are slow in turn.
const DEFAULT_HAND_OVER_PAUSE: Duration = Duration::from_secs(10);

/// Thresholds at which a disk counts as nearly full or as slow, and the interval between checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskConfig {
    /// Free space, beside space for a snapshot as large as the newest one, below which a node counts as
    /// nearly full.
    pub low_water_bytes: u64,
    /// Free space, beside the same space, at which it no longer counts as nearly full.
    pub resume_bytes: u64,
    /// Interval at which a node checks its disk, and the leader asks the others.
    pub check_interval: Duration,
    /// Duration of a write to the log above which it counts as a stall.
    pub stall: Duration,
    /// Time after the beginning of a leader's term, or after its last attempt to hand over, in which it does
    /// not hand over because of disks.
    pub hand_over_pause: Duration,
}

impl Default for DiskConfig {
    fn default() -> Self {
        Self {
            low_water_bytes: DEFAULT_LOW_WATER_BYTES,
            resume_bytes: DEFAULT_RESUME_BYTES,
            check_interval: DEFAULT_CHECK_INTERVAL,
            stall: DEFAULT_STALL,
            hand_over_pause: DEFAULT_HAND_OVER_PAUSE,
        }
    }
}

impl DiskConfig {
    /// Returns the invalid settings.
    pub(crate) fn invalid_settings(&self) -> Vec<InvalidSetting> {
        let mut found = Vec::new();
        if self.resume_bytes < self.low_water_bytes {
            found.push(InvalidSetting {
                setting: "disk.resume_bytes",
                fact: format!(
                    "must be at least disk.low_water_bytes ({}), and is {}",
                    self.low_water_bytes, self.resume_bytes
                ),
            });
        }
        for (nothing, setting) in [
            (self.check_interval.is_zero(), "disk.check_interval_ms"),
            (self.stall.is_zero(), "disk.stall_ms"),
        ] {
            if nothing {
                let fact = "must not be 0".to_owned();
                found.push(InvalidSetting { setting, fact });
            }
        }
        found
    }
}
