//! Node with a foreign disk: it must not take part, because its peers rely on data that is not there.

use std::fs;
use std::path::Path;

use local_cluster::START_TIMEOUT;
use lockgate::lock_node::NodeId;

use crate::harness::{TIMEOUT, TestCluster};

/// Starts a node that must not start. Returns its error.
async fn reason_of_rejected_start(cluster: &mut TestCluster, id: NodeId) -> String {
    cluster.start(id).unwrap();
    let error = cluster
        .wait_ready(&[id], START_TIMEOUT)
        .await
        .expect_err("the node must not serve");
    let text = error.to_string();
    assert!(text.contains(&format!("node {id} ended")), "{text}");
    let last = text.trim_end().lines().last().unwrap_or_default().to_owned();
    println!("{last}");
    assert!(
        last.starts_with("lockgate: "),
        "the last line is not the error: {text}"
    );
    last
}

/// Copies a directory with everything in it.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test]
async fn node_with_a_wiped_disk_is_rejected() {
    let mut cluster = TestCluster::start().await;
    let id = cluster.followers().await[0];
    assert!(cluster.stop(id, TIMEOUT).await.unwrap());
    let data = cluster.node(id).unwrap().data_dir();
    let kept = data.with_extension("kept");
    fs::rename(&data, &kept).unwrap();
    let reason = reason_of_rejected_start(&mut cluster, id).await;
    assert!(reason.contains("data"), "{reason}");

    // The node starts again with its own disk.
    fs::remove_dir_all(&data).ok();
    fs::rename(&kept, &data).unwrap();
    cluster.up(START_TIMEOUT).await.unwrap();
}

#[tokio::test]
async fn data_directory_of_another_node_is_rejected() {
    let mut cluster = TestCluster::start().await;
    let followers = cluster.followers().await;
    for id in &followers {
        assert!(cluster.stop(*id, TIMEOUT).await.unwrap());
    }
    let data = cluster.node(followers[0]).unwrap().data_dir();
    fs::remove_dir_all(&data).unwrap();
    copy(&cluster.node(followers[1]).unwrap().data_dir(), &data);
    let reason = reason_of_rejected_start(&mut cluster, followers[0]).await;
    assert!(reason.contains(&format!("node {}", followers[1])), "{reason}");
}

#[tokio::test]
async fn data_directory_of_another_cluster_is_rejected() {
    let mut cluster = TestCluster::start().await;
    let mut other = TestCluster::start().await;
    let id = cluster.followers().await[0];
    assert!(cluster.stop(id, TIMEOUT).await.unwrap());
    other.kill_all().await.unwrap();
    let data = cluster.node(id).unwrap().data_dir();
    fs::remove_dir_all(&data).unwrap();
    copy(&other.node(id).unwrap().data_dir(), &data);
    let reason = reason_of_rejected_start(&mut cluster, id).await;
    assert!(reason.contains("cluster"), "{reason}");
}
