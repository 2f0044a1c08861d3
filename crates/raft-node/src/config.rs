//! Configuration of replication.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use raft_log::identity::MAX_CLUSTER_NAME_BYTES;
use raft_log::wal::WalOptions;
use transport_security::PeerTls;

use crate::disk_health::config::DiskConfig;
use crate::error::StartError;
use crate::ids::{MemberAddress, NodeId};
use crate::invalid_setting::InvalidSetting;
use crate::raft_config::{MIN_SEND_BYTES_PER_SECOND, RaftTiming, SnapshotConfig};
use crate::versions::WireRange;

/// Configuration of replication at one node.
#[derive(Debug, Clone)]
pub struct RaftNodeConfig {
    /// Id of this node.
    pub node_id: NodeId,
    /// Name of the cluster. A peer of a cluster with another name is rejected.
    pub cluster: String,
    /// All members at the first start of the cluster, including this node. Later the cluster knows its own
    /// members; these addresses are further candidates to reach them, and define this node's address.
    pub members: BTreeMap<NodeId, MemberAddress>,
    /// True if this node joins an existing cluster: it forms none, and waits until a member adds it
    /// ([`RaftNode::change_membership`](crate::RaftNode::change_membership)). Has no effect once the node has joined.
    pub join: bool,
    /// Address at which the node listens for peers. `None`: its own address in `members`.
    pub peer_listen: Option<SocketAddr>,
    /// Certificates with which peers prove their identity. With `None` peers are trusted, so no other machine
    /// may reach this node.
    pub tls: Option<PeerTls>,
    /// Directory of the log, the vote and the snapshots. Created if missing.
    pub data_dir: PathBuf,
    /// Timing of Raft.
    pub timing: RaftTiming,
    /// Conditions for snapshots.
    pub snapshots: SnapshotConfig,
    /// Sizes of the write-ahead log.
    pub log: WalOptions,
    /// Thresholds at which the disk counts as nearly full or slow.
    pub disk: DiskConfig,
    /// Commit timeout: a proposal without an answer after this time has an unknown outcome.
    pub propose_timeout: Duration,
    /// Interval at which the leader compares the members' states with its own.
    pub audit_interval: Duration,
    /// Versions of the peer protocol that this node speaks. Tests of clusters with several versions use less
    /// than [`WireRange::OWN`].
    pub wire: WireRange,
}

/// Default interval of the audit. A comparison costs a message to each member, and a pass over all sessions.
/// After this time at most, each member has on its disk what all members have acknowledged.
const AUDIT_INTERVAL: Duration = Duration::from_secs(5);

impl RaftNodeConfig {
    /// Returns a configuration with all defaults.
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
            propose_timeout: Duration::from_secs(10),
            audit_interval: AUDIT_INTERVAL,
            wire: WireRange::OWN,
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
        found
    }

    /// Returns the address at which this node listens for its peers.
    pub fn peer_listen_address(&self) -> Result<String, StartError> {
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
