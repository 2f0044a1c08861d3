//! Node that applies the same commands to a different state than the others.

use serde_json::{Value, json};

use super::job;
use super::prometheus::Prometheus;
use crate::harness::{TestCluster, eventually};

/// Alerts that these tests raise.
pub const ALERTS: &[&str] = &["LockgateReplicaDistrusted"];

/// Number of the planted bug `OwnClock` in `znode-store/src/planted.rs`: times in the state come from the
/// replica's own clock.
const OWN_CLOCK: &str = "11";

#[tokio::test]
async fn node_whose_state_differs_stops_serving_and_raises_an_alert() {
    let mut cluster = TestCluster::start().await;
    let id = cluster.followers().await[0];
    cluster.kill(id).await.unwrap();
    cluster
        .start_with(id, &[("LOCKGATE_PLANTED", OWN_CLOCK)])
        .unwrap();
    cluster
        .wait_ready(&[id], local_cluster::START_TIMEOUT)
        .await
        .unwrap();
    let leader = cluster.leader_now().await;
    for n in 0..50 {
        let path = format!("/v1/znodes/n{n}");
        let made = cluster.send(leader, "POST", &path, &json!({ "data": "x" })).await;
        assert_eq!(made.status, 201, "{}", made.json());
    }
    eventually("the node stops serving", async || {
        let read = cluster.send(id, "GET", "/v1/znodes/n1", &Value::Null).await;
        read.status == 503 && read.json()["detail"].as_str().unwrap().contains("state differs")
    })
    .await;
    let ready = cluster.send(id, "GET", "/readyz", &Value::Null).await;
    assert_eq!(ready.status, 503);
    for each in cluster.ids() {
        eventually("every node has the alarm", async || {
            let seen = cluster
                .send(each, "GET", "/v1/cluster", &Value::Null)
                .await
                .json();
            let alarms = seen["alarms"].as_array().unwrap();
            alarms
                .iter()
                .any(|alarm| alarm["kind"] == "state_differs" && alarm["node_id"] == id)
        })
        .await;
    }
    let read = cluster.get(leader, "/v1/znodes/n1").await;
    assert_eq!(read["data"], "x", "the other nodes serve");
    if let Some(prometheus) = Prometheus::start(&[job("lockgate-differing", &cluster)]).await {
        prometheus
            .wait_for("lockgate-differing", "LockgateReplicaDistrusted")
            .await;
    }
}
