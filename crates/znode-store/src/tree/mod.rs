//! Tree of znodes: lookups, changes, their undo, and the checks that need only the tree (placement, quotas). Other checks are in `apply`. This module
//! depends on the values of the model, and on no other part of the state.

mod acls;
mod capture;
mod children;
mod facts;
pub(crate) mod index;
mod mirrored;
pub(crate) mod namespaces;
mod node;
pub(crate) mod node_data;
mod order;
mod places;
pub(crate) mod placement;
pub(crate) mod quota;
mod rebuild;
mod record;
mod slab;
mod undo;

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

pub(crate) use acls::Acls;
pub(crate) use mirrored::MirroredNode;
pub(crate) use node::{Family, Node};
use node::{FamilyFacts, PathHash};
pub(crate) use rebuild::Rebuild;
pub(crate) use record::ZnodeRecord;
pub(crate) use slab::Slab;
use undo::Undo;

use crate::model::acl::Acl;
use crate::model::contender::Written;
use crate::model::data::Data;
use crate::model::ids::Zxid;
use crate::model::path::ZPath;
use crate::model::refusal::Refusal;
use crate::model::stat::Kind;
use crate::tree::capture::Capture;
use crate::tree::facts::{AllFacts, OwnFacts};
use crate::tree::index::NodeIndex;
use crate::tree::namespaces::Namespaces;
use crate::tree::node_data::NodeData;

/// Nodes of `/zookeeper` that exist from the beginning: index, index of the parent, name.
const SPECIAL: [(NodeIndex, NodeIndex, &str); 3] = [
    (NodeIndex::SYSTEM, NodeIndex::ROOT, "/zookeeper"),
    (NodeIndex::QUOTA, NodeIndex::SYSTEM, "/zookeeper/quota"),
    (NodeIndex::CONFIG, NodeIndex::SYSTEM, "/zookeeper/config"),
];

/// Tree of znodes.
pub(crate) struct Tree {
    slab: Slab,
    acls: Acls,
    /// Digest of the tree: the sum of the shares of all nodes.
    digest: u64,
    /// Number of bytes of all paths and all data.
    bytes: u64,
    /// Number of nodes whose data is null.
    nulls: u64,
    /// Containers that had children and have none, by the time at which they lost the last one.
    emptied: BTreeSet<(u64, NodeIndex)>,
    /// TTL nodes without children, by the time at which they expire.
    expiring: BTreeSet<(u64, NodeIndex)>,
    /// Namespaces with quotas, and their usage.
    namespaces: Namespaces,
    /// Undo log of the changes since [`Tree::begin`].
    undo: Option<Vec<Undo>>,
    /// Capture for a snapshot, which copies a node before it changes.
    capture: Option<Capture>,
}

/// Znode to create.
pub(crate) struct NewZnode<'a> {
    pub(crate) path: &'a ZPath,
    pub(crate) kind: Kind,
    pub(crate) data: NodeData,
    pub(crate) acl: &'a Acl,
}

impl Tree {
    /// Returns a tree of the nodes that exist from the beginning. As in ZooKeeper they do not count as created: the first sequence number below the
    /// root is 0, and its `cversion` is −1.
    pub(crate) fn new() -> Self {
        let mut tree = Self {
            slab: Slab::default(),
            acls: Acls::default(),
            digest: 0,
            bytes: 0,
            nulls: 0,
            emptied: BTreeSet::new(),
            expiring: BTreeSet::new(),
            namespaces: Namespaces::default(),
            undo: None,
            capture: None,
        };
        let new = |path: &ZPath, parent| {
            let (kind, data) = (Kind::Persistent, Data::empty().into());
            Node::new(path.name(), parent, kind, data, acls::AclIndex::OPEN, Zxid(0), 0)
        };
        let root = tree.slab.insert(new(&ZPath::root(), NodeIndex::ROOT));
        tree.add_own_share(root, PathHash::of("/"));
        for (index, parent, path) in SPECIAL {
            let path = ZPath::parse(path).expect("it is written here");
            let mut node = new(&path, parent);
            if index == NodeIndex::CONFIG {
                node.acl = tree.acls.take(&Acl::read_only());
                node.aversion = -1;
            }
            let placed = tree.attach(node, &path, |_| {});
            debug_assert_eq!(placed, index);
        }
        tree
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns the number of bytes of all paths and all data.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of nodes whose data is null.
    pub(crate) fn nulls(&self) -> u64 {
        self.nulls
    }

    /// Returns the node at `index`, which must exist.
    pub(crate) fn node(&self, index: NodeIndex) -> &Node {
        &self.slab[index]
    }

    /// Returns the node at `path`.
    pub(crate) fn find(&self, path: &ZPath) -> Option<NodeIndex> {
        path.components()
            .try_fold(NodeIndex::ROOT, |parent, name| self.child(parent, name))
    }

    /// Returns the child `name` of a node.
    pub(crate) fn child(&self, parent: NodeIndex, name: &str) -> Option<NodeIndex> {
        self.slab[parent]
            .family
            .as_ref()?
            .children
            .find(name, |child| &self.slab[child].name)
    }

    /// Returns the children of a node, in no order.
    pub(crate) fn children(&self, parent: NodeIndex) -> impl Iterator<Item = NodeIndex> + '_ {
        self.slab[parent]
            .family
            .iter()
            .flat_map(|family| family.children.iter())
    }

    /// Returns the names of the children of a node, sorted.
    pub(crate) fn child_names(&self, parent: NodeIndex) -> Vec<Arc<str>> {
        let (children, _) = self.children_page(parent, "", None, usize::MAX);
        let names = children
            .into_iter()
            .map(|child| Arc::from(&*self.slab[child].name));
        names.collect()
    }

    /// Returns at most `count` children whose names begin with `prefix` and follow `after`, by name, and whether there are more.
    pub(crate) fn children_page(
        &self,
        parent: NodeIndex,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> (Vec<NodeIndex>, bool) {
        let name_of = |child: NodeIndex| &*self.slab[child].name;
        match &self.slab[parent].family {
            Some(family) => family.children.page(prefix, after, count, name_of),
            None => (Vec::new(), false),
        }
    }

    /// Returns the name of a node in its parent. That of the root is empty.
    pub(crate) fn name(&self, index: NodeIndex) -> &str {
        &self.slab[index].name
    }

    /// Returns the path of a node.
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

    /// Returns the length of the path of a node. For the root it is 0.
    pub(crate) fn path_bytes(&self, index: NodeIndex) -> usize {
        let (mut bytes, mut at) = (0, index);
        while at != NodeIndex::ROOT {
            bytes += 1 + self.slab[at].name.len();
            at = self.slab[at].parent;
        }
        bytes
    }

    /// Returns the containers that were emptied before the given time, those empty for longest first.
    pub(crate) fn emptied_before(&self, time_ms: u64) -> impl Iterator<Item = NodeIndex> + '_ {
        self.emptied
            .iter()
            .take_while(move |(emptied, _)| *emptied < time_ms)
            .map(|&(_, index)| index)
    }

    /// Returns the expired TTL nodes without children, those expired for longest first.
    pub(crate) fn expired_until(&self, time_ms: u64) -> impl Iterator<Item = NodeIndex> + '_ {
        self.expiring
            .iter()
            .take_while(move |(expires, _)| *expires <= time_ms)
            .map(|&(_, index)| index)
    }

    /// Returns the access control list of a node.
    pub(crate) fn acl(&self, index: NodeIndex) -> &Acl {
        self.acls.get(self.slab[index].acl)
    }

    /// Returns the node at `path`, or the refusal for a missing node.
    pub(crate) fn require(&self, path: &ZPath) -> Result<NodeIndex, Refusal> {
        self.find(path).ok_or_else(|| Refusal::NoNode(path.clone()))
    }

    /// Returns the number of nodes below a node.
    pub(crate) fn descendants(&self, index: NodeIndex) -> u64 {
        let (mut count, mut todo) = (0, Vec::from([index]));
        while let Some(index) = todo.pop() {
            count += self.slab[index].num_children() as u64;
            todo.extend(
                self.children(index)
                    .filter(|&child| self.slab[child].num_children() > 0),
            );
        }
        count
    }

    /// Adds a missing child.
    pub(crate) fn insert(
        &mut self,
        parent: NodeIndex,
        znode: NewZnode<'_>,
        zxid: Zxid,
        now_ms: u64,
    ) -> NodeIndex {
        self.before_change(parent);
        let facts = self.slab[parent].family_facts();
        let (path, acl) = (znode.path, self.acls.take(znode.acl));
        let node = Node::new(path.name(), parent, znode.kind, znode.data, acl, zxid, now_ms);
        let index = self.attach(node, path, |facts| {
            facts.pzxid = zxid;
            facts.creations += 1;
        });
        self.remember(|| Undo::Inserted {
            index,
            path: path.clone(),
            parent: facts,
        });
        index
    }

    /// Removes the node at `path`, which has no children and is not the root.
    pub(crate) fn remove(&mut self, index: NodeIndex, path: &ZPath, zxid: Zxid, now_ms: u64) {
        let parent = self.slab[index].parent;
        self.before_change(index);
        self.before_change(parent);
        let facts = self.slab[parent].family_facts();
        let acl = self.acls.get(self.slab[index].acl).clone();
        let node = self.detach(index, path, |facts| {
            facts.pzxid = zxid;
            facts.emptied_at_ms = now_ms;
        });
        self.remember(|| Undo::Removed {
            node,
            acl,
            path: path.clone(),
            parent: facts,
        });
    }

    /// Replaces the data of the node at `path`.
    pub(crate) fn set_data(
        &mut self,
        index: NodeIndex,
        path: &ZPath,
        data: NodeData,
        zxid: Zxid,
        now_ms: u64,
    ) {
        self.change(index, path, |node| {
            node.data = data;
            node.mzxid = zxid;
            node.mtime_ms = now_ms;
            // The counter skips −1, which would mean "any version" in the next request.
            node.version = if node.version == -2 {
                0
            } else {
                node.version.wrapping_add(1)
            };
        });
    }

    /// Corrects the data of the node at `path`, without a new version.
    pub(crate) fn correct_data(&mut self, index: NodeIndex, path: &ZPath, data: NodeData) {
        self.change(index, path, |node| node.data = data);
    }

    /// Replaces the data of the contender at `path`, which is the JSON of this record, by the record.
    pub(crate) fn restore_record(&mut self, index: NodeIndex, path: &ZPath, record: Arc<Written>) {
        self.change_own(index, path, |node| node.data = NodeData::of_contender(record));
    }

    /// Replaces the access control list of the node at `path`.
    pub(crate) fn set_acl(&mut self, index: NodeIndex, path: &ZPath, acl: &Acl) {
        let (before, after) = (self.slab[index].acl, self.acls.take(acl));
        self.change(index, path, |node| {
            node.acl = after;
            node.aversion = node.aversion.wrapping_add(1);
        });
        self.acls.give_back(before);
    }

    /// Sets the number of children that were created below a node.
    #[cfg(test)]
    pub(crate) fn pretend_creations(&mut self, index: NodeIndex, creations: u64) {
        let path = self.path(index);
        self.change_family(
            index,
            || path.as_str(),
            |family, _| family.facts.creations = creations,
        );
    }

    /// Changes the own facts of a node, and logs the undo.
    fn change(&mut self, index: NodeIndex, path: &ZPath, change: impl FnOnce(&mut Node)) {
        self.before_change(index);
        if let Some(undo) = &mut self.undo {
            let node = &self.slab[index];
            undo.push(Undo::Changed {
                index,
                path: path.clone(),
                before: OwnFacts {
                    data: node.data.clone(),
                    mzxid: node.mzxid,
                    mtime_ms: node.mtime_ms,
                    version: node.version,
                    acl: self.acls.get(node.acl).clone(),
                    aversion: node.aversion,
                },
            });
        }
        self.change_own(index, path, change);
    }

    /// Changes the own facts of a node, and updates all that follows from them.
    fn change_own(&mut self, index: NodeIndex, path: &ZPath, change: impl FnOnce(&mut Node)) {
        let (hash, bytes) = (PathHash::of(path.as_str()), self.slab[index].data.len());
        self.remove_own_share(index, hash);
        change(&mut self.slab[index]);
        self.add_own_share(index, hash);
        self.count_replaced(index, path, bytes);
    }

    /// Replaces all facts of a node, and updates all that follows from them.
    pub(crate) fn replace_facts(&mut self, index: NodeIndex, path: &ZPath, facts: AllFacts) {
        let hash = PathHash::of(path.as_str());
        let AllFacts {
            own,
            ctime_ms,
            owner,
            family,
        } = facts;
        let (before, after) = (self.slab[index].acl, self.acls.take(&own.acl));
        let bytes = self.slab[index].data.len();
        self.remove_own_share(index, hash);
        self.digest = self.digest.wrapping_sub(self.slab[index].family_digest());
        let node = &mut self.slab[index];
        node.data = own.data;
        node.mzxid = own.mzxid;
        node.mtime_ms = own.mtime_ms;
        node.version = own.version;
        node.acl = after;
        node.aversion = own.aversion;
        node.ctime_ms = ctime_ms;
        node.owner = owner;
        // A node that never had a child has no family, and none is made for facts without creations.
        if node.family.is_some() || family.creations > 0 {
            let mut kept = node.take_family(|| path.as_str());
            kept.facts = family;
            node.family = Some(kept);
        }
        self.digest = self.digest.wrapping_add(self.slab[index].family_digest());
        self.add_own_share(index, hash);
        self.count_replaced(index, path, bytes);
        self.acls.give_back(before);
    }

    /// Inserts a node into the tree below its parent, and changes the facts of the parent.
    fn attach(&mut self, node: Node, path: &ZPath, change: impl FnOnce(&mut FamilyFacts)) -> NodeIndex {
        let (parent, hash) = (node.parent, PathHash::of(path.as_str()));
        // An undone removal restores a node that may have had children.
        self.digest = self.digest.wrapping_add(node.family_digest());
        let index = self.slab.insert(node);
        self.add_own_share(index, hash);
        self.change_family(
            parent,
            || path.parent_text(),
            |family, slab| {
                change(&mut family.facts);
                family.children.insert(index, |child| &slab[child].name);
            },
        );
        self.count_inserted(index, path);
        index
    }

    /// Removes a node from the tree, and changes the facts of its parent.
    fn detach(&mut self, index: NodeIndex, path: &ZPath, change: impl FnOnce(&mut FamilyFacts)) -> Node {
        let (parent, hash) = (self.slab[index].parent, PathHash::of(path.as_str()));
        self.count_removed(index, path);
        self.change_family(
            parent,
            || path.parent_text(),
            |family, slab| {
                family.children.remove(index, |child| &slab[child].name);
                change(&mut family.facts);
            },
        );
        self.remove_own_share(index, hash);
        let node = self.slab.remove(index);
        // The node has no children, but it may have had some.
        self.digest = self.digest.wrapping_sub(node.family_digest());
        self.acls.give_back(node.acl);
        node
    }

    /// Adds the shares of a node to the digest, the counts and the lists of the tree.
    fn add_own_share(&mut self, index: NodeIndex, path: PathHash) {
        let node = &self.slab[index];
        let share = node.own_digest(path, self.acls.hash(node.acl));
        self.digest = self.digest.wrapping_add(share);
        self.bytes += (path.length + node.data.len()) as u64;
        self.nulls += u64::from(node.data.is_null());
        self.emptied
            .extend(node.emptied_at_ms().map(|emptied| (emptied, index)));
        self.expiring
            .extend(node.expires_at_ms().map(|expires| (expires, index)));
    }

    /// Subtracts the shares of a node that [`Tree::add_own_share`] has added.
    fn remove_own_share(&mut self, index: NodeIndex, path: PathHash) {
        let node = &self.slab[index];
        let share = node.own_digest(path, self.acls.hash(node.acl));
        self.digest = self.digest.wrapping_sub(share);
        self.bytes -= (path.length + node.data.len()) as u64;
        self.nulls -= u64::from(node.data.is_null());
        if let Some(emptied) = node.emptied_at_ms() {
            self.emptied.remove(&(emptied, index));
        }
        if let Some(expires) = node.expires_at_ms() {
            self.expiring.remove(&(expires, index));
        }
    }

    /// Changes the family of `parent`, which is at `path`, and updates all that follows from it.
    fn change_family<'p>(
        &mut self,
        parent: NodeIndex,
        path: impl FnOnce() -> &'p str,
        change: impl FnOnce(&mut Family, &Slab),
    ) {
        let node = &mut self.slab[parent];
        self.digest = self.digest.wrapping_sub(node.family_digest());
        let before = (node.emptied_at_ms(), node.expires_at_ms());
        // The family is taken out of the slab for a moment, because its set of children reads their names from the slab.
        let mut family = node.take_family(path);
        change(&mut family, &self.slab);
        let node = &mut self.slab[parent];
        node.family = Some(family);
        self.digest = self.digest.wrapping_add(node.family_digest());
        let after = (node.emptied_at_ms(), node.expires_at_ms());
        if before != after {
            let key = |time: u64| (time, parent);
            before.0.map(|emptied| self.emptied.remove(&key(emptied)));
            before.1.map(|expires| self.expiring.remove(&key(expires)));
            self.emptied.extend(after.0.map(key));
            self.expiring.extend(after.1.map(key));
        }
    }

    /// Copies a node for the capture of a snapshot, before it changes.
    fn before_change(&mut self, index: NodeIndex) {
        if self.capture.is_some() {
            self.copy_for_capture(index);
        }
    }
}
