//! Capture of the tree at one position, while commands change it: copy on write, one node at a time.
//!
//! A reader visits the slots of the slab in order. A node that changes before its visit is copied first. So a capture costs memory only for the nodes
//! that change meanwhile.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use crate::model::ids::Zxid;
use crate::tree::Tree;
use crate::tree::index::NodeIndex;
use crate::tree::node::PathHash;
use crate::tree::record::ZnodeRecord;

/// Progress of a capture, and the copies that it needs.
pub(crate) struct Capture {
    /// Position of the capture. Nodes created later are not part of it.
    zxid: Zxid,
    /// Next slot of the slab to visit.
    cursor: NodeIndex,
    /// Number of slots at the beginning.
    slots: u32,
    /// Copies of nodes at or behind the cursor that have changed or were removed since the beginning. The map is a tree, because the growth of a hash
    /// table would pause the commands.
    before: BTreeMap<NodeIndex, Box<ZnodeRecord>>,
    /// Digest of the tree at the beginning. The nodes that were copied or visited so far count in it with their data as bytes.
    digest: u64,
}

impl Tree {
    /// Begins a capture of the tree after the command at `zxid`. It replaces an earlier capture.
    pub(crate) fn begin_capture(&mut self, zxid: Zxid) {
        self.capture = Some(Capture {
            zxid,
            cursor: NodeIndex::ROOT,
            slots: self.slab.slots(),
            before: BTreeMap::new(),
            digest: self.digest,
        });
    }

    /// Ends the capture and drops its copies.
    pub(crate) fn end_capture(&mut self) {
        self.capture = None;
    }

    /// Returns whether all slots were visited.
    pub(crate) fn is_captured(&self) -> bool {
        let is_over = |capture: &Capture| capture.cursor.0 == capture.slots;
        self.capture.as_ref().is_none_or(is_over)
    }

    /// Visits the next slot and returns the node that was in it at the beginning, if there was one.
    pub(crate) fn capture_next(&mut self) -> Option<ZnodeRecord> {
        let capture = self.capture.as_mut()?;
        let index = capture.cursor;
        capture.cursor.0 += 1;
        if let Some(record) = capture.before.remove(&index) {
            return Some(*record);
        }
        // The node has not changed, because there is no copy. But it may have been created later.
        let zxid = capture.zxid;
        let is_part = self.slab.get(index).is_some_and(|node| node.czxid <= zxid);
        is_part.then(|| self.captured(index))
    }

    /// Copies a node that is about to change, if it is part of the capture and was not visited yet.
    pub(crate) fn copy_for_capture(&mut self, index: NodeIndex) {
        let is_missing = self.capture.as_ref().is_some_and(|capture| {
            self.slab[index].czxid <= capture.zxid
                && index >= capture.cursor
                && !capture.before.contains_key(&index)
        });
        if is_missing {
            let record = Box::new(self.captured(index));
            let capture = self.capture.as_mut().expect("it was just asked");
            capture.before.insert(index, record);
        }
    }

    /// Returns the digest of the captured tree with all data as bytes, once all slots were visited. Snapshots contain this digest, because
    /// former releases check it.
    pub(crate) fn captured_digest(&self) -> u64 {
        self.capture.as_ref().map_or(0, |capture| capture.digest)
    }

    /// Returns the record of a node that has not changed since the beginning.
    fn captured(&mut self, index: NodeIndex) -> ZnodeRecord {
        let node = &self.slab[index];
        let record = ZnodeRecord::of(index, node, &self.acls);
        if node.data.record().is_some() {
            let path = PathHash::of(self.path(index).as_str());
            let share = |data| node.own_digest_with(data, path, self.acls.hash(node.acl));
            let change = share(record.data.digest()).wrapping_sub(share(node.data.digest()));
            let capture = self.capture.as_mut().expect("a capture is going on");
            capture.digest = capture.digest.wrapping_add(change);
        }
        record
    }
}
