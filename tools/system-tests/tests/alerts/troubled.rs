//! Nodes with problems of disks, certificates and memory from the start, each in a cluster of its own.

use std::fs;
use std::time::{Duration, SystemTime};

use lockgate::transport_security::PeerName;
use lockgate::transport_security::issue::{Authority, CertificateRequest, Issued};
use serde_json::Value;

use super::job;
use super::prometheus::Prometheus;
use crate::harness::{TestCluster, eventually};
use crate::scrape::Scrape;

/// Alerts that these tests raise.
pub const ALERTS: &[&str] = &[
    "LockgateReadOnly",
    "LockgateDiskNearlyFull",
    "LockgateSnapshotFails",
    "LockgateBackupTooOld",
    "LockgateCertificateExpires",
    "LockgateMemory",
    "LockgateNotSecured",
];

const DAY: Duration = Duration::from_secs(24 * 3600);

#[tokio::test]
async fn disk_problems_raise_alerts() {
    // The required free space is larger than any disk.
    let full = TestCluster::start_with("[disk]\nlow_water_bytes = 1000000000000000\n").await;
    let other = TestCluster::start().await;
    let jobs = [job("lockgate-full", &full), job("lockgate-other", &other)];
    let Some(prometheus) = Prometheus::start(&jobs).await else {
        return;
    };
    for alert in [
        "LockgateReadOnly",
        "LockgateDiskNearlyFull",
        "LockgateNotSecured",
        "LockgateMemory",
    ] {
        prometheus.wait_for("lockgate-full", alert).await;
    }
    // The directory for snapshots has been deleted by mistake.
    let leader = other.leader_now().await;
    let node = other.node(leader).unwrap();
    fs::remove_dir_all(node.data_dir().join("snapshots")).unwrap();
    let made = other
        .send(leader, "POST", "/v1/cluster/snapshot", &Value::Null)
        .await;
    assert_eq!(made.status, 503, "{}", made.json());
    prometheus
        .wait_for("lockgate-other", "LockgateSnapshotFails")
        .await;
    let firing = prometheus.firing().await;
    for alert in ["LockgateReadOnly", "LockgateDiskNearlyFull"] {
        let wrongly = ("lockgate-other".to_owned(), alert.to_owned());
        assert!(
            !firing.contains(&wrongly),
            "{alert} fires for a disk with free space"
        );
    }
}

#[tokio::test]
async fn old_backup_raises_an_alert_and_a_missing_one_does_not() {
    let mut backed_up = TestCluster::start().await;
    let never = TestCluster::start().await;
    let jobs = [
        job("lockgate-backed-up", &backed_up),
        job("lockgate-never", &never),
    ];
    let Some(prometheus) = Prometheus::start(&jobs).await else {
        return;
    };
    let node = backed_up.followers().await[0];
    let seen = async |cluster: &TestCluster| {
        let scrape = Scrape::of(cluster, node).await;
        scrape
            .series
            .get("lockgate_backup_last_timestamp_seconds")
            .copied()
    };
    assert_eq!(seen(&backed_up).await, None);
    let now = || {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_secs_f64()
    };
    let before = now();
    let drawn = backed_up.send(node, "GET", "/v1/snapshot", &Value::Null).await;
    assert_eq!(drawn.status, 200);
    eventually("the node records the backup", async || {
        seen(&backed_up).await.is_some()
    })
    .await;
    let at = seen(&backed_up).await.unwrap();
    assert!(at >= before.floor() && at <= now(), "{before} {at}");
    prometheus
        .wait_for("lockgate-backed-up", "LockgateBackupTooOld")
        .await;
    // The alert also fires if the node has lost the record in a restart.
    backed_up.kill(node).await.unwrap();
    backed_up.start(node).unwrap();
    backed_up
        .wait_ready(&[node], local_cluster::START_TIMEOUT)
        .await
        .unwrap();
    assert_eq!(seen(&backed_up).await, None);
    prometheus
        .wait_for("lockgate-backed-up", "LockgateBackupTooOld")
        .await;
    let wrongly = ("lockgate-never".to_owned(), "LockgateBackupTooOld".to_owned());
    let firing = prometheus.firing().await;
    assert!(
        !firing.contains(&wrongly),
        "the alert fires for a cluster without backups: {firing:?}"
    );
}

/// Replaces the certificates by some that expire in three days.
fn shorten(cluster: &TestCluster) {
    let read = |name: &str| fs::read_to_string(cluster.dir().join(name)).unwrap();
    let authority = Authority::read(&Issued {
        certificate: read("ca.pem"),
        key: read("ca.key"),
    });
    let authority = authority.unwrap();
    for node in cluster.nodes() {
        let name = PeerName {
            cluster: "local".to_owned(),
            node: node.id,
        };
        let hosts = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let now = SystemTime::now();
        let wanted = CertificateRequest::node(&name, &hosts, DAY).valid(now - DAY, now + 3 * DAY);
        let issued = authority.issue(&wanted).unwrap();
        fs::write(node.dir.join("node.pem"), issued.certificate).unwrap();
        fs::write(node.dir.join("node.key"), issued.key).unwrap();
    }
}

#[tokio::test]
async fn certificate_near_its_expiry_raises_an_alert() {
    let mut cluster = TestCluster::configure_secured();
    shorten(&cluster);
    cluster.up(local_cluster::START_TIMEOUT).await.unwrap();
    let Some(prometheus) = Prometheus::start(&[job("lockgate-tls", &cluster)]).await else {
        return;
    };
    prometheus
        .wait_for("lockgate-tls", "LockgateCertificateExpires")
        .await;
    eventually("the node exports the expiry time", async || {
        let seen = Scrape::of(&cluster, 1).await;
        let at = seen.value("lockgate_peer_certificate_expiry_timestamp_seconds");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let left = at - now.as_secs_f64();
        (0.0..4.0 * DAY.as_secs_f64()).contains(&left)
    })
    .await;
}
