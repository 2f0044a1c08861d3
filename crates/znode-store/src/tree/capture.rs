//! Capture of the tree as it was at one position, while commands go on changing it: copy on write, one node at a time.
//!
//! A reader visits the places of the slab in order. A node that changes before its visit is copied first. So a capture costs the memory
//! of what changes meanwhile.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use crate::model::ids::Zxid;
use crate::tree::Tree;
use crate::tree::acls::Acls;
use crate::tree::index::NodeIndex;
use crate::tree::node::Node;
use crate::tree::record::ZnodeRecord;

/// Progress of a capture, and the copies that it needs.
pub(crate) struct Capture {
    /// Nodes created later are not part of it.
    zxid: Zxid,
    /// The place in the slab that is visited next.
    cursor: NodeIndex,
    /// Number of places that existed at the beginning.
    slots: u32,
    /// Nodes at or behind the cursor that have changed or gone, as they were at the beginning.
    /// A tree and not a hash table, which would stop every command while it grows.
    before: BTreeMap<NodeIndex, Box<ZnodeRecord>>,
}

impl Capture {
    /// Copies a node that is about to change, if it was not visited yet.
    pub(crate) fn before_change(&mut self, index: NodeIndex, node: &Node, acls: &Acls) {
        if node.czxid <= self.zxid && index >= self.cursor {
            self.before
                .entry(index)
                .or_insert_with(|| Box::new(ZnodeRecord::of(index, node, acls)));
        }
    }
}

impl Tree {
    /// Begins a capture of the tree, which is as the command at `zxid` left it. It replaces an earlier capture.
    pub(crate) fn begin_capture(&mut self, zxid: Zxid) {
        self.capture = Some(Capture {
            zxid,
            cursor: NodeIndex::ROOT,
            slots: self.slab.slots(),
            before: BTreeMap::new(),
        });
    }

    /// Ends the capture and drops its copies.
    pub(crate) fn end_capture(&mut self) {
        self.capture = None;
    }

    /// Returns whether all places were visited.
    pub(crate) fn is_captured(&self) -> bool {
        let is_over = |capture: &Capture| capture.cursor.0 == capture.slots;
        self.capture.as_ref().is_none_or(is_over)
    }

    /// Visits the next place and returns the node that lay there at the beginning, if there was one.
    pub(crate) fn capture_next(&mut self) -> Option<ZnodeRecord> {
        let capture = self.capture.as_mut()?;
        let index = capture.cursor;
        capture.cursor.0 += 1;
        match (capture.before.remove(&index), self.slab.get(index)) {
            (Some(record), _) => Some(*record),
            // It never changed, otherwise there were a copy. But it may be newer.
            (None, Some(node)) if node.czxid <= capture.zxid => {
                Some(ZnodeRecord::of(index, node, &self.acls))
            }
            (None, _) => None,
        }
    }
}
