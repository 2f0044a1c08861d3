//! Bounds of what observers keep.

use lock_history::HistoryLimits;
use znode_watch::WatchLimits;

/// How much a node keeps for those who watch. Watches are a node's own, so nodes may differ in this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchConfig {
    /// How many watches there may be.
    pub limits: WatchLimits,
    /// How many notices may wait for a client that stays connected and does not read. One more, and it loses its watches
    /// and has to come back.
    pub backlog: usize,
}

impl Default for WatchConfig {
    fn default() -> Self {
        let limits = WatchLimits::default();
        Self {
            // A single command may fire all one-shot watches of a client, and it is not to blame for that. Some 3 MB.
            backlog: limits.per_watcher as usize,
            limits,
        }
    }
}

/// How much a node keeps for those who follow the events of a session. It changes nothing that is replicated, so nodes may differ
/// in this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEventsConfig {
    /// How many events of all sessions together are kept for those who come back. Whoever comes back later than that is told how
    /// things stand instead.
    pub backlog: usize,
    /// How much memory they may take, in bytes.
    pub backlog_bytes: usize,
    /// How many streams one session may have at this node.
    pub streams_per_session: usize,
    /// How many streams there may be at this node.
    pub streams_per_node: usize,
}

impl Default for SessionEventsConfig {
    fn default() -> Self {
        Self {
            // Some seconds of a node's largest load: who loses its node is at the next one within one. Else it takes hours until
            // so much has happened, and nobody who follows is that far behind.
            backlog: 32_768,
            backlog_bytes: 16 * 1024 * 1024,
            // Two programs that share a session, each of which may have left one behind when its network broke, and some to look.
            streams_per_session: 8,
            // As many as connections.
            streams_per_node: 10_000,
        }
    }
}

/// Settings of the lock history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryConfig {
    /// The node records a history.
    pub enabled: bool,
    /// Maximum size and age.
    pub bounds: HistoryLimits,
}

impl Default for HistoryConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            bounds: HistoryLimits::default(),
        }
    }
}
