//! Configuration of a node. All defaults are in this module and in `raft-node`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use observers::config::{HistoryConfig, SessionEventsConfig, WatchConfig};
use raft_node::{InvalidSetting, MemberAddress, NodeId, RaftNodeConfig, StartError};
use znode_store::{Limits, MAX_DATA_BYTES};

use crate::admission::AdmissionConfig;
use crate::metrics::config::MetricsConfig;
use crate::traces::Tracing;

/// Configuration of a node.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Node, cluster, data directory and replication.
    pub raft: RaftNodeConfig,
    /// Bounds of session timeouts.
    pub sessions: SessionBounds,
    /// Sweeps of unused containers.
    pub sweeps: SweepConfig,
    /// Limits of the tree. The limits of the leader hold in the whole cluster, from shortly after its election on. So they should be the same on
    /// all nodes.
    pub limits: Limits,
    /// Bounds of watches.
    pub watches: WatchConfig,
    /// Bounds of session events.
    pub events: SessionEventsConfig,
    /// Settings of the lock history.
    pub history: HistoryConfig,
    /// Settings of admission control. They are not replicated, so they may differ between nodes.
    pub admission: AdmissionConfig,
    /// Settings of separate lock counters, and of the log of slow requests.
    pub metrics: MetricsConfig,
    /// Destination of the leader's spans: of its part of proposals, of waiting and of holding. Front ends have it for requests.
    pub tracing: Option<Tracing>,
}

impl NodeConfig {
    /// Returns a configuration with the defaults of everything that can have a default.
    pub fn new(
        node_id: NodeId,
        cluster: impl Into<String>,
        members: BTreeMap<NodeId, MemberAddress>,
        data_dir: impl Into<PathBuf>,
    ) -> Self {
        Self {
            raft: RaftNodeConfig::new(node_id, cluster, members, data_dir),
            sessions: SessionBounds::default(),
            sweeps: SweepConfig::default(),
            limits: Limits::default(),
            watches: WatchConfig::default(),
            events: SessionEventsConfig::default(),
            history: HistoryConfig::default(),
            admission: AdmissionConfig::default(),
            metrics: MetricsConfig::default(),
            tracing: None,
        }
    }

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
        let mut found = self.raft.invalid_settings();
        let mut refuse = |is_wrong: bool, setting, fact: String| {
            if is_wrong {
                found.push(InvalidSetting { setting, fact });
            }
        };
        let ms = |time: Duration| time.as_millis();
        let timing = &self.raft.timing;
        let sessions = &self.sessions;
        let fact = format!(
            "must be at most sessions.max_ms ({}), and is {}",
            ms(sessions.max),
            ms(sessions.min)
        );
        refuse(sessions.min > sessions.max, "sessions.min_ms", fact);
        let fact = format!(
            "must be at least sessions.min_ms ({}), and is {}",
            ms(sessions.min),
            ms(sessions.lease_max)
        );
        refuse(sessions.lease_max < sessions.min, "leases.max_ms", fact);
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
            (
                admission.large_writes.per_second == 0,
                "load.large_writes_kib_per_second",
            ),
            (admission.refusals.per_second == 0, "admission.refusals"),
            (admission.long_requests.per_second == 0, "admission.long_requests"),
        ] {
            refuse(nothing, setting, "must not be 0".into());
        }
        found.extend(self.metrics.invalid_settings());
        found
    }
}

/// Bounds of session timeouts. A requested timeout outside the bounds is replaced by the nearer bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionBounds {
    /// Minimum. Sessions with a shorter timeout would expire in an ordinary failover.
    pub min: Duration,
    /// Maximum. With a longer timeout the locks of a dead holder would stay held for too long.
    pub max: Duration,
    /// Timeout of sessions whose client requests none.
    pub default: Duration,
    /// Maximum of leases.
    pub lease_max: Duration,
}

impl Default for SessionBounds {
    fn default() -> Self {
        Self {
            min: Duration::from_secs(2),
            max: Duration::from_secs(300),
            default: Duration::from_secs(10),
            lease_max: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// Sweeps of empty container znodes, and with them unused locks, and of expired TTL znodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepConfig {
    /// Time that a container must have been empty, so that a lock in steady use is not created again and again.
    pub empty_for: Duration,
    /// Interval of sweeps. A TTL znode may be removed as much later than its expiry.
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
