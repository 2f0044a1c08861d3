//! Settings that can change while a node runs. Their users read them each time; work that has begun continues with the former ones.

use std::sync::Arc;
use std::time::Duration;

use znode_store::Limits;

use crate::config::{NodeConfig, SessionBounds, SweepConfig};
use crate::metrics::config::MetricsConfig;
use raft_log::sync::RwLock;
use raft_node::{DiskConfig, RaftNodeConfig, SnapshotConfig};

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeConfig {
    /// Requests that take longer are logged.
    pub slow: Option<Duration>,
    /// For sessions that are opened from now on.
    pub sessions: SessionBounds,
    /// Limits that this node proposes when it leads; what exceeds a limit already stays.
    pub limits: Limits,
    /// Sweeps of unused znodes.
    pub sweeps: SweepConfig,
    /// Settings of snapshots.
    pub snapshots: SnapshotConfig,
    /// Thresholds of a nearly full or slow disk.
    pub disk: DiskConfig,
}

impl RuntimeConfig {
    /// Returns the settings of a configuration that can change.
    pub fn of(config: &NodeConfig) -> Self {
        Self {
            slow: config.metrics.slow,
            sessions: config.sessions.clone(),
            limits: config.limits,
            sweeps: config.sweeps.clone(),
            snapshots: config.raft.snapshots.clone(),
            disk: config.raft.disk.clone(),
        }
    }

    /// The same configuration with this in it.
    pub(crate) fn within(&self, config: &NodeConfig) -> NodeConfig {
        NodeConfig {
            sessions: self.sessions.clone(),
            limits: self.limits,
            sweeps: self.sweeps.clone(),
            raft: RaftNodeConfig {
                snapshots: self.snapshots.clone(),
                disk: self.disk.clone(),
                ..config.raft.clone()
            },
            metrics: MetricsConfig {
                slow: self.slow,
                ..config.metrics.clone()
            },
            ..config.clone()
        }
    }
}

/// Present settings.
#[derive(Debug)]
pub(crate) struct SharedRuntimeConfig(RwLock<Arc<RuntimeConfig>>);

impl SharedRuntimeConfig {
    /// At the start.
    pub fn new(runtime_config: RuntimeConfig) -> Self {
        Self(RwLock::new(runtime_config.into()))
    }

    /// Returns the present settings.
    pub fn get(&self) -> Arc<RuntimeConfig> {
        self.0.read().clone()
    }

    /// Replaces the settings.
    pub fn set(&self, runtime_config: RuntimeConfig) {
        *self.0.write() = runtime_config.into();
    }
}
