//! Limits on the number of watches. ZooKeeper has none, so a single client can fill its memory.

use znode_store::{SHORT_PATH_BYTES, ZPath};

/// Limits on the number of watches. A watch is one kind at one path for one watcher. A watch on a path of more than a
/// kibibyte counts as one for each kibibyte begun, so the limits bound the memory for paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchLimits {
    /// Limit on the watches of one watcher.
    pub per_watcher: u32,
    /// Limit on the watches of all watchers of the node.
    pub per_node: u32,
}

impl Default for WatchLimits {
    fn default() -> Self {
        Self {
            // One for each child of a very large parent, as caches of older ZooKeeper clients arm
            // them.
            per_watcher: 100_000,
            // About 40 MB for the watches, and as much again for the paths if no two watches share
            // one.
            per_node: 1_000_000,
        }
    }
}

/// Rejection of a new watch, because a limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooManyWatches {
    /// The watcher has reached its limit.
    #[error("this client has {limit} watches, which is the limit per client")]
    OfWatcher {
        /// The limit, [`WatchLimits::per_watcher`].
        limit: u32,
    },
    /// The node has reached its limit.
    #[error("this node has {limit} watches, which is its limit")]
    OfNode {
        /// The limit, [`WatchLimits::per_node`].
        limit: u32,
    },
}

/// Returns as how many a watch on `path`, or a notice of it, counts.
pub fn units(path: &ZPath) -> u32 {
    let bytes = path.as_str().len();
    match bytes <= SHORT_PATH_BYTES {
        true => 1,
        false => bytes.div_ceil(SHORT_PATH_BYTES) as u32,
    }
}
