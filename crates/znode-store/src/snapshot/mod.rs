//! Point-in-time snapshots. (In the making.)

use crate::tree::{Node, NodeIndex};

/// A snapshot that is being drawn.
pub(crate) struct Drawing {}

impl Drawing {
    pub(crate) fn before_change(&mut self, index: NodeIndex, node: &Node) {
        let _ = (index, node);
    }
}
