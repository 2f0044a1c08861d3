//! Snapshots: logs stay short, and a node that lacks purged entries catches up.

use lock_node::znode_store::ZPath;

use crate::cluster::{Cluster, eventually, put, settings_applied, small_snapshots};

#[tokio::test]
async fn lagging_node_catches_up_by_snapshot() {
    let mut cluster = Cluster::start_with(3, small_snapshots).await;
    let away = cluster.follower().await;
    put(cluster.node(away), "/before", "x").await;
    cluster.stop(away).await;
    let here = *cluster.nodes.keys().next().unwrap();
    for n in 0..200 {
        put(cluster.node(here), &format!("/n{n}"), "x").await;
    }
    let node = cluster.node(here).clone();
    eventually("a snapshot is made", || node.status().snapshot_index > 150).await;
    cluster.restart(away).await.unwrap();
    cluster.wait_ready().await;
    put(cluster.node(away), "/after", "x").await;
    let count = cluster
        .node(away)
        .read(|store| store.children(&ZPath::root()).unwrap().len());
    // And /zookeeper.
    assert_eq!(count, 203);
    cluster.stop_all().await;
}

#[tokio::test]
async fn restart_applies_the_snapshot_and_the_log_after_it() {
    let mut cluster = Cluster::start_with(1, small_snapshots).await;
    for n in 0..130 {
        put(cluster.node(1), &format!("/n{n}"), "x").await;
    }
    let node = cluster.node(1).clone();
    eventually("a snapshot is made", || node.status().snapshot_index > 100).await;
    settings_applied(&node).await;
    let (digest, zxid) = node.read(|store| (store.digest(), store.zxid()));
    drop(node);
    cluster.stop_all().await;
    cluster.restart(1).await.unwrap();
    cluster.wait_ready().await;
    let restored = cluster.node(1).read(|store| (store.digest(), store.zxid()));
    assert_eq!(restored, (digest, zxid));
    cluster.stop_all().await;
}
