//! Report about one setting of a configuration.

/// Setting whose value is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidSetting {
    /// Name of the setting, as in configuration files: `raft.election_min_ms`.
    pub setting: &'static str,
    /// Condition that the value violates: "must be …".
    pub fact: String,
}
