//! Namespaces with quotas, with the rights of one caller.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use crate::access::table::CallerRights;
use crate::model::access::right::Right;
use crate::model::namespace::{NamespaceName, NamespaceView, namespace_of};
use crate::model::path::LOCK_ROOT;
use crate::model::refusal::Refusal;
use crate::read::View;

/// Page of the namespaces with quotas, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespacePage {
    /// Namespaces that the caller may see.
    pub namespaces: Vec<NamespaceView>,
    /// Name after which the next page begins; `None` on the last one.
    pub next_after: Option<NamespaceName>,
}

/// Returns whether a caller may see the quotas and the usage of a namespace: if it may read all its locks, or all its znodes.
fn may_see(rights: &CallerRights<'_>, name: &NamespaceName) -> bool {
    rights.may(Right::Read, &name.locks()) || rights.may(Right::Read, &name.znodes())
}

/// Returns the names of the namespaces that a caller [`may_see`], or `None` if these are all. They follow from its grants, so that no others have
/// to be visited.
fn seen(rights: &CallerRights<'_>) -> Option<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let grants = rights.listed()?;
    for grant in grants.iter().filter(|grant| grant.rights.contains(Right::Read)) {
        let prefix = &grant.prefix;
        let Some(name) = namespace_of(prefix) else {
            // It is the root, or the parent of all locks.
            return None;
        };
        let is_of_locks = prefix.as_str().starts_with(LOCK_ROOT) && prefix.depth() == 2;
        if is_of_locks || prefix.depth() == 1 {
            names.insert(name.into());
        }
    }
    Some(names)
}

impl View<'_> {
    /// Returns up to `count` of the namespaces with quotas that the caller may see, by name, with names that follow `after`.
    pub fn namespaces_page(&self, after: Option<&str>, count: usize) -> Result<NamespacePage, Refusal> {
        let namespaces = self.store.tree.namespaces();
        let names = self.caller_rights()?.as_ref().and_then(seen);
        let (page, more): (Vec<_>, bool) = match names {
            None => {
                let mut following = namespaces.following(after);
                (
                    following.by_ref().take(count).collect(),
                    following.next().is_some(),
                )
            }
            Some(names) => {
                let named = names
                    .iter()
                    .filter(|name| after.is_none_or(|after| name.as_str() > after));
                let mut following = named.filter_map(|name| namespaces.get(name));
                (
                    following.by_ref().take(count).collect(),
                    following.next().is_some(),
                )
            }
        };
        let last = page.last().filter(|_| more);
        Ok(NamespacePage {
            next_after: last.map(|view| view.namespace.clone()),
            namespaces: page,
        })
    }

    /// Returns a namespace with quotas, for callers that may see it.
    pub fn namespace(&self, name: &NamespaceName) -> Result<NamespaceView, Refusal> {
        if let Some(rights) = self.caller_rights()?
            && !may_see(&rights, name)
        {
            return Err(rights.refusal(Right::Read, &name.locks()));
        }
        let found = self.store.namespace(name.as_str());
        found.ok_or_else(|| Refusal::NoNamespace(name.clone()))
    }
}
