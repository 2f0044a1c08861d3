//! The tree of another server, brought here as it is there: with versions, times, lists and the counters that sequential
//! names come from, none of which an ordinary command can set. Positions (zxids) are this store's own. It also shows the tree
//! in such a way that whoever brings it can compare. Where the other tree comes from is not known here.

use alloc::string::String;
use alloc::vec::{IntoIter, Vec};

use crate::apply::Context;
use crate::model::access::right::Right;
use crate::model::acl::{Acl, MAX_ACL_BYTES, Perms};
use crate::model::data::Data;
use crate::model::digits::MAX_SEQUENCE;
use crate::model::event::ContenderEnd;
use crate::model::mirrored::{MirrorStep, Mirrored, MirroredKind};
use crate::model::path::ZPath;
use crate::model::refusal::Refusal;
use crate::model::reply::{Outcome, Reply};
use crate::model::stat::{MAX_TTL_MS, Stat};
use crate::read::View;
use crate::store::Store;
use crate::tree::Restated;
use crate::tree::index::NodeIndex;
use crate::tree::quota::is_stats_of_quota;

/// How many bytes the paths of a page have together, unless it is one.
const MAX_PAGE_PATH_BYTES: usize = 4 * 1024 * 1024;

/// A znode as it is here, with all that is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Where.
    pub path: ZPath,
    /// Its data.
    pub data: Data,
    /// Its list, with the hashes in it.
    pub acl: Acl,
    /// Its stat.
    pub stat: Stat,
    /// How many children were ever created.
    pub creations: u64,
}

impl Store {
    /// Takes all steps or none.
    pub(crate) fn mirror(&mut self, cx: &mut Context<'_>, steps: Vec<MirrorStep>) -> Outcome {
        let (events_before, count) = (cx.events.len(), steps.len() as u32);
        self.tree.begin();
        for (index, step) in (0..).zip(steps) {
            let taken = match step {
                MirrorStep::Put(znode) => self.put_mirrored(cx, znode),
                MirrorStep::Remove { path } => self.remove_mirrored(cx, &path),
            };
            if let Err(refusal) = taken {
                cx.events.truncate(events_before);
                self.roll_back();
                return Err(Refusal::Multi {
                    index,
                    refusal: refusal.into(),
                });
            }
        }
        self.tree.commit();
        Ok(Reply::Mirrored(count))
    }

    fn put_mirrored(&mut self, cx: &mut Context<'_>, znode: Mirrored) -> Result<(), Refusal> {
        self.check_mirrored(&znode)?;
        let found = self.tree.find(&znode.path);
        let Mirrored {
            path,
            mut data,
            acl,
            kind,
            version,
            aversion,
            ctime_ms,
            mtime_ms,
            creations,
        } = znode;
        // What a quota has used is counted here, whatever is said of it elsewhere.
        if let Some(index) = found.filter(|_| is_stats_of_quota(&path)) {
            data = self.tree.node(index).data.clone();
        }
        let restated = Restated {
            kind: kind.kind(),
            data,
            acl,
            version,
            aversion,
            ctime_ms,
            mtime_ms,
            creations,
        };
        let Some(index) = found else {
            let above = path.parent().expect("the root is always found");
            let place = self.tree.place_below(&above);
            if !place.has_parent() {
                return Err(Refusal::NoNode(above));
            }
            self.require_of_mirror(cx, place.ancestor, &[Perms::CREATE], &above)?;
            self.tree.may_have_children(&place, self.limits.children)?;
            self.add_restated(cx, place.ancestor, &path, restated);
            return Ok(());
        };
        let is_own = match index {
            NodeIndex::ROOT => kind != MirroredKind::Persistent,
            _ => index.is_special() || self.tree.node(index).session().is_some(),
        };
        if is_own {
            return Err(Refusal::NotMirrored(path));
        }
        self.require_of_mirror(cx, index, &[Perms::WRITE, Perms::ADMIN], &path)?;
        self.restate_node(cx, index, &path, restated);
        Ok(())
    }

    fn check_mirrored(&self, znode: &Mirrored) -> Result<(), Refusal> {
        self.check_size(&znode.data)?;
        let entries = znode.acl.entries();
        let bytes =
            |texts: usize, entry: &crate::model::acl::AclEntry| texts + entry.scheme.len() + entry.id.len();
        if entries.is_empty() || entries.iter().fold(0, bytes) > MAX_ACL_BYTES {
            let why = alloc::format!(
                "that of {} is empty, or has more than {MAX_ACL_BYTES} bytes",
                znode.path
            );
            return Err(Refusal::InvalidAcl(why));
        }
        match znode.kind {
            MirroredKind::Persistent | MirroredKind::Container | MirroredKind::Ttl(1..=MAX_TTL_MS) => {}
            MirroredKind::Ttl(ttl_ms) => return Err(Refusal::BadTtl(ttl_ms)),
        }
        // One more than the last number: none is left.
        match znode.creations <= MAX_SEQUENCE + 1 {
            true => Ok(()),
            false => Err(Refusal::SequenceExhausted(znode.path.clone())),
        }
    }

    fn remove_mirrored(&mut self, cx: &mut Context<'_>, path: &ZPath) -> Result<(), Refusal> {
        let Some(index) = self.tree.find(path) else {
            return Ok(());
        };
        let node = self.tree.node(index);
        if index.is_special() {
            return Err(Refusal::Undeletable(path.clone()));
        }
        if node.session().is_some() {
            return Err(Refusal::NotMirrored(path.clone()));
        }
        if node.num_children() > 0 {
            return Err(Refusal::NotEmpty(path.clone()));
        }
        let parent = node.parent;
        self.require_of_mirror(cx, parent, &[Perms::DELETE], path)?;
        self.remove_node(cx, index, path, ContenderEnd::Deleted);
        Ok(())
    }

    /// In a secured state whoever came here administers everything, and the lists are what is being brought. In an open one
    /// anybody can come here, and then the lists are all that protects a znode.
    fn require_of_mirror(
        &self,
        cx: &Context<'_>,
        index: NodeIndex,
        all_of: &[Perms],
        path: &ZPath,
    ) -> Result<(), Refusal> {
        if self.access.is_secured() {
            return Ok(());
        }
        let acl = self.tree.acl(index);
        all_of
            .iter()
            .try_for_each(|perms| acl.require(*perms, cx.caller, path))
    }
}

/// Reads for whoever compares the trees.
impl View<'_> {
    /// At most `count` znodes, `below` and all that is below it: parents before their children, siblings by name; those that
    /// follow `after` in this order, whether that one still exists or not. And whether there are more. Needs the right to
    /// administer at `/`; in an open state that to read each of them.
    pub fn mirror_page(
        &self,
        below: &ZPath,
        after: Option<&ZPath>,
        count: usize,
    ) -> Result<(Vec<Shown>, bool), Refusal> {
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
            page.push(Shown {
                path,
                data: node.data.clone(),
                acl: acl.clone(),
                stat: node.stat(),
                creations: node.creations(),
            });
        }
        Ok((page, false))
    }
}

/// A way through the tree, parents first.
struct Walk<'s> {
    store: &'s Store,
    /// The first node, if it is to be shown.
    top: Option<NodeIndex>,
    /// Where it goes on, the deepest place last.
    places: Vec<Siblings>,
}

/// Some of the children of one node.
struct Siblings {
    parent: NodeIndex,
    found: IntoIter<NodeIndex>,
    /// The name after which to look for others; none: from the first one on.
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

    /// The next node. At most `wanted` are wanted, so that it looks for no more siblings at a time.
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
