//! How a node begins: its storage, Raft, and the tasks that it consists of.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use fault_injection::planted::{self, Bug};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use openraft::SnapshotPolicy;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use znode_store::Applied;

use super::peer_requests::PeerRequests;
use super::{Inner, Node, backup, random_bytes, random_u64};
use crate::admission::Admission;
use crate::asker::{self, Asker};
use crate::audit::Audit;
use crate::backup::Seed;
use crate::cluster_clock::ClusterClock;
use crate::compaction::{self, Compaction};
use crate::config::NodeConfig;
use crate::disks::{self, Disks};
use crate::envelope::Origin;
use crate::error::StartError;
use crate::formation::{self, InitialState};
use crate::history;
use crate::hub::Hub;
use crate::ids::{ClusterId, DiskId};
use crate::leader;
use crate::leader_view::LeaderView;
use crate::membership::change::MembershipLeader;
use crate::membership::knock::Knocker;
use crate::metrics::meters::Meters;
use crate::panics::{PanicGuard, Tasks};
use crate::peers::network::Network;
use crate::peers::server::{self, Services};
use crate::peers::stream::PeerListener;
use crate::peers::{Gate, Peers, SnapshotTraffic};
use crate::proposer::{self, Proposer};
use crate::replica::Replica;
use crate::state_machine::Raft;
use crate::state_machine::StateMachine;
use crate::storage::Storage;
use crate::submitter::Submitter;
use crate::succession::Succession;
use crate::sync::Mutex;
use crate::tuning::{Tuned, Tuning};
use raft_log::{Disk, RealDisk};

/// Log entries in one frame to a follower. Entries are batches of about a megabyte at most (a single large
/// transaction may be some more), and all frames must stay well below [`codec::MAX_ENCODED_BYTES`].
const MAX_ENTRIES_IN_FRAME: u64 = 16;

#[allow(
    clippy::useless_conversion,
    reason = "without the feature `simulation` what listens for peers is a TCP listener already"
)]
impl Node {
    /// Starts a node: reads its disk, listens to its peers, and forms the cluster with them if it is new.
    ///
    /// Returns when the disk is read; the node may not have a leader yet. It needs a tokio runtime with
    /// time and I/O, and runs on it until it is stopped.
    pub async fn start(config: NodeConfig) -> Result<Node, StartError> {
        config.validate()?;
        let address = config.peer_listen_address()?;
        let listener = tokio::net::TcpListener::bind(&address)
            .await
            .map_err(|source| StartError::Io {
                what: format!("cannot listen for peers at {address}"),
                source,
            })?;
        Self::start_on(config, listener).await
    }

    /// As [`Node::start`], with the socket at which peers call already open: so a port can be chosen by the
    /// operating system before the members are configured.
    pub async fn start_on(config: NodeConfig, listener: tokio::net::TcpListener) -> Result<Node, StartError> {
        let keeps_history = config.history.enabled && cfg!(feature = "history");
        Self::start_keeping(config, listener.into(), Arc::new(RealDisk), keeps_history).await
    }

    /// As [`Node::start_on`], with all access to files going through `disk`: for tests, whose disks lose power
    /// and fail. It keeps no history of locks, whose files do not go through `disk`.
    pub async fn start_on_disk(
        config: NodeConfig,
        listener: tokio::net::TcpListener,
        disk: Arc<dyn Disk>,
    ) -> Result<Node, StartError> {
        Self::start_keeping(config, listener.into(), disk, false).await
    }

    /// As [`Node::start_on_disk`], on the machine that was entered by [`crate::simulation::enter`].
    #[cfg(feature = "simulation")]
    pub fn start_simulated(
        config: NodeConfig,
        listening: crate::simulation::Listening,
        disk: Arc<dyn Disk>,
    ) -> BoxFuture<'static, Result<Node, StartError>> {
        Self::start_keeping(config, listening.into(), disk, false)
    }

    /// Starts a node with the disk and the listener that it is given.
    ///
    /// The compiler generates an `async fn` in each crate that awaits it, with all that it spawns. This future is in a box, and the
    /// function is not inlined, so that the tasks of a node are compiled in this crate and in no other.
    #[inline(never)]
    fn start_keeping(
        config: NodeConfig,
        listener: PeerListener,
        disk: Arc<dyn Disk>,
        keeps_history: bool,
    ) -> BoxFuture<'static, Result<Node, StartError>> {
        Box::pin(Self::start_here(config, listener, disk, keeps_history))
    }

    async fn start_here(
        config: NodeConfig,
        listener: PeerListener,
        disk: Arc<dyn Disk>,
        keeps_history: bool,
    ) -> Result<Node, StartError> {
        config.validate()?;
        let opening = config.clone();
        let founder = !config.join && formation::founder(&config.members) == Some(config.node_id);
        let opened = crate::blocking::run(move || open_storage(disk, &opening, founder));
        let (storage, seed) = opened
            .await
            .map_err(|error| StartError::Raft(error.to_string()))??;
        let storage = Arc::new(storage);
        let seed =
            seed.map(|seed| -> (Arc<dyn InitialState>, _) { (Arc::new(seed), storage.snapshots.clone()) });
        let identity = storage.dir.identity();
        let own_disk = DiskId(identity.disk_id);
        let log = storage.wal.clone();

        let (failure, _) = watch::channel(None);
        let clock = Arc::new(ClusterClock::default());
        let gate = Gate::new(
            config.node_id,
            config.cluster.clone(),
            own_disk,
            identity.cluster_id.map(ClusterId),
            config.members.clone(),
            failure.clone(),
        );
        let gate = Arc::new(
            gate.speaking(config.wire)
                .secured(config.tls.clone())
                .witnessed(storage.witness.clone())
                .with_clock(clock.clone()),
        );
        let peers = Arc::new(Peers::new(gate.clone()));
        let origin = Origin {
            node: config.node_id,
            boot: random_u64(),
        };
        let (queue, queued) = mpsc::unbounded_channel();
        let hub = Hub::new(&config.watches, &config.events, random_u64());
        let meters = Arc::new(Meters::new(&config.metrics));
        let replica = Replica::new(origin, hub, queue.clone())
            .with_meters(meters)
            .with_clock(clock);
        let (replica, history) = match keeps_history {
            true => {
                let (replica, history) = history::keep(replica, &config, identity.disk_id)?;
                (replica, Some(Arc::new(history)))
            }
            false => (Arc::new(replica), None),
        };

        let machine = {
            let failure = gate.failure().clone();
            let gate = gate.clone();
            let on_retired = Box::new(move |ids| gate.set_retired(ids));
            StateMachine::new(replica.clone(), storage.snapshots.clone(), failure, on_retired)
        };
        let traffic = Arc::new(SnapshotTraffic::new(config.snapshots.send_bytes_per_second));
        let log_store = storage.log_store();
        let network = Network::new(peers.clone(), traffic.clone(), config.timing.election_max * 2);
        let raft_config = Arc::new(raft_config(&config)?);
        let raft = Raft::new(config.node_id, raft_config, network, log_store, machine)
            .await
            .map_err(|error| StartError::Raft(error.to_string()))?;

        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();
        let (views, view) = watch::channel(LeaderView::default());
        let (submissions, submission_queue) = proposer::submissions();
        let (leadership, leader_questions) = leader::leadership(origin.boot);
        let (recorder, recorder_requests) = leader::recorder();
        let (questions, question_queues) = asker::questions();
        let disks = Arc::new(Disks::new(config.node_id, config.disk.clone()));
        let (snapshots, snapshot_orders) = compaction::orders();
        let tuned = Arc::new(Tuned::new(Tuning::of(&config)));
        let compaction = Compaction {
            gate: gate.clone(),
            raft: raft.clone(),
            applied: replica.applied().clone(),
            snapshots: storage.snapshots.clone(),
            log: log.clone(),
            traffic: traffic.clone(),
            settings: {
                let tuned = tuned.clone();
                Box::new(move || tuned.get().snapshots.clone())
            },
            counters: replica.meters.snapshots.clone(),
        };
        let membership = Arc::new(MembershipLeader::new(
            raft.clone(),
            replica.applied().clone(),
            gate.clone(),
            view.clone(),
            config.timing.election_max,
            config.propose_timeout / 2,
            Box::new(move |patience| recorder.clone().record_all(patience).boxed()),
        ));
        let asker = Arc::new(Asker {
            node: config.node_id,
            leadership: leadership.clone(),
            peers: peers.clone(),
            leader: view.clone(),
            membership: membership.clone(),
            patience: config.propose_timeout.min(config.timing.election_max * 5),
            change_patience: config.propose_timeout,
            distance: Mutex::default(),
        });
        let audit = Arc::new(Audit::new(
            gate.clone(),
            replica.clone(),
            replica.clock.clone(),
            raft.clone(),
        ));
        let succession = Arc::new(Succession::new(
            config.node_id,
            config.timing.clone(),
            peers.clone(),
            raft.clone(),
            log.clone(),
            view.clone(),
        ));
        let node = Node {
            inner: Arc::new(Inner {
                distrust: audit.distrusted(),
                audit: audit.clone(),
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
                succession: succession.clone(),
                failure,
                disks: disks.clone(),
                wal: log.clone(),
                admission: Arc::new(Admission::new(config.admission.clone())),
                confirmed: Mutex::new(None),
                stop: stop.clone(),
                tasks: tasks.clone(),
                stops_at: Mutex::new(None),
                backups: Arc::new(Semaphore::new(backup::BACKUPS_AT_ONCE)),
                tuned: tuned.clone(),
                traffic: traffic.clone(),
                last_backup_ms: AtomicU64::new(0),
                history,
                storage: Mutex::new(Some(storage.clone())),
            }),
        };

        let tasks = Tasks::new(gate.failure().clone(), tasks);
        let services = Services {
            raft: raft.clone(),
            application: Arc::new(PeerRequests {
                submissions: submissions.clone(),
                leadership,
                replica: replica.clone(),
            }),
            membership: membership.clone(),
            storage: storage.clone(),
            disks: disks.clone(),
            traffic,
            succession: succession.clone(),
            audit: audit.clone(),
        };
        tasks.spawn(audit.run(peers.clone(), config.audit_interval, stop.clone()));
        tasks.spawn(succession.run(stop.clone()));
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
        let proposing = node.clone();
        let propose = move |request| {
            let node = proposing.clone();
            async move {
                // The task that this is called in is nobody's.
                let _guard = PanicGuard::new(node.inner.gate.failure(), "a proposal of the leader's own");
                matches!(node.propose(request).await, Ok(Applied { outcome: Ok(_), .. }))
            }
        };
        tasks.spawn(leader::confirm(
            raft.clone(),
            replica.clone(),
            leader_questions,
            quorum_patience,
            propose.clone(),
            stop.clone(),
        ));
        tasks.spawn(leader::follow(
            raft.clone(),
            replica.clone(),
            peers.clone(),
            views,
            config.timing.election_max,
            stop.clone(),
        ));
        let members = gate.clone();
        let commands = move || members.commands_of_all();
        tasks.spawn(leader::tend(
            replica,
            tuned,
            propose,
            commands,
            recorder_requests,
            stop.clone(),
        ));
        tasks.spawn(asker::run(asker, question_queues, stop.clone()));
        tasks.spawn(node.clone().watch_raft());
        tasks.spawn(node.clone().watch_log(log));
        tasks.spawn(node.clone().watch_readiness());
        tasks.spawn(node.clone().keep_chronicle());
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
        // A leader that lost its quorum falls silent by `succession`: here one that only stood still would, too.
        quorum_loss_probe_interval: planted::is(Bug::MutedByPause).then(|| 2 * ms(timing.election_max)),
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
