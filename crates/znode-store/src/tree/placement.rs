//! Placement of a znode that is to be created: its parent, its missing ancestors, and the checks that the tree alone can make.

use alloc::vec::Vec;

use crate::model::acl::{Acl, Perms};
use crate::model::digits::MAX_SEQUENCE;
use crate::model::identity::Identities;
use crate::model::path::{SHORT_PATH_BYTES, SHORT_PATH_DEPTH, ZPath};
use crate::model::refusal::{Limited, Refusal};
use crate::tree::Tree;
use crate::tree::index::NodeIndex;
use crate::tree::node_data::NodeData;
use crate::tree::quota::Growth;

/// Placement of a node that is to be created.
pub(crate) struct Placement<'p> {
    /// The parent that it is to have.
    parent: &'p ZPath,
    /// The deepest ancestor that exists.
    pub(crate) ancestor: NodeIndex,
    /// The lengths of the paths of the ancestors that do not, from above. (All these paths of a deep place would be much
    /// longer than what was asked.)
    missing: Vec<usize>,
}

impl Placement<'_> {
    /// Returns whether the parent exists.
    pub(crate) fn has_parent(&self) -> bool {
        self.missing.is_empty()
    }

    /// The number of ancestors that do not exist.
    pub(crate) fn count_missing(&self) -> i64 {
        self.missing.len() as i64
    }

    /// The paths of the ancestors that do not exist, from above.
    pub(crate) fn missing(&self) -> impl Iterator<Item = ZPath> {
        let path = |&end: &usize| ZPath::from_checked(self.parent.as_str()[..end].into());
        self.missing.iter().map(path)
    }

    /// The bytes of those of these paths that are long.
    pub(crate) fn long_bytes(&self) -> usize {
        // The last one is the longest.
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

    /// Refuses a creation below an ephemeral node, and below one that has as many children as it may.
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

    /// Refuses what would pass a hard quota.
    pub(crate) fn check_quotas_of_creation(
        &self,
        place: &Placement<'_>,
        path: &ZPath,
        data: &NodeData,
    ) -> Result<(), Refusal> {
        // Parents that are missing count as well; they are counted where the node itself is.
        let growth = Growth {
            count: 1 + place.count_missing(),
            bytes: data.len() as i64,
        };
        self.check_quota(path, growth)
    }

    /// The number that the next sequential child gets; `parent` is `None` if it does not exist yet.
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
