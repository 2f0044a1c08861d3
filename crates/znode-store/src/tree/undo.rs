//! Taking back a transaction that failed half way, so that not even its sequence numbers are missed. Steps
//! are taken back in reverse order, so every node returns to the very place that it had.

use alloc::vec::Vec;

use crate::ids::{Data, SessionId, Zxid};
use crate::tree::Tree;
use crate::tree::node::{Family, Node, NodeIndex};

/// How to take one change back.
pub(crate) enum Undo {
    Inserted {
        index: NodeIndex,
        parent: ParentBefore,
    },
    Removed {
        node: Node,
        parent: ParentBefore,
    },
    DataSet {
        index: NodeIndex,
        data: Data,
        mzxid: Zxid,
        mtime_ms: u64,
        version: i32,
        content: u64,
    },
}

/// What a parent knew of its children, the set of them excepted.
pub(crate) struct ParentBefore {
    parent: NodeIndex,
    pzxid: Zxid,
    creations: u64,
    emptied_at_ms: u64,
}

impl ParentBefore {
    pub(crate) fn of(parent: NodeIndex, family: &Family) -> Self {
        Self {
            parent,
            pzxid: family.pzxid,
            creations: family.creations,
            emptied_at_ms: family.emptied_at_ms,
        }
    }

    fn restore(&self, family: &mut Family) {
        family.pzxid = self.pzxid;
        family.creations = self.creations;
        family.emptied_at_ms = self.emptied_at_ms;
    }
}

impl Tree {
    /// From now on changes can be taken back.
    pub(crate) fn begin(&mut self) {
        self.undo = Some(Vec::new());
    }

    /// The changes since [`Tree::begin`] stand.
    pub(crate) fn commit(&mut self) {
        self.undo = None;
    }

    /// Takes back all changes since [`Tree::begin`], and tells of each ephemeral node that is gone again
    /// (`false`) or there again (`true`).
    pub(crate) fn roll_back(&mut self, mut ephemeral: impl FnMut(SessionId, NodeIndex, bool)) {
        for step in self.undo.take().into_iter().flatten().rev() {
            match step {
                Undo::Inserted { index, parent } => {
                    self.change_family(parent.parent, |family, slab| {
                        family.children.remove(index, |child| &slab[child].name);
                        parent.restore(family);
                    });
                    let node = self.slab.remove(index);
                    self.digest = self.digest.wrapping_sub(node.digest());
                    if let Some(session) = node.session() {
                        ephemeral(session, index, false);
                    }
                    if let Some(emptied) = node.emptied_at_ms() {
                        self.emptied.remove(&(emptied, index));
                    }
                }
                Undo::Removed { node, parent } => {
                    self.digest = self.digest.wrapping_add(node.digest());
                    let emptied = node.emptied_at_ms();
                    let session = node.session();
                    let index = self.slab.insert(node);
                    if let Some(session) = session {
                        ephemeral(session, index, true);
                    }
                    self.emptied.extend(emptied.map(|emptied| (emptied, index)));
                    self.change_family(parent.parent, |family, slab| {
                        family.children.insert(index, |child| &slab[child].name);
                        parent.restore(family);
                    });
                }
                Undo::DataSet {
                    index,
                    data,
                    mzxid,
                    mtime_ms,
                    version,
                    content,
                } => {
                    let node = &mut self.slab[index];
                    self.digest = self.digest.wrapping_sub(node.digest());
                    node.data = data;
                    node.mzxid = mzxid;
                    node.mtime_ms = mtime_ms;
                    node.version = version;
                    node.content = content;
                    self.digest = self.digest.wrapping_add(node.digest());
                }
            }
        }
    }

    pub(crate) fn remember(&mut self, step: Undo) {
        if let Some(undo) = &mut self.undo {
            undo.push(step);
        }
    }
}
