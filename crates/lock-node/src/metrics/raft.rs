//! Metrics of the node in its cluster: its role and positions, its view of the other members if it leads, and alarms.

use std::fmt;
use std::time::UNIX_EPOCH;

use crate::node::Node;
use instruments::text_format::Sheet;
use raft_node::NodeId;
use raft_node::status::{ClusterStatus, Role};

pub(super) fn write(sheet: &mut Sheet<'_>, node: &Node, status: &ClusterStatus) -> fmt::Result {
    let help = "Whether this node can serve (1) or not (0)";
    sheet.gauge("ready", help, u64::from(status.ready))?;
    let help = "Role of this node: 1 for the current one";
    let roles = [
        (Role::Leader, "leader"),
        (Role::Follower, "follower"),
        (Role::Candidate, "candidate"),
        (Role::Learner, "learner"),
    ];
    let roles = roles.map(|(role, word)| ([("role", word)], u64::from(status.role == role)));
    sheet.gauges("raft_role", help, roles)?;
    let help = "Whether this node knows a leader (1) or not (0)";
    sheet.gauge("raft_has_leader", help, u64::from(status.leader.is_some()))?;
    sheet.gauge("raft_term", "The term", status.term)?;
    let help = "The last log entry known to be committed";
    sheet.gauge("raft_committed_index", help, status.committed_index)?;
    let help = "The last log entry applied here";
    sheet.gauge("raft_applied_index", help, status.applied_index)?;
    let help = "The last log entry that this node's newest snapshot covers";
    sheet.gauge("raft_snapshot_index", help, status.snapshot_index)?;
    members(sheet, node, status)?;
    let help = "Active alarms in the cluster";
    sheet.gauge("alarms", help, status.alarms.len())?;
    let help = "Active alarm, by its kind and the node that it concerns; the node is empty if the alarm concerns the cluster";
    let alarms: Vec<(&str, String)> = status
        .alarms
        .iter()
        .map(|alarm| {
            (
                alarm.kind.word(),
                alarm.node_id.map_or_else(String::new, |id| id.to_string()),
            )
        })
        .collect();
    let alarms = alarms
        .iter()
        .map(|(kind, node)| ([("kind", *kind), ("node", node.as_str())], 1_u64));
    sheet.gauges("alarm_active", help, alarms)?;
    certificate(sheet, node)
}

/// Writes the leader's view of the members. Only the leader does, so that there is one answer.
fn members(sheet: &mut Sheet<'_>, node: &Node, status: &ClusterStatus) -> fmt::Result {
    let help = "Members that this node knows, including itself";
    sheet.gauge("members", help, status.members.len())?;
    let Some(silences) = node.raft().silences() else {
        return Ok(());
    };
    let names: Vec<(NodeId, String)> = silences.keys().map(|id| (*id, id.to_string())).collect();
    let patience = node.config().raft.timing.election_max;
    let help = "At the leader: whether another member has answered within the longest election timeout (1) or not (0)";
    let up = names.iter().map(|(id, name)| {
        let silence = silences.get(id).copied().flatten();
        let answers = silence.is_some_and(|silence| silence <= patience);
        ([("node", name.as_str())], u64::from(answers))
    });
    sheet.gauges("raft_member_up", help, up)?;
    let help = "At the leader: entries by which the log of another member is behind its own";
    let lags = names.iter().filter_map(|(id, name)| {
        let member = status.members.iter().find(|member| member.node_id == *id)?;
        Some(([("node", name.as_str())], member.lag?))
    });
    sheet.gauges("raft_follower_lag_entries", help, lags)
}

fn certificate(sheet: &mut Sheet<'_>, node: &Node) -> fmt::Result {
    let expiry = node.certificate_expiry();
    let Some(since_epoch) = expiry.and_then(|at| at.duration_since(UNIX_EPOCH).ok()) else {
        return Ok(());
    };
    let help = "Expiry of the certificate that this node presents to its peers, in seconds since 1970";
    sheet.gauge(
        "peer_certificate_expiry_timestamp_seconds",
        help,
        since_epoch.as_secs(),
    )
}
