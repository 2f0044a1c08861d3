//! Sessions: their ephemeral nodes, the recorded outcomes of their requests, and the ids of sessions that have ended lately. This
//! module does not decide when a session ends: the store does not know the time, and a command ends the session.
//!
//! Sessions know the index of a node in the tree, by which they find their ephemeral nodes.

mod corrections;
mod digest;
mod interning;
pub(crate) mod request_cache;

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use fault_injection::planted::{self, Bug};
use serde::{Deserialize, Serialize};

use crate::model::access::principal::Principal;
use crate::model::address::CallerAddress;
use crate::model::damage::Damage;
use crate::model::event::ContenderEnd;
use crate::model::identity::{Identities, Identity};
use crate::model::ids::{LeaseKey, Password, SessionId, Zxid};
use crate::model::path::{MAX_LONG_PATHS_BYTES, SHORT_PATH_BYTES, ZPath};
use crate::model::refusal::{Limited, Refusal};
use crate::model::session::{OwnedSession, SessionFate, SessionView, Silence, Turn};
use crate::sessions::digest::DigestShares;
use crate::sessions::interning::Interner;
use crate::sessions::request_cache::{CachedRequests, RequestCache};
use crate::stable_hash::{self, Table};
use crate::tree::Tree;
use crate::tree::index::NodeIndex;

/// Number of ended sessions that are recorded, so that their clients learn of the end. They take 16 bytes each. Older ones become unknown,
/// and their clients open a new session all the same.
pub const MAX_ENDED_SESSIONS: usize = 10_000;

/// End of a session whose ephemeral znodes are removed over several commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ending {
    /// True if the session expired; otherwise it was closed.
    pub(crate) expired: bool,
    /// Position at which it ended.
    pub(crate) at: Zxid,
}

impl Ending {
    /// Returns the cause of the ends of its contenders.
    pub(crate) fn how(self) -> ContenderEnd {
        match self.expired {
            true => ContenderEnd::SessionExpired,
            false => ContenderEnd::SessionClosed,
        }
    }
}

/// A live session, or one that has ended and still has ephemeral znodes.
pub(crate) struct Session {
    pub(crate) password: Password,
    pub(crate) timeout_ms: u32,
    pub(crate) name: Arc<str>,
    pub(crate) address: CallerAddress,
    pub(crate) opened_at_ms: u64,
    /// Principal that owns it, if access policies apply.
    pub(crate) owner: Principal,
    /// Certificate that the owner showed beside its token; it may have a role of its own. Recorded only if grants depend on rights.
    pub(crate) certificate: Option<Arc<str>>,
    /// Next turn of its connection.
    pub(crate) turn: Turn,
    /// Position of its latest command, whatever the outcome was.
    pub(crate) heard_at: Zxid,
    /// Recorded silence, if there is a record.
    pub(crate) silence: Option<Silence>,
    /// True if it is a lease: it has one ephemeral znode, a contender, and ends with it.
    pub(crate) is_lease: bool,
    /// Beginning of its end, if it has ended and still has ephemeral znodes.
    pub(crate) ending: Option<Ending>,
    /// Its ephemeral znodes by the position of their creation. Those of one position are in an order that differs between replicas.
    pub(crate) ephemerals: BTreeSet<(Zxid, NodeIndex)>,
    /// Outcomes of its requests. A snapshot in progress shares them, and all sessions without any share one.
    pub(crate) remembered: Arc<RequestCache>,
    /// Its share of the digest, unless it has changed since.
    digest_share: Option<u64>,
}

/// Leases in a snapshot, by session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Leases {
    /// The sessions among those that live which are leases.
    live: Vec<SessionId>,
    /// Those among the ended ones that were leases and were released by their holders.
    released: Vec<SessionId>,
}

impl Leases {
    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.live.is_empty() && self.released.is_empty()
    }
}

/// Record of a session in snapshots and the digest. Its ephemerals follow from the tree.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SessionRecord {
    pub(crate) session: SessionId,
    pub(crate) password: Password,
    pub(crate) timeout_ms: u32,
    pub(crate) name: Arc<str>,
    pub(crate) address: CallerAddress,
    pub(crate) opened_at_ms: u64,
    pub(crate) owner: Principal,
    pub(crate) turn: Turn,
    pub(crate) heard_at: Zxid,
    /// Recorded outcomes of its requests. Filled in when the part is built.
    pub(crate) requests: CachedRequests,
}

impl SessionRecord {
    /// Returns the newest position in the record. A restore refuses one beyond the position of the state.
    pub(crate) fn newest_position(&self) -> Zxid {
        self.turn.since.max(self.heard_at)
    }
}

impl Session {
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
            is_lease: self.is_lease,
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
            requests: CachedRequests::default(),
        }
    }

    /// Returns the oldest ephemeral znodes of a session whose removal costs about `most`, and that cost. A znode costs one, and one more for each
    /// [`SHORT_PATH_BYTES`] of its path.
    pub(crate) fn oldest_ephemerals(
        &self,
        tree: &Tree,
        most: usize,
    ) -> (Vec<(Zxid, ZPath, NodeIndex)>, usize) {
        let mut oldest: Vec<(Zxid, ZPath, NodeIndex)> = Vec::new();
        if most == 0 || self.ephemerals.is_empty() {
            return (oldest, 0);
        }
        for &(czxid, index) in &self.ephemerals {
            // Znodes of one transaction have the same czxid. Replicas agree on the order of their paths, but not on the order of their
            // indices.
            if oldest.len() >= most && oldest.last().is_none_or(|(last, ..)| *last != czxid) {
                break;
            }
            oldest.push((czxid, tree.path(index), index));
        }
        oldest.sort_unstable();
        let mut cost = 0;
        let within = oldest.iter().take_while(|(_, path, _)| {
            let is_within = cost < most;
            if is_within {
                cost += 1 + path.as_str().len() / SHORT_PATH_BYTES;
            }
            is_within
        });
        let within = within.count();
        oldest.truncate(within);
        (oldest, cost)
    }
}

impl Session {
    /// Returns a new session, or one of a snapshot, without ephemerals.
    pub(crate) fn of(record: SessionRecord, remembered: Arc<RequestCache>) -> Self {
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
            is_lease: false,
            ending: None,
            ephemerals: BTreeSet::new(),
            remembered,
            digest_share: None,
        }
    }
}

/// All sessions, and the recorded outcomes of requests.
pub(crate) struct Sessions {
    /// Sessions in boxes, because a table allocates up to twice the entries that it needs, and three times while it grows.
    live: Table<SessionId, Box<Session>>,
    /// Shares of the sessions in `live` in the digest.
    shares: DigestShares,
    /// Live sessions by id, for lists in pages.
    by_id: BTreeSet<SessionId>,
    /// Sessions in `live` that have ended and still have ephemeral znodes.
    ending: BTreeSet<SessionId>,
    interner: Interner,
    /// Those that have ended lately; true if a lease was released by its holder.
    ended: Table<SessionId, bool>,
    /// Ids of the ended sessions, the oldest first.
    ended_order: VecDeque<SessionId>,
    /// Outcomes of requests without a session. Shared with a snapshot that is being taken.
    sessionless: Arc<RequestCache>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            live: Table::default(),
            shares: DigestShares::default(),
            by_id: BTreeSet::new(),
            ending: BTreeSet::new(),
            interner: Interner::default(),
            ended: Table::default(),
            ended_order: VecDeque::new(),
            sessionless: Arc::new(RequestCache::sessionless()),
        }
    }
}

impl Sessions {
    pub(crate) fn get(&self, session: SessionId) -> Option<&Session> {
        self.live.get(&session).map(Box::as_ref)
    }

    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// Returns the number of recorded outcomes of the session with the most of them.
    pub(crate) fn most_recorded(&self) -> usize {
        let counts = self.live.values().map(|session| session.remembered.len());
        counts.max().unwrap_or_default()
    }

    /// Returns the live sessions whose ids follow `after`, by id.
    pub(crate) fn following(&self, after: Option<SessionId>) -> impl Iterator<Item = (SessionId, &Session)> {
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        let ids = self.by_id.range((first, Bound::Unbounded));
        ids.map(|&id| (id, &*self.live[&id]))
    }

    /// Changes the owner of a session.
    pub(crate) fn change_owner(&mut self, id: SessionId, owner: Principal) {
        self.get_mut(id).expect("it lives").owner = owner;
    }

    /// Returns the sessions that have ended and still have ephemeral znodes, by id.
    pub(crate) fn ending(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.ending.iter().copied()
    }

    /// Returns whether any session has ended and still has ephemeral znodes.
    pub(crate) fn are_ending(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Returns whether a session has ended and still has ephemeral znodes.
    pub(crate) fn is_ending(&self, session: SessionId) -> bool {
        self.ending.contains(&session)
    }

    /// Returns the ends of these sessions.
    pub(crate) fn endings(&self) -> Vec<(SessionId, Ending)> {
        let how = |&id: &SessionId| Some((id, self.live[&id].ending?));
        self.ending.iter().filter_map(how).collect()
    }

    /// Marks a session as ended whose ephemeral znodes are still to be removed.
    pub(crate) fn begin_end(&mut self, id: SessionId, ending: Ending) -> Result<(), Damage> {
        let session = self.get_mut(id).ok_or("an end in it is of no session")?;
        session.ending = Some(ending);
        session.silence = None;
        self.by_id.remove(&id);
        self.ending.insert(id);
        Ok(())
    }

    /// Records a command or heartbeat of a live session, which makes an expiry that was proposed before void.
    pub(crate) fn note_request(&mut self, id: SessionId, at: Zxid) -> Result<(), Refusal> {
        match self.get_mut(id) {
            Some(session) if session.ending.is_none() => {
                session.heard_at = at;
                session.silence = None;
            }
            _ => self.require(id)?,
        }
        Ok(())
    }

    /// Uses up the next turn of the session, or refuses another turn.
    pub(crate) fn take_turn(&mut self, id: SessionId, turn: Turn) -> Result<(), Refusal> {
        self.require(id)?;
        let session = self.get_mut(id).expect("it lives");
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

    /// Resumes the session on another connection.
    pub(crate) fn reconnect(
        &mut self,
        id: SessionId,
        password: Password,
        since: Zxid,
    ) -> Result<u32, Refusal> {
        self.require(id)?;
        let session = self.get_mut(id).expect("it lives");
        if !session.password.matches(&password) {
            return Err(Refusal::WrongPassword(id));
        }
        session.turn = Turn { since, number: 0 };
        session.heard_at = since;
        session.silence = None;
        Ok(session.timeout_ms)
    }

    /// Returns the recorded silences, by session.
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
        for (silent, _) in self.silences() {
            self.get_mut(silent).expect("it lives").silence = None;
        }
    }

    /// Returns all live sessions as a snapshot contains them, by id, each with its request cache.
    pub(crate) fn records(&self) -> Vec<(SessionRecord, Arc<RequestCache>)> {
        let mut records: Vec<_> = self
            .live
            .iter()
            .map(|(&id, session)| (session.record(id), session.remembered.clone()))
            .collect();
        records.sort_unstable_by_key(|(record, _)| record.session);
        records
    }

    pub(crate) fn fate(&self, session: SessionId) -> SessionFate {
        if let Some(state) = self.live.get(&session) {
            match state.ending {
                None => SessionFate::Live,
                Some(_) => SessionFate::Ended,
            }
        } else if self.ended.contains_key(&session) {
            SessionFate::Ended
        } else {
            SessionFate::Unknown
        }
    }

    /// Refuses a request for a session that does not live.
    pub(crate) fn require(&self, session: SessionId) -> Result<(), Refusal> {
        match self.fate(session) {
            SessionFate::Live => Ok(()),
            SessionFate::Ended => Err(Refusal::SessionEnded(session)),
            SessionFate::Unknown => Err(Refusal::NoSession(session)),
        }
    }

    /// Returns the request cache of a session without recorded outcomes.
    pub(crate) fn empty_cache(&self) -> Arc<RequestCache> {
        self.interner.nothing()
    }

    pub(crate) fn insert(&mut self, id: SessionId, mut session: Session) {
        session.name = self.interner.name(session.name);
        self.live.insert(id, Box::new(session));
        self.add_share(id);
        self.by_id.insert(id);
    }

    /// Ended sessions, the oldest first.
    pub(crate) fn ended(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.ended_order.iter().copied()
    }

    /// Returns the live lease with this key.
    pub(crate) fn lease(&self, key: &LeaseKey) -> Option<&Session> {
        let session = self.get(key.session)?;
        let is_live = session.is_lease && session.ending.is_none();
        (is_live && session.password.matches(&key.password)).then_some(session)
    }

    /// The leases that have not ended completely, and those that were released lately, by id.
    pub(crate) fn leases(&self) -> Leases {
        let live = self.live.iter().filter(|(_, session)| session.is_lease);
        let mut live: Vec<SessionId> = live.map(|(&id, _)| id).collect();
        live.sort_unstable();
        let released = self.ended_order.iter().copied();
        Leases {
            live,
            released: released.filter(|&id| self.was_released(id)).collect(),
        }
    }

    /// Restores what [`Sessions::leases`] returned, after the sessions.
    pub(crate) fn restore_leases(&mut self, leases: Leases) -> Result<(), Damage> {
        for id in leases.live {
            self.get_mut(id).ok_or("a lease in it has no session")?.is_lease = true;
        }
        for id in leases.released {
            *self
                .ended
                .get_mut(&id)
                .ok_or("a released lease in it has not ended")? = true;
        }
        Ok(())
    }

    /// Notes that the holder of a lease, which has ended, has released it.
    pub(crate) fn note_released(&mut self, lease: SessionId) {
        if let Some(released) = self.ended.get_mut(&lease) {
            *released = true;
        }
    }

    /// Returns whether a lease was released by its holder, lately.
    pub(crate) fn was_released(&self, lease: SessionId) -> bool {
        self.ended.get(&lease).is_some_and(|released| *released)
    }

    /// Remembers that a session has ended.
    pub(crate) fn remember_ended(&mut self, session: SessionId) {
        if self.ended.insert(session, false).is_some() {
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

    /// Plants the bug [`OwnOrder`](Bug::OwnOrder): orders the sessions as a table would whose order depends on its address in memory.
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

    /// Removes a session that the same command has opened and that has nothing.
    pub(crate) fn forget(&mut self, id: SessionId) {
        self.by_id.remove(&id);
        self.remove_share(id);
        self.live.remove(&id);
    }

    /// Removes a session whose ephemeral znodes are gone, and records that it has ended.
    pub(crate) fn remove(&mut self, id: SessionId) {
        self.by_id.remove(&id);
        self.remove_share(id);
        self.live.remove(&id);
        self.ending.remove(&id);
        self.remember_ended(id);
    }

    /// Returns a session with its owner.
    pub(crate) fn owned(&self, session: SessionId) -> OwnedSession<'_> {
        OwnedSession {
            session,
            owner: self.get(session).map(|state| &state.owner),
        }
    }

    /// Returns the name of the session of a contender.
    pub(crate) fn name_of(&self, session: SessionId) -> Arc<str> {
        match self.get(session) {
            Some(session) => session.name.clone(),
            None if planted::is(Bug::GrantToTheDead) => Arc::default(),
            None => panic!("a session outlives its contenders"),
        }
    }

    /// Records the certificate that the owner of a session showed beside its token.
    pub(crate) fn record_certificate(&mut self, session: SessionId, caller: &Identities) {
        if let Some(state) = self.get_mut(session)
            && matches!(state.owner, Principal::Token(_))
        {
            state.certificate = caller.iter().find_map(|identity| match identity {
                Identity::X509(subject) => Some(subject.clone()),
                _ => None,
            });
        }
    }

    /// Refuses another ephemeral znode to a session that has the maximum. The maximum is `limit`, or less if the new znode has a long path: then it
    /// is the number of paths of that length within [`MAX_LONG_PATHS_BYTES`]. The reason is that all of them are removed when the session ends.
    pub(crate) fn may_own_more(&self, session: SessionId, path: &ZPath, limit: u32) -> Result<(), Refusal> {
        let owner = self.get(session).expect("its request was admitted");
        // A lease ends with its contender, and would take other znodes with it.
        let limit = if owner.is_lease { 1 } else { limit };
        let limit = match path.as_str().len() {
            ..=SHORT_PATH_BYTES => limit,
            bytes => limit.min((MAX_LONG_PATHS_BYTES / bytes) as u32),
        };
        if owner.ephemerals.len() >= limit as usize {
            return Err(Refusal::LimitReached {
                what: Limited::Ephemerals(session),
                limit,
            });
        }
        Ok(())
    }

    /// Returns the recorded outcomes of a session's requests, or of requests without a session. Returns `None` if the session has just
    /// ended.
    pub(crate) fn requests(&self, session: Option<SessionId>) -> Option<&RequestCache> {
        match session {
            Some(session) => Some(&self.get(session)?.remembered),
            None => Some(&self.sessionless),
        }
    }

    /// Returns the request cache of a session, or that of requests without a session, to record an outcome. A cache that a snapshot shares is copied
    /// first.
    pub(crate) fn requests_mut(&mut self, session: Option<SessionId>) -> Option<&mut RequestCache> {
        let requests = match session {
            Some(session) => &mut self.get_mut(session)?.remembered,
            None => &mut self.sessionless,
        };
        Some(Arc::make_mut(requests))
    }

    /// Returns the recorded outcomes of requests without a session, to be shared with a snapshot.
    pub(crate) fn sessionless(&self) -> &Arc<RequestCache> {
        &self.sessionless
    }
}
