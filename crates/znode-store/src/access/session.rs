//! Whose a session is, and who may use it: who opened it, and whoever administers everything.

use crate::access::Principal;
use crate::access::table::Passport;
use crate::acl::Identities;
use crate::ids::SessionId;
use crate::reply::Refusal;
use crate::store::Store;

impl Store {
    /// Refuses the use of somebody else's session. What does not live is refused where it is used.
    pub(super) fn may_use(
        &self,
        passport: &Passport<'_>,
        session: SessionId,
        caller: &Identities,
    ) -> Result<(), Refusal> {
        match self.sessions.get(session) {
            Some(state) if !passport.may_be(&state.owner, caller) && !may_claim(&state.owner, caller) => {
                Err(Refusal::NotYourSession(session))
            }
            _ => Ok(()),
        }
    }

    /// The same for a client that has lost its connection. One that has proven nothing yet (where such are let in) has its
    /// password to show, and then has to prove who it is before it can ask for anything.
    pub(super) fn may_reconnect(
        &self,
        passport: &Passport<'_>,
        session: SessionId,
        caller: &Identities,
    ) -> Result<(), Refusal> {
        match Principal::of(caller) {
            Principal::Nobody => Ok(()),
            _ => self.may_use(passport, session, caller),
        }
    }

    /// A session that nobody in particular has opened is the first one's who uses it and has proven something: clients of
    /// ZooKeeper open it first and then say who they are.
    pub(super) fn claim(&mut self, session: SessionId, caller: &Identities) {
        if let Some(state) = self.sessions.get_mut(session)
            && may_claim(&state.owner, caller)
        {
            state.owner = Principal::of(caller);
        }
    }
}

fn may_claim(owner: &Principal, caller: &Identities) -> bool {
    let is_somebody = matches!(
        Principal::of(caller),
        Principal::Token(_) | Principal::Certificate(_)
    );
    *owner == Principal::Nobody && is_somebody
}
