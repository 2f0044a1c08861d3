//! Capture of the tree as it was at one position, while commands go on changing it: copy on write, one node at a time.
//!
//! A reader visits the places of the slab in order. A node that changes before its visit is copied first. So a capture costs the memory
//! of what changes meanwhile.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use crate::model::ids::Zxid;
use crate::tree::Tree;
use crate::tree::index::NodeIndex;
use crate::tree::node::PathHash;
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
    /// Digest of the tree at the beginning, in which the nodes that were copied or visited count with their data as bytes.
    digest: u64,
}

impl Tree {
    /// Begins a capture of the tree, which is as the command at `zxid` left it. It replaces an earlier capture.
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
        if let Some(record) = capture.before.remove(&index) {
            return Some(*record);
        }
        // It never changed, otherwise there were a copy. But it may be newer.
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

    /// Returns the digest of the captured tree with all data as bytes, once all places were visited. Snapshots have that one, because a
    /// former release checks it.
    pub(crate) fn captured_digest(&self) -> u64 {
        self.capture.as_ref().map_or(0, |capture| capture.digest)
    }

    /// Returns the record of a node, which is as it was at the beginning.
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
