//! The tree of znodes: look-ups and the three ways to change it. Every change here is legal already; what
//! may be refused is refused in [`crate::write`]. It emits no events and knows neither sessions nor locks.

mod children;
mod node;
mod rebuild;
mod record;
mod slab;
mod undo;

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

pub(crate) use node::{Family, Kind, Node, NodeIndex};
pub(crate) use rebuild::{Damage, Rebuild};
pub(crate) use record::ZnodeRecord;
pub(crate) use slab::Slab;
use undo::Undo;

use crate::ids::{Data, Zxid};
use crate::path::ZPath;
use crate::snapshot::Drawing;
use crate::stable_hash;

/// See the module.
pub(crate) struct Tree {
    slab: Slab,
    /// The sum of the digests of all nodes.
    digest: u64,
    /// Containers that had children and have none, by the time at which they lost the last one.
    emptied: BTreeSet<(u64, NodeIndex)>,
    /// How to take back what was changed since [`Tree::begin`].
    undo: Option<Vec<Undo>>,
    /// The snapshot that is being drawn, which must get to know a node before it changes.
    pub(crate) drawing: Option<Drawing>,
}

impl Tree {
    /// A tree that consists of its root.
    pub(crate) fn new() -> Self {
        let mut root = Node::new("", NodeIndex::ROOT, Kind::Persistent, Data::empty(), Zxid(0), 0);
        root.content = content(&ZPath::root(), &root.data);
        let mut tree = Self {
            slab: Slab::default(),
            digest: root.digest(),
            emptied: BTreeSet::new(),
            undo: None,
            drawing: None,
        };
        tree.slab.insert(root);
        tree
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) fn slab(&self) -> &Slab {
        &self.slab
    }

    /// The node at `index`, which must live.
    pub(crate) fn node(&self, index: NodeIndex) -> &Node {
        &self.slab[index]
    }

    /// The node at `path`.
    pub(crate) fn find(&self, path: &ZPath) -> Option<NodeIndex> {
        path.components()
            .try_fold(NodeIndex::ROOT, |parent, name| self.child(parent, name))
    }

    /// The child `name` of a node.
    pub(crate) fn child(&self, parent: NodeIndex, name: &str) -> Option<NodeIndex> {
        self.slab[parent]
            .family
            .as_ref()?
            .children
            .find(name, |child| &self.slab[child].name)
    }

    /// The children of a node, in no order.
    pub(crate) fn children(&self, parent: NodeIndex) -> impl Iterator<Item = NodeIndex> + '_ {
        self.slab[parent]
            .family
            .iter()
            .flat_map(|family| family.children.iter())
    }

    /// The names of the children of a node, sorted.
    pub(crate) fn child_names(&self, parent: NodeIndex) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = self
            .children(parent)
            .map(|child| Arc::from(&*self.slab[child].name))
            .collect();
        names.sort_unstable();
        names
    }

    /// The path of a node.
    pub(crate) fn path(&self, index: NodeIndex) -> ZPath {
        let mut names = Vec::with_capacity(4);
        let mut at = index;
        while at != NodeIndex::ROOT {
            names.push(&*self.slab[at].name);
            at = self.slab[at].parent;
        }
        let mut text = String::with_capacity(names.iter().map(|name| name.len() + 1).sum());
        for name in names.iter().rev() {
            text.push('/');
            text.push_str(name);
        }
        if text.is_empty() {
            ZPath::root()
        } else {
            ZPath::from_checked(text)
        }
    }

    /// Containers that were emptied before the given time, the longest empty ones first.
    pub(crate) fn emptied_before(&self, time_ms: u64) -> impl Iterator<Item = NodeIndex> + '_ {
        self.emptied
            .iter()
            .take_while(move |(emptied, _)| *emptied < time_ms)
            .map(|&(_, index)| index)
    }

    /// Adds a child that is not there yet. `path` is the child's.
    pub(crate) fn insert(
        &mut self,
        parent: NodeIndex,
        path: &ZPath,
        kind: Kind,
        data: Data,
        zxid: Zxid,
        now_ms: u64,
    ) -> NodeIndex {
        let mut node = Node::new(path.name(), parent, kind, data, zxid, now_ms);
        node.content = content(path, &node.data);
        self.digest = self.digest.wrapping_add(node.digest());
        self.before_change(parent);
        let index = self.slab.insert(node);
        let before = self.change_family(parent, |family, slab| {
            family.pzxid = zxid;
            family.creations += 1;
            family.children.insert(index, |child| &slab[child].name);
        });
        self.remember(Undo::Inserted {
            index,
            parent: before,
        });
        index
    }

    /// Removes a node that has no children and is not the root.
    pub(crate) fn remove(&mut self, index: NodeIndex, zxid: Zxid, now_ms: u64) {
        let parent = self.slab[index].parent;
        self.before_change(index);
        self.before_change(parent);
        let before = self.change_family(parent, |family, slab| {
            family.children.remove(index, |child| &slab[child].name);
            family.pzxid = zxid;
            family.emptied_at_ms = now_ms;
        });
        if let Some(emptied) = self.slab[index].emptied_at_ms() {
            self.emptied.remove(&(emptied, index));
        }
        let node = self.slab.remove(index);
        self.digest = self.digest.wrapping_sub(node.digest());
        self.remember(Undo::Removed { node, parent: before });
    }

    /// Replaces a node's data.
    pub(crate) fn set_data(&mut self, index: NodeIndex, data: Data, zxid: Zxid, now_ms: u64) {
        self.before_change(index);
        let node = &mut self.slab[index];
        self.digest = self.digest.wrapping_sub(node.digest());
        let old_hash = stable_hash::of_bytes(node.data.as_bytes());
        let new_hash = stable_hash::of_bytes(data.as_bytes());
        let undo = Undo::DataSet {
            index,
            data: core::mem::replace(&mut node.data, data),
            mzxid: node.mzxid,
            mtime_ms: node.mtime_ms,
            version: node.version,
            content: node.content,
        };
        node.content = node.content.wrapping_sub(old_hash).wrapping_add(new_hash);
        node.mzxid = zxid;
        node.mtime_ms = now_ms;
        // −1 would mean "any version" in the next request, so the counter passes over it.
        node.version = if node.version == -2 {
            0
        } else {
            node.version.wrapping_add(1)
        };
        self.digest = self.digest.wrapping_add(node.digest());
        self.remember(undo);
    }

    /// Changes what `parent` knows of its children, with digest and index of emptied containers kept true.
    fn change_family(
        &mut self,
        parent: NodeIndex,
        change: impl FnOnce(&mut Family, &Slab),
    ) -> undo::ParentBefore {
        let node = &mut self.slab[parent];
        self.digest = self.digest.wrapping_sub(node.digest());
        let emptied_before = node.emptied_at_ms();
        node.family_or_new();
        // Out of the slab for a moment: the set of children asks the slab for their names.
        let mut family = node.family.take().expect("it was made if it was missing");
        let before = undo::ParentBefore::of(parent, &family);
        change(&mut family, &self.slab);
        let node = &mut self.slab[parent];
        node.family = Some(family);
        self.digest = self.digest.wrapping_add(node.digest());
        let emptied_after = node.emptied_at_ms();
        if let Some(emptied) = emptied_before {
            self.emptied.remove(&(emptied, parent));
        }
        if let Some(emptied) = emptied_after {
            self.emptied.insert((emptied, parent));
        }
        before
    }

    /// Shows a node to the snapshot that is being drawn, before it changes.
    fn before_change(&mut self, index: NodeIndex) {
        if let Some(drawing) = &mut self.drawing {
            drawing.before_change(index, &self.slab[index]);
        }
    }
}

/// The part of a node's digest that depends on path and data. A sum, so that new data can take the place
/// of old data without the path.
fn content(path: &ZPath, data: &Data) -> u64 {
    stable_hash::of_bytes(path.as_str().as_bytes()).wrapping_add(stable_hash::of_bytes(data.as_bytes()))
}
