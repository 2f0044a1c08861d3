//! Whose a session is, and who may use it: who opened it, and whoever administers everything.

use crate::access::table::Passport;
use crate::model::access::principal::Principal;
use crate::model::access::right::{Right, Rights};
use crate::model::identity::{Identities, Identity};
use crate::model::ids::SessionId;
use crate::model::path::LockName;
use crate::model::refusal::Refusal;
use crate::planted;
use crate::planted::Bug;
use crate::store::Store;

impl Store {
    /// Refuses the use of somebody else's session. What does not live is refused where it is used.
    pub(crate) fn may_use(
        &self,
        passport: &Passport<'_>,
        session: SessionId,
        caller: &Identities,
    ) -> Result<(), Refusal> {
        match self.sessions.get(session) {
            Some(state) if !passport.may_be(&state.owner, caller) => Err(Refusal::NotYourSession(session)),
            _ => Ok(()),
        }
    }

    /// The same for the connection that has opened the session, or gone on with it by its password: if the session is nobody's, that
    /// connection may prove who it is, and the session is its own.
    pub(crate) fn may_go_on(
        &self,
        passport: &Passport<'_>,
        session: SessionId,
        caller: &Identities,
    ) -> Result<(), Refusal> {
        match self.sessions.get(session) {
            Some(state) if may_claim(&state.owner, caller) => Ok(()),
            _ => self.may_use(passport, session, caller),
        }
    }

    /// The same for a client that has lost its connection. One that has proven nothing yet (where such are let in) has its
    /// password to show, and then has to prove who it is before it can ask for anything.
    pub(crate) fn may_reconnect(
        &self,
        passport: &Passport<'_>,
        session: SessionId,
        caller: &Identities,
    ) -> Result<(), Refusal> {
        match Principal::of(caller) {
            Principal::Nobody => Ok(()),
            _ => self.may_go_on(passport, session, caller),
        }
    }

    /// A session that nobody in particular has opened is its connection's when that has proven something: clients of ZooKeeper open it
    /// first and then say who they are.
    pub(crate) fn claim(&mut self, session: SessionId, caller: &Identities) {
        if let Some(state) = self.sessions.get(session)
            && may_claim(&state.owner, caller)
        {
            self.sessions.change_owner(session, Principal::of(caller));
            self.note_certificate(session, caller);
        }
    }

    /// Records the certificate that the owner of a session showed beside its token, if grants depend on rights.
    pub(crate) fn note_certificate(&mut self, session: SessionId, caller: &Identities) {
        if self.access.waits_end_with_rights()
            && let Some(state) = self.sessions.get_mut(session)
            && matches!(state.owner, Principal::Token(_))
        {
            state.certificate = caller.iter().find_map(|identity| match identity {
                Identity::X509(subject) => Some(subject.clone()),
                _ => None,
            });
        }
    }

    /// Returns whether the owner of a waiting contender's session has no right to the lock any more. `is_ours`: the lock API made the
    /// contender; for one that is a znode of a ZooKeeper client `write` suffices, too.
    pub(crate) fn has_lost_right(
        &self,
        session: SessionId,
        lock: &LockName,
        is_ours: bool,
        now_ms: u64,
    ) -> bool {
        if !self.access.waits_end_with_rights() || planted::is(Bug::WaitOutlivesRight) {
            return false;
        }
        let Some(state) = self.sessions.get(session) else {
            return false;
        };
        let owner = state.owner.identities(state.certificate.as_ref());
        let needed = match is_ours {
            true => Rights::of([Right::Lock]),
            false => Rights::of([Right::Lock, Right::Write]),
        };
        let passport = self.access.passport(&owner, now_ms);
        !passport.is_ok_and(|passport| passport.may_any(needed, lock.znode()))
    }
}

fn may_claim(owner: &Principal, caller: &Identities) -> bool {
    let is_somebody = matches!(
        Principal::of(caller),
        Principal::Token(_) | Principal::Certificate(_)
    );
    *owner == Principal::Nobody && is_somebody
}
