//! Alarms that nodes raise, as shown in their status and in their metrics.

use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::Value;

use super::{Cluster, Misbehaved};
use crate::http;
use crate::network::Slot;

/// Time limit within which an alarm must be raised.
const RAISED_WITHIN: Duration = Duration::from_secs(30);

/// Time limit of one response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval between two queries.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until a member reports an alarm of this kind about a node, in `/v1/cluster` and in `/metrics`.
pub async fn wait_for(cluster: &Cluster, kind: &str, node: u64) -> anyhow::Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < RAISED_WITHIN {
        for slot in cluster.members() {
            if is_raised(cluster, slot, kind, node).await.unwrap_or_default() {
                return Ok(());
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Err(Misbehaved(format!("no member raised the alarm {kind} about node {node}")).into())
}

async fn is_raised(cluster: &Cluster, slot: Slot, kind: &str, node: u64) -> anyhow::Result<bool> {
    let address = cluster.node(slot).addresses.http;
    let status = http::get(address, "/v1/cluster", ANSWER_TIMEOUT).await?;
    let alarms = status["alarms"].as_array().map(Vec::as_slice).unwrap_or_default();
    let in_status = alarms
        .iter()
        .any(|alarm| alarm["kind"] == kind && alarm["node_id"] == node);
    let metrics = http::call(address, Method::GET, "/metrics", &Value::Null, ANSWER_TIMEOUT).await?;
    let metrics = String::from_utf8_lossy(&metrics.body);
    Ok(in_status && is_active(&metrics, kind, node))
}

/// Returns whether the metrics contain this alarm, in any order of its labels.
fn is_active(metrics: &str, kind: &str, node: u64) -> bool {
    let (kind, node) = (format!("kind=\"{kind}\""), format!("node=\"{node}\""));
    let mut lines = metrics
        .lines()
        .filter(|line| line.starts_with("lockgate_alarm_active{"));
    lines.any(|line| line.contains(&kind) && line.contains(&node) && line.ends_with(" 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarm_in_the_metrics_is_found_by_its_labels() {
        let metrics =
            "lockgate_alarm_active{kind=\"rolled_back\",node=\"2\"} 1\nother{kind=\"x\",node=\"3\"} 1\n";
        assert!(is_active(metrics, "rolled_back", 2));
        assert!(!is_active(metrics, "rolled_back", 3) && !is_active(metrics, "x", 3));
    }
}
