//! Settings of the watch over disks.

use std::time::Duration;

use crate::invalid_setting::InvalidSetting;

/// Room for eight segments of the usual length: releases until the next snapshot, whatever makes the log longer
/// meanwhile, and what others write to the disk while somebody reads the alarm.
const DEFAULT_LOW_WATER_BYTES: u64 = 128 * 1024 * 1024;

/// A quarter more, so that a snapshot that comes and goes does not make the cluster change its mind.
const DEFAULT_RESUME_BYTES: u64 = 160 * 1024 * 1024;

/// A look costs one system call and a message to each member; disks do not fill within less.
const DEFAULT_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Longer than the longest election timeout: to have another leader takes less time than the write has taken already.
const DEFAULT_STALL: Duration = Duration::from_secs(1);

/// Leadership moves at most so often on account of disks. A move costs an election, so disks that are slow by turns
/// must not have it go in circles.
const DEFAULT_HAND_OVER_PAUSE: Duration = Duration::from_secs(10);

/// Thresholds at which a disk counts as nearly full or as slow, and the interval between checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskConfig {
    /// With less free space, beside room for a snapshot as large as the newest one, the node counts as nearly full.
    pub low_water_bytes: u64,
    /// It counts so until there is as much as this, beside the same room.
    pub resume_bytes: u64,
    /// Interval at which a node checks its disk, and the leader asks the others.
    pub check_interval: Duration,
    /// A write to the log that takes longer is a stall.
    pub stall: Duration,
    /// Time after the begin of a leader's term, or after it tried to hand over, in which it does not hand over because of disks.
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
    /// Returns the settings that make no sense.
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
