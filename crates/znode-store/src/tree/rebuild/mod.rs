//! Rebuild of a tree from the records of a snapshot. The records have no useful order and may be damaged, so all their facts are checked.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use fault_injection::planted::{self, Bug};

use crate::model::damage::{Damage, NEVER_COUNTED};
use crate::model::data::Data;
use crate::model::ids::Zxid;
use crate::model::path::{MAX_PATH_BYTES, SHORT_PATH_BYTES, ZPath, check_component};
use crate::model::stat::Kind;
use crate::stable_hash::Table;
use crate::tree::index::NodeIndex;
use crate::tree::node::{Family, PathHash};
use crate::tree::places::Places;
use crate::tree::record::ZnodeRecord;
use crate::tree::{Acls, SPECIAL, Slab, Tree};

/// Tree in the course of a rebuild.
#[derive(Default)]
pub(crate) struct Rebuild {
    slab: Slab,
    acls: Acls,
    /// Present index of each node by its index in the snapshot.
    places: Places,
}

/// Index of an ephemeral node, and its path unless that is long.
pub(crate) type Ephemeral = (Option<ZPath>, NodeIndex);

impl Rebuild {
    /// Adds one record of a tree at position `zxid`. The first one is that of the root.
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
            true => Ok(()),
            false => Err("two of its znodes are the same"),
        }
    }

    /// Replaces the empty data of the node with the former index `before` by null. Its record was added already.
    pub(crate) fn make_null(&mut self, before: NodeIndex) -> Result<(), Damage> {
        let now = self.places.get(before).ok_or("null data in it is of no znode")?;
        let data = &mut self.slab[now].data;
        match data.len() {
            0 => *data = Data::null().into(),
            _ => return Err("null data in it has bytes"),
        }
        Ok(())
    }

    /// Returns the tree, and all its ephemeral nodes, the oldest first; with their paths, except below paths of more than
    /// [`SHORT_PATH_BYTES`], where no lock is.
    ///
    /// Nodes are visited in the order of their indices, in which siblings mostly follow each other. So the parent is found once for several siblings,
    /// and its path is built once.
    pub(crate) fn finish(mut self) -> Result<(Tree, Vec<Ephemeral>), Damage> {
        if self.slab.len() == 0 {
            return Err("it has no znodes");
        }
        self.link_all()?;
        for index in (0..self.slab.slots()).map(NodeIndex) {
            if let Some(mut family) = self.slab[index].family.take() {
                family.children.put_in_order(|child| &self.slab[child].name);
                if planted::is(Bug::ForgottenCounter) {
                    family.facts.creations = family.children.len() as u64;
                }
                self.slab[index].family = Some(family);
            }
        }
        let mut tree = Tree {
            slab: self.slab,
            acls: self.acls,
            digest: 0,
            bytes: 0,
            nulls: 0,
            emptied: Default::default(),
            expiring: Default::default(),
            namespaces: Default::default(),
            undo: None,
            capture: None,
        };
        let mut ephemerals = Vec::new();
        let mut paths = Paths::default();
        for index in (0..tree.slab.slots()).map(NodeIndex) {
            let hash = paths.of(index, &tree.slab)?;
            tree.add_own_share(index, hash);
            if let Some(family) = &mut tree.slab[index].family {
                family.path = hash;
            }
            let node = &tree.slab[index];
            tree.digest = tree.digest.wrapping_add(node.family_digest());
            if node.session().is_some() {
                let path = paths.text().map(ZPath::parse).transpose();
                let path = path.map_err(|_| "a path in it is illegal")?;
                ephemerals.push((node.czxid, path, index));
            }
        }
        for (index, _, path) in SPECIAL {
            let path = ZPath::parse(path).expect("it is written in this crate");
            // A special node of another kind could end, which must not happen.
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

    /// Inserts every node into its parent's set of children.
    fn link_all(&mut self) -> Result<(), Damage> {
        let mut siblings: Option<Siblings> = None;
        for index in (1..self.slab.slots()).map(NodeIndex) {
            let before = self.slab[index].parent;
            let mut family = match siblings.take() {
                Some(same) if same.parent_before == before => same,
                other => {
                    if let Some(others) = other {
                        others.put_back(&mut self.slab);
                    }
                    self.siblings(before)?
                }
            };
            self.slab[index].parent = family.parent;
            let slab = &self.slab;
            if !family
                .inner
                .children
                .insert_unordered(index, |child| &slab[child].name)
            {
                return Err("two znodes in it have the same path");
            }
            if family.inner.children.len() as u64 > family.created && !planted::is(Bug::ForgottenCounter) {
                return Err("a znode in it has more children than it had");
            }
            siblings = Some(family);
        }
        if let Some(last) = siblings {
            last.put_back(&mut self.slab);
        }
        Ok(())
    }

    /// Returns the family of the node with the former index `before`. It is taken out of the slab meanwhile, because its set of children reads their
    /// names from the slab.
    fn siblings(&mut self, before: NodeIndex) -> Result<Siblings, Damage> {
        let parent = self.places.get(before).ok_or("a znode in it has no parent")?;
        let node = &mut self.slab[parent];
        if let Kind::Ephemeral(_) = node.kind() {
            return Err("an ephemeral znode in it has children");
        }
        let inner = node
            .family
            .take()
            .ok_or("a znode in it has more children than it had")?;
        // Nodes that exist from the beginning do not count as created.
        let special = SPECIAL.iter().filter(|special| special.1 == parent).count();
        Ok(Siblings {
            parent_before: before,
            parent,
            created: inner.facts.creations + special as u64,
            inner,
        })
    }
}

/// Children of one node in the course of a rebuild.
struct Siblings {
    /// Former and present index of the node.
    parent_before: NodeIndex,
    parent: NodeIndex,
    /// Maximum number of its children.
    created: u64,
    inner: Box<Family>,
}

impl Siblings {
    fn put_back(self, slab: &mut Slab) {
        slab[self.parent].family = Some(self.inner);
    }
}

/// Hasher of the paths of nodes, which caches the parent's path. It never builds a path of more than [`SHORT_PATH_BYTES`]: the hash of such a path is
/// made of its parent's hash, so that a deep tree costs no more than its names.
#[derive(Default)]
struct Paths {
    /// Parent of the visited nodes.
    parent: Option<NodeIndex>,
    /// Hash of the parent's path, if the path has more than [`SHORT_PATH_BYTES`].
    long: Option<PathHash>,
    /// Otherwise the parent's path with a slash at the end, followed by the name of the last visited node.
    text: String,
    /// Length of the parent's part of `text`.
    parent_bytes: usize,
    /// Buffer for the ancestors, from the parent upwards.
    ancestors: Vec<NodeIndex>,
    /// All parents so far with paths of more than [`SHORT_PATH_BYTES`], and the nodes between them.
    all_long: Table<NodeIndex, PathHash>,
}

impl Paths {
    /// Hashes the path of a node, whose ancestors were not checked yet.
    fn of(&mut self, index: NodeIndex, slab: &Slab) -> Result<PathHash, Damage> {
        if index == NodeIndex::ROOT {
            return Ok(PathHash::of("/"));
        }
        let node = &slab[index];
        if self.parent != Some(node.parent) {
            self.begin_with(node.parent, slab)?;
        }
        let illegal = "a path in it is illegal";
        if check_component(&node.name).is_err() || node.name.contains('/') {
            return Err(illegal);
        }
        let hash = match self.long {
            Some(parent) => parent.child_of_long(&node.name),
            None => {
                self.text.truncate(self.parent_bytes);
                self.text.push_str(&node.name);
                PathHash::of(&self.text)
            }
        };
        match hash.length <= MAX_PATH_BYTES {
            true => Ok(hash),
            false => Err(illegal),
        }
    }

    /// Returns the last hashed path, unless its parent's path has more than [`SHORT_PATH_BYTES`].
    fn text(&self) -> Option<&str> {
        self.long.is_none().then_some(&*self.text)
    }

    fn begin_with(&mut self, parent: NodeIndex, slab: &Slab) -> Result<(), Damage> {
        self.ancestors.clear();
        let mut at = parent;
        self.long = None;
        while at != NodeIndex::ROOT {
            self.long = self.all_long.get(&at).copied();
            if self.long.is_some() {
                break;
            }
            // A path to the root visits each node at most once, so a longer one is a cycle.
            if self.ancestors.len() == slab.len() {
                return Err("some of its znodes are below none");
            }
            self.ancestors.push(at);
            at = slab[at].parent;
        }
        self.text.clear();
        self.text.push('/');
        for &ancestor in self.ancestors.iter().rev() {
            let name = &slab[ancestor].name;
            let hash = match self.long {
                Some(above) => above.child_of_long(name),
                None => {
                    self.text.push_str(name);
                    if self.text.len() <= SHORT_PATH_BYTES {
                        self.text.push('/');
                        continue;
                    }
                    PathHash::of(&self.text)
                }
            };
            self.all_long.insert(ancestor, hash);
            self.long = Some(hash);
        }
        self.parent = Some(parent);
        self.parent_bytes = self.text.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
