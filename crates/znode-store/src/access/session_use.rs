//! Use of sessions: by the principal that opened the session, and by callers that administer everything.

use alloc::sync::Arc;

use fault_injection::planted::{self, Bug};

use crate::access::table::{Access, CallerRights};
use crate::model::access::principal::Principal;
use crate::model::access::right::{Right, Rights};
use crate::model::identity::Identities;
use crate::model::path::LockName;
use crate::model::refusal::Refusal;
use crate::model::session::OwnedSession;

impl CallerRights<'_> {
    /// Refuses the use of another principal's session.
    pub(crate) fn may_use(&self, owned: OwnedSession<'_>, caller: &Identities) -> Result<(), Refusal> {
        match owned.owner {
            Some(owner) if !self.may_be(owner, caller) => Err(Refusal::NotYourSession(owned.session)),
            _ => Ok(()),
        }
    }

    /// Refuses the use of another principal's session by the connection that has opened it, or resumed it by its password. If the session has no
    /// owner, that connection may authenticate, and then owns the session.
    pub(crate) fn may_go_on(&self, owned: OwnedSession<'_>, caller: &Identities) -> Result<(), Refusal> {
        match owned.owner {
            Some(owner) if may_claim(owner, caller) => Ok(()),
            _ => self.may_use(owned, caller),
        }
    }

    /// Refuses the use of another principal's session by a client that reconnects. A client without proven identities (if such clients are
    /// admitted) shows the session's password, and has to authenticate before any other request.
    pub(crate) fn may_reconnect(&self, owned: OwnedSession<'_>, caller: &Identities) -> Result<(), Refusal> {
        match Principal::of(caller) {
            Principal::Nobody => Ok(()),
            _ => self.may_go_on(owned, caller),
        }
    }
}

impl Access {
    /// Returns whether the owner of a waiting contender's session has no right to the lock any more. `is_ours` means that the lock API made the
    /// contender; for one that a ZooKeeper client created as a znode the right `write` suffices, too.
    pub(crate) fn has_lost_right(
        &self,
        owner: &Principal,
        certificate: Option<&Arc<str>>,
        lock: &LockName,
        is_ours: bool,
        now_ms: u64,
    ) -> bool {
        if !self.waits_end_with_rights() || planted::is(Bug::WaitOutlivesRight) {
            return false;
        }
        let owner = owner.identities(certificate);
        let needed = match is_ours {
            true => Rights::of([Right::Lock]),
            false => Rights::of([Right::Lock, Right::Write]),
        };
        let caller_rights = self.caller_rights(&owner, now_ms);
        !caller_rights.is_ok_and(|caller_rights| caller_rights.may_any(needed, lock.znode()))
    }
}

/// Returns whether a caller may become the owner of a session. ZooKeeper clients open a session first and authenticate later, so a
/// session without an owner belongs to its connection as soon as that proves an identity.
pub(crate) fn may_claim(owner: &Principal, caller: &Identities) -> bool {
    let is_somebody = matches!(
        Principal::of(caller),
        Principal::Token(_) | Principal::Certificate(_)
    );
    *owner == Principal::Nobody && is_somebody
}
