//! The one decision over commands: what is refused, what is answered from memory, what is done by whom.

mod access;
mod authorize;
pub(crate) mod context;
pub(crate) mod create;
pub(crate) mod locks;
pub(crate) mod mirror;
mod session_end;
mod tree_queries;
pub(crate) mod write;
pub(crate) mod znodes;

use alloc::vec::Vec;

use crate::apply::context::{Context, EntryWork};
use crate::model::access::principal::Principal;
use crate::model::command::{Command, Op, Request, Step};
use crate::model::entry::{EntryContext, Rules};
use crate::model::event::Event;
use crate::model::ids::{RequestId, SessionId};
use crate::model::lock::LockCommand;
use crate::model::refusal::{Limited, Refusal};
use crate::model::reply::{Applied, Outcome, Reply};
use crate::model::session::{SessionFate, Silence};
use crate::planted;
use crate::planted::Bug;
use crate::sessions::{Session, request_cache};
use crate::store::Store;

impl Store {
    /// Applies the one command of an entry by the current rules: [`Store::apply_by`].
    pub fn apply(&mut self, entry: &EntryContext, request: Request, events: &mut Vec<Event>) -> Applied {
        self.apply_by(Rules::Current, entry, &mut EntryWork::default(), request, events)
    }

    /// Applies one command: the only way to change the state, and the same on every replica.
    ///
    /// Events are appended in the order in which things happened.
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
            caller: &caller,
            events,
            long_paths_bytes: 0,
            held_back: None,
        };
        // In an open state nothing else is to be decided.
        let outcome = match self.access.is_secured() {
            false => self.answer(cx, request),
            true => self.answer_if_allowed(cx, request),
        };
        self.grant_waiters(cx);
        Applied {
            zxid: cx.zxid,
            outcome,
        }
    }

    /// Executes a request or answers it from the request cache, if its caller is authorized, and conceals what the caller may not know.
    fn answer_if_allowed(&mut self, cx: &mut Context<'_>, request: Request) -> Outcome {
        self.admit(cx, request.session, &request.command)?;
        let outcome = self.answer(cx, request);
        self.conceal(cx, outcome)
    }

    /// Executes a request, unless its session is gone or its outcome is recorded.
    fn answer(&mut self, cx: &mut Context<'_>, request: Request) -> Outcome {
        let Request {
            session,
            request_id,
            caller: _,
            command,
        } = request;
        if let Some(session) = session {
            self.sessions.hear(session, cx.zxid)?;
        }
        let Some(request_id) = request_id.filter(|_| !planted::is(Bug::Repeated)) else {
            return self.execute(cx, session, None, command);
        };
        let fingerprint = request_cache::fingerprint(&command);
        let key = self.request_key(session, cx.caller, &request_id);
        if let Some(record) = self.recorded_outcome(session, cx.caller, &request_id) {
            if record.fingerprint != fingerprint {
                return Err(Refusal::RequestIdReused);
            }
            let first = record.outcome.clone();
            match (session, &command) {
                // The repetition of a lost call takes the place of the earlier one.
                (Some(session), Command::Lock(LockCommand::Acquire { wish, attempt, .. })) => {
                    return self.repeat_acquire(cx, session, &request_id, wish, *attempt, first);
                }
                (Some(session), Command::Lock(LockCommand::Upgrade { lock, attempt, .. })) => {
                    return self.repeat_upgrade(cx, session, &request_id, lock, *attempt, first);
                }
                (Some(session), Command::Lock(LockCommand::AcquireMany { attempt, .. })) => {
                    return self.repeat_acquire_many(cx, session, &request_id, *attempt, first);
                }
                // Its client counts the timeout of the session that it learns of from this time's sending on.
                (None, Command::OpenSession { .. }) => {
                    if let Ok(Reply::SessionOpened { session, .. }) = &first
                        && self.sessions.fate(*session) == SessionFate::Live
                    {
                        self.sessions.hear(*session, cx.zxid)?;
                    }
                    return first;
                }
                _ => return first,
            }
        }
        let outcome = self.execute(cx, session, Some(&request_id), command);
        if request_cache::is_final(&outcome)
            && let Some(memory) = self.sessions.requests_mut(session)
        {
            memory.insert(key, fingerprint, outcome.clone(), cx.rules);
        }
        outcome
    }

    fn execute(
        &mut self,
        cx: &mut Context<'_>,
        session: Option<SessionId>,
        request_id: Option<&RequestId>,
        command: Command,
    ) -> Outcome {
        match command {
            // A client arrives. Its id must not be one that an older client may still speak for, and must
            // fit where a znode notes its owner.
            Command::OpenSession {
                session,
                password,
                timeout_ms,
                name,
                address,
            } => {
                if !session.is_legal() || self.sessions.fate(session) != SessionFate::Unknown {
                    return Err(Refusal::SessionIdTaken(session));
                }
                if self.sessions.len() >= self.limits.sessions as usize {
                    return Err(Refusal::LimitReached {
                        what: Limited::Sessions,
                        limit: self.limits.sessions,
                    });
                }
                let remembered = self.sessions.empty_cache();
                self.sessions.insert(
                    session,
                    Session::new(
                        password,
                        timeout_ms,
                        name,
                        address,
                        Principal::of(cx.caller),
                        cx.now_ms,
                        cx.zxid,
                        remembered,
                    ),
                );
                self.record_certificate(session, cx.caller);
                cx.events.push(Event::SessionOpened(session));
                Ok(Reply::SessionOpened { session, timeout_ms })
            }
            // A client leaves.
            Command::CloseSession { session } => {
                self.sessions.require(session)?;
                self.end_session(cx, session, false);
                Ok(Reply::SessionClosed)
            }
            // Clients were not heard of. Only the leader of this very term can know that: the entry of a
            // deposed one may be committed by its successor, which has given the sessions new time.
            // What a session asked for after the leader had found it silent may be answered already, and its client counts on
            // another timeout since then.
            Command::ExpireSessions {
                sessions,
                term,
                as_of,
            } => {
                if term != cx.term && !planted::is(Bug::UnprovenLeader) {
                    return Err(Refusal::StaleLeader);
                }
                let mut expired = 0;
                for session in sessions {
                    match self.sessions.get(session) {
                        // Only this is left of it: its ephemeral znodes.
                        Some(state) if state.ending.is_some() => self.end_session(cx, session, true),
                        Some(state) if state.heard_at <= as_of => {
                            self.end_session(cx, session, true);
                            expired += 1;
                        }
                        _ => {}
                    }
                }
                Ok(Reply::SessionsExpired(expired))
            }
            Command::Write(op) => self.write(cx, session, op),
            Command::Multi(ops) => self.multi(cx, session, ops),
            // The leader removes empty containers and TTL nodes. A znode with children again, or none, is skipped.
            Command::Sweep(paths) => {
                let swept = paths.iter().filter(|path| self.sweep(cx, path)).count();
                Ok(Reply::Swept(swept as u32))
            }
            // The leader was configured with other limits than the one before it.
            Command::SetLimits(limits) => {
                self.limits = limits;
                Ok(Reply::LimitsSet)
            }
            Command::Lock(command) => self.lock_command(cx, session, request_id, command),
            // A client has lost its connection, and resumes its session.
            Command::Reconnect { session, password } => {
                let timeout_ms = self.sessions.reconnect(session, password, cx.zxid)?;
                cx.events.push(Event::SessionReconnected {
                    session,
                    since: cx.zxid,
                });
                Ok(Reply::Reconnected { timeout_ms })
            }
            // An earlier step may have been lost with a leader, and arrive later, out of turn. The turn is used up also if the step is
            // refused.
            Command::InTurn { turn, step } => {
                let session = session.ok_or(Refusal::SessionRequired)?;
                self.sessions.take_turn(session, turn)?;
                if self.access.is_secured() {
                    self.authorize_step(cx, Some(session), &step)?;
                }
                let command = match step {
                    Step::Write(op) => return self.write(cx, Some(session), op),
                    Step::Multi(ops) => return self.multi(cx, Some(session), ops),
                    Step::CloseSession => Command::CloseSession { session },
                };
                self.execute(cx, Some(session), None, command)
            }
            Command::Access(command) => self.access_command(cx, command),
            Command::Mirror(steps) => self.mirror(cx, steps),
            // Only the leader of this very term knows which heartbeats it has confirmed. A later request of a session takes it off the
            // record for good, wherever the two are in the log.
            Command::RecordSilence {
                sessions,
                term,
                as_of,
            } => {
                if term != cx.term {
                    return Err(Refusal::StaleLeader);
                }
                let mut recorded = 0;
                for (session, ms) in sessions {
                    if let Some(state) = self.sessions.get_mut(session)
                        && state.heard_at <= as_of
                    {
                        state.silence = Some(Silence { at: cx.zxid, ms });
                        recorded += 1;
                    }
                }
                Ok(Reply::SilenceRecorded(recorded))
            }
            Command::NoteHeartbeats { sessions, term } => {
                if term != cx.term {
                    return Err(Refusal::StaleLeader);
                }
                let live = sessions
                    .into_iter()
                    .filter(|session| self.sessions.hear(*session, cx.zxid).is_ok());
                Ok(Reply::HeartbeatsNoted(live.count() as u32))
            }
        }
    }

    /// Executes all operations or none.
    fn multi(&mut self, cx: &mut Context<'_>, session: Option<SessionId>, ops: Vec<Op>) -> Outcome {
        let events_before = cx.events.len();
        self.tree.begin();
        cx.held_back = Some(Vec::new());
        let mut replies = Vec::with_capacity(ops.len());
        for (index, op) in ops.into_iter().enumerate() {
            match self.write(cx, session, op) {
                Ok(reply) => replies.push(reply),
                Err(refusal) => {
                    cx.events.truncate(events_before);
                    cx.held_back = None;
                    self.roll_back();
                    return Err(Refusal::Multi {
                        index: index as u32,
                        refusal: refusal.into(),
                    });
                }
            }
        }
        self.tree.commit();
        for change in cx.held_back.take().into_iter().flatten() {
            self.tell_locks(cx, change);
        }
        Ok(Reply::Multi(replies))
    }
}
