//! Copies of nodes of another tree. They are created or changed with all their facts, while ordinary changes set some facts and derive the others.

use crate::model::acl::Acl;
use crate::model::ids::Zxid;
use crate::model::path::ZPath;
use crate::model::stat::{EphemeralOwner, Kind};
use crate::tree::facts::{AllFacts, OwnFacts};
use crate::tree::index::NodeIndex;
use crate::tree::node::Node;
use crate::tree::node_data::NodeData;
use crate::tree::undo::Undo;
use crate::tree::{SPECIAL, Tree};

/// Facts of a node to copy.
pub(crate) struct MirroredNode {
    pub(crate) kind: Kind,
    pub(crate) data: NodeData,
    pub(crate) acl: Acl,
    pub(crate) version: i32,
    pub(crate) aversion: i32,
    pub(crate) ctime_ms: u64,
    pub(crate) mtime_ms: u64,
    pub(crate) creations: u64,
}

impl Tree {
    /// Adds a missing child at `path`. The counter of the parent does not change, because it has, or will get, the value in the other tree. But it is
    /// raised if there would be more children than were ever created.
    pub(crate) fn insert_mirrored(
        &mut self,
        parent: NodeIndex,
        path: &ZPath,
        facts: MirroredNode,
        zxid: Zxid,
        now_ms: u64,
    ) -> NodeIndex {
        self.before_change(parent);
        let before = self.slab[parent].family_facts();
        let children = self.counted_children(parent) + 1;
        let acl = self.acls.take(&facts.acl);
        let mut node = Node::new(path.name(), parent, facts.kind, facts.data, acl, zxid, now_ms);
        (node.version, node.aversion) = (facts.version, facts.aversion);
        (node.ctime_ms, node.mtime_ms) = (facts.ctime_ms, facts.mtime_ms);
        if facts.creations > 0 {
            let mut family = node.take_family(|| path.as_str());
            (family.facts.creations, family.facts.emptied_at_ms) = (facts.creations, now_ms);
            node.family = Some(family);
        }
        let index = self.attach(node, path, |facts| {
            facts.pzxid = zxid;
            facts.creations = facts.creations.max(children);
        });
        self.remember(|| Undo::Inserted {
            index,
            path: path.clone(),
            parent: before,
        });
        index
    }

    /// Makes the node at `path` a copy. Its counter of creations still covers its present children, even if the other tree has fewer.
    pub(crate) fn mirror(
        &mut self,
        index: NodeIndex,
        path: &ZPath,
        facts: MirroredNode,
        zxid: Zxid,
        now_ms: u64,
    ) {
        self.before_change(index);
        let node = &self.slab[index];
        let before = self.all_facts(index);
        let is_written = node.data != facts.data || node.version != facts.version;
        let mut family = before.family;
        let creations = facts.creations.max(self.counted_children(index));
        if family.creations != creations || before.owner != EphemeralOwner::from(facts.kind) {
            (family.creations, family.emptied_at_ms) = (creations, now_ms);
        }
        let after = AllFacts {
            own: OwnFacts {
                data: facts.data,
                mzxid: if is_written { zxid } else { node.mzxid },
                mtime_ms: facts.mtime_ms,
                version: facts.version,
                acl: facts.acl,
                aversion: facts.aversion,
            },
            ctime_ms: facts.ctime_ms,
            owner: facts.kind.into(),
            family,
        };
        self.remember(|| Undo::MirroredNode {
            index,
            path: path.clone(),
            before: before.into(),
        });
        self.replace_facts(index, path, after);
    }

    /// Returns the number of its children that were created. Those that exist from the beginning were not.
    fn counted_children(&self, index: NodeIndex) -> u64 {
        let special = SPECIAL.iter().filter(|special| special.1 == index).count();
        (self.slab[index].num_children() - special) as u64
    }

    fn all_facts(&self, index: NodeIndex) -> AllFacts {
        let node = &self.slab[index];
        AllFacts {
            own: OwnFacts {
                data: node.data.clone(),
                mzxid: node.mzxid,
                mtime_ms: node.mtime_ms,
                version: node.version,
                acl: self.acls.get(node.acl).clone(),
                aversion: node.aversion,
            },
            ctime_ms: node.ctime_ms,
            owner: node.owner,
            family: node.family_facts(),
        }
    }
}
