//! Visibility of changes to a caller, for components that deliver events.

use crate::access::table::Access;
use crate::model::access::right::Right;
use crate::model::acl::{Acl, Perms};
use crate::model::identity::Identities;
use crate::model::path::ZPath;

/// Access policies at one position of the state, for the delivery of events. Cheap to copy.
#[derive(Clone, Copy)]
pub struct Visibility<'s> {
    /// Policies and time, or `None` if the state is open.
    access: Option<(&'s Access, u64)>,
}

impl<'s> Visibility<'s> {
    /// Returns the visibility by these policies at a time.
    pub(crate) fn of(access: &'s Access, now_ms: u64) -> Self {
        Self {
            access: access.is_secured().then_some((access, now_ms)),
        }
    }
}

impl Visibility<'_> {
    /// Returns the visibility of an open state: every caller may see everything.
    pub fn open() -> Self {
        Self { access: None }
    }

    /// Returns whether the policies give a caller a right at a path.
    pub fn may(&self, caller: &Identities, right: Right, path: &ZPath) -> bool {
        self.access.is_none_or(|(access, now_ms)| {
            access
                .caller_rights(caller, now_ms)
                .is_ok_and(|caller_rights| caller_rights.may(right, path))
        })
    }

    /// Returns whether the policies and the znode's own list let a caller read it.
    pub fn sees(&self, caller: &Identities, path: &ZPath, acl: &Acl) -> bool {
        acl.allows(Perms::READ, caller) && self.may(caller, Right::Read, path)
    }
}
