//! What a node is told when it starts. Defaults stand here and nowhere else.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use lock_history::HistoryLimits;
use transport_security::PeerTls;
use znode_store::{Limits, MAX_DATA_BYTES};
use znode_watch::WatchLimits;

use crate::admission::AdmissionConfig;
use crate::disks::config::DiskConfig;
use crate::error::StartError;
use crate::ids::{MemberAddress, NodeId};
use crate::invalid_setting::InvalidSetting;
use crate::metrics::config::MetricsConfig;
use crate::raft_config::{MIN_SEND_BYTES_PER_SECOND, RaftTiming, SnapshotConfig};
use crate::versions::WireRange;
use raft_log::identity::MAX_CLUSTER_NAME_BYTES;
use raft_log::wal::WalOptions;

/// What a node is told when it starts.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// This node.
    pub node_id: NodeId,
    /// The name of the cluster. A peer of another name is refused.
    pub cluster: String,
    /// All members at the cluster's first start, this node among them. From then on the cluster itself knows its
    /// members; these say where else to look for them, and where this node itself is found.
    pub members: BTreeMap<NodeId, MemberAddress>,
    /// Whether this node joins a cluster that exists: it forms none, and waits until a member adds it
    /// ([`crate::Node::add_member`]). Of no consequence once it has joined.
    pub join: bool,
    /// Where to listen for peers. `None`: at this node's own address in `members`.
    pub peer_listen: Option<SocketAddr>,
    /// By what peers prove who they are. `None`: they are whom they say they are, so nobody else may reach this node.
    pub tls: Option<PeerTls>,
    /// Where log, vote and snapshots are kept. Created if it is missing.
    pub data_dir: PathBuf,
    /// Timing of Raft.
    pub timing: RaftTiming,
    /// When to make snapshots.
    pub snapshots: SnapshotConfig,
    /// Sizes of the write-ahead log.
    pub log: WalOptions,
    /// When the disk counts as nearly full or slow.
    pub disk: DiskConfig,
    /// Bounds of session timeouts.
    pub sessions: SessionBounds,
    /// When containers that nobody uses are swept.
    pub sweeps: SweepConfig,
    /// How much there may be of what in the tree. What the leader says holds in the whole cluster, from shortly after
    /// it began to lead; so it should be the same on all nodes.
    pub limits: Limits,
    /// How much is kept for those who watch.
    pub watches: WatchConfig,
    /// How much is kept for those who follow the events of a session.
    pub events: SessionEventsConfig,
    /// What is remembered of who held which lock.
    pub history: HistoryConfig,
    /// How much this node takes in for the cluster. It changes nothing that is replicated, so nodes may differ in this.
    pub admission: AdmissionConfig,
    /// What is counted on its own, and what is told of as slow.
    pub metrics: MetricsConfig,
    /// After so long without an answer a proposal is given up; its outcome is then unknown.
    pub propose_timeout: Duration,
    /// How often the leader compares the members' states with its own.
    pub audit_interval: Duration,
    /// The versions of the peer protocol that this node speaks. Less than [`WireRange::OWN`] is for tests of clusters of
    /// several versions.
    pub wire: WireRange,
}

/// A comparison costs a message for each member, and a look at each session; after so long at most it is on the members'
/// disks what each of them has acknowledged.
const AUDIT_INTERVAL: Duration = Duration::from_secs(5);

impl NodeConfig {
    /// A node with the defaults for all that can have a default.
    pub fn new(
        node_id: NodeId,
        cluster: impl Into<String>,
        members: BTreeMap<NodeId, MemberAddress>,
        data_dir: impl Into<PathBuf>,
    ) -> Self {
        Self {
            node_id,
            cluster: cluster.into(),
            members,
            join: false,
            peer_listen: None,
            tls: None,
            data_dir: data_dir.into(),
            timing: RaftTiming::default(),
            snapshots: SnapshotConfig::default(),
            log: WalOptions::default(),
            disk: DiskConfig::default(),
            sessions: SessionBounds::default(),
            sweeps: SweepConfig::default(),
            limits: Limits::default(),
            watches: WatchConfig::default(),
            events: SessionEventsConfig::default(),
            history: HistoryConfig::default(),
            admission: AdmissionConfig::default(),
            metrics: MetricsConfig::default(),
            propose_timeout: Duration::from_secs(10),
            audit_interval: AUDIT_INTERVAL,
            wire: WireRange::OWN,
        }
    }
}

impl NodeConfig {
    /// Returns an error that names all invalid settings.
    pub fn validate(&self) -> Result<(), StartError> {
        let wrong = self.invalid_settings();
        let facts: Vec<String> = wrong
            .iter()
            .map(|InvalidSetting { setting, fact }| format!("{setting} {fact}"))
            .collect();
        match facts.is_empty() {
            true => Ok(()),
            false => Err(StartError::Config(facts.join("; "))),
        }
    }

    /// Returns the settings that are invalid.
    pub fn invalid_settings(&self) -> Vec<InvalidSetting> {
        let mut found = Vec::new();
        let mut refuse = |is_wrong: bool, setting, fact: String| {
            if is_wrong {
                found.push(InvalidSetting { setting, fact });
            }
        };
        let ms = |time: Duration| time.as_millis();
        refuse(self.node_id == 0, "node_id", "must not be 0".into());
        let own = self.members.contains_key(&self.node_id);
        refuse(
            !own,
            "members",
            format!("must have node {}, which is this one", self.node_id),
        );
        let nobody = self.members.contains_key(&0);
        refuse(nobody, "members", "must not have a node 0".into());
        let name = self.cluster.len();
        let fact = format!("must have 1 to {MAX_CLUSTER_NAME_BYTES} bytes, and has {name}");
        refuse(!(1..=MAX_CLUSTER_NAME_BYTES).contains(&name), "cluster", fact);

        let timing = &self.timing;
        let heartbeat = timing.heartbeat;
        let fact = format!(
            "must be at least three times raft.heartbeat_ms ({}), and is {}",
            ms(heartbeat),
            ms(timing.election_min)
        );
        refuse(heartbeat.is_zero(), "raft.heartbeat_ms", "must not be 0".into());
        let hasty = heartbeat.saturating_mul(3) > timing.election_min;
        refuse(hasty, "raft.election_min_ms", fact);
        let fact = format!(
            "must be more than raft.election_min_ms ({}), and is {}",
            ms(timing.election_min),
            ms(timing.election_max)
        );
        refuse(
            timing.election_min >= timing.election_max,
            "raft.election_max_ms",
            fact,
        );

        let sessions = &self.sessions;
        let fact = format!(
            "must be at most sessions.max_ms ({}), and is {}",
            ms(sessions.max),
            ms(sessions.min)
        );
        refuse(sessions.min > sessions.max, "sessions.min_ms", fact);
        let fact = format!(
            "must lie between sessions.min_ms ({}) and sessions.max_ms ({}), and is {}",
            ms(sessions.min),
            ms(sessions.max),
            ms(sessions.default)
        );
        let outside = !(sessions.min..=sessions.max).contains(&sessions.default);
        refuse(
            outside && sessions.min <= sessions.max,
            "sessions.default_ms",
            fact,
        );
        let fact = format!(
            "must be at least twice raft.election_max_ms ({}), and is {}",
            ms(timing.election_max),
            ms(sessions.min)
        );
        let short = sessions.min < timing.election_max.saturating_mul(2);
        refuse(short, "sessions.min_ms", fact);

        let snapshots = &self.snapshots;
        refuse(
            snapshots.every_entries == 0,
            "snapshots.every_entries",
            "must not be 0".into(),
        );
        refuse(
            snapshots.every_bytes == 0,
            "snapshots.every_bytes",
            "must not be 0".into(),
        );
        let slow = snapshots.send_bytes_per_second < MIN_SEND_BYTES_PER_SECOND;
        let fact = format!("must be at least {MIN_SEND_BYTES_PER_SECOND}");
        refuse(slow, "snapshots.send_bytes_per_second", fact);

        let limits = &self.limits;
        let fits = (1..=MAX_DATA_BYTES).contains(&(limits.data_bytes as usize));
        refuse(
            !fits,
            "limits.data_bytes",
            format!("must be 1 to {MAX_DATA_BYTES}"),
        );
        let (watches, events, admission) = (&self.watches, &self.events, &self.admission);
        let openings = &admission.openings;
        let history = &self.history.bounds;
        for (nothing, setting) in [
            (limits.children == 0, "limits.children"),
            (limits.ephemerals == 0, "limits.ephemerals"),
            (limits.sessions == 0, "limits.sessions"),
            (self.sweeps.every.is_zero(), "sweeps.every_ms"),
            (watches.limits.per_watcher == 0, "watches.per_watcher"),
            (watches.limits.per_node == 0, "watches.per_node"),
            (watches.backlog == 0, "watches.backlog"),
            (events.streams_per_session == 0, "events.streams_per_session"),
            (events.streams_per_node == 0, "events.streams_per_node"),
            (history.records == 0, "history.records"),
            (history.max_age.is_zero(), "history.max_age_ms"),
            (admission.target.is_zero(), "load.target_ms"),
            (admission.max_outstanding == 0, "load.max_outstanding"),
            (admission.max_outstanding_bytes == 0, "load.max_outstanding_bytes"),
            (openings.per_second == 0, "load.session_openings_per_second"),
            (openings.burst == 0, "load.session_openings_at_once"),
            (openings.share == 0, "load.session_openings_share"),
        ] {
            refuse(nothing, setting, "must not be 0".into());
        }
        let fact = format!(
            "must be at least raft.election_max_ms ({}), and is {}: a proposal has to outlast an election",
            ms(timing.election_max),
            ms(self.propose_timeout)
        );
        refuse(
            self.propose_timeout < timing.election_max,
            "propose_timeout_ms",
            fact,
        );
        found.extend(self.disk.invalid_settings());
        found.extend(self.metrics.invalid_settings());
        found
    }

    /// Where this node listens for its peers.
    pub(crate) fn peer_listen_address(&self) -> Result<String, StartError> {
        match (&self.peer_listen, self.members.get(&self.node_id)) {
            (Some(address), _) => Ok(address.to_string()),
            (None, Some(own)) => Ok(own.peer.clone()),
            (None, None) => Err(StartError::Config(format!(
                "node {} is not among the members",
                self.node_id
            ))),
        }
    }
}

/// Bounds of session timeouts. A wish outside is moved to the nearer bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionBounds {
    /// Shorter ones would expire in an ordinary failover.
    pub min: Duration,
    /// Longer ones would keep a dead holder's locks closed for too long.
    pub max: Duration,
    /// For clients that do not say.
    pub default: Duration,
}

impl Default for SessionBounds {
    fn default() -> Self {
        Self {
            min: Duration::from_secs(2),
            max: Duration::from_secs(300),
            default: Duration::from_secs(10),
        }
    }
}

/// When container znodes, and with them locks that nobody uses, are swept; and TTL nodes whose time is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepConfig {
    /// How long a container must have been empty: a lock in steady use is not to be created again and again.
    pub empty_for: Duration,
    /// How often the leader looks. So much later than its time a TTL node may be swept.
    pub every: Duration,
}

impl Default for SweepConfig {
    fn default() -> Self {
        Self {
            empty_for: Duration::from_secs(60),
            every: Duration::from_secs(10),
        }
    }
}

/// How much a node keeps for those who watch. Watches are a node's own, so nodes may differ in this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchConfig {
    /// How many watches there may be.
    pub limits: WatchLimits,
    /// How many notices may wait for a client that stays connected and does not read. One more, and it loses its watches
    /// and has to come back.
    pub backlog: usize,
}

impl Default for WatchConfig {
    fn default() -> Self {
        let limits = WatchLimits::default();
        Self {
            // A single command may fire all one-shot watches of a client, and it is not to blame for that. Some 3 MB.
            backlog: limits.per_watcher as usize,
            limits,
        }
    }
}

/// How much a node keeps for those who follow the events of a session. It changes nothing that is replicated, so nodes may differ
/// in this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEventsConfig {
    /// How many events of all sessions together are kept for those who come back. Whoever comes back later than that is told how
    /// things stand instead.
    pub backlog: usize,
    /// How much memory they may take, in bytes.
    pub backlog_bytes: usize,
    /// How many streams one session may have at this node.
    pub streams_per_session: usize,
    /// How many streams there may be at this node.
    pub streams_per_node: usize,
}

impl Default for SessionEventsConfig {
    fn default() -> Self {
        Self {
            // Some seconds of a node's largest load: who loses its node is at the next one within one. Else it takes hours until
            // so much has happened, and nobody who follows is that far behind.
            backlog: 32_768,
            backlog_bytes: 16 * 1024 * 1024,
            // Two programs that share a session, each of which may have left one behind when its network broke, and some to look.
            streams_per_session: 8,
            // As many as connections.
            streams_per_node: 10_000,
        }
    }
}

/// Settings of the lock history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryConfig {
    /// The node records a history.
    pub enabled: bool,
    /// Maximum size and age.
    pub bounds: HistoryLimits,
}

impl Default for HistoryConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            bounds: HistoryLimits::default(),
        }
    }
}
