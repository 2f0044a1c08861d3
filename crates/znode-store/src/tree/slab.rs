//! Slab of nodes: pieces that never move, so that a growing tree does not pause to copy itself, as it would with the crate `slab` and its one
//! vector. A node is found by its index, and free places are on a stack. The slab does not interpret nodes.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use crate::tree::index::NodeIndex;
use crate::tree::node::Node;

/// Number of nodes in one piece, about 100 KiB, which is allocated quickly.
const PIECE: usize = 1024;

/// Slab of nodes.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    pieces: Vec<Vec<Option<Node>>>,
    free: Vec<NodeIndex>,
    /// Number of slots that were ever used.
    slots: u32,
}

impl Slab {
    /// Returns the number of slots that were ever used, including free ones.
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns the number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.slots as usize - self.free.len()
    }

    pub(crate) fn get(&self, index: NodeIndex) -> Option<&Node> {
        let at = index.0 as usize;
        self.pieces.get(at / PIECE)?.get(at % PIECE)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: NodeIndex) -> Option<&mut Node> {
        let at = index.0 as usize;
        self.pieces.get_mut(at / PIECE)?.get_mut(at % PIECE)?.as_mut()
    }

    /// Inserts a node into the slot that was freed last, or into a new one.
    pub(crate) fn insert(&mut self, node: Node) -> NodeIndex {
        if let Some(index) = self.free.pop() {
            *self.slot(index) = Some(node);
            return index;
        }
        let index = NodeIndex(self.slots);
        self.slots = self
            .slots
            .checked_add(1)
            .expect("memory ends long before four billion znodes");
        if (index.0 as usize).is_multiple_of(PIECE) {
            self.pieces.push(Vec::with_capacity(PIECE));
        }
        self.pieces
            .last_mut()
            .expect("a piece was pushed at the latest just now")
            .push(Some(node));
        index
    }

    /// Removes a node and frees its slot.
    pub(crate) fn remove(&mut self, index: NodeIndex) -> Node {
        let node = self.slot(index).take().expect("only a live znode is removed");
        self.free.push(index);
        node
    }

    fn slot(&mut self, index: NodeIndex) -> &mut Option<Node> {
        let at = index.0 as usize;
        &mut self.pieces[at / PIECE][at % PIECE]
    }
}

impl Index<NodeIndex> for Slab {
    type Output = Node;

    fn index(&self, index: NodeIndex) -> &Node {
        self.get(index)
            .expect("an index is held only as long as its znode lives")
    }
}

impl IndexMut<NodeIndex> for Slab {
    fn index_mut(&mut self, index: NodeIndex) -> &mut Node {
        self.get_mut(index)
            .expect("an index is held only as long as its znode lives")
    }
}
