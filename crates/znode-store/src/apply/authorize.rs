//! Authorization of commands. It comes before any change, for all operations of a command at once. So the earlier operations of a transaction
//! cannot give a right to the later ones.

use alloc::vec::Vec;

use crate::access::needs::{Creation, Need, check_needs, check_needs_in_turn};
use crate::access::session_use::may_claim;
use crate::access::table::CallerRights;
use crate::apply::context::{Context, MAX_DESCENDANTS};
use crate::apply::session_opening::record_certificate;
use crate::apply::tree_queries::{self, ContenderOwnership, is_of_locks, is_reserved};
use crate::locks::name::lock_of_contender;
use crate::model::access::principal::Principal;
use crate::model::access::right::{Right, Rights};
use crate::model::command::{Command, CreateMode, Step};
use crate::model::entry::Rules;
use crate::model::identity::Identities;
use crate::model::ids::SessionId;
use crate::model::path::{LockName, ZPath};
use crate::model::refusal::{Owner, Refusal};
use crate::model::reply::Outcome;
use crate::store::Store;

const LOCK_OR_WRITE: Rights = Rights::of([Right::Lock, Right::Write]);

/// Refuses a command of a caller that is not authenticated, that uses another principal's session, or that lacks the rights. (The
/// rights of a step in turn are checked later, see [`authorize_step`].)
pub(crate) fn admit(
    store: &mut Store,
    cx: &Context<'_>,
    session: Option<SessionId>,
    command: &Command,
) -> Result<(), Refusal> {
    let authorization = Authorization::in_context(store, cx, session)?;
    let own = authorization.session_in_use(command)?;
    let authorized = match command {
        Command::InTurn { .. } => Ok(()),
        _ => authorization.authorize(command),
    };
    let may_claim = authorization.may_claim(command);
    if let Some(session) = own {
        // The request renews the session, whatever its outcome is.
        store.sessions.note_request(session, cx.zxid)?;
    }
    authorized?;
    if let Some(session) = session.filter(|_| may_claim) {
        store.sessions.change_owner(session, Principal::of(cx.caller));
        record_certificate(store, session, cx.caller);
    }
    Ok(())
}

/// Refuses a step in turn whose caller lacks the rights. The turn is used up all the same.
pub(crate) fn authorize_step(
    store: &Store,
    cx: &Context<'_>,
    session: Option<SessionId>,
    step: &Step,
) -> Result<(), Refusal> {
    let authorization = Authorization::in_context(store, cx, session)?;
    authorization.authorize_step(step)
}

/// Refuses a request as [`admit`] would, without any change.
pub(crate) fn may_request(
    store: &Store,
    caller: &Identities,
    rules: Rules,
    session: Option<SessionId>,
    command: &Command,
) -> Result<(), Refusal> {
    let authorization = Authorization::of(store, caller, rules, store.time_ms, session)?;
    authorization.session_in_use(command)?;
    authorization.authorize(command)
}

/// Removes from an answer the locks and sessions that the caller may not see.
pub(crate) fn conceal(store: &Store, cx: &Context<'_>, outcome: Outcome) -> Outcome {
    let caller_rights = match &outcome {
        Err(Refusal::WouldDeadlock { .. } | Refusal::NoLock(_) | Refusal::NotHolder { .. }) => {
            store.access.caller_rights(cx.caller, cx.now_ms)?
        }
        _ => return outcome,
    };
    let knows = |lock: &LockName| caller_rights.may_any(Rights::ALL, lock.znode());
    match outcome {
        Err(Refusal::WouldDeadlock { lock, cycle }) => {
            let parties = cycle.len();
            let shown = |party: &Owner| {
                let may_see = |lock: &LockName| caller_rights.may(Right::Read, lock.znode());
                may_see(&party.has) && may_see(&party.awaits)
            };
            let mut cycle: Vec<Owner> = cycle.into_iter().filter(shown).collect();
            // A cycle with only one visible party would look as if that party waited for itself.
            if parties > 1 && cycle.len() == 1 {
                cycle.clear();
            }
            Err(Refusal::WouldDeadlock { lock, cycle })
        }
        // A caller without rights to a lock must not learn whether the lock exists.
        Err(Refusal::NoLock(lock) | Refusal::NotHolder { lock, .. }) if !knows(&lock) => {
            Err(caller_rights.refusal(Right::Lock, lock.znode()))
        }
        outcome => outcome,
    }
}

/// Caller of a command, and the session that it acts for.
struct Authorization<'a> {
    store: &'a Store,
    caller: &'a Identities,
    caller_rights: CallerRights<'a>,
    session: Option<SessionId>,
    rules: Rules,
}

impl<'a> Authorization<'a> {
    /// Refuses a caller that is not authenticated.
    fn of(
        store: &'a Store,
        caller: &'a Identities,
        rules: Rules,
        now_ms: u64,
        session: Option<SessionId>,
    ) -> Result<Self, Refusal> {
        Ok(Self {
            store,
            caller,
            caller_rights: store.access.caller_rights(caller, now_ms)?,
            session,
            rules,
        })
    }

    fn in_context(
        store: &'a Store,
        cx: &'a Context<'_>,
        session: Option<SessionId>,
    ) -> Result<Self, Refusal> {
        Self::of(store, cx.caller, cx.rules, cx.now_ms, session)
    }

    /// Returns whether the session belongs to its connection, which may authenticate after it has opened the session. Only the session's own
    /// connection sends steps in turn.
    fn is_claimable(&self, command: &Command) -> bool {
        matches!(command, Command::InTurn { .. }) || self.rules == Rules::Former
    }

    /// Returns whether the caller of a command owns its session from then on.
    fn may_claim(&self, command: &Command) -> bool {
        self.is_claimable(command)
            && (self.session)
                .and_then(|session| self.store.sessions.owned(session).owner)
                .is_some_and(|owner| may_claim(owner, self.caller))
    }

    /// Refuses the use of a session that does not live, or of another principal's. Returns the session, unless the command resumes it: then the
    /// command's own need decides.
    fn session_in_use(&self, command: &Command) -> Result<Option<SessionId>, Refusal> {
        let Some(session) = self.session else {
            return Ok(None);
        };
        self.store.sessions.require(session)?;
        if matches!(command, Command::Reconnect { session: own, .. } if *own == session) {
            return Ok(None);
        }
        let owned = self.store.sessions.owned(session);
        match self.is_claimable(command) {
            true => self.caller_rights.may_go_on(owned, self.caller)?,
            false => self.caller_rights.may_use(owned, self.caller)?,
        }
        Ok(Some(session))
    }

    /// Refuses a command whose caller lacks the rights that it needs.
    fn authorize(&self, command: &Command) -> Result<(), Refusal> {
        match command {
            Command::Multi(_) => check_needs(command, self.of_transaction()),
            Command::InTurn { step, .. } => self.authorize_step(step),
            _ => check_needs(command, |need| self.meets(need)),
        }
    }

    fn authorize_step(&self, step: &Step) -> Result<(), Refusal> {
        match step {
            Step::Multi(_) => check_needs_in_turn(step, self.of_transaction()),
            _ => check_needs_in_turn(step, |need| self.meets(need)),
        }
    }

    /// Returns the check of the needs of a transaction: a refusal has the index of the operation.
    fn of_transaction(&self) -> impl FnMut(Need<'_>) -> Result<(), Refusal> {
        let mut indices = 0..;
        move |need| {
            let index = indices.next().expect("operations are few");
            self.meets(need).map_err(|refusal| Refusal::Multi {
                index,
                refusal: refusal.into(),
            })
        }
    }

    fn meets(&self, need: Need<'_>) -> Result<(), Refusal> {
        let Self {
            store,
            caller,
            caller_rights,
            session,
            rules,
        } = self;
        match need {
            Need::Admission => Ok(()),
            Need::Internal if caller_rights.is_internal => Ok(()),
            Need::Internal => Err(Refusal::Internal),
            Need::AdministerAll => caller_rights.require(Right::Administer, &ZPath::root()),
            Need::Of(right, path) => caller_rights.require(right, path),
            Need::AnyOf(rights, path) => self.require_any(rights, path),
            Need::Session(of) => match rules {
                Rules::Former => caller_rights.may_go_on(store.sessions.owned(of), caller),
                Rules::Current => caller_rights.may_use(store.sessions.owned(of), caller),
            },
            Need::Reconnect(of) => caller_rights.may_reconnect(store.sessions.owned(of), caller),
            Need::Create(creation) => self.create(&creation),
            Need::Change(path) => match tree_queries::contender_at(store, path, *session) {
                Some(ContenderOwnership { is_own: true, .. }) => self.require_any(LOCK_OR_WRITE, path),
                _ => self.write(path),
            },
            Need::Delete(path) => self.delete(path),
            Need::DeleteAll(path) => {
                self.delete(path)?;
                // With more locks below, the deletion is refused because of their number.
                let most = match rules {
                    Rules::Former => usize::MAX,
                    Rules::Current => MAX_DESCENDANTS,
                };
                match tree_queries::has_contenders_of_others(store, path, *session, most) {
                    true => caller_rights.require(Right::Break, path),
                    false => Ok(()),
                }
            }
            Need::ChangeAcl(path) => {
                let is_own = !caller_rights.may(Right::Administer, path)
                    && tree_queries::is_own_ephemeral(store, path, *session);
                match is_own {
                    true if LockName::of_contender(path).is_some() => self.require_any(LOCK_OR_WRITE, path),
                    true => caller_rights.require(Right::Write, path),
                    false => caller_rights.require(Right::Administer, path),
                }
            }
            Need::Contender(lock, holder) => {
                match tree_queries::is_own_contender(store, lock, holder, *session) {
                    true => Ok(()),
                    false => caller_rights.require(Right::Lock, lock.znode()),
                }
            }
            // A lease that has ended is reported when the command is executed.
            Need::HoldingLease(_, lease) if store.sessions.get(lease).is_none() => Ok(()),
            Need::HoldingLease(lock, lease) => {
                match caller_rights.may_use(store.sessions.owned(lease), caller) {
                    Ok(()) => Ok(()),
                    Err(_) => caller_rights.require(Right::Break, lock.znode()),
                }
            }
            Need::SomeContender(holders) => {
                let mut met = holders
                    .iter()
                    .map(|(lock, holder)| self.meets(Need::Contender(lock, holder)));
                match met.next() {
                    // The call names no contender, and is refused for that reason later.
                    None | Some(Ok(())) => Ok(()),
                    Some(Err(refusal)) => met.find(Result::is_ok).unwrap_or(Err(refusal)),
                }
            }
        }
    }

    fn require_any(&self, rights: Rights, path: &ZPath) -> Result<(), Refusal> {
        let first = rights
            .iter()
            .next()
            .expect("one of some rights is authorization for");
        match self.caller_rights.may_any(rights, path) {
            true => Ok(()),
            false => Err(self.caller_rights.refusal(first, path)),
        }
    }

    /// Requires the right to write at a path, or to administer if the path is the cluster's own.
    fn write(&self, path: &ZPath) -> Result<(), Refusal> {
        let right = match is_reserved(path) {
            true => Right::Administer,
            false => Right::Write,
        };
        self.caller_rights.require(right, path)
    }

    fn delete(&self, path: &ZPath) -> Result<(), Refusal> {
        match tree_queries::contender_at(self.store, path, self.session) {
            Some(ContenderOwnership { is_own: true, .. }) => self.require_any(LOCK_OR_WRITE, path),
            // The deletion would break a hold or a wait of another session.
            Some(ContenderOwnership { lock, is_own: false }) => {
                self.caller_rights.require(Right::Break, lock.znode())
            }
            None => self.write(path),
        }
    }

    /// Requires the right to create a znode. The right counts at the path that will be created. The path of a sequential znode is not known yet, so
    /// the right is required for everything below its parent.
    fn create(&self, creation: &Creation<'_>) -> Result<(), Refusal> {
        let Creation {
            path,
            mode,
            is_plain,
            is_open,
            parents,
        } = *creation;
        let named = match mode.is_sequential() {
            true => None,
            false => path.parent.join(&path.name).ok(),
        };
        let at = named.as_ref().unwrap_or(&path.parent);
        if self.takes_a_lock(creation) || self.makes_way_for_a_lock(at, mode, is_plain) {
            return Ok(());
        }
        let missing = match parents {
            true => tree_queries::first_missing(self.store, &path.parent),
            false => None,
        };
        debug_assert!(is_open || !is_plain, "what is plain is open");
        missing.iter().try_for_each(|missing| self.write(missing))?;
        self.write(at)
    }

    /// Returns whether this is a contender as ZooKeeper clients create it. Like any acquire it may create missing parents, but only with open lists:
    /// otherwise the caller could create a lock that no other client can use.
    fn takes_a_lock(&self, creation: &Creation<'_>) -> bool {
        let parent = &creation.path.parent;
        creation.mode.is_ephemeral()
            && LockName::of_parent(parent).is_some()
            && (creation.is_open || !creation.parents)
            && self.caller_rights.may(Right::Lock, parent)
    }

    /// Returns whether this is the znode of a lock, or one above it, as ZooKeeper clients create them before their contenders. A znode with the name
    /// of a contender is excluded: it would be a contender for their recipes, but not for the lock.
    fn makes_way_for_a_lock(&self, at: &ZPath, mode: CreateMode, is_plain: bool) -> bool {
        let may_look_like_a_contender = self.rules == Rules::Former;
        is_plain
            && matches!(mode, CreateMode::Persistent | CreateMode::Container)
            && is_of_locks(at)
            && (may_look_like_a_contender || lock_of_contender(at).is_none())
            && self.caller_rights.may_around(Right::Lock, at)
    }
}
