//! Bounds of what observers keep.

use lock_history::HistoryLimits;
use znode_watch::WatchLimits;

/// Bounds of watches. Watches belong to one node, so nodes may differ in this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchConfig {
    /// Maximum number of watches.
    pub limits: WatchLimits,
    /// Maximum number of notices that wait for a connected client that does not read. With one more the client loses its watches and has to
    /// reconnect.
    pub backlog: usize,
}

impl Default for WatchConfig {
    fn default() -> Self {
        let limits = WatchLimits::default();
        Self {
            // A single command may fire all one-shot watches of a client, which is not the client's fault. This many take some 3 MB.
            backlog: limits.per_watcher as usize,
            limits,
        }
    }
}

/// Bounds of the journal and of the streams of session events. Nothing of it is replicated, so nodes may differ in this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEventsConfig {
    /// Maximum number of stored events of all locks and sessions together. A stream that resumes at an older position begins with the present state
    /// instead.
    pub backlog: usize,
    /// Maximum memory of the stored events, in bytes.
    pub backlog_bytes: usize,
    /// Maximum number of streams of one session at this node.
    pub streams_per_session: usize,
    /// Maximum number of streams at this node.
    pub streams_per_node: usize,
}

impl Default for SessionEventsConfig {
    fn default() -> Self {
        Self {
            // Some seconds of a node's largest load. A client that loses its node is at the next one within a second.
            backlog: 32_768,
            backlog_bytes: 16 * 1024 * 1024,
            // Two programs that share a session, each with one stream that a broken network has left behind, and some for debugging.
            streams_per_session: 8,
            // The maximum number of connections.
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
