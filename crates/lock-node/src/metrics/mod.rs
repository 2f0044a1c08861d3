//! What a node tells whoever watches over it, as Prometheus reads it; docs/reference/metrics.md has every name. What can be looked up is
//! looked up when it is asked for; what happens is counted where it happens, in [counters](instruments::counters) that cost no lock.
//! Serving it is for front ends, which have instruments of their own, and write them on the same [`sheet`].

mod clock;
pub(crate) mod config;
pub(crate) mod meters;
mod raft;
mod state;
mod storage;

use std::fmt;

use instruments::sheet::Registry;

pub use self::config::{MAX_LOCK_PREFIXES, MetricsConfig};

pub use instruments::sheet;

use self::sheet::{Instruments, Sheet};
use crate::node::Node;

impl Node {
    /// Adds what this node can tell to `registry`. All names begin with `lockgate_`.
    pub fn register_metrics(&self, registry: &mut Registry) {
        sheet::register(registry, NodeMetrics { node: self.clone() });
    }
}

struct NodeMetrics {
    node: Node,
}

impl Instruments for NodeMetrics {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let status = self.node.status();
        raft::write(sheet, &self.node, &status)?;
        storage::write(sheet, &self.node, &status)?;
        state::write(sheet, &self.node, &status)?;
        clock::write(sheet, &self.node)?;
        self.node.meters().write(sheet, self.node.raft().counters())
    }
}
