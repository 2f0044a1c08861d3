//! Pages of the tree for a comparison with the tree of another server.

use alloc::string::String;
use alloc::vec::{IntoIter, Vec};

use crate::model::access::right::Right;
use crate::model::acl::{Acl, Perms};
use crate::model::data::Data;
use crate::model::path::ZPath;
use crate::model::refusal::Refusal;
use crate::model::stat::Stat;
use crate::read::View;
use crate::store::Store;
use crate::tree::index::NodeIndex;

/// Maximum number of bytes of the paths of a page, unless there is only one.
const MAX_PAGE_PATH_BYTES: usize = 4 * 1024 * 1024;

/// Znode of this store with all compared facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirroredZnode {
    /// The path.
    pub path: ZPath,
    /// Its data.
    pub data: Data,
    /// Its access control list, with the hashes of passwords.
    pub acl: Acl,
    /// Its stat.
    pub stat: Stat,
    /// Number of children that were ever created.
    pub creations: u64,
}

/// Query for a comparison of two trees.
impl View<'_> {
    /// Returns at most `count` of the znodes at and below `below`: parents before their children, siblings by name. The page begins behind `after` in
    /// this order, whether that znode still exists or not. Also returns whether there are more. Needs the right to administer at `/`, or in an open
    /// state the right to read each znode.
    pub fn mirror_page(
        &self,
        below: &ZPath,
        after: Option<&ZPath>,
        count: usize,
    ) -> Result<(Vec<MirroredZnode>, bool), Refusal> {
        self.may(Right::Administer, &ZPath::root())?;
        let mut walk = Walk::new(self.store, below, after)?;
        let mut page = Vec::new();
        let mut path_bytes = 0;
        while let Some((path, index)) = walk.next(count - page.len() + 1) {
            path_bytes += path.as_str().len();
            if page.len() == count || path_bytes > MAX_PAGE_PATH_BYTES && !page.is_empty() {
                return Ok((page, true));
            }
            let acl = self.store.tree.acl(index);
            if !self.store.is_secured() {
                acl.require(Perms::READ, self.caller, &path)?;
            }
            let node = self.store.tree.node(index);
            page.push(MirroredZnode {
                path,
                data: node.data.to_data(),
                acl: acl.clone(),
                stat: node.stat(),
                creations: node.creations(),
            });
        }
        Ok((page, false))
    }
}

/// Traversal of the tree, parents first.
struct Walk<'s> {
    store: &'s Store,
    /// First znode, if it is to be returned.
    top: Option<NodeIndex>,
    /// Positions to continue at, the deepest last.
    places: Vec<Siblings>,
}

/// Some of the children of one znode.
struct Siblings {
    parent: NodeIndex,
    found: IntoIter<NodeIndex>,
    /// Name after which to search for the next ones; `None` for the first ones.
    after: Option<String>,
    more: bool,
}

impl<'s> Walk<'s> {
    fn new(store: &'s Store, below: &ZPath, after: Option<&ZPath>) -> Result<Self, Refusal> {
        let top = store.tree.require(below)?;
        let mut walk = Self {
            store,
            top: after.is_none().then_some(top),
            places: Vec::new(),
        };
        let mut parent = top;
        let passed = below.components().count();
        for name in after.iter().flat_map(|after| after.components().skip(passed)) {
            walk.enter(parent, Some(name.into()));
            match store.tree.child(parent, name) {
                Some(child) => parent = child,
                None => return Ok(walk),
            }
        }
        walk.enter(parent, None);
        Ok(walk)
    }

    fn enter(&mut self, parent: NodeIndex, after: Option<String>) {
        self.places.push(Siblings {
            parent,
            found: Vec::new().into_iter(),
            after,
            more: true,
        });
    }

    /// Returns the next znode. Searches for at most `wanted` siblings at a time.
    fn next(&mut self, wanted: usize) -> Option<(ZPath, NodeIndex)> {
        let tree = &self.store.tree;
        if let Some(top) = self.top.take() {
            return Some((tree.path(top), top));
        }
        loop {
            let place = self.places.last_mut()?;
            if let Some(index) = place.found.next() {
                place.after = Some(tree.node(index).name.as_str().into());
                if tree.node(index).num_children() > 0 {
                    self.enter(index, None);
                }
                return Some((tree.path(index), index));
            }
            if !place.more {
                self.places.pop();
                continue;
            }
            let (found, more) = tree.children_page(place.parent, "", place.after.as_deref(), wanted);
            (place.found, place.more) = (found.into_iter(), more);
        }
    }
}
