//! The state and how it is read. Everything here is `&self`; changes come in by [`Store::apply`] alone.

pub(crate) mod resolve;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::access::table::Access;
use crate::locks::table::Locks;
use crate::model::access::principal::Principal;
use crate::model::data::Data;
use crate::model::identity::Identities;
use crate::model::ids::{Password, RequestId, SessionId, Zxid};
use crate::model::limits::Limits;
use crate::model::path::{MAX_LONG_PATHS_BYTES, SHORT_PATH_BYTES, ZPath};
use crate::model::session::{SessionFate, SessionView, Silence};
use crate::model::stat::Stat;
use crate::sessions::Sessions;
use crate::sessions::request_cache::{RecordedOutcome, RequestKey};
use crate::snapshot::builder::{SnapshotBuilder, StateDigest};
use crate::stable_hash;
use crate::tree::Tree;

/// Maximum number of znodes that [`Store::to_sweep`] returns. They become one command, which must stay small beside the others in its log
/// entry. The next call returns the rest.
pub const MAX_SWEPT: usize = 1_000;

/// Maximum number of bytes of their paths, unless there is only one.
const MAX_SWEPT_BYTES: usize = 1024 * 1024;

/// Version of [`Store::digest`]. A change of the digest of an equal state raises it: replicas whose programs differ in it are not compared.
///
/// In version 1 the record of a contender counted as the bytes of its JSON. The digest in a snapshot still is of that version: former
/// releases check it, too.
pub const DIGEST_VERSION: u32 = 2;

/// The state of the lock server, all of it. See the [crate's page](crate).
pub struct Store {
    pub(crate) zxid: Zxid,
    pub(crate) time_ms: u64,
    pub(crate) limits: Limits,
    pub(crate) tree: Tree,
    pub(crate) sessions: Sessions,
    /// Its queues follow from the tree; what does not is in snapshots and in the digest.
    pub(crate) locks: Locks,
    /// Access policies. Shared with a snapshot that is being taken.
    pub(crate) access: Arc<Access>,
    /// The snapshot that is being taken, if any. It is no part of the state.
    pub(crate) snapshot: Option<Box<SnapshotBuilder>>,
}

impl Default for Store {
    fn default() -> Self {
        Self::new()
    }
}

impl Store {
    /// The state before the first command: the root, and `/zookeeper` with `quota` and `config` in it.
    pub fn new() -> Self {
        Self {
            zxid: Zxid(0),
            time_ms: 0,
            limits: Limits::default(),
            tree: Tree::new(),
            sessions: Sessions::default(),
            locks: Locks::default(),
            access: Arc::default(),
            snapshot: None,
        }
    }

    /// The position of the last command.
    pub fn zxid(&self) -> Zxid {
        self.zxid
    }

    /// The time of the last command, in milliseconds since 1970 by the leaders' clocks. Never goes back.
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// A number that two replicas at the same position share, and that differs if their states do (but for
    /// an accident of 1 in 2⁶⁴). Costs nothing for the tree, and a look at each session.
    pub fn digest(&self) -> u64 {
        self.digest_parts().value()
    }

    pub(crate) fn digest_parts(&self) -> StateDigest {
        StateDigest([
            self.zxid.0,
            self.time_ms,
            stable_hash::of(&self.limits),
            self.tree.digest(),
            self.sessions.digest(),
            self.sessions.sessionless().digest(),
            self.locks.digest(self.sessions.are_ending()),
            self.access.digest(),
        ])
    }

    /// Data and stat of a znode.
    pub fn get(&self, path: &ZPath) -> Option<(Data, Stat)> {
        let node = self.tree.node(self.tree.find(path)?);
        Some((node.data.to_data(), node.stat()))
    }

    /// The stat of a znode; `None` if it does not exist.
    pub fn stat(&self, path: &ZPath) -> Option<Stat> {
        Some(self.tree.node(self.tree.find(path)?).stat())
    }

    /// The names of a znode's children, sorted.
    pub fn children(&self, path: &ZPath) -> Option<Vec<Arc<str>>> {
        Some(self.tree.child_names(self.tree.find(path)?))
    }

    /// Returns the number of znodes, with the root.
    pub fn node_count(&self) -> usize {
        self.tree.len()
    }

    /// Returns the number of bytes of the paths and the data of all znodes.
    pub fn approximate_data_size(&self) -> u64 {
        self.tree.bytes()
    }

    /// A live session.
    pub fn session(&self, session: SessionId) -> Option<SessionView> {
        let state = self.sessions.get(session)?;
        state.ending.is_none().then(|| state.view(session))
    }

    /// Up to `count` of the sessions that have ended and still have ephemeral znodes, by id. A command that expires them goes on with
    /// their ends.
    pub fn ending_sessions(&self, count: usize) -> Vec<SessionId> {
        self.sessions.ending().take(count).collect()
    }

    /// Returns whether a session has ended and still has ephemeral znodes.
    pub fn is_ending(&self, session: SessionId) -> bool {
        self.sessions.is_ending(session)
    }

    /// Returns the number of sessions that live.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// All live sessions, by id.
    pub fn sessions(&self) -> Vec<SessionView> {
        self.sessions_after(None, usize::MAX)
    }

    /// Up to `count` of them, those whose ids follow `after`.
    pub fn sessions_after(&self, after: Option<SessionId>, count: usize) -> Vec<SessionView> {
        let following = self.sessions.following(after).take(count);
        following.map(|(id, session)| session.view(id)).collect()
    }

    /// Returns whether a session lives, has ended lately, or is not known.
    pub fn session_fate(&self, session: SessionId) -> SessionFate {
        self.sessions.fate(session)
    }

    /// The position of a live session's latest command, or of the latest heartbeat of it that is in the log.
    pub fn session_heard_at(&self, session: SessionId) -> Option<Zxid> {
        Some(self.sessions.get(session)?.heard_at)
    }

    /// The silence of a live session, if it is on record.
    pub fn silence(&self, session: SessionId) -> Option<Silence> {
        self.sessions.get(session)?.silence
    }

    /// The password of a live session.
    pub fn session_password(&self, session: SessionId) -> Option<Password> {
        self.sessions.get(session).map(|state| state.password)
    }

    /// Returns the znodes that are due for a sweep: containers that have been empty since before the one time, and TTL nodes without
    /// children that have ended at the other. The longest due are first, at most [`MAX_SWEPT`], with one mebibyte of paths.
    pub fn to_sweep(&self, emptied_before_ms: u64, now_ms: u64) -> Vec<ZPath> {
        self.tree
            .emptied_before(emptied_before_ms)
            .chain(self.tree.expired_until(now_ms))
            .map(|index| self.tree.path(index))
            .filter(|path| !self.locks.is_configured(path))
            .take(MAX_SWEPT)
            .scan(0, |bytes, path| {
                let is_first = *bytes == 0;
                *bytes += path.as_str().len();
                (is_first || *bytes <= MAX_SWEPT_BYTES).then_some(path)
            })
            .collect()
    }

    /// Cuts a list of sessions that are to end into pieces that end by one command each, so that the long paths of their
    /// ephemeral znodes have no more than [`MAX_LONG_PATHS_BYTES`] together; or of one session, whose number is bounded
    /// when they are created.
    pub fn ending_together<'s>(&self, mut sessions: &'s [SessionId]) -> Vec<&'s [SessionId]> {
        let mut pieces = Vec::new();
        while !sessions.is_empty() {
            let mut bytes = 0;
            let fits = |session: &&SessionId| {
                bytes += self.long_ephemerals_bytes(**session);
                bytes <= MAX_LONG_PATHS_BYTES
            };
            let fitting = sessions.iter().take_while(fits).count().max(1);
            let (piece, rest) = sessions.split_at(fitting);
            pieces.push(piece);
            sessions = rest;
        }
        pieces
    }

    fn long_ephemerals_bytes(&self, session: SessionId) -> usize {
        let ephemerals = self.sessions.get(session).map(|state| &state.ephemerals);
        let lengths = ephemerals
            .into_iter()
            .flatten()
            .map(|&(_, index)| self.tree.path_bytes(index));
        lengths.filter(|bytes| *bytes > SHORT_PATH_BYTES).sum()
    }

    /// Returns the number of recorded outcomes, beside those of calls that wait: of the session with the most of them, and of all requests
    /// without a session.
    pub fn remembered_requests(&self) -> (usize, usize) {
        (self.sessions.most_recorded(), self.sessions.sessionless().len())
    }

    /// Returns whether the state is secured and lacks the rule of [`AccessCommand::EndWaitsWithRights`](crate::AccessCommand).
    pub fn lets_waits_outlive_rights(&self) -> bool {
        self.access.is_secured() && !self.access.waits_end_with_rights()
    }

    /// The limits that hold.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the recorded outcome under a request id.
    pub(crate) fn recorded_outcome(
        &self,
        session: Option<SessionId>,
        caller: &Identities,
        id: &RequestId,
    ) -> Option<&RecordedOutcome> {
        let key = self.request_key(session, caller, id);
        self.sessions.requests(session)?.get(&key)
    }

    /// Returns the key of an outcome. Requests without a session share one cache, in which requests of two principals are different
    /// whatever their ids are.
    pub(crate) fn request_key(
        &self,
        session: Option<SessionId>,
        caller: &Identities,
        id: &RequestId,
    ) -> RequestKey {
        match session {
            None if self.access.is_secured() => RequestKey::of_principal(&Principal::of(caller), id),
            _ => id.into(),
        }
    }
}
