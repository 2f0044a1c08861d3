//! Start of a node: opens its storage, builds its state with the observers, starts replication, and spawns its tasks.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use futures_util::future::BoxFuture;
use observers::history::History;
use observers::journal::HistoryReader;
use observers::{Observers, ObserversConfig};
use raft_log::sync::Mutex;
use raft_log::{Disk, RealDisk};
use raft_node::peers::stream::PeerListener;
use raft_node::{OpenedStorage, Program, StartError};
use tokio::sync::Semaphore;
use znode_store::{Applied, Request};

use super::{Inner, Node, backup};
use crate::admission::Admission;
use crate::application::LockApplication;
use crate::backup::Seed;
use crate::cluster_events::ClusterEventLog;
use crate::command_versions::COMMANDS_VERSION;
use crate::config::NodeConfig;
use crate::envelope::Origin;
use crate::leader::{self, LeaderRequests, RecorderRequests};
use crate::metrics::node_counters::NodeCounters;
use crate::random_bytes::RandomBytes;
use crate::replica::Replica;
use crate::runtime_config::{RuntimeConfig, SharedRuntimeConfig};

/// Directory of the lock history in the data directory.
const HISTORY_DIR: &str = "history";

#[allow(
    clippy::useless_conversion,
    reason = "without the feature `simulation` what listens for peers is a TCP listener already"
)]
impl Node {
    /// Starts a node: reads its disk, listens for its peers, and forms the cluster with them if it is new.
    ///
    /// Returns when the disk is read; the node may not have a leader yet. It needs a tokio runtime with time and I/O, and runs on it until it is
    /// stopped.
    pub async fn start(config: NodeConfig) -> Result<Node, StartError> {
        config.validate()?;
        let address = config.raft.peer_listen_address()?;
        let listener = tokio::net::TcpListener::bind(&address)
            .await
            .map_err(|source| StartError::Io {
                what: format!("cannot listen for peers at {address}"),
                source,
            })?;
        Self::start_on(config, listener).await
    }

    /// Starts a node as [`Node::start`] does, with an open listener for peers. So the operating system can choose a port before the members are
    /// configured.
    pub async fn start_on(config: NodeConfig, listener: tokio::net::TcpListener) -> Result<Node, StartError> {
        let keeps_history = config.history.enabled && cfg!(feature = "history");
        Self::start_keeping(config, listener.into(), Arc::new(RealDisk), keeps_history).await
    }

    /// Starts a node as [`Node::start_on`] does, with all access to files through `disk`. Tests pass disks that lose power and fail. The node has no
    /// lock history, because its files do not go through `disk`.
    pub async fn start_on_disk(
        config: NodeConfig,
        listener: tokio::net::TcpListener,
        disk: Arc<dyn Disk>,
    ) -> Result<Node, StartError> {
        Self::start_keeping(config, listener.into(), disk, false).await
    }

    /// Starts a node as [`Node::start_on_disk`] does, on the simulated machine that [`crate::simulation::enter`] has set.
    #[cfg(feature = "simulation")]
    pub fn start_simulated(
        config: NodeConfig,
        listening: crate::simulation::Listening,
        disk: Arc<dyn Disk>,
    ) -> BoxFuture<'static, Result<Node, StartError>> {
        Self::start_keeping(config, listening.into(), disk, false)
    }

    /// Starts a node with the given disk and listener.
    ///
    /// The compiler generates the code of an `async fn` in each crate that awaits it, with all that it spawns. This future is in a box, and the
    /// function is not inlined, so that the tasks of a node are compiled only in this crate.
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
        let storage = OpenedStorage::open(config.raft.clone(), disk, Seed::find_state).await?;
        let random = RandomBytes::new();
        let origin = Origin {
            node: config.raft.node_id,
            boot: u64::from_le_bytes(random.next()),
        };
        let observers = ObserversConfig {
            watches: config.watches.clone(),
            events: config.events.clone(),
            lock_prefixes: config.metrics.lock_prefixes.clone(),
        };
        let observers = Observers::new(&observers, u64::from_le_bytes(random.next()));
        let history = keeps_history.then(|| observers.journal.read_history());
        let replica = Replica::new(origin, observers)
            .with_counters(Arc::new(NodeCounters::new(&config.metrics)))
            .with_clock(storage.clock().clone())
            .with_tracing(config.tracing.clone());
        let replica = Arc::new(replica);
        let history = history.map(|reader| start_history(&config, storage.disk_id().0, &replica, reader));
        let history = history.transpose()?;
        let (leadership, leader_requests) = leader::leadership(origin.boot);
        let (recorder, recorder_requests) = leader::recorder();
        let program = Program {
            state: replica.clone(),
            application: Arc::new(LockApplication {
                leadership,
                replica: replica.clone(),
                recorder,
            }),
            queued: replica.calls.queued().clone(),
            commands: COMMANDS_VERSION,
        };
        let raft = storage.start(listener, program).await?;
        let node = Node {
            inner: Arc::new(Inner {
                raft,
                replica,
                admission: Arc::new(Admission::new(config.admission.clone())),
                stops_at: Mutex::new(None),
                backups: Arc::new(Semaphore::new(backup::BACKUPS_AT_ONCE)),
                runtime_config: Arc::new(SharedRuntimeConfig::new(RuntimeConfig::of(&config))),
                last_backup_ms: AtomicU64::new(0),
                history: history.map(Arc::new),
                cluster_events: ClusterEventLog::default(),
                random,
                config,
            }),
        };
        node.spawn_tasks(leader_requests, recorder_requests);
        Ok(node)
    }

    fn spawn_tasks(&self, leader_requests: LeaderRequests, recorder_requests: RecorderRequests) {
        let Inner {
            raft,
            replica,
            runtime_config,
            config,
            ..
        } = &*self.inner;
        let (tasks, stop) = (raft.tasks(), raft.stop_token());
        let proposing = self.clone();
        let propose = move |request: Request| {
            let node = proposing.clone();
            async move {
                // The caller may run this in a task of its own, which no other guard observes.
                let _guard = node.inner.raft.panic_guard("a proposal of the leader's own");
                matches!(node.propose(request).await, Ok(Applied { outcome: Ok(_), .. }))
            }
        };
        tasks.spawn(leader::confirm(
            raft.clone(),
            replica.clone(),
            leader_requests,
            propose.clone(),
            stop.clone(),
        ));
        tasks.spawn(leader::follow(
            replica.clone(),
            raft.own_terms(),
            config.raft.timing.election_max,
            stop.clone(),
        ));
        #[cfg(feature = "planted")]
        tasks.spawn(leader::lose_watches(
            replica.clone(),
            raft.leader_changes(),
            stop.clone(),
        ));
        let members = raft.clone();
        tasks.spawn(leader::tend(
            replica.clone(),
            runtime_config.clone(),
            propose,
            move || members.commands_of_all(),
            recorder_requests,
            stop.clone(),
        ));
        tasks.spawn(self.clone().log_cluster_events());
        tasks.spawn(self.clone().refuse_when_failed());
    }
}

/// Starts the thread that writes the lock history from the events of holds.
fn start_history(
    config: &NodeConfig,
    disk_id: [u8; 16],
    replica: &Arc<Replica>,
    reader: HistoryReader,
) -> Result<History, StartError> {
    let dir = config.raft.data_dir.join(HISTORY_DIR);
    let bounds = config.history.bounds.clone();
    let holders = Arc::downgrade(replica);
    History::start(dir, disk_id, bounds, reader, holders).map_err(|source| StartError::Io {
        what: "cannot start the thread of the lock history".to_owned(),
        source,
    })
}
