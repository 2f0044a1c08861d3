//! What a node tells whoever watches over it, as Prometheus reads it. Everything is looked up when it is asked for;
//! nothing is counted here. Serving it is for front ends.

use std::fmt;
use std::time::UNIX_EPOCH;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::node::Node;
use crate::status::{ClusterStatus, Role};
use crate::storage::wal::SYNC_CLASSES_US;

/// Begins every name.
const PREFIX: &str = "lockgate";

impl Node {
    /// Adds what this node can tell to `registry`. All names begin with `lockgate_`.
    pub fn register_metrics(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix(PREFIX);
        registry.register_collector(Box::new(NodeMetrics { node: self.clone() }));
    }
}

struct NodeMetrics {
    node: Node,
}

impl fmt::Debug for NodeMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeMetrics")
    }
}

impl Collector for NodeMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let status = self.node.status();
        encode_raft(&mut encoder, &status)?;
        encode_disk(&mut encoder, &self.node, &status)?;
        encode_events(&mut encoder, &self.node)?;
        encode_admission(&mut encoder, &self.node)?;
        encode_tls(&mut encoder, &self.node)
    }
}

fn gauge(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    value: &impl EncodeGaugeValue,
) -> fmt::Result {
    encoder
        .encode_descriptor(name, help, None, MetricType::Gauge)?
        .encode_gauge(value)
}

fn encode_raft(encoder: &mut DescriptorEncoder, status: &ClusterStatus) -> fmt::Result {
    let flag = |yes: bool| u64::from(yes);
    let ready = flag(status.ready);
    gauge(
        encoder,
        "ready",
        "Whether this node can serve (1) or not (0)",
        &ready,
    )?;
    let help = "This node's part: 1 at the one that it has";
    let mut roles = encoder.encode_descriptor("raft_role", help, None, MetricType::Gauge)?;
    for (role, word) in [
        (Role::Leader, "leader"),
        (Role::Follower, "follower"),
        (Role::Candidate, "candidate"),
        (Role::Learner, "learner"),
    ] {
        let labels = [("role", word)];
        roles
            .encode_family(&labels)?
            .encode_gauge(&flag(status.role == role))?;
    }
    gauge(encoder, "raft_term", "The term", &status.term)?;
    let help = "The last log entry known to be committed";
    gauge(encoder, "raft_committed_index", help, &status.committed_index)?;
    let help = "The last log entry applied here";
    gauge(encoder, "raft_applied_index", help, &status.applied_index)?;
    let help = "The last log entry that this node's newest snapshot covers";
    gauge(encoder, "raft_snapshot_index", help, &status.snapshot_index)
}

fn encode_disk(encoder: &mut DescriptorEncoder, node: &Node, status: &ClusterStatus) -> fmt::Result {
    let report = node.disk_report();
    if let Some(free) = report.free_bytes {
        let help = "Bytes free in the file system of the data directory";
        gauge(encoder, "disk_free_bytes", help, &free)?;
    }
    let help = "With fewer bytes free the disk counts as nearly full";
    gauge(encoder, "disk_low_water_bytes", help, &report.low_water_bytes)?;
    let help = "Whether this node's disk is nearly full (1) or not (0)";
    gauge(encoder, "disk_low", help, &u64::from(report.low))?;
    let help = "Whether this node's log has no room for entries (1) or has (0)";
    gauge(encoder, "log_full", help, &u64::from(report.log_full))?;
    let help = "Whether the cluster takes only what makes the state smaller (1) or everything (0)";
    gauge(encoder, "read_only", help, &u64::from(status.read_only))?;
    let help = "How many alarms there are in the cluster";
    gauge(encoder, "alarms", help, &status.alarms.len())?;
    if !status.alarms.is_empty() {
        let help = "An alarm: its kind, and the node that it is about, none if it is about the cluster";
        let mut alarms = encoder.encode_descriptor("alarm_active", help, None, MetricType::Gauge)?;
        for alarm in &status.alarms {
            let node = alarm.node_id.map(|id| id.to_string()).unwrap_or_default();
            let labels = [("kind", alarm.kind.word().to_owned()), ("node", node)];
            alarms.encode_family(&labels)?.encode_gauge(&1_u64)?;
        }
    }

    let wal = node.wal();
    gauge(encoder, "log_segments", "Files of the log", &wal.segments())?;
    let help = "For how long the write to the log that is under way has lasted, in seconds";
    let working = wal.pulse().working_for().as_secs_f64();
    gauge(encoder, "log_write_under_way_seconds", help, &working)?;
    let times = wal.pulse().sync_times();
    let bounds = SYNC_CLASSES_US.iter().map(|us| *us as f64 / 1e6);
    let classes: Vec<(f64, u64)> = bounds.chain([f64::INFINITY]).zip(times.counts).collect();
    let help = "How long syncs of the log take";
    let name = "log_sync_duration_seconds";
    encoder
        .encode_descriptor(name, help, None, MetricType::Histogram)?
        .encode_histogram::<NoLabelSet>(times.sum.as_secs_f64(), times.counts.iter().sum(), &classes, None)
}

fn encode_events(encoder: &mut DescriptorEncoder, node: &Node) -> fmt::Result {
    let counts = node.session_event_counts();
    let help = "Streams of sessions' events that are open at this node";
    gauge(encoder, "event_streams", help, &counts.streams)?;
    let help = "Events of sessions that are kept for those who come back";
    gauge(encoder, "event_backlog", help, &counts.kept)?;
    let help = "What these take, in bytes";
    gauge(encoder, "event_backlog_bytes", help, &counts.kept_bytes)?;
    let help = "Events of sessions that were told";
    counter(encoder, "events_told", help, counts.told)?;
    let help =
        "How often a stream began with the present state because what it asked for was not known any more";
    counter(encoder, "event_resets", help, counts.resets)
}

fn encode_admission(encoder: &mut DescriptorEncoder, node: &Node) -> fmt::Result {
    let counts = node.admission_counts();
    let [new_refused, kept_refused] = counts.refused;
    let help = "Requests on their way through the log: those that want something new, and those that keep or give back";
    let mut outstanding = encoder.encode_descriptor("proposals", help, None, MetricType::Gauge)?;
    for (work, count) in [("new", counts.new), ("keep", counts.kept)] {
        let labels = [("work", work)];
        outstanding
            .encode_family(&labels)?
            .encode_gauge(&(count as u64))?;
    }
    let help = "What these have, in bytes";
    gauge(encoder, "proposals_bytes", help, &counts.bytes)?;
    let help = "How many new ones there may be: fewer while they take too long";
    gauge(encoder, "proposals_limit", help, &counts.limit)?;
    let help = "Requests that were refused because there were as many as there may be";
    let mut refused = encoder.encode_descriptor("proposals_refused", help, None, MetricType::Counter)?;
    for (work, count) in [("new", new_refused), ("keep", kept_refused)] {
        let labels = [("work", work)];
        refused
            .encode_family(&labels)?
            .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
    }
    let help = "Sessions that were not opened because too many were";
    counter(encoder, "session_openings_refused", help, counts.openings_refused)
}

fn encode_tls(encoder: &mut DescriptorEncoder, node: &Node) -> fmt::Result {
    let expiry = node.certificate_expiry();
    let Some(since_epoch) = expiry.and_then(|at| at.duration_since(UNIX_EPOCH).ok()) else {
        return Ok(());
    };
    let help = "When the certificate that this node shows to its peers expires, in seconds since 1970";
    let name = "peer_certificate_expiry_timestamp_seconds";
    gauge(encoder, name, help, &since_epoch.as_secs())
}

fn counter(encoder: &mut DescriptorEncoder, name: &str, help: &str, value: u64) -> fmt::Result {
    encoder
        .encode_descriptor(name, help, None, MetricType::Counter)?
        .encode_counter::<NoLabelSet, _, u64>(&value, None)
}
