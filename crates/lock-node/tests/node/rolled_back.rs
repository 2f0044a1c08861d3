//! A node whose directory lacks what it had acknowledged is refused, whatever the cause; other nodes never are.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lock_node::{AlarmKind, Node, NodeConfig, NodeId, StartError};

use crate::cluster::{Cluster, TIMEOUT, eventually, put};

fn often(config: &mut NodeConfig) {
    config.raft.audit_interval = Duration::from_millis(50);
}

/// Copies a directory with its contents.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().unwrap().is_dir() {
            true => copy(&from, &to),
            false => drop(fs::copy(&from, &to).unwrap()),
        }
    }
}

fn data_dir(cluster: &Cluster, id: NodeId) -> PathBuf {
    cluster.configs[&id].raft.data_dir.clone()
}

fn image(cluster: &Cluster, id: NodeId) -> PathBuf {
    let image = data_dir(cluster, id).with_extension("image");
    copy(&data_dir(cluster, id), &image);
    image
}

fn put_back(cluster: &Cluster, id: NodeId, image: &Path) {
    let dir = data_dir(cluster, id);
    fs::remove_dir_all(&dir).unwrap();
    copy(image, &dir);
}

async fn failure_of(node: &Node) -> String {
    tokio::time::timeout(TIMEOUT, node.failed()).await.unwrap()
}

/// Asserts that the node is refused by its peers, and then by its own directory.
async fn assert_refused_permanently(cluster: &mut Cluster, id: NodeId) {
    cluster.restart(id).await.unwrap();
    let failure = failure_of(cluster.node(id)).await;
    assert!(failure.contains("older than what node"), "{failure}");
    assert!(
        failure.contains(&format!("lockgate cluster replace {id}")),
        "{failure}"
    );
    cluster.stop(id).await;
    match cluster.restart(id).await {
        Err(StartError::Identity(text)) => assert!(text.contains("older than what node"), "{text}"),
        other => panic!("{:?}", other.err()),
    }
}

#[tokio::test]
async fn old_image_of_a_directory_is_refused() {
    let mut cluster = Cluster::start_with(3, often).await;
    let id = cluster.follower().await;
    put(cluster.node(id), "/a", "x").await;
    cluster.stop(id).await;
    let image = image(&cluster, id);
    cluster.restart(id).await.unwrap();
    cluster.wait_ready().await;
    put(cluster.node(id), "/b", "x").await;
    cluster.stop(id).await;
    put_back(&cluster, id, &image);
    assert_refused_permanently(&mut cluster, id).await;
    let other = *cluster.nodes.keys().next().unwrap();
    let alarms = || cluster.nodes.values().flat_map(|node| node.status().alarms);
    eventually("an alarm is raised", || {
        alarms().any(|alarm| (alarm.node_id, alarm.kind) == (Some(id), AlarmKind::RolledBack))
    })
    .await;
    put(cluster.node(other), "/c", "x").await;
    cluster.stop_all().await;
}

/// Of the nodes that saw the later start, only one is left, which did not receive the write; its own disk has the record.
#[tokio::test]
async fn old_image_is_refused_by_a_voter_that_missed_its_last_write() {
    let mut cluster = Cluster::start_with(3, often).await;
    let leader = cluster.leader().await;
    let mut others = cluster.nodes.keys().copied().filter(|id| *id != leader);
    let (returning, dead) = (others.next().unwrap(), others.next().unwrap());
    drop(others);
    cluster.stop(returning).await;
    let image = image(&cluster, returning);
    cluster.restart(returning).await.unwrap();
    cluster.wait_ready().await;
    let knows =
        || cluster.node(dead).knows_start_of(returning) == cluster.node(returning).knows_start_of(returning);
    eventually("the other follower knows the start", knows).await;
    cluster.stop(dead).await;
    put(cluster.node(returning), "/granted", "x").await;
    cluster.stop(returning).await;
    put_back(&cluster, returning, &image);
    cluster.stop(leader).await;

    cluster.restart(dead).await.unwrap();
    cluster.restart(returning).await.unwrap();
    let failure = failure_of(cluster.node(returning)).await;
    assert!(failure.contains("two copies of it"), "{failure}");
    let dead = cluster.node(dead).clone();
    assert!(dead.not_ready().is_some(), "the two nodes form no quorum");
    cluster.stop(returning).await;
    cluster.restart(leader).await.unwrap();
    cluster.wait_ready().await;
    put(&dead, "/later", "x").await;
    cluster.stop_all().await;
}

/// An image of a directory in use has the number of the running start; only later acknowledgements distinguish it.
#[tokio::test]
async fn image_of_a_directory_in_use_is_refused() {
    let mut cluster = Cluster::start_with(3, often).await;
    let id = cluster.follower().await;
    put(cluster.node(id), "/a", "x").await;
    let image = image(&cluster, id);
    for n in 0..20 {
        put(cluster.node(id), &format!("/n{n}"), "x").await;
    }
    cluster.stop(id).await;
    put_back(&cluster, id, &image);
    assert_refused_permanently(&mut cluster, id).await;
    // The other node that ran then also refuses it, by the record on its disk.
    let leader = cluster.leader().await;
    let other = *cluster.nodes.keys().find(|it| **it != leader).unwrap();
    for id in [leader, other] {
        cluster.stop(id).await;
    }
    put_back(&cluster, id, &image);
    cluster.restart(other).await.unwrap();
    assert_refused_permanently(&mut cluster, id).await;
    cluster.stop_all().await;
}

/// The copy has another address.
#[tokio::test]
async fn second_process_on_a_copied_directory_is_refused() {
    let mut cluster = Cluster::start_with(3, often).await;
    let id = cluster.follower().await;
    cluster.stop(id).await;
    let image = image(&cluster, id);
    cluster.restart(id).await.unwrap();
    cluster.wait_ready().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = cluster.configs[&id].clone();
    config.raft.data_dir = image;
    let second = Node::start_on(config, listener).await.unwrap();
    let failure = failure_of(&second).await;
    assert!(failure.contains("two copies of it"), "{failure}");
    second.stop().await;
    put(cluster.node(id), "/a", "x").await;
    cluster.wait_ready().await;
    cluster.stop_all().await;
}

#[tokio::test]
async fn directory_with_a_lower_start_count_is_refused() {
    let mut cluster = Cluster::start_with(3, often).await;
    let id = cluster.follower().await;
    cluster.stop(id).await;
    fs::remove_file(data_dir(&cluster, id).join("witness")).unwrap();
    assert_refused_permanently(&mut cluster, id).await;
    cluster.stop_all().await;
}

/// Nodes that were stopped for long, nodes that started many times without a peer, and whole clusters that restart.
#[tokio::test]
async fn unchanged_directories_are_never_refused() {
    let mut cluster = Cluster::start_with(3, |config| {
        often(config);
        crate::cluster::small_snapshots(config);
    })
    .await;
    let away = cluster.follower().await;
    for round in 0..3 {
        cluster.stop(away).await;
        let here = cluster.leader().await;
        for n in 0..40 {
            put(cluster.node(here), &format!("/{round}-{n}"), "x").await;
        }
        cluster.restart(away).await.unwrap();
        cluster.wait_ready().await;
        cluster.stop_all().await;
        // One node starts often without a peer: more often than its record has room for.
        for _ in 0..if round == 0 { 34 } else { 2 } {
            cluster.restart(away).await.unwrap();
            cluster.stop(away).await;
        }
        for id in 1..=3 {
            cluster.restart(id).await.unwrap();
        }
        cluster.wait_ready().await;
        put(cluster.node(away), &format!("/{round}"), "x").await;
    }
    cluster.stop_all().await;
}
