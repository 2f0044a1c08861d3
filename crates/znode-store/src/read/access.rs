//! Views of sessions, locks and access policies with a caller's rights. A query of one thing is refused without the right to it; a list
//! omits what the caller may not see.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::access::table::CallerRights;
use crate::access::visibility::Visibility;
use crate::apply::authorize;
use crate::locks::deadlock::MAX_GRAPH_WAITS;
use crate::locks::view::{LockView, WaitView};
use crate::model::access::principal::Principal;
use crate::model::access::right::Right;
use crate::model::access::role::{PathGrant, RoleName, RoleView};
use crate::model::access::token::{Token, TokenHash, TokenId, TokenView};
use crate::model::acl::{Acl, Perms};
use crate::model::command::Command;
use crate::model::entry::Rules;
use crate::model::ids::SessionId;
use crate::model::path::{LockName, ZPath};
use crate::model::refusal::Refusal;
use crate::model::session::SessionView;
use crate::read::View;
use crate::store::Store;

impl Store {
    /// Returns whether access policies apply.
    pub fn is_secured(&self) -> bool {
        self.access.is_secured()
    }

    /// Returns the hash of the secret of a token, or `None` if the token does not exist or has expired. A front end compares it in constant time with
    /// the secret that a caller sends, and gives the caller [`crate::Identity::Token`].
    pub fn token_hash(&self, token: TokenId) -> Option<TokenHash> {
        let token = self.access.tokens.get(&token)?;
        (!token.is_expired(self.time_ms)).then_some(token.hash)
    }

    /// Returns a token with its hash, also if it has expired, so that the front end can report that. The time of the state does not
    /// advance while no command is applied, so callers check a clock as well.
    pub fn token(&self, token: TokenId) -> Option<&Token> {
        self.access.tokens.get(&token)
    }

    /// Returns the current access policies, for the delivery of events.
    pub fn visibility(&self) -> Visibility<'_> {
        Visibility::of(&self.access, self.time_ms)
    }
}

impl View<'_> {
    /// Returns the rights that the policies give the caller; `None` in an open state.
    pub(crate) fn caller_rights(&self) -> Result<Option<CallerRights<'_>>, Refusal> {
        match self.store.access.is_secured() {
            true => (self.store.access.caller_rights(self.caller, self.store.time_ms)).map(Some),
            false => Ok(None),
        }
    }

    /// Refuses a request that [`Store::apply_by`] would refuse in this state because its caller is not authenticated, uses another principal's
    /// session, or lacks the rights. A node asks before it proposes, so that such a request costs no log entry. The answer is that of one moment:
    /// the caller may get the rights, and its session may be opened, later.
    pub fn may_request(
        &self,
        rules: Rules,
        session: Option<SessionId>,
        command: &Command,
    ) -> Result<(), Refusal> {
        match self.store.is_secured() {
            true => authorize::may_request(self.store, self.caller, rules, session, command),
            false => Ok(()),
        }
    }

    /// Refuses a caller that is not authenticated.
    pub fn admission(&self) -> Result<(), Refusal> {
        self.caller_rights().map(|_| ())
    }

    /// Returns the principal of the caller and its role. (All callers also have the role `anonymous`.)
    pub fn principal(&self) -> (Principal, Option<RoleName>) {
        let principal = Principal::of(self.caller);
        let access = &self.store.access;
        let role = match &principal {
            Principal::Token(id) => access.tokens.get(id).map(|token| token.role.clone()),
            Principal::Certificate(text) => access.certificates.get(text).cloned(),
            Principal::Nobody | Principal::Operator => None,
        };
        (principal, role)
    }

    /// Returns all grants of the caller: those of its role, and those of all callers. Returns `None` if it has all rights, as in an open state.
    pub fn grants(&self) -> Result<Option<Vec<PathGrant>>, Refusal> {
        Ok(self
            .caller_rights()?
            .and_then(|caller_rights| caller_rights.listed()))
    }

    /// Refuses the caller if the policies do not give it a right at a path.
    pub fn may(&self, right: Right, path: &ZPath) -> Result<(), Refusal> {
        match self.caller_rights()? {
            Some(caller_rights) => caller_rights.require(right, path),
            None => Ok(()),
        }
    }

    /// Refuses a watch on a path that the caller may not read. Call it before a watch is armed, whether the znode exists or not.
    pub fn watch(&self, path: &ZPath) -> Result<(), Refusal> {
        self.may(Right::Read, path)
    }

    /// Refuses the use of another principal's session, for heartbeats, events and holds. A session that does not live has no owner.
    pub fn may_use(&self, session: SessionId) -> Result<(), Refusal> {
        match self.caller_rights()? {
            Some(caller_rights) => caller_rights.may_use(self.store.sessions.owned(session), self.caller),
            None => Ok(()),
        }
    }

    /// Returns the sessions that the caller may use, by id.
    pub fn sessions(&self) -> Result<Vec<SessionView>, Refusal> {
        let caller_rights = self.caller_rights()?;
        let is_shown = |view: &SessionView| match &caller_rights {
            Some(caller_rights) => caller_rights.may_be(&view.owner, self.caller),
            None => true,
        };
        let mut sessions = self.store.sessions();
        sessions.retain(is_shown);
        Ok(sessions)
    }

    /// Refuses the use of another principal's session by the connection of the session. A session without an owner is owned by its connection after
    /// the first change with a proven identity.
    pub fn may_go_on(&self, session: SessionId) -> Result<(), Refusal> {
        match self.caller_rights()? {
            Some(caller_rights) => caller_rights.may_go_on(self.store.sessions.owned(session), self.caller),
            None => Ok(()),
        }
    }

    /// Returns a session, for callers that may use it.
    pub fn session(&self, session: SessionId) -> Result<SessionView, Refusal> {
        self.may_use(session)?;
        self.store.sessions.require(session)?;
        Ok(self.store.session(session).expect("it lives"))
    }

    /// Returns a lock with its holders and waiters, for callers that may read its znode.
    pub fn lock(&self, lock: &LockName) -> Result<LockView, Refusal> {
        self.lock_within(lock, usize::MAX)
    }

    /// Returns a lock with at most `most` of its holders, and of its waiters.
    pub fn lock_within(&self, lock: &LockName, most: usize) -> Result<LockView, Refusal> {
        let no_lock = |refusal| match refusal {
            Refusal::NoNode(_) => Refusal::NoLock(lock.clone()),
            refusal => refusal,
        };
        self.require_readable(lock.znode()).map_err(no_lock)?;
        self.store
            .lock_within(lock, most)
            .ok_or_else(|| Refusal::NoLock(lock.clone()))
    }

    /// Refuses the history of a lock to callers that may not read the lock. If its znode is gone, the list of the nearest ancestor counts.
    pub fn lock_history(&self, lock: &LockName) -> Result<(), Refusal> {
        self.may(Right::Read, lock.znode())?;
        let place = self.store.tree.place_below(lock.znode());
        let acl = self.store.tree.acl(place.ancestor);
        acl.require(Perms::READ, self.caller, &self.store.tree.path(place.ancestor))
    }

    /// Returns the waits in locks whose names begin with `prefix` and that the caller may read, and whether these are all.
    pub fn wait_graph(&self, prefix: &str) -> Result<(Vec<WaitView>, bool), Refusal> {
        let (mut waits, mut from) = self.wait_graph_part(prefix, None)?;
        while let Some(cursor) = &from
            && waits.len() < MAX_GRAPH_WAITS
        {
            let (more, next) = self.wait_graph_part(prefix, Some(cursor))?;
            waits.extend(more);
            from = next;
        }
        let complete = from.is_none() && waits.len() <= MAX_GRAPH_WAITS;
        waits.truncate(MAX_GRAPH_WAITS);
        Ok((waits, complete))
    }

    /// Returns those of some paths that the caller may know by the policies: paths that it may read, and its contenders in locks that it may take.
    pub(crate) fn known(&self, paths: Vec<ZPath>) -> Result<Vec<ZPath>, Refusal> {
        let Some(caller_rights) = self.caller_rights()? else {
            return Ok(paths);
        };
        let is_known =
            |path: &ZPath| caller_rights.may(Right::Read, path) || caller_rights.may(Right::Lock, path);
        Ok(paths.into_iter().filter(is_known).collect())
    }

    /// Returns all tokens, by id; also expired ones that were not removed yet. Needs the right to administer at `/`, like the next queries.
    pub fn tokens(&self) -> Result<Vec<TokenView>, Refusal> {
        self.may(Right::Administer, &ZPath::root())?;
        let tokens = self.store.access.tokens.values();
        Ok(tokens.map(|token| token.view()).collect())
    }

    /// Returns all roles but `admin`, by name.
    pub fn roles(&self) -> Result<Vec<RoleView>, Refusal> {
        self.may(Right::Administer, &ZPath::root())?;
        let roles = self.store.access.roles.iter();
        let view = |(role, grants): (&RoleName, &Vec<_>)| RoleView {
            role: role.clone(),
            grants: grants.clone(),
        };
        Ok(roles.map(view).collect())
    }

    /// Returns all certificates with a role, and that role.
    pub fn certificates(&self) -> Result<Vec<(Arc<str>, RoleName)>, Refusal> {
        self.may(Right::Administer, &ZPath::root())?;
        let certificates = self.store.access.certificates.iter();
        Ok(certificates
            .map(|(certificate, role)| (certificate.clone(), role.clone()))
            .collect())
    }

    /// Returns whether the caller may read a znode, by the policies and by the znode's list.
    fn require_readable(&self, path: &ZPath) -> Result<(), Refusal> {
        self.find(path, Perms::READ).map(|_| ())
    }

    /// Returns whether an access control list is shown with the hashes of passwords: to callers that may change it.
    pub(crate) fn may_change(&self, acl: &Acl, path: &ZPath) -> bool {
        acl.allows(Perms::ADMIN, self.caller) && self.may(Right::Administer, path).is_ok()
    }
}
