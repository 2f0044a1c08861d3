//! What of a node's configuration can be changed while it runs. Whoever goes by it looks it up each time; what is under way goes on
//! as it was begun.

use std::sync::Arc;
use std::time::Duration;

use znode_store::Limits;

use crate::config::{NodeConfig, SessionBounds, SweepConfig};
use crate::metrics::config::MetricsConfig;
use raft_log::sync::RwLock;
use raft_node::{DiskConfig, RaftNodeConfig, SnapshotConfig};

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuning {
    /// What takes longer is told of in the log.
    pub slow: Option<Duration>,
    /// For sessions that are opened from now on.
    pub sessions: SessionBounds,
    /// What this node sees to once it leads; what is beyond a limit already stays.
    pub limits: Limits,
    /// When what nobody uses is swept.
    pub sweeps: SweepConfig,
    /// When to make snapshots, what is kept behind them, and how fast they are sent.
    pub snapshots: SnapshotConfig,
    /// When the disk counts as nearly full or slow.
    pub disk: DiskConfig,
}

impl Tuning {
    /// What of a configuration can be changed.
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

/// What holds now.
#[derive(Debug)]
pub(crate) struct Tuned(RwLock<Arc<Tuning>>);

impl Tuned {
    /// At the start.
    pub fn new(tuning: Tuning) -> Self {
        Self(RwLock::new(tuning.into()))
    }

    /// What holds at this moment.
    pub fn get(&self) -> Arc<Tuning> {
        self.0.read().clone()
    }

    /// What holds from now on.
    pub fn set(&self, tuning: Tuning) {
        *self.0.write() = tuning.into();
    }
}
