//! Reports about disks, for other nodes and for operators.

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;

/// Report of a node about its own disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskReport {
    /// Free bytes in the file system of the data directory. `None` before the first check, and if the file
    /// system does not answer.
    pub free_bytes: Option<u64>,
    /// Free space below which the node counts as nearly full.
    pub low_water_bytes: u64,
    /// Set if it is nearly full.
    pub low: bool,
    /// Set if the log has no room and accepts no entries.
    pub log_full: bool,
    /// Usual duration of a sync of the log in microseconds; `None` if there were none lately.
    pub sync_us: Option<u64>,
    /// Duration so far of the current write to the log, in microseconds; 0 without one.
    pub working_us: u64,
}

/// Findings of the leader of a term about all disks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskView {
    /// Term of the leader.
    pub term: u64,
    /// Reason why the cluster accepts only commands that shrink the state, if it does.
    pub read_only: Option<String>,
    /// Alarms for operators.
    pub alarms: Vec<Alarm>,
}

/// Knowledge of the leader about one member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberNews {
    /// Id of the member.
    pub node_id: NodeId,
    /// Last entry known to be on its disk.
    pub matched_index: Option<u64>,
    /// Number of entries that it lacks compared with the leader.
    pub lag: Option<u64>,
    /// Its last report about its disk, if it has answered recently.
    pub disk: Option<DiskReport>,
}

/// Subject of an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub enum AlarmKind {
    /// Too many voters' disks are nearly full: the cluster accepts only commands that shrink the state.
    ReadOnly,
    /// A node's disk is nearly full.
    DiskLow,
    /// A node's log has no room: it takes no entries until it has.
    LogFull,
    /// A node's disk takes long, or does not answer.
    SlowDisk,
    /// A node's state is not that of the others.
    StateDiffers,
    /// A node came back with less than it had acknowledged, and is refused.
    RolledBack,
    /// A node's wall clock differs from those of most members.
    ClockWrong,
}

impl AlarmKind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::ReadOnly,
        Self::DiskLow,
        Self::LogFull,
        Self::SlowDisk,
        Self::StateDiffers,
        Self::RolledBack,
        Self::ClockWrong,
    ];

    /// Returns its name in JSON and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::ReadOnly => "read_only",
            Self::DiskLow => "disk_low",
            Self::LogFull => "log_full",
            Self::SlowDisk => "slow_disk",
            Self::StateDiffers => "state_differs",
            Self::RolledBack => "rolled_back",
            Self::ClockWrong => "clock_wrong",
        }
    }
}

/// Problem that an operator should look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct Alarm {
    /// The node that it is about; none if it is about the cluster.
    #[cfg_attr(feature = "schemas", schema(value_type = Option<u64>, required))]
    pub node_id: Option<NodeId>,
    /// Subject.
    pub kind: AlarmKind,
    /// Since when, in milliseconds since 1970 by the clock of the leader that saw it first. In JSON: RFC 3339 in UTC.
    #[serde(rename = "since_at", with = "json_time")]
    #[cfg_attr(feature = "schemas", schema(value_type = String, format = DateTime))]
    pub since_ms: u64,
    /// Description, with figures.
    pub detail: String,
    /// Remedy.
    pub action: String,
    /// Free in the node's file system, in bytes, if that is what it is about.
    #[cfg_attr(feature = "schemas", schema(required))]
    pub free_bytes: Option<u64>,
    /// The mark below which the node counts as nearly full, in bytes.
    #[cfg_attr(feature = "schemas", schema(required))]
    pub low_water_bytes: Option<u64>,
    /// Duration of a sync in microseconds, in alarms about it.
    #[cfg_attr(feature = "schemas", schema(required))]
    pub sync_us: Option<u64>,
}

/// Times as people read them in formats for people, and as a number between nodes.
mod json_time {
    use std::time::{Duration, UNIX_EPOCH};

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes a time in milliseconds since 1970.
    pub fn serialize<S: Serializer>(ms: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        match serializer.is_human_readable() {
            true => {
                let time = UNIX_EPOCH + Duration::from_millis(*ms);
                serializer.collect_str(&humantime::format_rfc3339_millis(time))
            }
            false => serializer.serialize_u64(*ms),
        }
    }

    /// Reads a time in milliseconds since 1970.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        if !deserializer.is_human_readable() {
            return u64::deserialize(deserializer);
        }
        let time = humantime::parse_rfc3339(&String::deserialize(deserializer)?).map_err(D::Error::custom)?;
        let since = time.duration_since(UNIX_EPOCH).map_err(D::Error::custom)?;
        u64::try_from(since.as_millis()).map_err(D::Error::custom)
    }
}
