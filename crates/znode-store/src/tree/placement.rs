//! Placement of a znode that is to be created: its parent, its missing ancestors, and the checks that the tree alone can make.

use alloc::vec::Vec;

use crate::model::acl::{Acl, Perms};
use crate::model::digits::MAX_SEQUENCE;
use crate::model::identity::Identities;
use crate::model::ids::SessionId;
use crate::model::path::{LOCK_ROOT, SHORT_PATH_BYTES, SHORT_PATH_DEPTH, ZPath};
use crate::model::refusal::{Limited, Refusal};
use crate::tree::Tree;
use crate::tree::index::NodeIndex;
use crate::tree::namespaces::NamespaceGrowth;
use crate::tree::node_data::NodeData;
use crate::tree::quota::Growth;

/// Placement of a node that is to be created.
pub(crate) struct Placement<'p> {
    /// Path of its parent.
    parent: &'p ZPath,
    /// Deepest existing ancestor.
    pub(crate) ancestor: NodeIndex,
    /// Lengths of the paths of the missing ancestors, from above. (The paths themselves would be much longer than the request, if the node is
    /// deep.)
    missing: Vec<usize>,
}

impl Placement<'_> {
    /// Returns whether the parent exists.
    pub(crate) fn has_parent(&self) -> bool {
        self.missing.is_empty()
    }

    /// Returns the number of missing ancestors.
    pub(crate) fn count_missing(&self) -> i64 {
        self.missing.len() as i64
    }

    /// Returns the number of missing ancestors in the namespace of the node. The parent of all locks is in none.
    pub(crate) fn count_missing_in_namespace(&self) -> u64 {
        let outside = |end: &&usize| &self.parent.as_str()[..**end] != LOCK_ROOT;
        self.missing.iter().filter(outside).count() as u64
    }

    /// Returns the paths of the missing ancestors, from above.
    pub(crate) fn missing(&self) -> impl Iterator<Item = ZPath> {
        let path = |&end: &usize| ZPath::from_checked(self.parent.as_str()[..end].into());
        self.missing.iter().map(path)
    }

    /// Returns the total bytes of the long paths among those of the missing ancestors.
    pub(crate) fn long_bytes(&self) -> usize {
        // The path of the parent is the longest one.
        if self.missing.is_empty() || self.parent.is_short() {
            return 0;
        }
        let depths = self.parent.depth() - self.missing.len() + 1..;
        let paths = self.missing.iter().zip(depths);
        let long = paths.filter(|&(&bytes, depth)| bytes > SHORT_PATH_BYTES || depth > SHORT_PATH_DEPTH);
        long.map(|(bytes, _)| bytes).sum()
    }
}

impl Tree {
    /// Refuses a creation below `place` to a caller without the right to it. New parents get the list `acl`, which has to give the right as
    /// well.
    pub(crate) fn may_create_at(
        &self,
        place: &Placement<'_>,
        acl: &Acl,
        caller: &Identities,
    ) -> Result<(), Refusal> {
        let list = self.acl(place.ancestor);
        if !list.allows(Perms::CREATE, caller) {
            return Err(Refusal::NoAuth(self.path(place.ancestor)));
        }
        match place.has_parent() {
            true => Ok(()),
            false => acl.require(Perms::CREATE, caller, place.parent),
        }
    }

    /// Refuses a creation below an ephemeral node, and below one with the maximum number of children.
    pub(crate) fn may_have_children(&self, place: &Placement<'_>, limit: u32) -> Result<(), Refusal> {
        let node = self.node(place.ancestor);
        let path = || self.path(place.ancestor);
        if node.session().is_some() {
            return Err(Refusal::NoChildrenForEphemerals(path()));
        }
        if node.num_children() >= limit as usize {
            return Err(Refusal::LimitReached {
                what: Limited::Children(path()),
                limit,
            });
        }
        Ok(())
    }

    /// Refuses a creation that would exceed a hard quota, or a quota of the namespace. An ephemeral node has an `owner`.
    pub(crate) fn check_quotas_of_creation(
        &self,
        place: &Placement<'_>,
        path: &ZPath,
        data: &NodeData,
        owner: Option<SessionId>,
    ) -> Result<(), Refusal> {
        // Missing parents count as well. They are counted in the quota of the node itself.
        let growth = Growth {
            count: 1 + place.count_missing(),
            bytes: data.len() as i64,
        };
        self.check_quota(path, growth)?;
        let growth = NamespaceGrowth {
            znodes: 1 + place.count_missing_in_namespace(),
            bytes: data.len() as u64,
            ephemeral: owner.map(|session| (session, place.has_parent().then_some(place.ancestor))),
        };
        self.check_namespace(path, &growth)
    }

    /// Returns the number of the next sequential child; `parent` is `None` if it does not exist yet.
    pub(crate) fn next_sequence(&self, parent: Option<NodeIndex>, path: &ZPath) -> Result<u64, Refusal> {
        match parent.map_or(0, |parent| self.node(parent).creations()) {
            sequence if sequence > MAX_SEQUENCE => Err(Refusal::SequenceExhausted(path.clone())),
            sequence => Ok(sequence),
        }
    }

    /// Returns the placement of children of `parent`.
    pub(crate) fn place_below<'p>(&self, parent: &'p ZPath) -> Placement<'p> {
        let mut ancestor = NodeIndex::ROOT;
        let mut missing = Vec::new();
        let mut end = 0;
        for name in parent.components() {
            end += 1 + name.len();
            match self.child(ancestor, name) {
                Some(child) if missing.is_empty() => ancestor = child,
                _ => missing.push(end),
            }
        }
        Placement {
            parent,
            ancestor,
            missing,
        }
    }
}
