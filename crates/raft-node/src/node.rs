//! The handle that front ends hold, and the life of a node: which tasks it consists of, how they begin, and
//! how they end.

mod backup;
mod follow;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::{Instant as _, ServerState, SnapshotPolicy};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use znode_store::{
    Applied, Command, HolderId, Identities, LockName, Password, Refusal, Reply, Request, RequestId,
    SessionId, Store, ZPath,
};
use znode_watch::{TooManyWatches, WatchCounts, WatchKind};

pub use self::backup::BackupRefused;
use crate::asker::{self, Asker, Questions};
use crate::backup::Seed;
use crate::codec::{self, Envelope, Origin};
use crate::compaction::{self, Compaction};
use crate::config::{MemberAddress, NodeConfig, NodeId};
use crate::disks::{self, DiskReport, Disks};
use crate::error::{HeartbeatError, OpenSessionError, ProposeError, StartError, Unavailable};
use crate::formation;
use crate::history::{self, History, HistoryError, LockHistory};
use crate::hub::{GrantWait, Hub, Watcher};
use crate::leader::{self, LeaderView};
use crate::machine::StateMachine;
use crate::membership::change::MembershipLeader;
use crate::membership::knock::Knocker;
use crate::membership::plan::next_free;
use crate::membership::{MembershipChange, MembershipChanged, MembershipError};
use crate::panics::{Alarm, Tasks};
use crate::peers::network::Network;
use crate::peers::server::{self, Services};
use crate::peers::wire::Touched;
use crate::peers::{Gate, Peers, SnapshotTraffic};
use crate::proposer::{self, Proposer};
use crate::replica::Replica;
use crate::snapshot_file;
use crate::status::{ClusterStatus, MemberStatus, Role, SnapshotMade};
use crate::storage::{Disk, RealDisk, Storage, Wal};
use crate::submitter::Submitter;
use crate::types::{ClusterId, DiskId, Raft};
use crate::watch_connection::WatchConnection;

#[cfg(feature = "failpoints")]
mod provoke;

#[cfg(feature = "failpoints")]
pub use self::provoke::StatePosition;

/// How often a drawn session id may be taken before something must be wrong with the randomness.
const MAX_SESSION_DRAWS: usize = 8;

/// Log entries in one frame to a follower. Entries are batches of about a megabyte at most (a single large
/// transaction may be some more), and all frames must stay well below [`codec::MAX_ENCODED_BYTES`].
const MAX_ENTRIES_IN_FRAME: u64 = 16;

/// How often a node looks whether it can still serve, so that `readyz` need not ask for every caller.
const READINESS_INTERVAL: Duration = Duration::from_millis(500);

/// A node that has not confirmed for so long that it is up to date is not ready.
const READINESS_AGE: Duration = Duration::from_secs(3);

/// A running node. Cheap to clone; the node runs until [`Node::stop`].
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    config: NodeConfig,
    raft: Raft,
    replica: Arc<Replica>,
    gate: Arc<Gate>,
    queue: mpsc::UnboundedSender<(u64, Bytes)>,
    questions: Questions,
    snapshots: compaction::Orders,
    asker: Arc<Asker>,
    membership: Arc<MembershipLeader>,
    leader: watch::Receiver<LeaderView>,
    failure: watch::Sender<Option<String>>,
    disks: Arc<Disks>,
    wal: Wal,
    /// When this node last knew that it had applied all that was committed.
    confirmed: Mutex<Option<Instant>>,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// Places for backups that are being made.
    backups: Arc<Semaphore>,
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

impl Node {
    /// Starts a node: reads its disk, listens to its peers, and forms the cluster with them if it is new.
    ///
    /// Returns when the disk is read; the node may not have a leader yet. It needs a tokio runtime with
    /// time and I/O, and runs on it until it is stopped.
    pub async fn start(config: NodeConfig) -> Result<Node, StartError> {
        config.validate()?;
        let address = config.peer_listen_address()?;
        let listener = TcpListener::bind(&address)
            .await
            .map_err(|source| StartError::Io {
                what: format!("cannot listen for peers at {address}"),
                source,
            })?;
        Self::start_on(config, listener).await
    }

    /// As [`Node::start`], with the socket at which peers call already open: so a port can be chosen by the
    /// operating system before the members are configured.
    pub async fn start_on(config: NodeConfig, listener: TcpListener) -> Result<Node, StartError> {
        let keeps_history = config.history.enabled;
        Self::start_keeping(config, listener, Arc::new(RealDisk), keeps_history).await
    }

    /// As [`Node::start_on`], with all access to files going through `disk`: for tests, whose disks lose power
    /// and fail. It keeps no history of locks, whose files do not go through `disk`.
    pub async fn start_on_disk(
        config: NodeConfig,
        listener: TcpListener,
        disk: Arc<dyn Disk>,
    ) -> Result<Node, StartError> {
        Self::start_keeping(config, listener, disk, false).await
    }

    async fn start_keeping(
        config: NodeConfig,
        listener: TcpListener,
        disk: Arc<dyn Disk>,
        keeps_history: bool,
    ) -> Result<Node, StartError> {
        config.validate()?;
        let opening = config.clone();
        let founder = !config.join && formation::founder(&config.members) == Some(config.node_id);
        let opened = tokio::task::spawn_blocking(move || open_storage(disk, &opening, founder));
        let (storage, seed) = opened
            .await
            .map_err(|error| StartError::Raft(error.to_string()))??;
        let storage = Arc::new(storage);
        let seed = seed.map(|seed| (seed, storage.snapshots.clone()));
        let identity = storage.dir.identity();
        let own_disk = DiskId(identity.disk_id);
        let log = storage.wal.clone();

        let (failure, _) = watch::channel(None);
        let gate = Gate::new(
            config.node_id,
            config.cluster.clone(),
            own_disk,
            identity.cluster_id.map(ClusterId),
            config.members.clone(),
            failure.clone(),
        );
        let gate = Arc::new(gate.speaking(config.wire));
        let peers = Arc::new(Peers::new(gate.clone()));
        let origin = Origin {
            node: config.node_id,
            boot: random_u64(),
        };
        let (queue, queued) = mpsc::unbounded_channel();
        let hub = Hub::new(&config.watches, &config.events, random_u64());
        let replica = Replica::new(origin, hub, queue.clone());
        let (replica, history) = match keeps_history {
            true => {
                let (replica, history) = history::keep(replica, &config, identity.disk_id)?;
                (replica, Some(Arc::new(history)))
            }
            false => (Arc::new(replica), None),
        };

        let machine = StateMachine::new(replica.clone(), storage.snapshots.clone(), gate.clone());
        let traffic = Arc::new(SnapshotTraffic::new(config.snapshots.send_bytes_per_second));
        let network = Network::new(peers.clone(), traffic.clone(), config.timing.election_max * 2);
        let raft_config = Arc::new(raft_config(&config)?);
        let raft = Raft::new(config.node_id, raft_config, network, storage.log_store(), machine)
            .await
            .map_err(|error| StartError::Raft(error.to_string()))?;

        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();
        let (views, view) = watch::channel(LeaderView::default());
        let (submissions, submission_queue) = proposer::submissions();
        let (leadership, leader_questions) = leader::leadership();
        let (questions, question_queues) = asker::questions();
        let disks = Arc::new(Disks::new(config.node_id, config.disk.clone()));
        let (snapshots, snapshot_orders) = compaction::orders();
        let compaction = Compaction {
            raft: raft.clone(),
            replica: replica.clone(),
            snapshots: storage.snapshots.clone(),
            log: log.clone(),
            traffic: traffic.clone(),
            config: config.snapshots.clone(),
        };
        let membership = Arc::new(MembershipLeader::new(
            raft.clone(),
            replica.clone(),
            gate.clone(),
            view.clone(),
            config.timing.election_max,
            config.propose_timeout / 2,
        ));
        let asker = Arc::new(Asker {
            node: config.node_id,
            leadership: leadership.clone(),
            peers: peers.clone(),
            leader: view.clone(),
            membership: membership.clone(),
            patience: config.propose_timeout.min(config.timing.election_max * 5),
            change_patience: config.propose_timeout,
        });
        let node = Node {
            inner: Arc::new(Inner {
                config: config.clone(),
                raft: raft.clone(),
                replica: replica.clone(),
                gate: gate.clone(),
                queue,
                questions,
                snapshots: snapshots.clone(),
                asker: asker.clone(),
                membership: membership.clone(),
                leader: view.clone(),
                failure,
                disks: disks.clone(),
                wal: log.clone(),
                confirmed: Mutex::new(None),
                stop: stop.clone(),
                tasks: tasks.clone(),
                backups: Arc::new(Semaphore::new(backup::BACKUPS_AT_ONCE)),
                history,
                storage: Mutex::new(Some(storage.clone())),
            }),
        };

        let tasks = Tasks::new(gate.clone(), tasks);
        let services = Services {
            raft: raft.clone(),
            submissions: submissions.clone(),
            leadership,
            membership: membership.clone(),
            storage: storage.clone(),
            disks: disks.clone(),
            traffic,
        };
        tasks.spawn(compaction::run(compaction, snapshot_orders, stop.clone()));
        tasks.spawn(server::serve(listener, gate.clone(), services, stop.clone()));
        tasks.spawn(disks::look(
            disks.clone(),
            storage.clone(),
            raft.clone(),
            snapshots,
            stop.clone(),
        ));
        tasks.spawn(disks::judge(
            disks.clone(),
            peers.clone(),
            raft.clone(),
            stop.clone(),
        ));
        let proposer = Proposer {
            gate: gate.clone(),
            raft: raft.clone(),
            replica: replica.clone(),
            disks,
            wal: log.clone(),
            patience: config.timing.election_max,
            queue: submission_queue,
        };
        tasks.spawn(proposer.run(stop.clone()));
        tasks.spawn(
            Submitter {
                node: config.node_id,
                replica: replica.clone(),
                peers: peers.clone(),
                submissions,
                leader: view,
                queue: queued,
                patience: config.propose_timeout,
            }
            .run(stop.clone()),
        );
        let quorum_patience = config.timing.election_max;
        tasks.spawn(leader::confirm(
            raft.clone(),
            replica.clone(),
            leader_questions,
            quorum_patience,
            stop.clone(),
        ));
        tasks.spawn(leader::follow(
            raft.clone(),
            replica.clone(),
            peers.clone(),
            views,
            stop.clone(),
        ));
        let proposing = node.clone();
        let propose = move |request| {
            let node = proposing.clone();
            async move {
                // The task that this is called in is nobody's.
                let _alarm = Alarm::new(&node.inner.gate, "a proposal of the leader's own");
                matches!(node.propose(request).await, Ok(Applied { outcome: Ok(_), .. }))
            }
        };
        tasks.spawn(leader::tend(
            replica,
            config.sweeps.clone(),
            config.limits,
            propose,
            stop.clone(),
        ));
        tasks.spawn(asker::run(asker, question_queues, stop.clone()));
        tasks.spawn(node.clone().watch_raft());
        tasks.spawn(node.clone().watch_log(log));
        tasks.spawn(node.clone().watch_readiness());
        tasks.spawn(node.clone().refuse_when_failed());
        if let Some(own_address) = config.members.get(&config.node_id).cloned() {
            let knocker = Knocker {
                peers,
                leadership: membership,
                own_address,
                waits_for: node.waits_for(),
            };
            let knocking = node.clone();
            let up_to_date = move || knocking.not_ready().is_none();
            tasks.spawn(knocker.run(up_to_date, stop.clone()));
        }
        if founder {
            tasks.spawn(formation::form(raft, gate, own_disk, config.members, seed, stop));
        }
        Ok(node)
    }

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
        let inner = &self.inner;
        self.working()?;
        let (number, envelope, answer) = inner
            .replica
            .calls
            .enter(|call| codec::encode(&Envelope::new(inner.replica.origin, call, request)).into())?;
        // A caller that goes away takes its call along, so that it is not kept for nobody.
        let forget = Forget {
            replica: &inner.replica,
            number,
        };
        if inner.queue.send((number, envelope)).is_err() {
            return Err(Unavailable::new("this node is stopping").into());
        }
        let patience = inner.config.propose_timeout;
        match tokio::time::timeout(patience, answer).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(ProposeError::OutcomeUnknown(
                "this node stopped before it knew".into(),
            )),
            Err(_) => {
                let sent = forget.give_up();
                match sent {
                    Some(false) => {
                        let reason = self.why_unavailable();
                        Err(Unavailable::new(format!("{reason}, for {patience:?}")).into())
                    }
                    Some(true) | None => Err(ProposeError::OutcomeUnknown(format!(
                        "no answer within {patience:?}"
                    ))),
                }
            }
        }
    }

    /// A node that cannot go on takes nothing more, and says why.
    fn working(&self) -> Result<(), Unavailable> {
        match &*self.inner.failure.borrow() {
            Some(reason) => Err(Unavailable::new(reason.clone())),
            None => Ok(()),
        }
    }

    fn why_unavailable(&self) -> String {
        match self.inner.leader.borrow().leader {
            Some(leader) => format!("the leader, node {leader}, took no proposal"),
            None => "there is no leader".to_owned(),
        }
    }

    /// Opens a session under a fresh id. `timeout` is moved into the server's bounds.
    pub async fn open_session(
        &self,
        timeout: Option<Duration>,
        name: &str,
        address: &str,
        request_id: Option<RequestId>,
    ) -> Result<OpenedSession, OpenSessionError> {
        let bounds = &self.inner.config.sessions;
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
                caller: Identities::none(),
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
    pub async fn heartbeat(&self, session: SessionId) -> Result<Duration, HeartbeatError> {
        self.working()?;
        match self.inner.questions.heartbeat(session).await? {
            Touched::Renewed(timeout_ms) => Ok(Duration::from_millis(u64::from(timeout_ms))),
            Touched::Ended => Err(HeartbeatError::SessionEnded),
            Touched::Unknown => {
                // The leader's table has only live sessions; the state remembers those that ended lately. This
                // node's state may be behind the leader's, but not for long.
                if let Err(unavailable) = self.read_barrier().await {
                    return Err(unavailable.into());
                }
                match self.read(|store| store.session_fate(session)) {
                    znode_store::SessionFate::Unknown => Err(HeartbeatError::NoSession),
                    znode_store::SessionFate::Ended => Err(HeartbeatError::SessionEnded),
                    znode_store::SessionFate::Live => {
                        Err(Unavailable::new("the leader is only just taking over").into())
                    }
                }
            }
        }
    }

    /// How long ago a session was last heard of; only the leader can tell.
    pub fn silence(&self, session: SessionId) -> Option<Duration> {
        self.inner.replica.sessions.silence(session, Instant::now())
    }

    /// Reads this node's state: never older than what an earlier call here showed. Keep it short: nothing is
    /// applied meanwhile.
    pub fn read<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        look(&self.inner.replica.store.read())
    }

    /// Waits until this node has applied all that was committed anywhere when this was called. A
    /// [`Node::read`] afterwards is linearizable.
    pub async fn read_barrier(&self) -> Result<(), Unavailable> {
        self.working()?;
        let index = self.inner.questions.read_index().await?;
        let patience = self.inner.config.propose_timeout;
        match tokio::time::timeout(patience, self.inner.replica.wait_applied(index)).await {
            Ok(()) => Ok(()),
            Err(_) => Err(Unavailable::new("this node is too far behind")),
        }
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
        let store = self.inner.replica.store.read();
        let watcher = self.inner.replica.hub.watch(path, kind, caller)?;
        Ok((look(&store), watcher))
    }

    /// The watches of a client that stays connected, none at first.
    pub fn connect_watcher(&self, caller: Identities) -> WatchConnection {
        WatchConnection::new(self.inner.replica.clone(), caller)
    }

    /// How many watches there are on this node.
    pub fn watch_counts(&self) -> WatchCounts {
        self.inner.replica.hub.watch_counts()
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
        let page = tokio::task::spawn_blocking(move || history.page(&lock, before, count, holds, told));
        let page = page.await.map_err(|error| Unavailable::new(error.to_string()))?;
        Ok(page?)
    }

    /// What this node knows about the cluster.
    pub fn status(&self) -> ClusterStatus {
        let inner = &self.inner;
        let metrics = inner.raft.metrics().borrow_watched().clone();
        let view = *inner.leader.borrow();
        let role = match metrics.state {
            ServerState::Leader => Role::Leader,
            ServerState::Candidate => Role::Candidate,
            ServerState::Learner => Role::Learner,
            ServerState::Follower | ServerState::Shutdown => Role::Follower,
        };
        let voters: Vec<NodeId> = metrics.membership_config.voter_ids().collect();
        let index = |id: Option<crate::types::LogId>| id.map_or(0, |id| id.index);
        let last = metrics.last_log_index.unwrap_or(0);
        let members = inner.gate.addresses().into_iter().map(|(node_id, address)| {
            let matched = metrics.replication.as_ref().and_then(|all| all.get(&node_id));
            let matched = matched.map(|matched| index(*matched));
            MemberStatus {
                node_id,
                peer: address.peer,
                http: address.http,
                role: match () {
                    () if view.leader == Some(node_id) => Role::Leader,
                    () if voters.is_empty() || voters.contains(&node_id) => Role::Follower,
                    () => Role::Learner,
                },
                matched_index: matched,
                lag: matched.map(|matched| last.saturating_sub(matched)),
                versions: inner.gate.versions_of(node_id),
            }
        });
        let retired = inner.gate.retired();
        let not_ready = self.not_ready();
        let (log, snapshot) = {
            // Gone when the node has stopped.
            let storage = inner.storage.lock();
            let log = storage.as_ref().map(|storage| storage.wal.clone());
            (
                log,
                storage.as_ref().and_then(|storage| storage.snapshots.latest()),
            )
        };
        ClusterStatus {
            cluster: inner.config.cluster.clone(),
            cluster_id: inner
                .gate
                .cluster_id()
                .map(|id| id.to_string())
                .unwrap_or_default(),
            node_id: self.id(),
            role,
            leader: view.leader,
            term: view.term,
            committed_index: index(metrics.local_committed),
            applied_index: inner.replica.applied().index,
            applied_zxid: self.read(|store| store.zxid().0),
            snapshot_index: index(metrics.snapshot),
            snapshot_bytes: snapshot.as_ref().map_or(0, |snapshot| snapshot.bytes()),
            snapshot_age_ms: snapshot.map(|it| snapshot_file::now_ms().saturating_sub(it.meta().made_ms)),
            snapshot_failure: inner.snapshots.failure(),
            log_first_index: log.as_ref().map_or(0, |log| log.range().start),
            log_bytes: log.map_or(0, |log| log.bytes_after(0)),
            ready: not_ready.is_none(),
            not_ready_reason: not_ready,
            read_only: inner.disks.view().is_some_and(|view| view.read_only.is_some()),
            alarms: inner.disks.alarms(),
            members: members.collect(),
            next_node_id: next_free(inner.gate.addresses().into_keys(), &retired),
            retired_node_ids: retired.to_string(),
        }
    }

    /// What a node that belongs to no cluster yet waits for.
    fn waits_for(&self) -> String {
        let config = &self.inner.config;
        let (id, cluster) = (config.node_id, &config.cluster);
        match (config.join, config.members.get(&id)) {
            (true, Some(MemberAddress { peer, http })) => format!(
                "node {id} waits to be added to the cluster {cluster:?}: ask any member of it to add node {id} at \
                 peer {peer} and http {http}"
            ),
            _ => format!(
                "node {id} waits for the cluster {cluster:?} to be formed: all its first members must be up"
            ),
        }
    }

    /// Changes who is a member, or who leads. Every node takes every change; the leader makes it, and one at a time.
    ///
    /// Making the same change again is a success, so after [`MembershipError::OutcomeUnknown`] it is made again.
    pub async fn change_membership(
        &self,
        change: MembershipChange,
    ) -> Result<MembershipChanged, MembershipError> {
        self.working()?;
        self.inner.asker.change(change).await
    }

    /// Takes a node in that was started with [`NodeConfig::join`] and listens at `address`. It is a learner: it gets
    /// the state and all changes, takes every request, and counts for nothing until it is promoted.
    pub async fn add_member(
        &self,
        node_id: NodeId,
        address: MemberAddress,
    ) -> Result<MembershipChanged, MembershipError> {
        let change = MembershipChange::Add { node_id, address };
        self.change_membership(change).await
    }

    /// Removes a member, dead or alive, this one or another. Its id is never given again. `force`: also if the voters
    /// that remain cannot make a majority at the moment; nothing is committed then until they can.
    pub async fn remove_member(
        &self,
        node_id: NodeId,
        force: bool,
    ) -> Result<MembershipChanged, MembershipError> {
        let change = MembershipChange::Remove { node_id, force };
        self.change_membership(change).await
    }

    /// Makes a learner that has caught up a voter.
    pub async fn promote_member(&self, node_id: NodeId) -> Result<MembershipChanged, MembershipError> {
        let change = MembershipChange::Promote { node_id };
        self.change_membership(change).await
    }

    /// Makes a voter a learner. `force` as in [`Node::remove_member`].
    pub async fn demote_member(
        &self,
        node_id: NodeId,
        force: bool,
    ) -> Result<MembershipChanged, MembershipError> {
        let change = MembershipChange::Demote { node_id, force };
        self.change_membership(change).await
    }

    /// Tells the cluster where a member is found. A node whose own configured address changes does so itself when it
    /// starts.
    pub async fn set_member_address(
        &self,
        node_id: NodeId,
        address: MemberAddress,
    ) -> Result<MembershipChanged, MembershipError> {
        let change = MembershipChange::SetAddress { node_id, address };
        self.change_membership(change).await
    }

    /// Moves leadership to a voter; `None`: to the living one that has most of the log.
    pub async fn move_leader(&self, to: Option<NodeId>) -> Result<MembershipChanged, MembershipError> {
        self.change_membership(MembershipChange::MoveLeader { to }).await
    }

    /// Whether this node has learnt that it was removed from the cluster. It has failed then, see [`Node::failed`].
    pub fn was_removed(&self) -> bool {
        self.inner.gate.was_removed()
    }

    /// What this node sees of its own disk.
    pub fn disk_report(&self) -> DiskReport {
        self.inner.disks.report()
    }

    pub(crate) fn wal(&self) -> &Wal {
        &self.inner.wal
    }

    /// Why this node cannot serve now; `None` if it can.
    pub fn not_ready(&self) -> Option<String> {
        if let Some(failure) = &*self.inner.failure.borrow() {
            return Some(failure.clone());
        }
        if self.inner.stop.is_cancelled() {
            return Some("this node is stopping".to_owned());
        }
        if !self.inner.gate.is_formed() {
            return Some(self.waits_for());
        }
        let or_too_old = |reason| self.inner.gate.incompatible().or(Some(reason));
        match *self.inner.confirmed.lock() {
            None => or_too_old("this node has not caught up with a leader yet".to_owned()),
            Some(when) if when.elapsed() > READINESS_AGE => {
                or_too_old(format!("no leader has answered for {:?}", when.elapsed()))
            }
            Some(_) => None,
        }
    }

    /// Whether [`Node::stop`] was called or the node has failed: nothing will be carried out here any more, and whoever
    /// tries again and again should not.
    pub fn is_stopping(&self) -> bool {
        self.inner.stop.is_cancelled() || self.inner.failure.borrow().is_some()
    }

    /// Waits until the node cannot go on: its disk failed, or its peers refused it; returns the reason. Never
    /// returns on a healthy node.
    pub async fn failed(&self) -> String {
        let mut failure = self.inner.failure.subscribe();
        let failed = failure
            .wait_for(Option::is_some)
            .await
            .map(|failure| failure.clone());
        match failed {
            Ok(Some(reason)) => reason,
            // The sender lives in `self`.
            _ => std::future::pending().await,
        }
    }

    /// Hands leadership to another member if this node leads, and stops. What waits here is answered
    /// `Unavailable` or `OutcomeUnknown`.
    pub async fn stop(&self) {
        self.hand_over().await;
        self.inner.stop.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
        if let Err(error) = self.inner.raft.shutdown().await {
            tracing::warn!(%error, "raft did not stop in order");
        }
        self.inner.replica.calls.stop();
        self.inner.replica.hub.stop();
        self.inner.replica.stop_tap();
        if let Some(history) = self.inner.history.clone() {
            let stopped = tokio::task::spawn_blocking(move || history.stop()).await;
            if let Err(error) = stopped {
                tracing::warn!(%error, "the lock history did not end in order");
            }
        }
        let storage = self.inner.storage.lock().take();
        if let Some(storage) = storage {
            let closed = tokio::task::spawn_blocking(move || storage.close()).await;
            if let Ok(Err(error)) = closed {
                tracing::warn!(%error, "the log did not end in order");
            }
        }
    }

    /// Moves leadership to the living member that has most of the log, if this node leads.
    async fn hand_over(&self) {
        let target = {
            let metrics = self.inner.raft.metrics().borrow_watched().clone();
            if metrics.state != ServerState::Leader {
                return;
            }
            let voters: Vec<NodeId> = metrics.membership_config.voter_ids().collect();
            let answered = metrics.heartbeat.unwrap_or_default();
            let lives = |id: &NodeId| {
                let last = answered.get(id).copied().flatten();
                last.is_some_and(|last| last.elapsed() < self.inner.config.timing.election_max)
            };
            let matched: BTreeMap<NodeId, _> = metrics.replication.unwrap_or_default();
            let others = matched.into_iter();
            let others = others.filter(|(id, _)| *id != self.id() && voters.contains(id) && lives(id));
            others.max_by_key(|(_, matched)| *matched).map(|(id, _)| id)
        };
        let Some(target) = target else { return };
        if let Err(why) = self.inner.membership.move_leader(target).await {
            tracing::warn!(node = target, why, "stopping without another leader");
        }
    }

    /// Ends the node when Raft or its disk has failed.
    async fn watch_raft(self) {
        let mut metrics = self.inner.raft.metrics();
        loop {
            if let Err(fatal) = metrics.borrow_watched().running_state.clone() {
                if !self.inner.stop.is_cancelled() {
                    self.inner.gate.fail(format!("raft has stopped: {fatal}"));
                }
                return;
            }
            tokio::select! {
                changed = metrics.changed() => if changed.is_err() {
                    // Whoever tells of Raft's state has gone without a word: it has panicked.
                    if !self.inner.stop.is_cancelled() {
                        self.inner.gate.fail("raft has ended without a reason".to_owned());
                    }
                    return;
                },
                () = self.inner.stop.cancelled() => return,
            }
        }
    }

    /// Ends the node when its log takes nothing more: what it would acknowledge from now on is not on its disk.
    async fn watch_log(self, log: Wal) {
        tokio::select! {
            error = log.failed() => self.inner.gate.fail(format!("the log has failed: {error}")),
            () = self.inner.stop.cancelled() => {}
        }
    }

    /// Answers all who wait as soon as the node has failed: nobody would any more, and they can go to another node.
    async fn refuse_when_failed(self) {
        tokio::select! {
            _ = self.failed() => {
                self.inner.replica.calls.stop();
                self.inner.replica.hub.stop();
            }
            () = self.inner.stop.cancelled() => {}
        }
    }

    /// Finds out again and again whether this node is up to date.
    async fn watch_readiness(self) {
        loop {
            tokio::select! {
                confirmed = self.read_barrier() => match confirmed {
                    Ok(()) => *self.inner.confirmed.lock() = Some(Instant::now()),
                    // The barrier has waited for a leader as long as makes sense, and is tried again.
                    Err(unavailable) => tracing::debug!(%unavailable, "not up to date"),
                },
                () = self.inner.stop.cancelled() => return,
            }
            tokio::select! {
                () = tokio::time::sleep(READINESS_INTERVAL) => {}
                () = self.inner.stop.cancelled() => return,
            }
        }
    }
}

/// Takes a call out of the table when its caller goes away.
struct Forget<'a> {
    replica: &'a Replica,
    number: u64,
}

impl Forget<'_> {
    fn give_up(&self) -> Option<bool> {
        self.replica.calls.give_up(self.number)
    }
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Opens the data directory. The founder of a new cluster draws its id, or finds the state with which it begins.
fn open_storage(
    disk: Arc<dyn Disk>,
    config: &NodeConfig,
    founder: bool,
) -> Result<(Storage, Option<Seed>), StartError> {
    let options = config.log.clone();
    let storage = Storage::open(
        disk.clone(),
        &config.data_dir,
        &config.cluster,
        config.node_id,
        options,
    )?;
    let begun = storage.wal.last().is_some() || storage.snapshots.latest().is_some();
    let cluster_id = storage.dir.identity().cluster_id;
    let seed = Seed::find(disk, &config.data_dir, cluster_id, begun)?;
    if seed.is_some() && !founder {
        let text = "a backup was restored into this node's data directory, so a cluster has to begin here, and it does \
                    at the member with the lowest id: this node is not that one";
        return Err(StartError::Config(text.to_owned()));
    }
    if founder && storage.dir.identity().cluster_id.is_none() {
        storage.set_cluster_id(random_bytes())?;
    }
    Ok((storage, seed))
}

fn raft_config(config: &NodeConfig) -> Result<openraft::Config, StartError> {
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let timing = &config.timing;
    let raft = openraft::Config {
        cluster_name: config.cluster.clone(),
        heartbeat_interval: ms(timing.heartbeat),
        election_timeout_min: ms(timing.election_min),
        election_timeout_max: ms(timing.election_max),
        // A node that comes back from a partition must not depose a healthy leader.
        enable_pre_vote: Some(true),
        // The state is in memory: a leader that restarts has to win an election before it knows what is
        // committed.
        enable_leader_restore: Some(false),
        // A leader that has lost its quorum and still reaches one follower would keep the others from
        // electing another one.
        quorum_loss_probe_interval: Some(ms(timing.election_max) * 2),
        // By itself it makes no snapshots and purges nothing: see `compaction.rs`.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        max_payload_entries: MAX_ENTRIES_IN_FRAME,
        // Proposals are bounded by our own queues; these only have to be large enough never to matter.
        api_channel_size: Some(4096),
        notification_channel_size: Some(4096),
        state_machine_channel_size: Some(1024),
        backoff: "50ms 100ms ..500ms".to_owned(),
        ..openraft::Config::default()
    };
    raft.validate()
        .map_err(|error| StartError::Config(error.to_string()))
}

fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random numbers");
    bytes
}

fn random_u64() -> u64 {
    u64::from_le_bytes(random_bytes())
}
