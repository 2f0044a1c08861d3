//! Tables of tokens, roles and certificates, and the rights that they give a caller.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::model::access::principal::Principal;
use crate::model::access::right::{Right, Rights};
use crate::model::access::role::{PathGrant, RoleName, is_within};
use crate::model::access::token::{Token, TokenId};
use crate::model::identity::{Identities, Identity};
use crate::model::path::ZPath;
use crate::model::refusal::{Refusal, Unproven};

/// Maximum number of tokens, including expired ones until they are swept. Each takes about 400 bytes of memory, and each digest visits all.
pub const MAX_TOKENS: usize = 10_000;

/// Maximum number of roles besides `admin`.
pub const MAX_ROLES: usize = 256;

/// Maximum number of certificates with a role.
pub const MAX_CERTIFICATES: usize = 1_000;

/// Access policies. A snapshot in progress shares them.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) secured: bool,
    pub(crate) tokens: BTreeMap<TokenId, Token>,
    /// Roles with their grants, without `admin`.
    pub(crate) roles: BTreeMap<RoleName, Vec<PathGrant>>,
    pub(crate) certificates: BTreeMap<Arc<str>, RoleName>,
    /// True if the rule of [`super::AccessCommand::EndWaitsWithRights`] is set.
    pub(crate) waits_end_with_rights: bool,
}

impl Access {
    pub(crate) fn is_secured(&self) -> bool {
        self.secured
    }

    pub(crate) fn waits_end_with_rights(&self) -> bool {
        self.waits_end_with_rights
    }

    /// Returns the rights of a caller by all its identities. Refuses a caller with an invalid token, even if it also has a valid
    /// certificate, because the caller relies on a token that does not count. Refuses a caller without identities unless there is a role `anonymous`.
    pub(crate) fn caller_rights(
        &self,
        caller: &Identities,
        now_ms: u64,
    ) -> Result<CallerRights<'_>, Refusal> {
        let mut caller_rights = CallerRights {
            is_internal: false,
            has_all: false,
            own: None,
            others: Vec::new(),
            unproven: Some(Unproven::Nothing),
        };
        for identity in caller.iter() {
            match identity {
                Identity::Internal => {
                    caller_rights.is_internal = true;
                    caller_rights.has_all = true;
                }
                Identity::Super => caller_rights.has_all = true,
                Identity::Token(id) => {
                    let token = self.tokens.get(id).ok_or(Unproven::Token)?;
                    if token.is_expired(now_ms) {
                        return Err(Unproven::Expired.into());
                    }
                    self.add(&mut caller_rights, &token.role);
                }
                Identity::X509(text) => match self.certificates.get(text) {
                    Some(role) => self.add(&mut caller_rights, role),
                    None if caller_rights.unproven.is_some() => {
                        caller_rights.unproven = Some(Unproven::Certificate)
                    }
                    None => {}
                },
                // These identities count only for ZooKeeper's access control lists.
                Identity::Ip(_) | Identity::Digest(_) => {}
            }
        }
        if caller_rights.has_all {
            caller_rights.unproven = None;
        }
        match (self.roles.get(&RoleName::anonymous()), caller_rights.unproven) {
            (Some(grants), _) => caller_rights.add(grants),
            (None, Some(unproven)) => return Err(unproven.into()),
            (None, None) => {}
        }
        Ok(caller_rights)
    }

    fn add<'s>(&'s self, caller_rights: &mut CallerRights<'s>, role: &RoleName) {
        caller_rights.unproven = None;
        caller_rights.has_all |= role.is_admin();
        if let Some(grants) = self.roles.get(role) {
            caller_rights.add(grants);
        }
    }
}

/// Rights of a caller at one position of the state.
pub(crate) struct CallerRights<'s> {
    /// True if the caller is the cluster itself.
    pub(crate) is_internal: bool,
    /// True if the caller has every right everywhere.
    has_all: bool,
    /// Grants of its first role. Most callers have no other one, and then the rights of a request take no allocation.
    own: Option<&'s [PathGrant]>,
    /// Grants of its other roles.
    others: Vec<&'s [PathGrant]>,
    /// Missing proof of identity, if any.
    unproven: Option<Unproven>,
}

impl<'s> CallerRights<'s> {
    fn add(&mut self, grants: &'s [PathGrant]) {
        match self.own {
            None => self.own = Some(grants),
            Some(_) => self.others.push(grants),
        }
    }

    /// Returns whether the caller has a right at a path.
    pub(crate) fn may(&self, right: Right, path: &ZPath) -> bool {
        self.has_all || self.all_grants().any(|grant| grant.allows(right, path))
    }

    /// Returns whether the caller has one of these rights at a path.
    pub(crate) fn may_any(&self, rights: Rights, path: &ZPath) -> bool {
        rights.iter().any(|right| self.may(right, path))
    }

    /// Returns whether the caller has a right at a path, or somewhere below it.
    pub(crate) fn may_around(&self, right: Right, path: &ZPath) -> bool {
        let below = |grant: &PathGrant| grant.rights.contains(right) && is_within(&grant.prefix, path);
        self.may(right, path) || self.all_grants().any(below)
    }

    pub(crate) fn require(&self, right: Right, path: &ZPath) -> Result<(), Refusal> {
        match self.may(right, path) {
            true => Ok(()),
            false => Err(self.refusal(right, path)),
        }
    }

    /// Returns the refusal for a missing right. It requests authentication if the caller has no identity, and else says that the identity does not
    /// suffice.
    pub(crate) fn refusal(&self, right: Right, path: &ZPath) -> Refusal {
        match self.unproven {
            Some(unproven) => Refusal::Unauthenticated(unproven),
            None => Refusal::Forbidden {
                right,
                path: path.clone(),
            },
        }
    }

    /// Returns the grants of the caller, or `None` if it has all rights.
    pub(crate) fn listed(&self) -> Option<Vec<PathGrant>> {
        (!self.has_all).then(|| self.all_grants().cloned().collect())
    }

    fn all_grants(&self) -> impl Iterator<Item = &PathGrant> {
        self.own.iter().chain(&self.others).copied().flatten()
    }

    /// Returns whether the caller may administer everything.
    pub(crate) fn administers_all(&self) -> bool {
        self.may(Right::Administer, &ZPath::root())
    }

    /// Returns whether the caller may use the sessions of a principal.
    pub(crate) fn may_be(&self, owner: &Principal, caller: &Identities) -> bool {
        owner.is(caller) || self.administers_all()
    }
}
