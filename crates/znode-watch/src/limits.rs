//! How many watches there may be. ZooKeeper has no such limits, and a single client can fill its memory.

/// How many watches there may be. A watch is one kind at one path for one watcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchLimits {
    /// The most of one watcher.
    pub per_watcher: u32,
    /// The most of all watchers together.
    pub per_node: u32,
}

impl Default for WatchLimits {
    fn default() -> Self {
        Self {
            // One for each child of a very large parent, which is what caches of ZooKeeper's older clients arm.
            per_watcher: 100_000,
            // Some 40 MB for the watches, and as much again for the paths if no two watches share one.
            per_node: 1_000_000,
        }
    }
}

/// A watch was not armed, because there are too many already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooManyWatches {
    /// The watcher has as many as one may have.
    #[error("this client has {limit} watches, which is the limit per client")]
    OfWatcher {
        /// [`WatchLimits::per_watcher`]
        limit: u32,
    },
    /// All watchers together have as many as there may be.
    #[error("this node has {limit} watches, which is its limit")]
    OfNode {
        /// [`WatchLimits::per_node`]
        limit: u32,
    },
}
