//! Handle of a running node for front ends: proposals, sessions, reads, and waits. The modules below have its start, condition and end.

mod backup;
mod cluster_events;
mod condition;
mod follow;
mod history;
mod life;
mod members;
mod proposal;
mod start;
#[cfg(test)]
mod wrong_state_tests;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;
use znode_store::{
    Applied, Command, HolderId, Identities, LockName, Password, Refusal, Reply, Request, RequestId,
    SessionFate, SessionId, Step, Store, ZPath, Zxid,
};
use znode_watch::{TooManyWatches, WatchCounts, WatchKind};

pub use self::backup::BackupRefused;
pub use self::history::HistoryError;
pub use self::proposal::Proposal;
use crate::admission::{Admission, AdmissionConfig, AdmissionCounts, AdmissionPermit, Busy, Work};
use crate::cluster_events::ClusterEventLog;
use crate::command_versions::LONG_PATHS;
use crate::config::NodeConfig;
use crate::metrics::node_counters::NodeCounters;
use crate::replica::Replica;
use crate::request_error::{HeartbeatError, OpenSessionError, ProposeError};
use crate::runtime_config::{RuntimeConfig, SharedRuntimeConfig};
use crate::watch_connection::WatchConnection;
use observers::Observers;
use observers::history::History;
use observers::notifier::{ArmedWatches, GrantWait, Watcher, WatchesLost};
use raft_log::sync::Mutex;
use raft_node::messages::Touched;
use raft_node::{NodeId, RaftNode, StartError, Unavailable};

#[cfg(feature = "failpoints")]
mod test_control;

#[cfg(feature = "failpoints")]
pub use self::test_control::StatePosition;

/// Maximum number of attempts to draw a free session id. More mean that the random numbers are bad.
const MAX_SESSION_DRAWS: usize = 8;

/// Maximum number of checks of a session whose end is proposed: one commit decides, and each check takes as long.
const MAX_LOOKS_AT_FATE: usize = 3;

/// A running node. Cheap to clone; the node runs until [`Node::stop`].
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    config: NodeConfig,
    /// This node as a member of the cluster.
    raft: RaftNode,
    replica: Arc<Replica>,
    queue: mpsc::UnboundedSender<(u64, Bytes)>,
    admission: Arc<Admission>,
    /// Step that a stopping node waits for.
    stops_at: Mutex<Option<&'static str>>,
    /// Places for backups that are being made.
    backups: Arc<Semaphore>,
    /// Present settings that can change at run time.
    runtime_config: Arc<SharedRuntimeConfig>,
    /// Of which time the newest is that was drawn from this node, in milliseconds since 1970; 0: none was.
    last_backup_ms: AtomicU64,
    history: Option<Arc<History>>,
    /// Log of the cluster's events.
    cluster_events: ClusterEventLog,
}

/// An open session, as its client gets to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedSession {
    /// Its id.
    pub session: SessionId,
    /// Its timeout after the server's bounds.
    pub timeout: Duration,
}

#[cfg(test)]
impl Node {
    /// For tests that change the state.
    pub(crate) fn replica(&self) -> &Replica {
        &self.inner.replica
    }
}

impl Node {
    /// This node's id.
    pub fn id(&self) -> NodeId {
        self.inner.raft.id()
    }

    /// Returns the configuration that this node was started with.
    pub fn config(&self) -> &NodeConfig {
        &self.inner.config
    }

    /// Proposes `request` to the cluster, and waits until this node has applied it: a read here afterwards shows it.
    pub async fn propose(&self, request: Request) -> Result<Applied, ProposeError> {
        let closed = match &request.command {
            Command::CloseSession { session } => Some(*session),
            _ => None,
        };
        let applied = self.submit(request)?.await?;
        if let (Some(session), Ok(_)) = (closed, &applied.outcome) {
            self.wait_for_session_end(session).await;
        }
        Ok(applied)
    }

    /// Waits until the ephemeral znodes of a session that has ended are gone. The end of a large session takes several entries. Without a
    /// leader this gives up after the time of a proposal: the session has ended all the same, and the next leader goes on.
    async fn wait_for_session_end(&self, session: SessionId) {
        let replica = &self.inner.replica;
        let gone = replica.wait_until(|store| !store.is_ending(session));
        let _ = tokio::time::timeout(self.inner.config.raft.propose_timeout, gone).await;
    }

    /// Proposes a request without waiting: it is queued behind all earlier ones when this returns. If the leader changes they may be
    /// applied in another order; a caller that cannot accept that uses turns ([`Command::InTurn`]).
    ///
    /// It is rejected at once while this node is overloaded.
    pub fn submit(&self, request: Request) -> Result<Proposal, ProposeError> {
        self.inner.raft.accepting()?;
        let place = self.inner.admission.place(&request).map_err(Unavailable::from)?;
        Proposal::submit(self, request, place)
    }

    /// The same with a place that was taken before: by [`Node::permit_for_step`].
    pub fn submit_in(&self, request: Request, place: AdmissionPermit) -> Result<Proposal, ProposeError> {
        self.inner.raft.accepting()?;
        Proposal::submit(self, request, place)
    }

    /// Returns a permit for a request of a connected client. Without one the caller should not read from the client until there is
    /// [`Node::room`].
    pub fn permit_for_step(&self, step: &Step) -> Result<AdmissionPermit, Busy> {
        self.inner.admission.permit_for_step(step)
    }

    /// Waits until such work may find a place.
    pub async fn room(&self, work: Work) {
        self.inner.admission.room(work).await;
    }

    /// Rejects new work that was not read yet, if there is no permit for it, or if it could not complete in time because its caller has
    /// `waited` too long already.
    pub fn admit(&self, waited: Duration) -> Result<(), Unavailable> {
        let admission = &self.inner.admission;
        match admission.is_in_time(waited) && admission.has_room(Work::New) {
            true => Ok(()),
            false => Err(admission.refuse().into()),
        }
    }

    /// Changes the settings of admission control. What was admitted stays.
    pub fn set_admission(&self, config: AdmissionConfig) {
        self.inner.admission.reconfigure(config);
    }

    /// Takes up what of a configuration can be changed while a node runs. What does not go together with what it was started with
    /// is refused, and then nothing of it holds.
    pub fn tune(&self, new: RuntimeConfig) -> Result<(), StartError> {
        let inner = &self.inner;
        new.within(&inner.config).validate()?;
        inner.replica.counters.slow.set(new.slow);
        inner.raft.reconfigure(new.snapshots.clone(), new.disk.clone());
        inner.runtime_config.set(new);
        Ok(())
    }

    /// Returns the load.
    pub fn admission_counts(&self) -> AdmissionCounts {
        self.inner.admission.counts()
    }

    /// Returns whether all members can apply commands with long paths (see [`znode_store::ZPath::is_short`]). They cannot while a cluster
    /// is upgraded; the leader then declines such commands.
    pub fn allows_long_paths(&self) -> bool {
        self.inner.raft.commands_of_all() >= LONG_PATHS
    }

    fn why_unavailable(&self) -> String {
        match self.inner.raft.leader().leader {
            Some(leader) => format!("the leader, node {leader}, took no proposal"),
            None => "there is no leader".to_owned(),
        }
    }

    /// Opens a session of nobody in particular under a fresh id. `timeout` is moved into the server's bounds.
    pub async fn open_session(
        &self,
        timeout: Option<Duration>,
        name: &str,
        address: &str,
        request_id: Option<RequestId>,
    ) -> Result<OpenedSession, OpenSessionError> {
        let nobody = Identities::none();
        self.open_session_of(nobody, timeout, name, address, request_id)
            .await
    }

    /// Opens a session that is the caller's, by what it has proven to be.
    pub async fn open_session_of(
        &self,
        caller: Identities,
        timeout: Option<Duration>,
        name: &str,
        address: &str,
        request_id: Option<RequestId>,
    ) -> Result<OpenedSession, OpenSessionError> {
        self.inner.admission.open_session(address)?;
        let runtime_config = self.inner.runtime_config.get();
        let bounds = &runtime_config.sessions;
        let timeout = timeout.unwrap_or(bounds.default).clamp(bounds.min, bounds.max);
        let timeout_ms = timeout.as_millis().try_into().unwrap_or(u32::MAX);
        for _ in 0..MAX_SESSION_DRAWS {
            let command = Command::OpenSession {
                session: SessionId::from_random(random_u64()),
                password: Password(random_bytes()),
                timeout_ms,
                name: name.into(),
                address: address.into(),
            };
            let request = Request {
                session: None,
                request_id: request_id.clone(),
                caller: caller.clone(),
                command,
            };
            match self.propose(request).await?.outcome {
                Ok(Reply::SessionOpened { session, timeout_ms }) => {
                    let timeout = Duration::from_millis(u64::from(timeout_ms));
                    return Ok(OpenedSession { session, timeout });
                }
                Err(Refusal::SessionIdTaken(_)) => {}
                Err(refusal) => return Err(refusal.into()),
                Ok(other) => unreachable!("the answer to an opening is an opened session, not {other:?}"),
            }
        }
        Err(Unavailable::new("every session id that was drawn is taken").into())
    }

    /// Renews a session. `Ok` means that the leader has counted the heartbeat, and that it still led when it did: the session lives for at
    /// least the returned time from when this was called.
    ///
    /// A proposed end of the session is not reported: an earlier command of the session may still prevent it.
    pub async fn heartbeat(&self, session: SessionId) -> Result<Duration, HeartbeatError> {
        self.heartbeat_heard(session, Instant::now()).await
    }

    /// The same for a session that was heard earlier: it lives for at least the returned time from then.
    pub async fn heartbeat_heard(
        &self,
        session: SessionId,
        heard: Instant,
    ) -> Result<Duration, HeartbeatError> {
        self.inner.raft.accepting()?;
        for _ in 0..MAX_LOOKS_AT_FATE {
            match self.inner.raft.heartbeat(session.0, heard).await? {
                Touched::Renewed(timeout_ms) => return Ok(Duration::from_millis(u64::from(timeout_ms))),
                // The leader's table has only live sessions, and knows what is being ended; what has ended, the state knows.
                // This node's may be behind the leader's, but not for long.
                Touched::Ended | Touched::Unknown => self.read_barrier().await?,
            }
            match self.read_facts(|store| store.session_fate(session)) {
                SessionFate::Unknown => return Err(HeartbeatError::NoSession),
                SessionFate::Ended => return Err(HeartbeatError::SessionEnded),
                // Its end is on its way, or it was spared meanwhile; or the leader is only just taking over.
                SessionFate::Live => {}
            }
        }
        Err(Unavailable::new("it is just being decided whether the session ends").into())
    }

    /// The time, in milliseconds since 1970: this machine's wall clock, unless it differs from those of most members. A clock
    /// that has just jumped goes on by the monotonic clock, for ten minutes at most.
    pub fn now_ms(&self) -> u64 {
        self.inner.replica.clock.now_ms()
    }

    /// Returns the time since the last sign of life of a session; only the leader knows it.
    pub fn silence(&self, session: SessionId) -> Option<Duration> {
        self.inner.replica.sessions.silence(session, Instant::now())
    }

    /// Reads this node's state: never older than what an earlier call here showed. Keep it short: nothing is
    /// applied meanwhile.
    pub fn read<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        let store = self.inner.replica.look();
        let began = Instant::now();
        let found = look(&store);
        drop(store);
        self.note_read(began);
        found
    }

    /// Reads a few facts of this node's state: like [`Node::read`], without measuring how long that takes.
    pub fn read_facts<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        look(&self.inner.replica.look())
    }

    /// Records the duration of a read of the state that began at that time and ends now, for the metric `longest_hold_seconds`.
    pub fn note_read(&self, began: Instant) {
        self.inner
            .replica
            .counters
            .read_longest
            .note(began, Instant::now());
    }

    /// Waits until this node has applied a position that the caller has seen, here or at another node. False: this cluster has not reached
    /// that position.
    pub async fn caught_up_with(&self, seen: Zxid) -> Result<bool, Unavailable> {
        let has_come = || self.read_facts(|store| store.zxid() >= seen);
        if !has_come() {
            // Only what is committed is ever shown.
            self.read_barrier().await?;
        }
        Ok(has_come())
    }

    /// Reads, and arms a watch for one notice, with nothing applied in between. The notice is sent if `caller` may read the znode then.
    pub fn read_and_watch<T>(
        &self,
        path: &ZPath,
        kind: WatchKind,
        caller: Identities,
        look: impl FnOnce(&Store) -> T,
    ) -> Result<(T, Watcher), TooManyWatches> {
        let store = self.inner.replica.look();
        let watcher = self.inner.replica.observers.notifier.watch(path, kind, caller)?;
        Ok((look(&store), watcher))
    }

    /// The watches of a client that stays connected, none at first.
    pub fn connect_watcher(&self, caller: Identities) -> WatchConnection {
        WatchConnection::new(self.inner.replica.clone(), caller)
    }

    /// The same for the connection of a session, which was opened, or last reconnected, at `since`. It ends with the session,
    /// or when that goes on on another connection.
    pub fn connect_session(
        &self,
        session: SessionId,
        since: Zxid,
        caller: Identities,
    ) -> Result<WatchConnection, WatchesLost> {
        WatchConnection::of_session(self.inner.replica.clone(), session, since, caller)
    }

    /// Returns a receiver that changes when access rights do, by what this node has applied: for long-lived connections. It changes before
    /// the new state is readable, so read the state after each change, and once after subscribing.
    pub fn access_changes(&self) -> watch::Receiver<u64> {
        self.inner.replica.observers.notifier.access_changes()
    }

    /// Returns the numbers of watches on this node.
    pub fn watch_counts(&self) -> WatchCounts {
        self.inner.replica.observers.notifier.watch_counts()
    }

    /// Returns the number of watchers on this node with at least one watch.
    pub fn watching(&self) -> usize {
        self.inner.replica.observers.notifier.watching()
    }

    /// Returns a copy of all watches on this node, for administrators. The watches of one watcher are of one moment; those of all are not.
    pub fn armed_watches(&self) -> Vec<ArmedWatches> {
        self.inner.replica.observers.notifier.armed()
    }

    /// Waits for a contender that was queued. If it is granted already the verdict is ready; if it is gone
    /// the verdict is [`crate::WaitOutcome::Lost`].
    pub fn wait_for_grant(&self, lock: &LockName, holder: &HolderId) -> GrantWait {
        self.inner.replica.wait_for_grant(lock, holder, false)
    }

    /// Waits for the upgrade of a holder, likewise.
    pub fn wait_for_upgrade(&self, lock: &LockName, holder: &HolderId) -> GrantWait {
        self.inner.replica.wait_for_grant(lock, holder, true)
    }

    /// Waits for the end of a contender that was queued, whether it is granted before or not. If it is gone already the verdict
    /// is [`crate::WaitOutcome::Lost`].
    pub fn wait_for_end(&self, lock: &LockName, holder: &HolderId) -> GrantWait {
        self.inner.replica.wait_for_end(lock, holder)
    }

    pub(crate) fn raft(&self) -> &RaftNode {
        &self.inner.raft
    }

    pub(crate) fn observers(&self) -> &Observers {
        &self.inner.replica.observers
    }

    pub(crate) fn counters(&self) -> &NodeCounters {
        &self.inner.replica.counters
    }
}

fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random numbers");
    bytes
}

fn random_u64() -> u64 {
    u64::from_le_bytes(random_bytes())
}
