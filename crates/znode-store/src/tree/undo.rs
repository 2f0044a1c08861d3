//! Undo of a failed transaction, which restores even the sequence numbers. Steps are undone in reverse order, so every node returns to its former
//! slot.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::model::acl::Acl;
use crate::model::ids::{SessionId, Zxid};
use crate::model::path::ZPath;
use crate::tree::Tree;
use crate::tree::facts::{AllFacts, OwnFacts};
use crate::tree::index::NodeIndex;
use crate::tree::node::{FamilyFacts, Node};

/// Inverse of one change.
pub(crate) enum Undo {
    Inserted {
        index: NodeIndex,
        path: ZPath,
        parent: FamilyFacts,
    },
    Removed {
        node: Node,
        /// Access control list, because the table may have removed it with its last node.
        acl: Acl,
        path: ZPath,
        parent: FamilyFacts,
    },
    Changed {
        index: NodeIndex,
        path: ZPath,
        before: OwnFacts,
    },
    MirroredNode {
        index: NodeIndex,
        path: ZPath,
        before: Box<AllFacts>,
    },
}

impl Tree {
    /// Begins to log changes for an undo.
    pub(crate) fn begin(&mut self) {
        self.undo = Some(Vec::new());
    }

    /// Makes the changes since [`Tree::begin`] final.
    pub(crate) fn commit(&mut self) {
        self.undo = None;
    }

    /// Undoes all changes since [`Tree::begin`]. Calls `ephemeral` for each ephemeral node that the undo removes (`false`) or restores (`true`).
    pub(crate) fn roll_back(&mut self, mut ephemeral: impl FnMut(SessionId, (Zxid, NodeIndex), bool)) {
        for step in self.undo.take().into_iter().flatten().rev() {
            match step {
                Undo::Inserted { index, path, parent } => {
                    let node = self.detach(index, &path, |facts| *facts = parent);
                    if let Some(session) = node.session() {
                        ephemeral(session, (node.czxid, index), false);
                    }
                }
                Undo::Removed {
                    mut node,
                    acl,
                    path,
                    parent,
                } => {
                    node.acl = self.acls.take(&acl);
                    let (session, czxid) = (node.session(), node.czxid);
                    let index = self.attach(node, &path, |facts| *facts = parent);
                    if let Some(session) = session {
                        ephemeral(session, (czxid, index), true);
                    }
                }
                Undo::Changed { index, path, before } => {
                    let acl = self.acls.take(&before.acl);
                    let replaced = self.slab[index].acl;
                    self.change_own(index, &path, |node| {
                        node.data = before.data;
                        node.mzxid = before.mzxid;
                        node.mtime_ms = before.mtime_ms;
                        node.version = before.version;
                        node.acl = acl;
                        node.aversion = before.aversion;
                    });
                    self.acls.give_back(replaced);
                }
                Undo::MirroredNode { index, path, before } => self.replace_facts(index, &path, *before),
            }
        }
    }

    /// Logs a step, if changes are logged for an undo.
    pub(crate) fn remember(&mut self, step: impl FnOnce() -> Undo) {
        if let Some(undo) = &mut self.undo {
            undo.push(step());
        }
    }
}
