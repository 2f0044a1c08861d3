//! Configuration of a node's metrics and of its log of slow requests.

use std::time::Duration;

use raft_node::InvalidSetting;

/// Maximum number of prefixes. Each adds about fifty time series at every node.
pub const MAX_LOCK_PREFIXES: usize = 16;

/// Settings of metrics and of the log of slow requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsConfig {
    /// Prefixes of lock names; locks below each prefix are also counted separately.
    pub lock_prefixes: Vec<String>,
    /// Requests that take longer from proposal to answer are logged, with the time that each step took. `None` turns this log off.
    pub slow: Option<Duration>,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self {
            lock_prefixes: Vec::new(),
            // Several times the target duration of admission control.
            slow: Some(Duration::from_secs(1)),
        }
    }
}

impl MetricsConfig {
    /// Returns the settings that are invalid.
    pub(crate) fn invalid_settings(&self) -> Vec<InvalidSetting> {
        let mut facts = Vec::new();
        if self.lock_prefixes.len() > MAX_LOCK_PREFIXES {
            facts.push(format!("must have at most {MAX_LOCK_PREFIXES} prefixes"));
        }
        for (at, prefix) in self.lock_prefixes.iter().enumerate() {
            if prefix.is_empty() || self.lock_prefixes[..at].contains(prefix) {
                facts.push(format!(
                    "has the prefix {prefix:?}, which is empty or given twice"
                ));
            }
        }
        let setting = "metrics.lock_prefixes";
        facts
            .into_iter()
            .map(|fact| InvalidSetting { setting, fact })
            .collect()
    }
}
