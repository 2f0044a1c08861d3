//! The handle that front ends hold: proposals, sessions, reads, and what is waited for. How a node begins, how it is, and
//! how it ends, stands in the modules below.

mod backup;
mod chronicle;
mod condition;
mod follow;
mod life;
mod members;
mod peer_requests;
mod proposal;
mod start;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use znode_store::{
    Applied, Command, HolderId, Identities, LockName, Password, Refusal, Reply, Request, RequestId,
    SessionFate, SessionId, Step, Store, ZPath, Zxid,
};
use znode_watch::{TooManyWatches, WatchCounts, WatchKind};

pub use self::backup::BackupRefused;
pub use self::proposal::Proposal;
use crate::admission::{Admission, AdmissionConfig, AdmissionCounts, Busy, Place, Work};
use crate::asker::{Asker, Questions};
use crate::audit::Audit;
use crate::command_versions::LONG_PATHS;
use crate::compaction;
use crate::compaction::SnapshotMade;
use crate::config::NodeConfig;
use crate::disks::Disks;
use crate::error::{StartError, Unavailable};
use crate::history::{History, HistoryError, LockHistory};
use crate::hub::{ArmedWatches, GrantWait, Watcher, WatchesLost};
use crate::ids::NodeId;
use crate::leader_view::LeaderView;
use crate::membership::change::MembershipLeader;
use crate::messages::Touched;
use crate::metrics::meters::Meters;
use crate::peers::{Gate, SnapshotTraffic};
use crate::replica::Replica;
use crate::request_error::{HeartbeatError, OpenSessionError, ProposeError};
use crate::state_machine::Raft;
use crate::storage::Storage;
use crate::succession::Succession;
use crate::sync::Mutex;
use crate::tuning::{Tuned, Tuning};
use crate::watch_connection::WatchConnection;
use raft_log::Wal;

#[cfg(feature = "failpoints")]
mod provoke;

#[cfg(feature = "failpoints")]
pub use self::provoke::StatePosition;

/// How often a drawn session id may be taken before something must be wrong with the randomness.
const MAX_SESSION_DRAWS: usize = 8;

/// How often [`Node::cut_off`] looks: the clients that wait for it are told within a tenth of a second.
const CUT_OFF_LOOK: Duration = Duration::from_millis(50);

/// How often it is asked what becomes of a session whose end is proposed: one commit decides that, and each look takes as long.
const MAX_LOOKS_AT_FATE: usize = 3;

/// A running node. Cheap to clone; the node runs until [`Node::stop`].
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    config: NodeConfig,
    raft: Raft,
    audit: Arc<Audit>,
    /// Why this node serves nobody, if its state differs from that of the others.
    distrust: watch::Receiver<Option<String>>,
    replica: Arc<Replica>,
    gate: Arc<Gate>,
    queue: mpsc::UnboundedSender<(u64, Bytes)>,
    questions: Questions,
    snapshots: compaction::Orders,
    asker: Arc<Asker>,
    membership: Arc<MembershipLeader>,
    leader: watch::Receiver<LeaderView>,
    succession: Arc<Succession>,
    failure: watch::Sender<Option<String>>,
    disks: Arc<Disks>,
    wal: Wal,
    admission: Arc<Admission>,
    /// When this node last knew that it had applied all that was committed.
    confirmed: Mutex<Option<Instant>>,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// What a node that stops is waiting for.
    stops_at: Mutex<Option<&'static str>>,
    /// Places for backups that are being made.
    backups: Arc<Semaphore>,
    /// What of the configuration has been changed since the start.
    tuned: Arc<Tuned>,
    traffic: Arc<SnapshotTraffic>,
    /// Of which time the newest is that was drawn from this node, in milliseconds since 1970; 0: none was.
    last_backup_ms: AtomicU64,
    history: Option<Arc<History>>,
    /// Gone when the node has stopped: its directory can be used again.
    storage: Mutex<Option<Arc<Storage>>>,
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

    /// For tests of what stands on both.
    pub(crate) fn raft_and_log(&self) -> (Raft, Wal) {
        (self.inner.raft.clone(), self.inner.wal.clone())
    }
}

impl Node {
    /// This node's id.
    pub fn id(&self) -> NodeId {
        self.inner.config.node_id
    }

    /// What this node was started with.
    pub fn config(&self) -> &NodeConfig {
        &self.inner.config
    }

    /// Has `request` carried out by the cluster, at this node or any other, and waits until this node has
    /// applied it: what is read here afterwards shows it.
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
        let _ = tokio::time::timeout(self.inner.config.propose_timeout, gone).await;
    }

    /// The same, without waiting: the request is on its way when this returns, behind all that were submitted before. If the
    /// leader changes they may be carried out in another order; whoever cannot have that names turns
    /// ([`Command::InTurn`]).
    ///
    /// It is refused at once while this node has as much to do as it can do in time.
    pub fn submit(&self, request: Request) -> Result<Proposal, ProposeError> {
        self.accepting()?;
        let place = self.inner.admission.place(&request).map_err(Unavailable::from)?;
        Proposal::submit(self, request, place)
    }

    /// The same with a place that was taken before: by [`Node::place_for_step`].
    pub fn submit_in(&self, request: Request, place: Place) -> Result<Proposal, ProposeError> {
        self.accepting()?;
        Proposal::submit(self, request, place)
    }

    /// A place for what a client that stays connected wants to have done. Where there is none, the client is best not listened to
    /// until there is [`Node::room`].
    pub fn place_for_step(&self, step: &Step) -> Result<Place, Busy> {
        self.inner.admission.place_for_step(step)
    }

    /// Waits until such work may find a place.
    pub async fn room(&self, work: Work) {
        self.inner.admission.room(work).await;
    }

    /// Refuses something new that was not even read yet, if there is no place for it, or if it could not be done in time because
    /// its caller has `waited` for so long to be heard at all.
    pub fn admit(&self, waited: Duration) -> Result<(), Unavailable> {
        let admission = &self.inner.admission;
        match admission.is_in_time(waited) && admission.has_room(Work::New) {
            true => Ok(()),
            false => Err(admission.refuse().into()),
        }
    }

    /// How much is taken in from now on. What was taken in already stays.
    pub fn set_admission(&self, config: AdmissionConfig) {
        self.inner.admission.reconfigure(config);
    }

    /// Takes up what of a configuration can be changed while a node runs. What does not go together with what it was started with
    /// is refused, and then nothing of it holds.
    pub fn tune(&self, new: Tuning) -> Result<(), StartError> {
        let inner = &self.inner;
        new.within(&inner.config).validate()?;
        inner.replica.meters.slow.set(new.slow);
        inner.disks.reconfigure(new.disk.clone());
        inner.traffic.set_rate(new.snapshots.send_bytes_per_second);
        inner.tuned.set(new);
        Ok(())
    }

    /// How much of what clients want is on its way.
    pub fn admission_counts(&self) -> AdmissionCounts {
        self.inner.admission.counts()
    }

    /// Whether this node serves anybody. It does not once it cannot go on, or if its state differs from that of the others.
    pub fn serving(&self) -> Result<(), Unavailable> {
        let failure = self.inner.failure.borrow();
        let distrust = self.inner.distrust.borrow();
        match failure.as_ref().or(distrust.as_ref()) {
            Some(reason) => Err(Unavailable::new(reason.clone())),
            None => Ok(()),
        }
    }

    /// Whether all members can apply commands with long paths (see [`znode_store::ZPath::is_short`]). They cannot while a
    /// cluster is upgraded; the leader then declines such commands.
    pub fn allows_long_paths(&self) -> bool {
        self.inner.gate.commands_of_all() >= LONG_PATHS
    }

    /// Whether this node takes work that needs a leader. A node that is cut off does not: nothing of it would be done, and the caller can
    /// go to another node.
    fn accepting(&self) -> Result<(), Unavailable> {
        self.serving()?;
        match self.inner.succession.is_cut_off() {
            true => Err(Unavailable::new("this node is cut off: it knows of no leader")),
            false => Ok(()),
        }
    }

    /// Returns when this node is cut off: what waits here for a leader would wait in vain.
    pub async fn cut_off(&self) {
        while !self.inner.succession.is_cut_off() {
            tokio::time::sleep(CUT_OFF_LOOK).await;
        }
    }

    /// Returns when this node serves nobody, because its state differs from that of the others.
    pub async fn distrusted(&self) {
        let mut distrust = self.inner.distrust.clone();
        if distrust.wait_for(Option::is_some).await.is_err() {
            // The sender lives in `self`.
            std::future::pending::<()>().await;
        }
    }

    fn why_unavailable(&self) -> String {
        match self.inner.leader.borrow().leader {
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
        let tuning = self.inner.tuned.get();
        let bounds = &tuning.sessions;
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

    /// Renews a session. `Ok` means that the leader has counted it, and that it still led when it did: the
    /// session lives for at least the returned time from when this was called.
    ///
    /// Nobody is told of an end that is only proposed: what the session has asked for before may yet spare it.
    pub async fn heartbeat(&self, session: SessionId) -> Result<Duration, HeartbeatError> {
        self.heartbeat_heard(session, Instant::now()).await
    }

    /// The same for a session that was heard earlier: it lives for at least the returned time from then.
    pub async fn heartbeat_heard(
        &self,
        session: SessionId,
        heard: Instant,
    ) -> Result<Duration, HeartbeatError> {
        self.accepting()?;
        for _ in 0..MAX_LOOKS_AT_FATE {
            match self.inner.questions.heartbeat(session, heard).await? {
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

    /// How long ago a session was last heard of; only the leader can tell.
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
        self.inner.replica.meters.read_longest.note(began, Instant::now());
    }

    /// Waits until this node has applied all that was committed anywhere when this was called. A
    /// [`Node::read`] afterwards is linearizable.
    pub async fn read_barrier(&self) -> Result<(), Unavailable> {
        self.accepting()?;
        let index = self.inner.questions.read_index().await?;
        let patience = self.inner.config.propose_timeout;
        match tokio::time::timeout(patience, self.inner.replica.applied().wait_for_index(index)).await {
            Ok(()) => Ok(()),
            Err(_) => Err(Unavailable::new("this node is too far behind")),
        }
    }

    /// Waits until this node has caught up with a leader once since it was started. A [`Node::read`] afterwards is not older
    /// than what any node had shown to anybody before this one was started, itself in an earlier life above all.
    pub async fn caught_up_once(&self) -> Result<(), Unavailable> {
        self.serving()?;
        if self.inner.confirmed.lock().is_some() {
            return Ok(());
        }
        self.read_barrier().await?;
        *self.inner.confirmed.lock() = Some(Instant::now());
        Ok(())
    }

    /// Waits until this node has applied what a caller has seen, here or at another node. False: that is a position which
    /// nothing has come to yet, in this cluster.
    pub async fn caught_up_with(&self, seen: Zxid) -> Result<bool, Unavailable> {
        let has_come = || self.read_facts(|store| store.zxid() >= seen);
        if !has_come() {
            // Only what is committed is ever shown.
            self.read_barrier().await?;
        }
        Ok(has_come())
    }

    /// Reads, and arms a watch for one notice, with nothing applied in between. `caller` is who will be told, if it
    /// may read the znode then.
    pub fn read_and_watch<T>(
        &self,
        path: &ZPath,
        kind: WatchKind,
        caller: Identities,
        look: impl FnOnce(&Store) -> T,
    ) -> Result<(T, Watcher), TooManyWatches> {
        let store = self.inner.replica.look();
        let watcher = self.inner.replica.hub.watch(path, kind, caller)?;
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

    /// Changes whenever who may do what does, by what this node has applied: for whoever serves callers for long. It is told
    /// before anybody can see what is new, so look at the state after each change, and once after subscribing.
    pub fn access_changes(&self) -> watch::Receiver<u64> {
        self.inner.replica.hub.access_changes()
    }

    /// How many watches there are on this node.
    pub fn watch_counts(&self) -> WatchCounts {
        self.inner.replica.hub.watch_counts()
    }

    /// How many of those who could have watches on this node have one.
    pub fn watching(&self) -> usize {
        self.inner.replica.hub.watching()
    }

    /// Who watches what on this node, for people who ask: a copy of every watch. Each watcher's watches are as they were
    /// at one moment; not all of them at the same one.
    pub fn armed_watches(&self) -> Vec<ArmedWatches> {
        self.inner.replica.hub.armed()
    }

    /// Waits for a contender that was queued. If it is granted already the verdict is ready; if it is gone
    /// the verdict is [`crate::Verdict::Lost`].
    pub fn wait_for_grant(&self, lock: &LockName, holder: &HolderId) -> GrantWait {
        self.inner.replica.wait_for_grant(lock, holder, false)
    }

    /// Waits for the upgrade of a holder, likewise.
    pub fn wait_for_upgrade(&self, lock: &LockName, holder: &HolderId) -> GrantWait {
        self.inner.replica.wait_for_grant(lock, holder, true)
    }

    /// Waits for the end of a contender that was queued, whether it is granted before or not. If it is gone already the verdict
    /// is [`crate::Verdict::Lost`].
    pub fn wait_for_end(&self, lock: &LockName, holder: &HolderId) -> GrantWait {
        self.inner.replica.wait_for_end(lock, holder)
    }

    /// Has this node write a snapshot of what it has applied, and shorten its log; waits until it is there. If nothing
    /// was applied since the newest one, that is the answer.
    pub async fn make_snapshot(&self) -> Result<SnapshotMade, Unavailable> {
        self.inner.snapshots.snapshot().await
    }

    /// Who held a lock, and who holds it: what this node remembers, the latest first, at most `count` of those whose
    /// token is smaller than `before`. Holds with one token, which a transaction of a ZooKeeper client can create, are not
    /// parted: then there may be more.
    ///
    /// It shows all that a [`Node::read`] here has shown before.
    pub async fn lock_history(
        &self,
        lock: &LockName,
        before: Option<u64>,
        count: usize,
    ) -> Result<LockHistory, HistoryError> {
        let history = self.inner.history.clone().ok_or(HistoryError::Off)?;
        let (holds, told) = self.read(|store| (store.holds_of(lock), history.told()));
        let lock = lock.clone();
        let page = crate::blocking::run(move || history.page(&lock, before, count, holds, told));
        let page = page.await.map_err(|error| Unavailable::new(error.to_string()))?;
        Ok(page?)
    }

    pub(crate) fn meters(&self) -> &Meters {
        &self.inner.replica.meters
    }

    pub(crate) fn wall_clock_jumps(&self) -> u64 {
        self.inner.replica.clock.jumps()
    }

    pub(crate) fn wal(&self) -> &Wal {
        &self.inner.wal
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
