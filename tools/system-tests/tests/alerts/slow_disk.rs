//! Slow syncs of a disk: a node in this process, with a disk that the test can slow down.

use std::time::Duration;

use local_cluster::ports::free_ports;
use lockgate::lock_api::Locks;
use lockgate::lock_api::http::{HttpConfig, router, serve};
use lockgate::lock_node::{MemberAddress, Node, NodeConfig};
use std::sync::Arc;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::prometheus::{Job, Prometheus};
use crate::harness::eventually;
use crate::troubled_disk::TroubledDisk;

/// Alerts that these tests raise.
pub const ALERTS: &[&str] = &["LockgateDiskSlow"];

#[tokio::test]
async fn slow_disk_raises_an_alert() {
    let [port] = free_ports(1).unwrap()[..] else {
        unreachable!("one port was requested")
    };
    let peer = format!("127.0.0.1:{port}");
    let http = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = http.local_addr().unwrap().to_string();
    let dir = TempDir::new().unwrap();
    let member = MemberAddress {
        peer: peer.clone(),
        http: address.clone(),
    };
    let config = NodeConfig::new(1, "slow", [(1, member)].into(), dir.path());
    let disk = TroubledDisk::default();
    let listener = TcpListener::bind(&peer).await.unwrap();
    let node = Node::start_on_disk(config, listener, Arc::new(disk.clone()))
        .await
        .unwrap();
    let locks = Locks::new(node.clone());
    let stop = CancellationToken::new();
    let config = HttpConfig::default();
    let serving = tokio::spawn(serve(
        http,
        router(node.clone(), locks.clone(), config.clone()),
        config,
        None,
        None,
        stop.clone().cancelled_owned(),
    ));
    eventually("the node serves", async || node.status().ready).await;
    let job = Job {
        name: "lockgate-slow",
        scheme: "http",
        targets: vec![address],
    };
    if let Some(prometheus) = Prometheus::start(&[job]).await {
        prometheus.wait_scraped("count(ALERTS)").await;
        let firing = prometheus.firing().await;
        assert!(
            !firing.iter().any(|(_, alert)| alert == "LockgateDiskSlow"),
            "no alert before the disk is slow: {firing:?}"
        );
        disk.set_delay(Duration::from_millis(400));
        let writes = async {
            loop {
                // Each opening is a write to the log.
                let opened = node.open_session(None, "slow", "", None).await;
                opened.expect("a slow disk still accepts writes");
            }
        };
        tokio::select! {
            () = prometheus.wait_for("lockgate-slow", "LockgateDiskSlow") => {}
            () = writes => unreachable!("the loop does not end"),
        }
        disk.set_delay(Duration::ZERO);
    }
    stop.cancel();
    locks.close().await;
    node.stop().await;
    serving.await.unwrap();
}
