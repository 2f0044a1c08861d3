//! A tree out of the records of a snapshot, which come in no useful order and may be damaged: whatever they
//! say is checked before it is believed.

use alloc::vec::Vec;

use crate::ids::Zxid;
use crate::path::ZPath;
use crate::planted::{self, Bug};
use crate::snapshot::NEVER_COUNTED;
use crate::stable_hash::Table;
use crate::stat::Kind;
use crate::tree::node::{NodeIndex, PathHash};
use crate::tree::record::ZnodeRecord;
use crate::tree::{Acls, SPECIAL, Slab, Tree};

/// See the module.
#[derive(Default)]
pub(crate) struct Rebuild {
    slab: Slab,
    acls: Acls,
    /// Where the nodes lie now, by where they lay when the snapshot was taken.
    places: Table<NodeIndex, NodeIndex>,
}

/// What is wrong with the records.
pub(crate) type Damage = &'static str;

impl Rebuild {
    /// Takes one record of a tree that was as it was at `zxid`; the root's comes first.
    pub(crate) fn add(&mut self, record: ZnodeRecord, zxid: Zxid) -> Result<(), Damage> {
        if record.newest() > zxid {
            return Err("a znode in it is newer than it");
        }
        if record.creations() >= NEVER_COUNTED {
            return Err("a znode in it had more children than there can be");
        }
        let is_root = record.index == NodeIndex::ROOT;
        if is_root != (self.slab.len() == 0) {
            return Err("the root is not its first znode");
        }
        if is_root
            && (record.parent != NodeIndex::ROOT
                || !record.name.is_empty()
                || record.owner.kind() != Kind::Persistent)
        {
            return Err("its first znode is no root");
        }
        let before = record.index;
        let now = self.slab.insert(record.into_node(&mut self.acls)?);
        match self.places.insert(before, now) {
            None => Ok(()),
            Some(_) => Err("two of its znodes are the same"),
        }
    }

    /// The tree, and all its ephemeral nodes with their paths, the oldest first.
    pub(crate) fn finish(mut self) -> Result<(Tree, Vec<(ZPath, NodeIndex)>), Damage> {
        if self.slab.len() == 0 {
            return Err("it has no znodes");
        }
        for index in (1..self.slab.slots()).map(NodeIndex) {
            self.link(index)?;
        }
        if planted::is(Bug::ForgottenCounter) {
            for index in (0..self.slab.slots()).map(NodeIndex) {
                if let Some(family) = &mut self.slab[index].family {
                    family.facts.creations = family.children.len() as u64;
                }
            }
        }
        let mut tree = Tree {
            slab: self.slab,
            acls: self.acls,
            digest: 0,
            emptied: Default::default(),
            expiring: Default::default(),
            undo: None,
            drawing: None,
        };
        let mut ephemerals = Vec::new();
        let mut reached = 0;
        let mut todo = Vec::from([(NodeIndex::ROOT, ZPath::root())]);
        while let Some((index, path)) = todo.pop() {
            reached += 1;
            for child in tree.children(index) {
                let path = path
                    .join(&tree.node(child).name)
                    .map_err(|_| "a path in it is illegal")?;
                todo.push((child, path));
            }
            let hash = PathHash::of(path.as_str());
            tree.add_own_share(index, hash);
            let node = &tree.slab[index];
            tree.digest = tree.digest.wrapping_add(node.family_digest(hash));
            if node.session().is_some() {
                ephemerals.push((node.czxid, path, index));
            }
        }
        if reached != tree.slab.len() {
            return Err("some of its znodes are below none");
        }
        for (index, _, path) in SPECIAL {
            let path = ZPath::parse(path).expect("it is written in this crate");
            // Of another kind it could end, and it must not.
            if tree.find(&path) != Some(index) || tree.node(index).kind() != Kind::Persistent {
                return Err("what is there from the beginning is not in it");
            }
        }
        ephemerals.sort_unstable();
        Ok((
            tree,
            ephemerals
                .into_iter()
                .map(|(_, path, index)| (path, index))
                .collect(),
        ))
    }

    /// Puts a node into its parent's set of children.
    fn link(&mut self, index: NodeIndex) -> Result<(), Damage> {
        let slab = &mut self.slab;
        let parent = *self
            .places
            .get(&slab[index].parent)
            .ok_or("a znode in it has no parent")?;
        slab[index].parent = parent;
        if let Kind::Ephemeral(_) = slab[parent].kind() {
            return Err("an ephemeral znode in it has children");
        }
        // Out of the slab for a moment: the set of children asks the slab for their names.
        let mut family = slab[parent]
            .family
            .take()
            .ok_or("a znode in it has more children than it had")?;
        // Those that are there from the beginning were not created.
        let created =
            family.facts.creations + SPECIAL.iter().filter(|special| special.1 == parent).count() as u64;
        let name = &*slab[index].name;
        if family.children.find(name, |child| &slab[child].name).is_some() {
            return Err("two znodes in it have the same path");
        }
        family.children.insert(index, |child| &slab[child].name);
        if family.children.len() as u64 > created && !planted::is(Bug::ForgottenCounter) {
            return Err("a znode in it has more children than it had");
        }
        slab[parent].family = Some(family);
        Ok(())
    }
}
