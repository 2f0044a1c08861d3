//! Application of commands: each one is refused, answered from the request cache, or executed. Only this module changes several parts of the
//! state together.
//!
//! | file | content |
//! |---|---|
//! | `context.rs` | facts of a command, and its effects so far |
//! | `locks/contender_end.rs` | ends of contenders: events, corrected outcomes, closed locks |
//! | `znodes.rs` | changes of znodes with all that they entail; all other files change the tree through it |
//! | `create.rs`, `write.rs`, `mirror.rs` | operations on znodes |
//! | `locks/` | steps of the lock protocol, and the grants at the end of each command |
//! | `session_opening.rs`, `session_life.rs`, `leases.rs` | lives of sessions; lives of leases |
//! | `access.rs` | changes of the access policies |
//! | `authorize.rs`, `tree_queries.rs` | authorization, before all of them |
//!
//! A step that refuses either has changed nothing, or is undone.

mod access;
pub(crate) mod authorize;
pub(crate) mod context;
pub(crate) mod create;
mod leases;
pub(crate) mod locks;
pub(crate) mod mirror;
mod session_life;
mod session_opening;
mod tree_queries;
pub(crate) mod write;
pub(crate) mod znodes;

use alloc::vec::Vec;

use fault_injection::planted::{self, Bug};

use crate::apply::context::{Context, EntryWork, MAX_OPERATIONS};
use crate::apply::locks::{acquire, grant_waiters, many, modes};
use crate::model::command::{Command, Op, Request, Step};
use crate::model::entry::{EntryContext, Rules};
use crate::model::event::Event;
use crate::model::ids::{LeaseKey, RequestId, SessionId};
use crate::model::lock::LockCommand;
use crate::model::refusal::{Limited, Refusal};
use crate::model::reply::{Applied, Outcome, Reply};
use crate::model::session::SessionFate;
use crate::sessions::request_cache;
use crate::store::Store;

impl Store {
    /// Applies the one command of an entry by the current rules: [`Store::apply_by`].
    pub fn apply(&mut self, entry: &EntryContext, request: Request, events: &mut Vec<Event>) -> Applied {
        self.apply_by(Rules::Current, entry, &mut EntryWork::default(), request, events)
    }

    /// Applies one command. This is the only way to change the state, and has the same result on every replica.
    ///
    /// Appends the events in the order of the changes.
    pub fn apply_by(
        &mut self,
        rules: Rules,
        entry: &EntryContext,
        work: &mut EntryWork,
        mut request: Request,
        events: &mut Vec<Event>,
    ) -> Applied {
        self.zxid.0 += 1;
        // A new leader's clock may be behind its predecessor's.
        self.time_ms = self.time_ms.max(entry.time_ms);
        let caller = core::mem::take(&mut request.caller);
        let cx = &mut Context {
            zxid: self.zxid,
            now_ms: self.time_ms,
            term: entry.term,
            rules,
            removals_left: &mut work.removals,
            grants_left: &mut work.grants,
            has_granted: false,
            caller: &caller,
            events,
            long_paths_bytes: 0,
            descendants: 0,
            held_back: None,
            ended_leases: Vec::new(),
        };
        // An open state needs no authorization.
        let outcome = match self.access.is_secured() {
            false => answer(self, cx, request),
            true => answer_if_allowed(self, cx, request),
        };
        grant_waiters::grant_waiters(self, cx);
        leases::end_leases(self, cx);
        Applied {
            zxid: cx.zxid,
            outcome,
        }
    }
}

/// Executes a request or answers it from the request cache, if its caller is authorized. Removes from the answer what the caller may not see.
fn answer_if_allowed(store: &mut Store, cx: &mut Context<'_>, request: Request) -> Outcome {
    authorize::admit(store, cx, request.session, &request.command)?;
    let outcome = answer(store, cx, request);
    authorize::conceal(store, cx, outcome)
}

/// Executes a request, unless its session is gone or its outcome is recorded.
fn answer(store: &mut Store, cx: &mut Context<'_>, request: Request) -> Outcome {
    let Request {
        session,
        request_id,
        caller: _,
        command,
    } = request;
    if let Some(session) = session {
        store.sessions.note_request(session, cx.zxid)?;
    }
    let Some(request_id) = request_id.filter(|_| !planted::is(Bug::Repeated)) else {
        return execute(store, cx, session, None, command);
    };
    let fingerprint = request_cache::fingerprint(&command);
    let key = store.request_key(session, cx.caller, &request_id);
    if let Some(record) = store.recorded_outcome(session, cx.caller, &request_id) {
        if record.fingerprint != fingerprint {
            return Err(Refusal::RequestIdReused);
        }
        let first = record.outcome.clone();
        match (session, &command) {
            // The repetition of a lost call replaces the earlier one.
            (
                Some(session),
                Command::Lock(
                    LockCommand::Acquire { wish, attempt, .. }
                    | LockCommand::AcquireBounded {
                        wish,
                        attempt,
                        lease: None,
                        ..
                    },
                ),
            ) => {
                return acquire::repeat_acquire(store, cx, session, &request_id, wish, *attempt, first);
            }
            (None, Command::Lock(LockCommand::AcquireBounded { attempt, .. })) => {
                return acquire::repeat_acquire_lease(store, cx, &request_id, *attempt, first);
            }
            (None, Command::RenewLease { lease, timeout_ms }) => {
                return leases::repeat_renewal(store, cx, lease, *timeout_ms, first);
            }
            (Some(session), Command::Lock(LockCommand::Upgrade { lock, attempt, .. })) => {
                return modes::repeat_upgrade(store, cx, session, &request_id, lock, *attempt, first);
            }
            (Some(session), Command::Lock(LockCommand::AcquireMany { attempt, .. })) => {
                return many::repeat_acquire_many(store, cx, session, &request_id, *attempt, first);
            }
            // The client learns of the session by this repetition, and counts its timeout from when it sent this.
            (None, Command::OpenSession { .. }) => {
                if let Ok(Reply::SessionOpened { session, .. }) = &first
                    && store.sessions.fate(*session) == SessionFate::Live
                {
                    store.sessions.note_request(*session, cx.zxid)?;
                }
                return first;
            }
            _ => return first,
        }
    }
    let outcome = execute(store, cx, session, Some(&request_id), command);
    if request_cache::is_final(&outcome)
        && let Some(memory) = store.sessions.requests_mut(session)
    {
        memory.insert(key, fingerprint, outcome.clone(), cx.rules);
    }
    outcome
}

fn execute(
    store: &mut Store,
    cx: &mut Context<'_>,
    session: Option<SessionId>,
    request_id: Option<&RequestId>,
    command: Command,
) -> Outcome {
    match command {
        Command::OpenSession {
            session,
            password,
            timeout_ms,
            name,
            address,
        } => {
            let key = LeaseKey { session, password };
            session_opening::open_session_of_caller(store, cx, key, timeout_ms, name, address.into())
        }
        Command::CloseSession { session } => {
            store.sessions.require(session)?;
            session_life::end_session(store, cx, session, false);
            Ok(Reply::SessionClosed)
        }
        Command::ExpireSessions {
            sessions,
            term,
            as_of,
        } => session_life::expire_sessions(store, cx, sessions, term, as_of),
        Command::Write(op) => write::write(store, cx, session, op),
        Command::Multi(ops) => multi(store, cx, session, ops),
        // The leader removes empty containers and TTL znodes. A znode that has children again, or does not exist any more, is skipped.
        Command::Sweep(paths) => {
            let swept = paths.iter().filter(|path| write::sweep(store, cx, path)).count();
            Ok(Reply::Swept(swept as u32))
        }
        // The leader has other limits in its configuration than the leader before it.
        Command::SetLimits(limits) => {
            store.limits = limits;
            Ok(Reply::LimitsSet)
        }
        // A client that has no secret of a lease, but the right to its lock, changes the lease that holds it.
        Command::Lock(LockCommand::ChangeLease { lock, lease, change }) => {
            leases::change_lease(store, cx, &lock, lease, change)
        }
        Command::Lock(command) => locks::lock_command(store, cx, session, request_id, command),
        // A client has lost its connection and resumes its session.
        Command::Reconnect { session, password } => {
            let timeout_ms = store.sessions.reconnect(session, password, cx.zxid)?;
            cx.events.push(Event::SessionReconnected {
                session,
                since: cx.zxid,
            });
            Ok(Reply::Reconnected { timeout_ms })
        }
        // An earlier step may have been lost with a leader, and arrive later, out of turn. A refused step uses up its turn as well.
        Command::InTurn { turn, step } => {
            let session = session.ok_or(Refusal::SessionRequired)?;
            store.sessions.take_turn(session, turn)?;
            if store.access.is_secured() {
                authorize::authorize_step(store, cx, Some(session), &step)?;
            }
            let command = match step {
                Step::Write(op) => return write::write(store, cx, Some(session), op),
                Step::Multi(ops) => return multi(store, cx, Some(session), ops),
                Step::CloseSession => Command::CloseSession { session },
            };
            execute(store, cx, Some(session), None, command)
        }
        Command::Access(command) => access::access_command(store, cx, command),
        Command::Mirror(steps) => mirror::mirror(store, cx, steps),
        Command::RecordSilence {
            sessions,
            term,
            as_of,
        } => session_life::record_silences(store, cx, sessions, term, as_of),
        Command::NoteHeartbeats { sessions, term } => {
            session_life::note_heartbeats(store, cx, sessions, term)
        }
        Command::RenewLease { lease, timeout_ms } => leases::renew_lease(store, cx, &lease, timeout_ms),
        Command::ReleaseLease { lease } => leases::release_lease(store, cx, &lease),
        Command::SetQuotas { namespace, quotas } => {
            match quotas {
                Some(quotas) => store.tree.set_quotas(namespace, quotas)?,
                None => store.tree.remove_quotas(&namespace)?,
            }
            Ok(Reply::LimitsSet)
        }
    }
}

/// Executes all operations or none.
fn multi(store: &mut Store, cx: &mut Context<'_>, session: Option<SessionId>, ops: Vec<Op>) -> Outcome {
    if ops.len() > MAX_OPERATIONS && cx.rules == Rules::Current {
        return Err(Refusal::LimitReached {
            what: Limited::Operations,
            limit: MAX_OPERATIONS as u32,
        });
    }
    let events_before = cx.events.len();
    store.tree.begin();
    cx.held_back = Some(Vec::new());
    let mut replies = Vec::with_capacity(ops.len());
    for (index, op) in ops.into_iter().enumerate() {
        match write::write(store, cx, session, op) {
            Ok(reply) => replies.push(reply),
            Err(refusal) => {
                cx.events.truncate(events_before);
                cx.held_back = None;
                znodes::roll_back(store);
                return Err(Refusal::Multi {
                    index: index as u32,
                    refusal: refusal.into(),
                });
            }
        }
    }
    store.tree.commit();
    for change in cx.held_back.take().into_iter().flatten() {
        znodes::update_queue(store, cx, change);
    }
    Ok(Reply::Multi(replies))
}
