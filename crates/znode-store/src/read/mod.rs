//! Reads of the tree with a caller's rights, as ZooKeeper grants them. (The reads of [`Store`] itself check no rights; they are for the
//! server's own use and for embedding programs.)

mod access;
pub(crate) mod growth;
pub(crate) mod locks;
pub(crate) mod mirror_page;
pub(crate) mod namespaces;
pub(crate) mod pages;
mod would_wait;

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::model::access::right::Right;
use crate::model::acl::{Acl, Perms};
use crate::model::data::Data;
use crate::model::identity::Identities;
use crate::model::ids::SessionId;
use crate::model::path::ZPath;
use crate::model::refusal::Refusal;
use crate::model::stat::Stat;
use crate::store::Store;
use crate::tree::index::NodeIndex;

/// Maximum number of bytes of the names on a page of children, unless there is only one.
const MAX_PAGE_NAME_BYTES: usize = 4 * 1024 * 1024;

/// View of the state with the rights of one caller.
#[derive(Clone, Copy)]
pub struct View<'s> {
    pub(crate) store: &'s Store,
    pub(crate) caller: &'s Identities,
}

/// Page of the children of a znode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Their names and stats, by name.
    pub children: Vec<(Arc<str>, Stat)>,
    /// True if there are more after the last of these.
    pub more: bool,
}

impl Store {
    /// Returns the view of `caller`.
    pub fn seen_by<'s>(&'s self, caller: &'s Identities) -> View<'s> {
        View { store: self, caller }
    }
}

/// Queries of znodes. They refuse a path that the caller may not read by the policies with [`Refusal::Forbidden`], then a missing znode with
/// [`Refusal::NoNode`], and one that the caller may not read by its list with [`Refusal::NoAuth`].
impl View<'_> {
    /// Returns the data and the stat. Needs the right to read.
    pub fn get(&self, path: &ZPath) -> Result<(Data, Stat), Refusal> {
        let node = self.store.tree.node(self.find(path, Perms::READ)?);
        Ok((node.data.to_data(), node.stat()))
    }

    /// Returns the stat. Needs no right in the znode's list, as in ZooKeeper 3.8, but the right to read by the policies.
    pub fn exists(&self, path: &ZPath) -> Result<Stat, Refusal> {
        self.may(Right::Read, path)?;
        self.store.stat(path).ok_or_else(|| Refusal::NoNode(path.clone()))
    }

    /// Returns the names of all children, sorted, and the stat. Needs the right to read.
    pub fn children(&self, path: &ZPath) -> Result<(Vec<Arc<str>>, Stat), Refusal> {
        let index = self.find(path, Perms::READ)?;
        let tree = &self.store.tree;
        Ok((tree.child_names(index), tree.node(index).stat()))
    }

    /// Returns at most `count` children with their stats: the first whose names begin with `prefix` and follow `after`; fewer if their
    /// names take more than a few mebibytes. Needs the right to read the parent. The cost depends on what it returns, not on the number of
    /// children (beyond some thousands).
    pub fn children_page(
        &self,
        path: &ZPath,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> Result<Page, Refusal> {
        let index = self.find(path, Perms::READ)?;
        let tree = &self.store.tree;
        let (mut children, mut more) = tree.children_page(index, prefix, after, count);
        let mut bytes = 0;
        let mut fits = |child: &NodeIndex| {
            bytes += tree.node(*child).name.len();
            bytes <= MAX_PAGE_NAME_BYTES
        };
        let fitting = children.iter().take_while(|child| fits(child)).count().max(1);
        if fitting < children.len() {
            children.truncate(fitting);
            more = true;
        }
        let named = |child: NodeIndex| {
            let node = tree.node(child);
            (Arc::from(&*node.name), node.stat())
        };
        Ok(Page {
            children: children.into_iter().map(named).collect(),
            more,
        })
    }

    /// Returns the access control list, and the stat. Needs the right to read or to administer; without the latter the hashes of
    /// passwords are not shown.
    pub fn acl(&self, path: &ZPath) -> Result<(Acl, Stat), Refusal> {
        let index = self.find(path, Perms::READ | Perms::ADMIN)?;
        let acl = self.store.tree.acl(index);
        let shown = if self.may_change(acl, path) {
            acl.clone()
        } else {
            acl.masked()
        };
        Ok((shown, self.store.tree.node(index).stat()))
    }

    /// Returns the number of znodes below this one, at any depth. Needs the right to read.
    pub fn descendants(&self, path: &ZPath) -> Result<u64, Refusal> {
        let index = self.find(path, Perms::READ)?;
        Ok(self.store.tree.descendants(index))
    }

    /// Returns the ephemeral znodes of a session whose paths begin with `prefix`, sorted. By the policies it needs
    /// the session's own connection, or a caller that may use the session, and returns only paths that the caller may know.
    pub fn ephemerals(&self, session: SessionId, prefix: &str) -> Result<Vec<ZPath>, Refusal> {
        self.may_go_on(session)?;
        self.store.sessions.require(session)?;
        let state = self.store.sessions.get(session).expect("it lives");
        let paths = state
            .ephemerals
            .iter()
            .map(|&(_, index)| self.store.tree.path(index));
        let mut paths: Vec<_> = paths.filter(|path| path.as_str().starts_with(prefix)).collect();
        paths.sort_unstable();
        self.known(paths)
    }

    pub(crate) fn find(&self, path: &ZPath, perms: Perms) -> Result<NodeIndex, Refusal> {
        // The check comes before the znode is looked up, so that a refusal does not reveal whether the znode exists.
        match perms == Perms::READ | Perms::ADMIN && self.may(Right::Administer, path).is_ok() {
            true => {}
            false => self.may(Right::Read, path)?,
        }
        let index = self.store.tree.require(path)?;
        self.store.tree.acl(index).require(perms, self.caller, path)?;
        Ok(index)
    }
}
