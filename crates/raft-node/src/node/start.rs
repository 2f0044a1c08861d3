//! Start of a node: its storage, Raft and its tasks.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fault_injection::planted::{self, Bug};
use futures_util::future::BoxFuture;
use openraft::SnapshotPolicy;
use raft_log::sync::{Mutex, RwLock};
use raft_log::{Disk, StorageError};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Inner, RaftNode};
use crate::application::Application;
use crate::audit::Audit;
use crate::batcher::{self, Batcher, ProposalReceiver};
use crate::cluster_clock::ClusterClock;
use crate::compaction::{self, Compaction, SnapshotRequestQueue};
use crate::config::RaftNodeConfig;
use crate::counters::RaftCounters;
use crate::disk_health::{self, DiskHealth};
use crate::error::StartError;
use crate::fast_failover::FastFailover;
use crate::formation::{self, InitialState};
use crate::forwarder::Forwarder;
use crate::ids::{ClusterId, DiskId};
use crate::leader_client::{self, LeaderClient, LeaderRequestQueues};
use crate::leader_view::{self, LeaderView, LeaderViews};
use crate::membership::announcer::Announcer;
use crate::membership::change::MembershipLeader;
use crate::peers::network::Network;
use crate::peers::server::{self, Services};
use crate::peers::stream::PeerListener;
use crate::peers::{PeerRegistry, Peers, SnapshotTraffic};
use crate::replicated_state::ReplicatedState;
use crate::state_machine::{Raft, StateMachine};
use crate::storage::Storage;

/// Maximum number of log entries in one frame to a follower. Entries are batches of about a megabyte at most
/// (a single large transaction may be larger), and all frames must stay well below
/// [`MAX_ENCODED_BYTES`](crate::codec::MAX_ENCODED_BYTES).
const MAX_ENTRIES_IN_FRAME: u64 = 16;

/// Function that finds the initial state of a new cluster in the data directory of a node. Its arguments are
/// the disk, the directory, the id of its cluster, and whether its log or a snapshot exists, in which case
/// the initial state is already in it.
pub type FindInitialState =
    fn(Arc<dyn Disk>, &Path, Option<[u8; 16]>, bool) -> Result<Option<Arc<dyn InitialState>>, StorageError>;

/// Program that a node replicates.
pub struct Program {
    /// State to which entries are applied.
    pub state: Arc<dyn ReplicatedState>,
    /// Program around the state.
    pub application: Arc<dyn Application>,
    /// Notified when the program has queued proposals ([`Application::take_batch`]).
    pub queued: Arc<Notify>,
    /// Highest version of commands that the program can apply.
    pub commands: u8,
}

/// Data directory of a node that is about to start.
pub struct OpenedStorage {
    config: RaftNodeConfig,
    storage: Arc<Storage>,
    initial_state: Option<Arc<dyn InitialState>>,
    is_founder: bool,
    clock: Arc<ClusterClock>,
}

impl OpenedStorage {
    /// Opens the data directory.
    pub async fn open(
        config: RaftNodeConfig,
        disk: Arc<dyn Disk>,
        find_initial_state: FindInitialState,
    ) -> Result<Self, StartError> {
        let is_founder = !config.join && formation::founder(&config.members) == Some(config.node_id);
        let opening = config.clone();
        let opened =
            crate::blocking::run(move || open_storage(disk, &opening, is_founder, find_initial_state));
        let (storage, initial_state) = opened
            .await
            .map_err(|error| StartError::Raft(error.to_string()))??;
        Ok(Self {
            config,
            storage: Arc::new(storage),
            initial_state,
            is_founder,
            clock: Arc::new(ClusterClock::default()),
        })
    }

    /// Returns the id of the data directory.
    pub fn disk_id(&self) -> DiskId {
        DiskId(self.storage.dir.identity().disk_id)
    }

    /// Returns the clock for the time of entries.
    pub fn clock(&self) -> &Arc<ClusterClock> {
        &self.clock
    }

    /// Starts the node, which accepts its peers at `listener`.
    ///
    /// The compiler generates the code of an `async fn`, with everything that it spawns, in each crate that
    /// awaits it. This future is boxed, and the function is not inlined, so that the tasks of a node are
    /// compiled in this crate only.
    #[inline(never)]
    pub fn start(
        self,
        listener: PeerListener,
        program: Program,
    ) -> BoxFuture<'static, Result<RaftNode, StartError>> {
        Box::pin(self.start_here(listener, program))
    }

    async fn start_here(self, listener: PeerListener, program: Program) -> Result<RaftNode, StartError> {
        let (failure, _) = watch::channel(None);
        let registry = self.registry(&failure, program.commands);
        let peers = Arc::new(Peers::new(registry));
        let traffic = Arc::new(SnapshotTraffic::new(self.config.snapshots.send_bytes_per_second));
        let raft = self.start_raft(&program, &peers, &traffic).await?;
        let (leader_views, leader) = watch::channel(LeaderView::default());
        let (own_terms, own_term) = watch::channel(None);
        let (leader_requests, leader_request_queues) = leader_client::leader_requests();
        let (snapshots, snapshot_requests) = compaction::snapshot_requests();
        let inputs = TaskInputs {
            listener,
            peers: peers.clone(),
            storage: self.storage.clone(),
            queued: program.queued,
            leader_views: LeaderViews {
                leader: leader_views,
                own_term: own_terms,
            },
            leader_requests: leader_request_queues,
            snapshot_requests,
        };
        let Self {
            config,
            storage,
            initial_state,
            is_founder,
            clock,
        } = self;
        let Program {
            state, application, ..
        } = program;
        let registry = peers.registry().clone();
        let preparing = application.clone();
        let membership = Arc::new(MembershipLeader::new(
            raft.clone(),
            state.applied().clone(),
            registry.clone(),
            leader.clone(),
            config.timing.election_max,
            config.propose_timeout / 2,
            Box::new(move |timeout| preparing.prepare_hand_over(timeout)),
        ));
        let leader_client = Arc::new(LeaderClient {
            node: config.node_id,
            application: application.clone(),
            peers: peers.clone(),
            leader: leader.clone(),
            membership: membership.clone(),
            timeout: config.propose_timeout.min(config.timing.election_max * 5),
            change_timeout: config.propose_timeout,
            transit: Mutex::default(),
        });
        let audit = Arc::new(Audit::new(
            registry.clone(),
            state.clone(),
            clock.clone(),
            raft.clone(),
        ));
        let fast_failover = Arc::new(FastFailover::new(
            config.node_id,
            config.timing.clone(),
            peers,
            raft.clone(),
            storage.wal.clone(),
            leader.clone(),
        ));
        let node = RaftNode {
            inner: Arc::new(Inner {
                raft,
                distrust: audit.distrusted(),
                audit,
                state,
                application,
                clock,
                registry,
                leader_requests,
                snapshots,
                leader_client,
                membership,
                leader,
                own_term,
                fast_failover,
                failure,
                disks: Arc::new(DiskHealth::new(config.node_id, config.disk.clone())),
                wal: storage.wal.clone(),
                confirmed: Mutex::new(None),
                stop: CancellationToken::new(),
                tasks: TaskTracker::new(),
                snapshot_config: Arc::new(RwLock::new(config.snapshots.clone())),
                traffic,
                counters: Arc::new(RaftCounters::default()),
                storage: Mutex::new(Some(storage.clone())),
                config,
            }),
        };
        node.spawn_tasks(inputs);
        if is_founder {
            let inner = &*node.inner;
            node.tasks().spawn(formation::form(
                inner.raft.clone(),
                inner.registry.clone(),
                DiskId(storage.dir.identity().disk_id),
                inner.config.members.clone(),
                initial_state.map(|state| (state, storage.snapshots.clone())),
                inner.stop.clone(),
            ));
        }
        Ok(node)
    }

    async fn start_raft(
        &self,
        program: &Program,
        peers: &Arc<Peers>,
        traffic: &Arc<SnapshotTraffic>,
    ) -> Result<Raft, StartError> {
        let (config, storage, retiring) = (&self.config, &self.storage, peers.registry().clone());
        let network = Network::new(peers.clone(), traffic.clone(), config.timing.election_max * 2);
        let machine = StateMachine::new(
            program.state.clone(),
            storage.snapshots.clone(),
            retiring.failure().clone(),
            Box::new(move |ids| retiring.set_retired(ids)),
        );
        let raft_config = Arc::new(raft_config(config)?);
        Raft::new(config.node_id, raft_config, network, storage.log_store(), machine)
            .await
            .map_err(|error| StartError::Raft(error.to_string()))
    }

    /// Returns this node's side of the handshakes.
    fn registry(&self, failure: &watch::Sender<Option<String>>, commands: u8) -> Arc<PeerRegistry> {
        let (config, identity) = (&self.config, self.storage.dir.identity());
        let registry = PeerRegistry::new(
            config.node_id,
            config.cluster.clone(),
            DiskId(identity.disk_id),
            identity.cluster_id.map(ClusterId),
            config.members.clone(),
            failure.clone(),
        );
        Arc::new(
            registry
                .with_wire_versions(config.wire)
                .with_commands_version(commands)
                .with_tls(config.tls.clone())
                .with_witness(self.storage.witness.clone())
                .with_clock(self.clock.clone()),
        )
    }
}

/// Inputs of a node's tasks that nothing else needs.
struct TaskInputs {
    listener: PeerListener,
    peers: Arc<Peers>,
    storage: Arc<Storage>,
    queued: Arc<Notify>,
    leader_views: LeaderViews,
    leader_requests: LeaderRequestQueues,
    snapshot_requests: SnapshotRequestQueue,
}

impl RaftNode {
    fn spawn_tasks(&self, inputs: TaskInputs) {
        let (inner, tasks, stop) = (&*self.inner, self.tasks(), &self.inner.stop);
        let (peers, storage) = (inputs.peers, inputs.storage);
        let audit = inner.audit.clone();
        tasks.spawn(audit.run(peers.clone(), inner.config.audit_interval, stop.clone()));
        tasks.spawn(inner.fast_failover.clone().run(stop.clone()));
        tasks.spawn(compaction::run(
            inner.compaction(&storage),
            inputs.snapshot_requests,
            stop.clone(),
        ));
        let (proposal_queue, forwarded_batches) = batcher::proposal_queue();
        tasks.spawn(server::serve(
            inputs.listener,
            inner.registry.clone(),
            inner.services(&storage, proposal_queue.clone()),
            stop.clone(),
        ));
        tasks.spawn(disk_health::watch_local_disk(
            inner.disks.clone(),
            storage,
            inner.raft.clone(),
            inner.snapshots.clone(),
            stop.clone(),
        ));
        tasks.spawn(disk_health::watch_members(
            inner.disks.clone(),
            peers.clone(),
            inner.raft.clone(),
            stop.clone(),
        ));
        tasks.spawn(inner.batcher(forwarded_batches).run(stop.clone()));
        let forwarder = Forwarder {
            node: inner.config.node_id,
            application: inner.application.clone(),
            peers: peers.clone(),
            proposal_queue,
            leader: inner.leader.clone(),
            queued: inputs.queued,
            timeout: inner.config.propose_timeout,
        };
        tasks.spawn(forwarder.run(stop.clone()));
        tasks.spawn(leader_view::follow(
            inner.raft.clone(),
            peers.clone(),
            inputs.leader_views,
            inner.counters.clone(),
            stop.clone(),
        ));
        tasks.spawn(leader_client::run(
            inner.leader_client.clone(),
            inputs.leader_requests,
            stop.clone(),
        ));
        tasks.spawn(self.clone().watch_raft());
        tasks.spawn(self.clone().watch_log());
        tasks.spawn(self.clone().watch_readiness());
        if let Some(own_address) = inner.config.members.get(&inner.config.node_id).cloned() {
            let announcer = Announcer {
                peers,
                leadership: inner.membership.clone(),
                own_address,
                waits_for: self.waits_for(),
            };
            let node = self.clone();
            let up_to_date = move || node.not_ready().is_none();
            tasks.spawn(announcer.run(up_to_date, stop.clone()));
        }
    }
}

impl Inner {
    fn batcher(&self, queue: ProposalReceiver) -> Batcher {
        Batcher {
            registry: self.registry.clone(),
            raft: self.raft.clone(),
            application: self.application.clone(),
            applied: self.state.applied().clone(),
            clock: self.clock.clone(),
            counters: self.counters.clone(),
            disks: self.disks.clone(),
            wal: self.wal.clone(),
            timeout: self.config.timing.election_max,
            queue,
        }
    }

    fn compaction(&self, storage: &Storage) -> Compaction {
        let snapshot_config = self.snapshot_config.clone();
        Compaction {
            registry: self.registry.clone(),
            raft: self.raft.clone(),
            applied: self.state.applied().clone(),
            snapshots: storage.snapshots.clone(),
            log: self.wal.clone(),
            traffic: self.traffic.clone(),
            settings: Box::new(move || snapshot_config.read().clone()),
            counters: self.counters.snapshots.clone(),
        }
    }

    fn services(&self, storage: &Arc<Storage>, proposal_queue: batcher::ProposalQueue) -> Services {
        Services {
            raft: self.raft.clone(),
            proposal_queue,
            application: self.application.clone(),
            membership: self.membership.clone(),
            storage: storage.clone(),
            disks: self.disks.clone(),
            traffic: self.traffic.clone(),
            fast_failover: self.fast_failover.clone(),
            audit: self.audit.clone(),
        }
    }
}

/// Opens the data directory. The founder of a new cluster chooses its id, or finds its initial state.
fn open_storage(
    disk: Arc<dyn Disk>,
    config: &RaftNodeConfig,
    is_founder: bool,
    find_initial_state: FindInitialState,
) -> Result<(Storage, Option<Arc<dyn InitialState>>), StartError> {
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
    let initial_state = find_initial_state(disk, &config.data_dir, cluster_id, begun)?;
    if initial_state.is_some() && !is_founder {
        let text = "a backup was restored into this node's data directory, but a new cluster begins at the \
                    member with the lowest id, and this node is not that member";
        return Err(StartError::Config(text.to_owned()));
    }
    if is_founder && storage.dir.identity().cluster_id.is_none() {
        let mut id = [0; 16];
        getrandom::fill(&mut id).expect("the operating system gives random numbers");
        storage.set_cluster_id(id)?;
    }
    Ok((storage, initial_state))
}

fn raft_config(config: &RaftNodeConfig) -> Result<openraft::Config, StartError> {
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let timing = &config.timing;
    let raft = openraft::Config {
        cluster_name: config.cluster.clone(),
        heartbeat_interval: ms(timing.heartbeat),
        election_timeout_min: ms(timing.election_min),
        election_timeout_max: ms(timing.election_max),
        // A node that returns from a partition must not depose a healthy leader.
        enable_pre_vote: Some(true),
        // The state is in memory: a restarted leader must win an election before it knows the committed
        // entries.
        enable_leader_restore: Some(false),
        // `fast_failover` silences a leader that has lost its quorum. openraft's probe would also silence one
        // that only stalled.
        quorum_loss_probe_interval: planted::is(Bug::MutedByPause).then(|| 2 * ms(timing.election_max)),
        // openraft makes no snapshots and purges nothing by itself: see `compaction.rs`.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        max_payload_entries: MAX_ENTRIES_IN_FRAME,
        // The crate's own queues bound the proposals; these only have to be large enough never to matter.
        api_channel_size: Some(4096),
        notification_channel_size: Some(4096),
        state_machine_channel_size: Some(1024),
        backoff: "50ms 100ms ..500ms".to_owned(),
        ..openraft::Config::default()
    };
    raft.validate()
        .map_err(|error| StartError::Config(error.to_string()))
}
