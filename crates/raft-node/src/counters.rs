//! Counters of replication.

use std::sync::Arc;

use instruments::counters::{Classes, Counter, Histogram};

use crate::compaction::SnapshotCounters;

/// Counters of elections, of the entries that this node proposes as the leader, and of snapshots.
#[derive(Debug)]
pub struct RaftCounters {
    /// Elections that this node started.
    pub elections: Counter,
    /// Leaders that this node has learned of.
    pub leader_changes: Counter,
    /// Number of commands in each entry that this node proposed as the leader.
    pub entry_commands: Histogram,
    /// Total bytes of these entries.
    pub proposed_bytes: Counter,
    /// Snapshots of this node.
    pub snapshots: Arc<SnapshotCounters>,
}

impl Default for RaftCounters {
    fn default() -> Self {
        Self {
            elections: Counter::default(),
            leader_changes: Counter::default(),
            entry_commands: Histogram::new(&Classes::BATCH),
            proposed_bytes: Counter::default(),
            snapshots: Arc::default(),
        }
    }
}
