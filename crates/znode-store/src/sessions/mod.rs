//! Sessions: who is there, what ephemeral nodes they own, and who has left lately. When a session has to
//! end is not decided here: the store does not know the time, a command tells it.

mod alike;

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use self::alike::Alike;
use crate::access::Principal;
use crate::apply::Context;
use crate::command::{Silence, Turn};
use crate::event::{ContenderEnd, Event};
use crate::ids::{Password, SessionId, Zxid};
use crate::lock::Standing;
use crate::path::ZPath;
use crate::planted::{self, Bug};
use crate::remembered::{Kept, Remembered};
use crate::reply::Refusal;
use crate::stable_hash::{self, Table};
use crate::store::Store;
use crate::tree::NodeIndex;
use crate::write::lock_of_child;

/// How many ended sessions are remembered, so that their clients learn that they have ended and not that
/// they never were. At 16 bytes each; older ones become unknown, which tells a client no less to start anew.
pub const MAX_ENDED_SESSIONS: usize = 10_000;

/// A live session, for people and front ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// Its id.
    pub session: SessionId,
    /// After so long without a heartbeat the leader ends it.
    pub timeout_ms: u32,
    /// What its client called it.
    pub name: Arc<str>,
    /// Where its client called from.
    pub address: Arc<str>,
    /// When it was opened, in milliseconds since 1970.
    pub opened_at_ms: u64,
    /// How many ephemeral nodes it owns.
    pub ephemerals: u32,
    /// The position at which it was opened, or last reconnected.
    pub connected_at: Zxid,
    /// Whose it is.
    pub owner: Principal,
    /// Its silence, if that is on record.
    pub silence: Option<Silence>,
}

/// What became of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionFate {
    /// It lives.
    Live,
    /// It has expired or was closed, lately.
    Ended,
    /// It ended long ago, or never was.
    Unknown,
}

/// A live session.
pub(crate) struct Session {
    pub(crate) password: Password,
    pub(crate) timeout_ms: u32,
    pub(crate) name: Arc<str>,
    pub(crate) address: Arc<str>,
    pub(crate) opened_at_ms: u64,
    /// Whose it is, if that counts.
    pub(crate) owner: Principal,
    /// Certificate that the owner showed beside its token; it may have a role of its own. Recorded only if grants depend on rights.
    pub(crate) certificate: Option<Arc<str>>,
    /// The next turn of its connection.
    pub(crate) turn: Turn,
    /// The position of its latest command, whatever became of it.
    pub(crate) heard_at: Zxid,
    /// Its silence, if that is on record.
    pub(crate) silence: Option<Silence>,
    /// In an order that differs between replicas.
    pub(crate) ephemerals: BTreeSet<NodeIndex>,
    /// Outcomes of its requests; shared with a snapshot that is being drawn, and while there are none with all who have none.
    pub(crate) remembered: Arc<Remembered>,
}

/// What of a session goes into snapshots and the digest. Its ephemerals follow from the tree.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SessionRecord {
    pub(crate) session: SessionId,
    password: Password,
    timeout_ms: u32,
    name: Arc<str>,
    address: Arc<str>,
    opened_at_ms: u64,
    owner: Principal,
    pub(crate) turn: Turn,
    heard_at: Zxid,
    /// What is remembered of its requests. Filled in when it is written.
    pub(crate) requests: Kept,
}

impl SessionRecord {
    /// Nothing in it may be newer than the state that it is of.
    pub(crate) fn newest_position(&self) -> Zxid {
        self.turn.since.max(self.heard_at)
    }
}

impl Session {
    #[expect(clippy::too_many_arguments, reason = "each is a fact of the new session")]
    pub(crate) fn new(
        password: Password,
        timeout_ms: u32,
        name: Arc<str>,
        address: Arc<str>,
        owner: Principal,
        opened_at_ms: u64,
        opened_at: Zxid,
        remembered: Arc<Remembered>,
    ) -> Self {
        Self {
            password,
            timeout_ms,
            name,
            address,
            opened_at_ms,
            owner,
            certificate: None,
            turn: Turn {
                since: opened_at,
                number: 0,
            },
            heard_at: opened_at,
            silence: None,
            ephemerals: BTreeSet::new(),
            remembered,
        }
    }

    pub(crate) fn view(&self, session: SessionId) -> SessionView {
        SessionView {
            session,
            timeout_ms: self.timeout_ms,
            name: self.name.clone(),
            address: self.address.clone(),
            opened_at_ms: self.opened_at_ms,
            ephemerals: self.ephemerals.len() as u32,
            connected_at: self.turn.since,
            owner: self.owner.clone(),
            silence: self.silence,
        }
    }

    pub(crate) fn record(&self, session: SessionId) -> SessionRecord {
        SessionRecord {
            session,
            password: self.password,
            timeout_ms: self.timeout_ms,
            name: self.name.clone(),
            address: self.address.clone(),
            opened_at_ms: self.opened_at_ms,
            owner: self.owner.clone(),
            turn: self.turn,
            heard_at: self.heard_at,
            requests: Kept::default(),
        }
    }
}

impl Session {
    /// A session that comes out of a snapshot, still without its ephemerals.
    pub(crate) fn restored(record: SessionRecord, remembered: Arc<Remembered>) -> Self {
        let SessionRecord {
            session: _,
            password,
            timeout_ms,
            name,
            address,
            opened_at_ms,
            owner,
            turn,
            heard_at,
            requests: _,
        } = record;
        Self {
            password,
            timeout_ms,
            name,
            address,
            opened_at_ms,
            owner,
            certificate: None,
            turn,
            heard_at,
            silence: None,
            ephemerals: BTreeSet::new(),
            remembered,
        }
    }
}

/// All sessions.
#[derive(Default)]
pub(crate) struct Sessions {
    /// In boxes, for a table has up to twice the places that it needs, and three times while it grows.
    live: Table<SessionId, Box<Session>>,
    alike: Alike,
    ended: Table<SessionId, ()>,
    /// The same, the oldest first.
    ended_order: VecDeque<SessionId>,
}

impl Sessions {
    pub(crate) fn get(&self, session: SessionId) -> Option<&Session> {
        self.live.get(&session).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, session: SessionId) -> Option<&mut Session> {
        self.live.get_mut(&session).map(Box::as_mut)
    }

    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// How many outcomes the session with the most of them has remembered.
    pub(crate) fn most_remembered(&self) -> usize {
        let counts = self.live.values().map(|session| session.remembered.len());
        counts.max().unwrap_or_default()
    }

    pub(crate) fn views(&self) -> Vec<SessionView> {
        let mut views: Vec<_> = self.live.iter().map(|(&id, session)| session.view(id)).collect();
        views.sort_unstable_by_key(|view| view.session);
        views
    }

    /// A live session has asked for something: the end that is on its way to it, if any, comes too late.
    pub(crate) fn hear(&mut self, id: SessionId, at: Zxid) -> Result<(), Refusal> {
        match self.live.get_mut(&id) {
            Some(session) => {
                session.heard_at = at;
                session.silence = None;
            }
            None => self.require(id)?,
        }
        Ok(())
    }

    /// Takes the session's next turn, if this is it.
    pub(crate) fn take_turn(&mut self, id: SessionId, turn: Turn) -> Result<(), Refusal> {
        self.require(id)?;
        let session = self.live.get_mut(&id).expect("it lives");
        let expected = session.turn;
        if turn.since != expected.since {
            return Err(Refusal::SessionMoved(id));
        }
        if turn.number != expected.number {
            return Err(Refusal::OutOfTurn {
                session: id,
                turn: turn.number,
                expected: expected.number,
            });
        }
        session.turn.number += 1;
        Ok(())
    }

    /// Has the session go on on another connection.
    pub(crate) fn reconnect(
        &mut self,
        id: SessionId,
        password: Password,
        since: Zxid,
    ) -> Result<u32, Refusal> {
        self.require(id)?;
        let session = self.live.get_mut(&id).expect("it lives");
        if session.password != password {
            return Err(Refusal::WrongPassword(id));
        }
        session.turn = Turn { since, number: 0 };
        session.heard_at = since;
        session.silence = None;
        Ok(session.timeout_ms)
    }

    /// The silences that are on record, by session.
    pub(crate) fn silences(&self) -> Vec<(SessionId, Silence)> {
        let sessions = self.live.iter();
        let mut silences: Vec<_> = sessions
            .filter_map(|(&id, session)| Some((id, session.silence?)))
            .collect();
        silences.sort_unstable_by_key(|(id, _)| *id);
        silences
    }

    /// Returns the certificates that owners showed beside their tokens, by session.
    pub(crate) fn certificates(&self) -> VecDeque<(SessionId, Arc<str>)> {
        let sessions = self.live.iter();
        let mut certificates: Vec<_> = sessions
            .filter_map(|(&id, session)| Some((id, session.certificate.clone()?)))
            .collect();
        certificates.sort_unstable_by_key(|(id, _)| *id);
        certificates.into()
    }

    /// Takes all sessions off the record of silence.
    pub(crate) fn forget_silences(&mut self) {
        self.live.values_mut().for_each(|session| session.silence = None);
    }

    /// All live sessions as they go into a snapshot, by id, their memories beside them.
    pub(crate) fn records(&self) -> Vec<(SessionRecord, Arc<Remembered>)> {
        let mut records: Vec<_> = self
            .live
            .iter()
            .map(|(&id, session)| (session.record(id), session.remembered.clone()))
            .collect();
        records.sort_unstable_by_key(|(record, _)| record.session);
        records
    }

    pub(crate) fn fate(&self, session: SessionId) -> SessionFate {
        if self.live.contains_key(&session) {
            SessionFate::Live
        } else if self.ended.contains_key(&session) {
            SessionFate::Ended
        } else {
            SessionFate::Unknown
        }
    }

    /// Refuses what is asked for a session that does not live.
    pub(crate) fn require(&self, session: SessionId) -> Result<(), Refusal> {
        match self.fate(session) {
            SessionFate::Live => Ok(()),
            SessionFate::Ended => Err(Refusal::SessionEnded(session)),
            SessionFate::Unknown => Err(Refusal::NoSession(session)),
        }
    }

    /// The memory of a session that has asked for nothing yet.
    pub(crate) fn nothing_remembered(&self) -> Arc<Remembered> {
        self.alike.nothing()
    }

    pub(crate) fn insert(&mut self, id: SessionId, mut session: Session) {
        session.name = self.alike.name(session.name);
        self.live.insert(id, Box::new(session));
    }

    /// Ended sessions, the oldest first.
    pub(crate) fn ended(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.ended_order.iter().copied()
    }

    /// Remembers that a session has ended.
    pub(crate) fn remember_ended(&mut self, session: SessionId) {
        if self.ended.insert(session, ()).is_some() {
            return;
        }
        self.ended_order.push_back(session);
        self.order_as_planted();
        if self.ended_order.len() > MAX_ENDED_SESSIONS {
            let oldest = self
                .ended_order
                .pop_front()
                .expect("there are more than the maximum");
            self.ended.remove(&oldest);
        }
    }

    /// The bug [`OwnOrder`](Bug::OwnOrder): as if they were kept in a table whose order depends on where it lies in memory.
    fn order_as_planted(&mut self) {
        if planted::is(Bug::OwnOrder)
            && let [.., before, last] = self.ended_order.make_contiguous()
        {
            // Replicas in one process differ in the first, processes in the second.
            let places = [
                core::ptr::from_ref(&self.live).addr(),
                Self::order_as_planted as *const () as usize,
            ];
            let rank =
                |session: &SessionId| stable_hash::of_words([session.0, places[0] as u64, places[1] as u64]);
            if rank(before) > rank(last) {
                core::mem::swap(before, last);
            }
        }
    }

    /// The sessions' share of the digest.
    pub(crate) fn digest(&self) -> u64 {
        let live = self.live.iter().fold(0_u64, |sum, (&id, session)| {
            let hash = stable_hash::of_words([
                stable_hash::of(&session.record(id)),
                session.ephemerals.len() as u64,
                session.remembered.digest(),
            ]);
            // Former versions have neither, so a state without them has the same digest there.
            let silence = session
                .silence
                .map_or(0, |silence| stable_hash::of(&(id, silence)));
            let certificate = session
                .certificate
                .as_ref()
                .map_or(0, |certificate| stable_hash::of(&(id, certificate)));
            sum.wrapping_add(hash)
                .wrapping_add(silence)
                .wrapping_add(certificate)
        });
        stable_hash::of_words([live, stable_hash::of(&self.ended_order)])
    }
}

impl Store {
    /// Takes out what bugs leave behind when a session ends: its waiters, or the newest of its other ephemeral nodes.
    fn leave_orphans(&self, ephemerals: &mut Vec<(Zxid, ZPath, NodeIndex)>) {
        if planted::is(Bug::GrantToTheDead) {
            ephemerals.retain(|(_, path, _)| {
                let standing = lock_of_child(path).and_then(|lock| self.standing(&lock, path.name()));
                !matches!(standing, Some(Standing::Waits(_)))
            });
        }
        if planted::is(Bug::KeptEphemeral)
            && let Some(newest) = ephemerals
                .iter()
                .rposition(|(_, path, _)| lock_of_child(path).is_none())
        {
            ephemerals.remove(newest);
        }
    }

    /// Ends a live session: all its ephemeral nodes go, in the order in which they came.
    pub(crate) fn end_session(&mut self, cx: &mut Context<'_>, session: SessionId, expired: bool) {
        let how = if expired {
            ContenderEnd::SessionExpired
        } else {
            ContenderEnd::SessionClosed
        };
        let state = self.sessions.get(session).expect("only a live session is ended");
        let mut ephemerals: Vec<_> = state
            .ephemerals
            .iter()
            .map(|&index| (self.tree.node(index).czxid, self.tree.path(index), index))
            .collect();
        // Nodes of one transaction share their czxid; their paths tell them apart, their indices may not.
        ephemerals.sort_unstable();
        if planted::leaves_orphans() {
            self.leave_orphans(&mut ephemerals);
        }
        for (_, path, index) in ephemerals {
            self.remove_node(cx, index, &path, how.clone());
        }
        self.sessions.live.remove(&session);
        self.sessions.remember_ended(session);
        cx.events.push(Event::SessionEnded { session, expired });
    }
}
