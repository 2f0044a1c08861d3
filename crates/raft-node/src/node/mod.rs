//! Handle to a member of a Raft cluster: its state, its knowledge of the other members, and its shutdown.

mod condition;
mod life;
mod members;
mod start;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use raft_log::sync::{Mutex, RwLock};
use raft_log::{SnapshotFile, Wal};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::members::SnapshotMember;
pub use self::start::{OpenedStorage, Program};
use crate::application::Application;
use crate::audit::Audit;
use crate::cluster_clock::ClusterClock;
use crate::compaction::{self, SnapshotMade};
use crate::config::RaftNodeConfig;
use crate::counters::RaftCounters;
use crate::disk_health::{DiskConfig, DiskHealth};
use crate::error::Unavailable;
use crate::fast_failover::FastFailover;
use crate::ids::{ClusterId, NodeId};
use crate::leader_client::{LeaderClient, LeaderRequests};
use crate::leader_view::{LeaderView, prove_leadership};
use crate::membership::change::MembershipLeader;
use crate::messages::{NotLeader, Touched};
use crate::panics::{PanicGuard, Tasks};
use crate::peers::{PeerRegistry, SnapshotTraffic};
use crate::raft_config::SnapshotConfig;
use crate::replicated_state::{AppliedPosition, ReplicatedState};
use crate::state_machine::Raft;
use crate::storage::Storage;

/// Interval at which [`RaftNode::cut_off`] checks: waiting clients are notified within a tenth of a second.
const CUT_OFF_LOOK: Duration = Duration::from_millis(50);

/// Member of a Raft cluster. Cheap to clone. Runs until it is stopped by [`RaftNode::hand_over`],
/// [`RaftNode::end_tasks`], [`RaftNode::shut_down`] and [`RaftNode::close`], in this order.
#[derive(Clone)]
pub struct RaftNode {
    inner: Arc<Inner>,
}

struct Inner {
    config: RaftNodeConfig,
    raft: Raft,
    audit: Arc<Audit>,
    /// Reason why this node serves no client, if its state differs from the others'.
    distrust: watch::Receiver<Option<String>>,
    state: Arc<dyn ReplicatedState>,
    application: Arc<dyn Application>,
    clock: Arc<ClusterClock>,
    registry: Arc<PeerRegistry>,
    leader_requests: LeaderRequests,
    snapshots: compaction::SnapshotRequests,
    leader_client: Arc<LeaderClient>,
    membership: Arc<MembershipLeader>,
    leader: watch::Receiver<LeaderView>,
    own_term: watch::Receiver<Option<u64>>,
    fast_failover: Arc<FastFailover>,
    failure: watch::Sender<Option<String>>,
    disks: Arc<DiskHealth>,
    wal: Wal,
    /// Time at which this node last knew that it had applied everything committed.
    confirmed: Mutex<Option<Instant>>,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// Current conditions for snapshots.
    snapshot_config: Arc<RwLock<SnapshotConfig>>,
    traffic: Arc<SnapshotTraffic>,
    counters: Arc<RaftCounters>,
    /// `None` once the node has stopped: its directory can be used again.
    storage: Mutex<Option<Arc<Storage>>>,
}

impl RaftNode {
    /// Returns this node's id.
    pub fn id(&self) -> NodeId {
        self.inner.config.node_id
    }

    /// Returns the configuration that this node was started with.
    pub fn config(&self) -> &RaftNodeConfig {
        &self.inner.config
    }

    /// Changes the conditions for snapshots, the rate at which they are sent, and the thresholds at which the
    /// disk counts as nearly full or slow.
    pub fn reconfigure(&self, snapshots: SnapshotConfig, disk: DiskConfig) {
        let inner = &self.inner;
        inner.disks.reconfigure(disk);
        inner.traffic.set_rate(snapshots.send_bytes_per_second);
        *inner.snapshot_config.write() = snapshots;
    }

    /// Returns the tasks that end with this node. A panic in one of them fails the node.
    pub fn tasks(&self) -> Tasks {
        Tasks::new(self.inner.registry.failure().clone(), self.inner.tasks.clone())
    }

    /// Returns the token that ends the tasks of this node.
    pub fn stop_token(&self) -> &CancellationToken {
        &self.inner.stop
    }

    /// Returns a guard with which a panic of its owner fails this node. `what` names the owner, for
    /// operators.
    pub fn panic_guard(&self, what: &'static str) -> PanicGuard {
        PanicGuard::new(self.inner.registry.failure(), what)
    }

    /// Returns the position of the last applied entry.
    pub fn applied(&self) -> &AppliedPosition {
        self.inner.state.applied()
    }

    /// Returns the clock for the time of entries.
    pub fn clock(&self) -> &ClusterClock {
        &self.inner.clock
    }

    /// Returns the write-ahead log.
    pub fn wal(&self) -> &Wal {
        &self.inner.wal
    }

    /// Returns the counters.
    pub fn counters(&self) -> &RaftCounters {
        &self.inner.counters
    }

    /// Returns the id of the cluster, once it is formed.
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.inner.registry.cluster_id()
    }

    /// Returns the newest version of commands that all members can apply.
    pub fn commands_of_all(&self) -> u8 {
        self.inner.registry.commands_of_all()
    }

    /// Returns the leader as this node knows it.
    pub fn leader(&self) -> LeaderView {
        *self.inner.leader.borrow()
    }

    /// Returns the receiver of the leader as this node knows it.
    pub fn leader_changes(&self) -> watch::Receiver<LeaderView> {
        self.inner.leader.clone()
    }

    /// Returns the receiver of the term in which this node leads.
    pub fn own_terms(&self) -> watch::Receiver<Option<u64>> {
        self.inner.own_term.clone()
    }

    /// Confirms with a quorum that this node still leads. Returns its term, and an index up to which everything is committed.
    pub async fn prove_leadership(&self) -> Result<(u64, u64), NotLeader> {
        prove_leadership(&self.inner.raft, self.inner.config.timing.election_max).await
    }

    /// Sends a session's heartbeat to the leader, which counts it from the time `heard` at which this node
    /// received it.
    pub async fn heartbeat(&self, session: u64, heard: Instant) -> Result<Touched, Unavailable> {
        self.inner.leader_requests.heartbeat(session, heard).await
    }

    /// Waits until this node has applied everything that was committed on any node at the time of the call.
    pub async fn read_barrier(&self) -> Result<(), Unavailable> {
        self.accepting()?;
        let index = self.inner.leader_requests.read_index().await?;
        let timeout = self.inner.config.propose_timeout;
        match tokio::time::timeout(timeout, self.applied().wait_for_index(index)).await {
            Ok(()) => Ok(()),
            Err(_) => Err(Unavailable::new("this node is too far behind")),
        }
    }

    /// Waits until this node has caught up with a leader once since its start.
    pub async fn caught_up_once(&self) -> Result<(), Unavailable> {
        self.serving()?;
        if self.inner.confirmed.lock().is_some() {
            return Ok(());
        }
        self.read_barrier().await?;
        *self.inner.confirmed.lock() = Some(Instant::now());
        Ok(())
    }

    /// Writes a snapshot of the applied state, truncates the log, and waits until the snapshot is complete.
    /// Returns the newest snapshot if nothing was applied since.
    pub async fn make_snapshot(&self) -> Result<SnapshotMade, Unavailable> {
        self.inner.snapshots.snapshot().await
    }

    /// Returns a snapshot on the disk that covers the applied state. Makes one if necessary.
    pub async fn covering_snapshot(&self) -> Result<SnapshotFile, Unavailable> {
        let storage = self.inner.storage.lock().clone();
        let storage = storage.ok_or_else(|| Unavailable::new("this node is stopping"))?;
        let wanted = self.applied().get();
        loop {
            if let Some(file) = storage.snapshots.latest()
                && file.meta().last.is_some_and(|last| last.index >= wanted.index)
            {
                return Ok(file);
            }
            if wanted.term == 0 {
                return Err(Unavailable::new("the cluster is not formed yet"));
            }
            self.make_snapshot().await?;
        }
    }

    /// Returns an error if this node serves no client: it has failed, or its state differs from the others'.
    pub fn serving(&self) -> Result<(), Unavailable> {
        let failure = self.inner.failure.borrow();
        let distrust = self.inner.distrust.borrow();
        match failure.as_ref().or(distrust.as_ref()) {
            Some(reason) => Err(Unavailable::new(reason.clone())),
            None => Ok(()),
        }
    }

    /// Returns an error if this node accepts no work that needs a leader. On a node that is cut off such work
    /// would not be done, and the caller can go to another node.
    pub fn accepting(&self) -> Result<(), Unavailable> {
        self.serving()?;
        match self.inner.fast_failover.is_cut_off() {
            true => Err(Unavailable::new("this node is cut off: it knows no leader")),
            false => Ok(()),
        }
    }

    /// Completes when this node is cut off: no leader will serve the callers that wait here.
    pub async fn cut_off(&self) {
        while !self.inner.fast_failover.is_cut_off() {
            tokio::time::sleep(CUT_OFF_LOOK).await;
        }
    }

    /// Completes when this node serves no client, because its state differs from the others'.
    pub async fn distrusted(&self) {
        let mut distrust = self.inner.distrust.clone();
        if distrust.wait_for(Option::is_some).await.is_err() {
            // The sender lives in `self`.
            std::future::pending::<()>().await;
        }
    }

    /// Returns the parts that unit tests need.
    #[cfg(test)]
    pub(crate) fn raft_and_log(&self) -> (Raft, Wal) {
        (self.inner.raft.clone(), self.inner.wal.clone())
    }

    /// Boxed, so that it is compiled in this crate alone: see `OpenedStorage::start`.
    fn boxed<'a, T>(future: impl Future<Output = T> + Send + 'a) -> BoxFuture<'a, T> {
        Box::pin(future)
    }
}
