//! Settings that can change while a node runs. Each operation reads them when it begins, and continues with these values after a change.

use std::sync::Arc;
use std::time::Duration;

use znode_store::Limits;

use crate::config::{NodeConfig, SessionBounds, SweepConfig};
use crate::metrics::config::MetricsConfig;
use raft_log::sync::RwLock;
use raft_node::{DiskConfig, RaftNodeConfig, SnapshotConfig};

/// Settings that can change while a node runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeConfig {
    /// Duration above which a request is logged; `None` turns the log off.
    pub slow: Option<Duration>,
    /// Bounds of the timeouts of sessions that are opened from now on.
    pub sessions: SessionBounds,
    /// Limits of the tree that this node proposes when it leads. Existing znodes and sessions beyond a limit stay.
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

    /// Returns `config` with these settings.
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

/// Current settings, shared by all users.
#[derive(Debug)]
pub(crate) struct SharedRuntimeConfig(RwLock<Arc<RuntimeConfig>>);

impl SharedRuntimeConfig {
    /// Returns a holder of the first settings.
    pub fn new(runtime_config: RuntimeConfig) -> Self {
        Self(RwLock::new(runtime_config.into()))
    }

    /// Returns the current settings.
    pub fn get(&self) -> Arc<RuntimeConfig> {
        self.0.read().clone()
    }

    /// Replaces the settings.
    pub fn set(&self, runtime_config: RuntimeConfig) {
        *self.0.write() = runtime_config.into();
    }
}
