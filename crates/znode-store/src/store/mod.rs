//! The state and its basic queries. All functions here take `&self`; only [`Store::apply`] changes the state.

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
use crate::model::namespace::{NamespaceName, NamespaceUsage, NamespaceView};
use crate::model::path::{LockName, MAX_LONG_PATHS_BYTES, SHORT_PATH_BYTES, ZPath};
use crate::model::session::{SessionFate, SessionView, Silence};
use crate::model::stat::Stat;
use crate::sessions::Sessions;
use crate::sessions::request_cache::{RecordedOutcome, RequestKey};
use crate::snapshot::builder::{SnapshotBuilder, StateDigest};
use crate::stable_hash;
use crate::tree::Tree;

/// Maximum number of znodes that [`Store::to_sweep`] returns. They become one command, which must stay small compared with its log entry.
/// The next call returns the rest.
pub const MAX_SWEPT: usize = 1_000;

/// Maximum number of bytes of the paths of these znodes, unless there is only one.
const MAX_SWEPT_BYTES: usize = 1024 * 1024;

/// Version of [`Store::digest`]. A change that gives an equal state another digest raises it. Replicas with different versions are not compared.
///
/// In version 1 the record of a contender counted as the bytes of its JSON. The digest in a snapshot is still of that version, because former
/// releases check it, too.
pub const DIGEST_VERSION: u32 = 2;

/// Whole state of the lock server. See the [crate's page](crate).
pub struct Store {
    pub(crate) zxid: Zxid,
    pub(crate) time_ms: u64,
    pub(crate) limits: Limits,
    pub(crate) tree: Tree,
    pub(crate) sessions: Sessions,
    /// Locks. Their queues follow from the tree; the rest is in snapshots and in the digest.
    pub(crate) locks: Locks,
    /// Access policies. A snapshot in progress shares them.
    pub(crate) access: Arc<Access>,
    /// Snapshot in progress, if any. It is no part of the state.
    pub(crate) snapshot: Option<Box<SnapshotBuilder>>,
}

impl Default for Store {
    fn default() -> Self {
        Self::new()
    }
}

impl Store {
    /// Returns the state before the first command: the root, and `/zookeeper` with `quota` and `config` in it.
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

    /// Returns the position of the last command.
    pub fn zxid(&self) -> Zxid {
        self.zxid
    }

    /// Returns the time of the last command, in milliseconds since 1970 by the leaders' clocks. It never decreases.
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// Returns the digest of the state. Two replicas at the same position have the same digest, and different states have different ones (except by
    /// chance, 1 in 2⁶⁴). The tree and the sessions keep theirs while they change; locks with a state of their own, roles and tokens are visited.
    pub fn digest(&self) -> u64 {
        self.digest_parts().value()
    }

    pub(crate) fn digest_parts(&self) -> StateDigest {
        StateDigest([
            self.zxid.0,
            self.time_ms,
            stable_hash::of(&self.limits).wrapping_add(self.tree.namespaces().digest()),
            self.tree.digest(),
            self.sessions.digest(),
            self.sessions.sessionless().digest(),
            self.locks.digest(),
            self.access.digest(),
        ])
    }

    /// Returns the data and the stat of a znode.
    pub fn get(&self, path: &ZPath) -> Option<(Data, Stat)> {
        let node = self.tree.node(self.tree.find(path)?);
        Some((node.data.to_data(), node.stat()))
    }

    /// Returns the stat of a znode; `None` if it does not exist.
    pub fn stat(&self, path: &ZPath) -> Option<Stat> {
        Some(self.tree.node(self.tree.find(path)?).stat())
    }

    /// Returns the names of a znode's children, sorted.
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

    /// Returns a live session.
    pub fn session(&self, session: SessionId) -> Option<SessionView> {
        let state = self.sessions.get(session)?;
        state.ending.is_none().then(|| state.view(session))
    }

    /// Returns up to `count` of the sessions that have ended and still have ephemeral znodes, by id. A command that expires them continues their
    /// ends.
    pub fn ending_sessions(&self, count: usize) -> Vec<SessionId> {
        self.sessions.ending().take(count).collect()
    }

    /// Returns the locks whose next waiters are granted the lock by the next command, whatever it is: the budget of an entry ended before them.
    pub fn unfinished_grants(&self) -> impl Iterator<Item = &LockName> {
        self.locks.unfinished()
    }

    /// Returns whether a session has ended and still has ephemeral znodes.
    pub fn is_ending(&self, session: SessionId) -> bool {
        self.sessions.is_ending(session)
    }

    /// Returns the number of sessions that live.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Returns all live sessions, by id.
    pub fn sessions(&self) -> Vec<SessionView> {
        self.sessions_after(None, usize::MAX)
    }

    /// Returns up to `count` live sessions whose ids follow `after`, by id.
    pub fn sessions_after(&self, after: Option<SessionId>, count: usize) -> Vec<SessionView> {
        let following = self.sessions.following(after).take(count);
        following.map(|(id, session)| session.view(id)).collect()
    }

    /// Returns whether a session lives, has ended lately, or is not known.
    pub fn session_fate(&self, session: SessionId) -> SessionFate {
        self.sessions.fate(session)
    }

    /// Returns whether a lease was released by its holder, lately.
    pub fn lease_was_released(&self, lease: SessionId) -> bool {
        self.sessions.was_released(lease)
    }

    /// Returns the position of the latest command of a live session, or of its latest heartbeat in the log.
    pub fn session_heard_at(&self, session: SessionId) -> Option<Zxid> {
        Some(self.sessions.get(session)?.heard_at)
    }

    /// Returns the recorded silence of a live session, if there is a record.
    pub fn silence(&self, session: SessionId) -> Option<Silence> {
        self.sessions.get(session)?.silence
    }

    /// Returns the password of a live session.
    pub fn session_password(&self, session: SessionId) -> Option<Password> {
        self.sessions.get(session).map(|state| state.password)
    }

    /// Returns the znodes to sweep: containers that were emptied before `emptied_before_ms`, and TTL znodes without children that have expired at
    /// `now_ms`. Those due for longest are first. Returns at most [`MAX_SWEPT`], with one mebibyte of paths.
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

    /// Splits a list of sessions to end into pieces, one for each command. In each piece the long paths of the ephemeral znodes have at most
    /// [`MAX_LONG_PATHS_BYTES`] together. A piece of a single session may exceed that, but its znodes were bounded at their creation.
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

    /// Returns the numbers of recorded outcomes, without those of waiting calls: of the session with the most of them, and of all requests without a
    /// session.
    pub fn remembered_requests(&self) -> (usize, usize) {
        (self.sessions.most_recorded(), self.sessions.sessionless().len())
    }

    /// Returns whether the state is secured and lacks the rule of [`AccessCommand::EndWaitsWithRights`](crate::AccessCommand).
    pub fn lets_waits_outlive_rights(&self) -> bool {
        self.access.is_secured() && !self.access.waits_end_with_rights()
    }

    /// Returns the limits in force.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns whether any namespace has quotas.
    pub fn has_namespaces(&self) -> bool {
        !self.tree.namespaces().is_empty()
    }

    /// Returns the quotas and the usage of a namespace, if it has quotas.
    pub fn namespace(&self, name: &str) -> Option<NamespaceView> {
        self.tree.namespaces().get(name)
    }

    /// Returns the namespaces with quotas, by name.
    pub fn namespaces(&self) -> impl Iterator<Item = NamespaceView> {
        self.tree.namespaces().following(None)
    }

    /// Returns the usage of a namespace by a visit of all its znodes, to check what was counted.
    pub fn recounted_usage(&self, name: &NamespaceName) -> NamespaceUsage {
        self.tree.recounted_usage(name)
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

    /// Returns the key of an outcome. Requests without a session share one cache, whose keys contain the principal. So two principals can use
    /// the same id.
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
