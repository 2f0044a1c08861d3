//! Metrics of a node; docs/reference/metrics.md has every name. The state is read at each scrape. Events are counted where they happen, in
//! [counters](instruments::counters) without locks. Front ends serve the metrics, and write their own with the same [`text_format`].

mod clock;
pub(crate) mod config;
pub(crate) mod node_counters;
mod raft;
mod state;
mod storage;

use std::fmt;

use instruments::text_format::Registry;

pub use self::config::{MAX_LOCK_PREFIXES, MetricsConfig};

pub use instruments::text_format;

use self::text_format::{Instruments, Sheet};
use crate::node::Node;

impl Node {
    /// Adds the metrics of this node to `registry`. All names begin with `lockgate_`.
    pub fn register_metrics(&self, registry: &mut Registry) {
        text_format::register(registry, NodeMetrics { node: self.clone() });
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
        self.node.counters().write(sheet, self.node.raft().counters())?;
        self.node.observers().metrics.write(sheet)
    }
}
