//! Handle of a running node for front ends: proposals, sessions, reads, and waits. The modules below contain its start, its condition and its stop.

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

use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use znode_store::{
    Applied, Command, HolderId, Identities, LockName, NamespaceName, NamespaceQuota, Password, Refusal,
    Reply, Request, RequestId, SessionFate, SessionId, Store, ZPath, Zxid,
};
use znode_watch::{TooManyWatches, WatchCounts, WatchKind};

pub use self::backup::BackupRefused;
pub use self::history::HistoryError;
pub use self::proposal::SubmittedProposal;
use crate::admission::{
    Admission, AdmissionConfig, AdmissionCounts, AdmissionPermit, Busy, Caller, LargeWriteWait, Work,
    written_bytes,
};
use crate::cluster_events::ClusterEventLog;
use crate::command_versions::{self, LONG_PATHS};
use crate::config::NodeConfig;
use crate::metrics::node_counters::{Ended, NodeCounters};
use crate::random_bytes::RandomBytes;
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

/// Maximum number of attempts to find a free session id. If all fail, the random numbers are bad.
const MAX_SESSION_DRAWS: usize = 8;

/// Maximum number of checks of a session whose end is proposed. One commit decides it, and each check takes as long as a commit.
const MAX_FATE_CHECKS: usize = 3;

/// Processor time from which a request counts as long: several times that of a lock's acquire. A page of a list, a batch and a body of a megabyte
/// take up to some milliseconds.
const LONG_REQUEST: Duration = Duration::from_micros(250);

/// Data from which a write counts as large: the size from which the bodies of HTTP requests have a budget. A smaller one costs little more than its
/// commit.
const LARGE_WRITE_BYTES: usize = 16 * 1024;

/// Waits, unless the time is zero.
async fn wait(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// Handle of a running node. It is cheap to clone; the node runs until [`Node::stop`].
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    config: NodeConfig,
    /// This node as a member of the cluster.
    raft: RaftNode,
    replica: Arc<Replica>,
    admission: Arc<Admission>,
    /// Step that a stopping node waits for.
    stops_at: Mutex<Option<&'static str>>,
    /// Permits for backups that are being made.
    backups: Arc<Semaphore>,
    /// Current settings that can change at run time.
    runtime_config: Arc<SharedRuntimeConfig>,
    /// Time of the newest backup that was downloaded from this node, in milliseconds since 1970; 0 if none was.
    last_backup_ms: AtomicU64,
    history: Option<Arc<History>>,
    /// Log of the cluster's events.
    cluster_events: ClusterEventLog,
    random: RandomBytes,
}

/// Session that was opened, as its client learns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedSession {
    /// Session id.
    pub session: SessionId,
    /// Timeout of the session, within the server's bounds.
    pub timeout: Duration,
}

#[cfg(test)]
impl Node {
    /// Returns the replica, for tests that change the state.
    pub(crate) fn replica(&self) -> &Replica {
        &self.inner.replica
    }
}

impl Node {
    /// Returns random bytes, fit for secrets.
    pub fn random_bytes<const N: usize>(&self) -> [u8; N] {
        self.inner.random.next()
    }

    /// Returns the id of this node.
    pub fn id(&self) -> NodeId {
        self.inner.raft.id()
    }

    /// Returns the configuration that this node was started with.
    pub fn config(&self) -> &NodeConfig {
        &self.inner.config
    }

    /// Proposes `request` to the cluster, and waits until this node has applied it. A later read on this node shows its effect.
    pub async fn propose(&self, request: Request) -> Result<Applied, ProposeError> {
        let closed = match &request.command {
            Command::CloseSession { session } => Some(*session),
            _ => None,
        };
        self.inner.raft.accepting()?;
        if let Some(mut wait) = self.large_write_wait(&request) {
            wait.passed().await;
        }
        let permit = self.inner.admission.permit(&request).map_err(Unavailable::from)?;
        if self.refusal(&request).is_some() {
            // The permit is the caller's share of the read barriers, too.
            let refused = Box::pin(self.refusal_after_barrier(&request)).await?;
            if let Some(refused) = refused {
                return Ok(refused);
            }
        }
        if let Some(refusal) = self.too_fast(&request) {
            return Ok(Applied {
                zxid: self.read_facts(Store::zxid),
                outcome: Err(refusal),
            });
        }
        let applied = SubmittedProposal::submit(self, request, permit)?.await?;
        if let (Some(session), Ok(_)) = (closed, &applied.outcome) {
            self.wait_for_session_end(session).await;
        }
        Ok(applied)
    }

    /// Waits until the ephemeral znodes of a session that has ended are gone. The end of a large session takes several entries. Without a
    /// leader the wait ends after the timeout of a proposal: the session has ended all the same, and the next leader continues.
    async fn wait_for_session_end(&self, session: SessionId) {
        let replica = &self.inner.replica;
        let gone = replica.wait_until(|store| !store.is_ending(session));
        let _ = tokio::time::timeout(self.inner.config.raft.propose_timeout, gone).await;
    }

    /// Returns the refusal of a request whose caller has not the rights for it by this node's state, so that it need not be proposed. This node may
    /// not know the rights yet: the caller waits for a [`Node::read_barrier`] and asks again before it refuses.
    pub fn refusal(&self, request: &Request) -> Option<Applied> {
        if Work::of(request) == Work::Own {
            return None;
        }
        let inner = &self.inner;
        let store = inner.replica.store.read();
        if !store.is_secured() {
            return None;
        }
        let version = command_versions::of_envelope(request, || inner.raft.commands_of_all());
        let view = store.seen_by(&request.caller);
        let refusal = view.may_request(
            command_versions::rules(version),
            request.session,
            &request.command,
        );
        Some(Applied {
            zxid: store.zxid(),
            outcome: Err(refusal.err()?),
        })
    }

    /// Takes a token of each namespace with a rate that a request changes, or returns the refusal, which counts as the end of a proposal.
    pub fn too_fast(&self, request: &Request) -> Option<Refusal> {
        let inner = &self.inner;
        let namespaces = inner.admission.namespaces();
        let store = inner.replica.store.read();
        let refusal = namespaces.refusal(&store, request, Instant::now())?;
        drop(store);
        namespaces.note(&refusal);
        self.counters().ended(Ended::Refused, None);
        Some(refusal)
    }

    /// Returns the number of refusals of requests of this node's clients by a quota of a namespace.
    pub fn refused_by_quota(&self, namespace: &NamespaceName, quota: NamespaceQuota) -> u64 {
        self.inner.admission.namespaces().refused(namespace, quota)
    }

    /// Returns the refusal of a request by the rights of its caller after a read barrier. It counts as the end of a proposal.
    async fn refusal_after_barrier(&self, request: &Request) -> Result<Option<Applied>, Unavailable> {
        self.read_barrier().await?;
        let refused = self.refusal(request);
        if refused.is_some() {
            self.counters().ended(Ended::Refused, None);
        }
        Ok(refused)
    }

    /// Proposes a request without waiting for its outcome. On return it is queued behind all earlier ones. After a change of leaders they may be
    /// applied in another order; a caller that cannot accept that uses turns ([`Command::InTurn`]).
    ///
    /// Rejects the request at once while this node is overloaded.
    pub fn submit(&self, request: Request) -> Result<SubmittedProposal, ProposeError> {
        self.inner.raft.accepting()?;
        let permit = self.inner.admission.permit(&request).map_err(Unavailable::from)?;
        SubmittedProposal::submit(self, request, permit)
    }

    /// Proposes a request like [`Node::submit`], with a permit that the caller has from [`Node::permit_to_wait`].
    pub fn submit_in(
        &self,
        request: Request,
        permit: AdmissionPermit,
    ) -> Result<SubmittedProposal, ProposeError> {
        self.inner.raft.accepting()?;
        SubmittedProposal::submit(self, request, permit)
    }

    /// Returns a permit for a request of a connected client. If there is none, the caller should stop reading from the client until [`Node::room`]
    /// returns.
    pub fn permit_to_wait(&self, request: &Request) -> Result<AdmissionPermit, Busy> {
        self.inner.admission.permit_to_wait(request)
    }

    /// Waits until a permit of the caller for such work may be free.
    pub async fn room(&self, work: Work, caller: &Identities) {
        self.inner.admission.room(work, caller).await;
    }

    /// Rejects new work whose body was not read yet, if its caller gets no permit for it.
    pub fn admit_caller(&self, caller: &Identities) -> Result<(), Unavailable> {
        let admission = &self.inner.admission;
        match admission.has_room_for(Work::New, caller) {
            true => Ok(()),
            false => Err(admission.refuse().into()),
        }
    }

    /// Rejects new work whose body was not read yet, if there is no permit for it, or if it cannot complete in time because its caller has already
    /// `waited` too long.
    pub fn admit(&self, waited: Duration) -> Result<(), Unavailable> {
        let admission = &self.inner.admission;
        match admission.is_in_time(waited) && admission.has_room(Work::New) {
            true => Ok(()),
            false => Err(admission.refuse().into()),
        }
    }

    /// Waits until the refusal of a request may be answered that has no rights, comes too soon, or is one that no correct program sends. It takes no
    /// time unless the caller has many of them.
    pub async fn pace_refusal(&self, caller: &Identities) {
        wait(self.inner.admission.refusal_wait(Caller::of(caller))).await;
    }

    /// Waits until a request may be answered that kept its thread for `worked`. It takes no time for short requests, for a caller without others
    /// beside it, and for one that had few long requests.
    pub async fn pace_long_request(&self, caller: &Identities, worked: Duration) {
        if worked < LONG_REQUEST {
            return;
        }
        let (admission, caller) = (&self.inner.admission, Caller::of(caller));
        if self.inner.replica.calls.has_others_than(&caller) {
            wait(admission.long_request_wait(caller, worked)).await;
        }
    }

    /// Returns the wait of a request before it is proposed, if it is a large write that has to wait. Its caller does not wait without others beside it,
    /// and with few large writes. Each call counts.
    pub fn large_write_wait(&self, request: &Request) -> Option<LargeWriteWait> {
        let bytes = written_bytes(request);
        if bytes < LARGE_WRITE_BYTES {
            return None;
        }
        let caller = Caller::of(&request.caller);
        if !self.inner.replica.calls.has_others_than(&caller) {
            return None;
        }
        self.inner.admission.large_write_wait(caller, bytes)
    }

    /// Changes the settings of admission control. Admitted proposals keep their permits.
    pub fn set_admission(&self, config: AdmissionConfig) {
        self.inner.admission.reconfigure(config);
    }

    /// Applies new values of the settings that can change while a node runs. Rejects all of them if they are not valid together with the settings
    /// that it was started with.
    pub fn tune(&self, new: RuntimeConfig) -> Result<(), StartError> {
        let inner = &self.inner;
        new.within(&inner.config).validate()?;
        inner.replica.counters.slow.set(new.slow);
        inner.raft.reconfigure(new.snapshots.clone(), new.disk.clone());
        inner.runtime_config.set(new);
        Ok(())
    }

    /// Returns the load of this node.
    pub fn admission_counts(&self) -> AdmissionCounts {
        self.inner.admission.counts()
    }

    /// Returns whether all members can apply commands with long paths (see [`znode_store::ZPath::is_short`]). They cannot while a cluster
    /// is upgraded; the leader then declines such commands.
    pub fn allows_long_paths(&self) -> bool {
        self.inner.raft.commands_of_all() >= LONG_PATHS
    }

    /// Returns the likely reason for which a proposal was not sent.
    fn why_unavailable(&self) -> String {
        match self.inner.raft.leader().leader {
            Some(leader) => format!("the leader, node {leader}, accepted no proposal"),
            None => "there is no leader".to_owned(),
        }
    }

    /// Opens a session without identities, with a new random id. A `timeout` outside the server's bounds is replaced by the nearer bound.
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

    /// Opens a session that belongs to the identities that the caller has proved.
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
                session: SessionId::from_random(u64::from_le_bytes(self.random_bytes())),
                password: Password(self.random_bytes()),
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
                Ok(other) => unreachable!("the reply to OpenSession is SessionOpened, not {other:?}"),
            }
        }
        Err(Unavailable::new("every random session id was already in use").into())
    }

    /// Returns the timeout of a lease that asks for `ttl`, within the bounds of the configuration.
    pub fn lease_timeout_ms(&self, ttl: Duration) -> u32 {
        let runtime_config = self.inner.runtime_config.get();
        let bounds = &runtime_config.sessions;
        let timeout = ttl.clamp(bounds.min, bounds.lease_max);
        timeout.as_millis().try_into().unwrap_or(u32::MAX)
    }

    /// Renews a session. `Ok` means that the leader has counted the heartbeat, with proof that it still led. So the session lives for at least the
    /// returned time from this call.
    ///
    /// A proposed end of the session is not reported, because an earlier command of the session may still prevent it.
    pub async fn heartbeat(&self, session: SessionId) -> Result<Duration, HeartbeatError> {
        self.heartbeat_received_at(session, Instant::now()).await
    }

    /// Renews a session whose client was `heard` earlier. The session lives for at least the returned time from then.
    pub async fn heartbeat_received_at(
        &self,
        session: SessionId,
        heard: Instant,
    ) -> Result<Duration, HeartbeatError> {
        self.inner.raft.accepting()?;
        #[cfg(feature = "simulation")]
        crate::simulation::ask(|host| host.heartbeat_sent(session));
        for _ in 0..MAX_FATE_CHECKS {
            match self.inner.raft.heartbeat(session.0, heard).await? {
                Touched::Renewed(timeout_ms) => return Ok(Duration::from_millis(u64::from(timeout_ms))),
                // The leader's table contains live sessions only, and marks those whose end is proposed. The state knows the ended ones. This
                // node's state may be behind the leader's, so it catches up first.
                Touched::Ended | Touched::Unknown => self.read_barrier().await?,
            }
            match self.read_facts(|store| store.session_fate(session)) {
                SessionFate::Unknown => return Err(HeartbeatError::NoSession),
                SessionFate::Ended => return Err(HeartbeatError::SessionEnded),
                // The end of the session is in flight, or a command has prevented it meanwhile, or the leader has only just been elected.
                SessionFate::Live => {}
            }
        }
        Err(Unavailable::new("an end of the session is proposed and not decided yet").into())
    }

    /// Returns the time in milliseconds since 1970. It is that of this machine's wall clock, unless the clocks of most members differ from it. After
    /// a jump of the wall clock the time continues by the monotonic clock, for ten minutes at most.
    pub fn now_ms(&self) -> u64 {
        self.inner.replica.clock.now_ms()
    }

    /// Returns the time since the last heartbeat or command of a session. Only the leader knows it.
    pub fn silence(&self, session: SessionId) -> Option<Duration> {
        self.inner.replica.sessions.silence(session, Instant::now())
    }

    /// Reads this node's state, which is never older than in an earlier call on this node. `look` must be short, because no command is applied
    /// meanwhile.
    pub fn read<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        let store = self.inner.replica.read();
        let began = Instant::now();
        let found = look(&store);
        drop(store);
        self.note_read(began);
        found
    }

    /// Reads a few values of this node's state, like [`Node::read`], but does not measure the duration.
    pub fn read_facts<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        look(&self.inner.replica.read())
    }

    /// Records the duration of a read of the state that began at that time and ends now, for the metric `longest_hold_seconds`.
    pub fn note_read(&self, began: Instant) {
        self.inner
            .replica
            .counters
            .read_longest
            .note(began, Instant::now());
    }

    /// Waits until this node has applied a position that the caller has seen, on this or another node. Returns `false` if this cluster has not
    /// reached that position.
    pub async fn caught_up_with(&self, seen: Zxid) -> Result<bool, Unavailable> {
        let has_reached = || self.read_facts(|store| store.zxid() >= seen);
        if !has_reached() {
            // Nodes show only what is committed, so after a read barrier this node has applied every position that a client can have seen.
            self.read_barrier().await?;
        }
        Ok(has_reached())
    }

    /// Reads the state, and arms a watch for one notice, with no command applied in between. The notice is sent only if `caller` may read the znode
    /// at that time.
    pub fn read_and_watch<T>(
        &self,
        path: &ZPath,
        kind: WatchKind,
        caller: Identities,
        look: impl FnOnce(&Store) -> T,
    ) -> Result<(T, Watcher), TooManyWatches> {
        let store = self.inner.replica.read();
        let watcher = self.inner.replica.observers.notifier.watch(path, kind, caller)?;
        Ok((look(&store), watcher))
    }

    /// Returns the watches of a client that stays connected, which are none at first.
    pub fn connect_watcher(&self, caller: Identities) -> WatchConnection {
        WatchConnection::new(self.inner.replica.clone(), caller)
    }

    /// Returns the watches of the connection of a session that was opened, or last reconnected, at `since`. They end with the session, or when the
    /// session reconnects on another connection.
    pub fn connect_session(
        &self,
        session: SessionId,
        since: Zxid,
        caller: Identities,
    ) -> Result<WatchConnection, WatchesLost> {
        WatchConnection::of_session(self.inner.replica.clone(), session, since, caller)
    }

    /// Returns a receiver that changes when this node applies a change of access rights, for long-lived connections. It changes before the new state
    /// is readable, so read the state after each change, and once after subscribing.
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

    /// Returns a copy of all watches on this node, for administrators. The watches of one watcher are copied atomically; those of all are not.
    pub fn armed_watches(&self) -> Vec<ArmedWatches> {
        self.inner.replica.observers.notifier.armed()
    }

    /// Waits for the grant of a contender that was queued. If it is granted already, the outcome is ready. If the contender does not exist, the
    /// outcome is [`crate::WaitOutcome::Lost`].
    pub fn wait_for_grant(&self, lock: &LockName, holder: &HolderId) -> GrantWait {
        self.inner.replica.wait_for_grant(lock, holder, false)
    }

    /// Waits for the upgrade of a holder, as [`Node::wait_for_grant`] does for a grant.
    pub fn wait_for_upgrade(&self, lock: &LockName, holder: &HolderId) -> GrantWait {
        self.inner.replica.wait_for_grant(lock, holder, true)
    }

    /// Waits for the end of a contender that was queued, whether it is granted before or not. If it does not exist any more, the outcome is
    /// [`crate::WaitOutcome::Lost`].
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
