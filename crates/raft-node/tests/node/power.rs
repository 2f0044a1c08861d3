//! Whole clusters on disks that lose power or fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use raft_node::storage::sim_disk::{Fault, Lie, SimDisk};
use raft_node::znode_store::{CreateMode, Reply, ZPath};

use crate::cluster::{Cluster, PATIENCE, create, eventually, put, request};

/// How often the power is cut; each time under load, and the next cluster runs on what was left.
const CUTS: u64 = 5;

/// How many writes are acknowledged before the power is cut.
const WRITES: usize = 40;

fn disks() -> BTreeMap<u64, SimDisk> {
    (1..=3).map(|id| (id, SimDisk::new())).collect()
}

/// Runs a cluster under load, cuts the power of all nodes at once, and gives what their disks may hold then,
/// and the paths of all that was acknowledged.
async fn run_and_cut(disks: BTreeMap<u64, SimDisk>, seed: u64) -> (BTreeMap<u64, SimDisk>, BTreeSet<ZPath>) {
    let mut cluster = Cluster::start_on(disks).await;
    let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
    let cut = Arc::new(AtomicBool::new(false));
    let mut writers = tokio::task::JoinSet::new();
    for (id, node) in &cluster.nodes {
        let (node, acknowledged, cut) = (node.clone(), acknowledged.clone(), cut.clone());
        let name = format!("/life-{seed}-node-{id}-");
        writers.spawn(async move {
            while !cut.load(Ordering::Relaxed) {
                let command = create(&name, "x", CreateMode::PersistentSequential);
                match node.propose(request(command)).await.unwrap().outcome {
                    Ok(Reply::Created { path, .. }) => acknowledged.lock().insert(path),
                    other => panic!("{other:?}"),
                };
            }
        });
    }
    eventually("the cluster writes", || acknowledged.lock().len() >= WRITES).await;
    // All in one moment: nothing here waits, and the nodes talk to each other on this thread only.
    let promised = acknowledged.lock().clone();
    let moments: BTreeMap<u64, usize> = cluster
        .disks
        .iter()
        .map(|(id, disk)| (*id, disk.events()))
        .collect();
    let left = cluster.disks.iter().map(|(id, disk)| {
        let mut model = disk.crash_model();
        disk.advance(&mut model, moments[id]);
        // Another mixture of what was not synced for each disk.
        (*id, model.crash(seed * 3 + id - 1))
    });
    let left = left.collect();
    cut.store(true, Ordering::Relaxed);
    writers.join_all().await;
    cluster.stop_all().await;
    (left, promised)
}

/// What of `promised` a cluster on these disks does not have, or why it does not start.
async fn missing(cluster: &Cluster, promised: &BTreeSet<ZPath>) -> Vec<ZPath> {
    let node = cluster.node(1);
    node.read_barrier().await.unwrap();
    node.read(|store| {
        let gone = promised.iter().filter(|path| store.get(path).is_none());
        gone.cloned().collect()
    })
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_power_cut_of_all_nodes_at_once() {
    let mut disks = disks();
    let mut promised = BTreeSet::new();
    for seed in 0..CUTS {
        let (left, more) = run_and_cut(disks, seed).await;
        promised.extend(more);
        let mut cluster = Cluster::start_on(left.clone()).await;
        assert_eq!(
            missing(&cluster, &promised).await,
            Vec::<ZPath>::new(),
            "after cut {seed}"
        );
        cluster.stop_all().await;
        disks = left;
    }
}

#[tokio::test]
async fn the_test_above_notices_disks_that_do_not_sync() {
    let disks = disks();
    disks.values().for_each(|disk| disk.tell_lies(Lie::SyncData));
    // Seed 0 loses on the first disk whatever may be lost, and much on the others.
    let (left, promised) = run_and_cut(disks, 0).await;
    // The nodes come back as new ones, or with an older state, or refuse to start.
    let started = tokio::spawn(async move {
        let mut cluster = Cluster::start_on(left).await;
        let gone = missing(&cluster, &promised).await;
        cluster.stop_all().await;
        gone
    });
    let survived = match tokio::time::timeout(PATIENCE / 6, started).await {
        Ok(Ok(gone)) => gone.is_empty(),
        Ok(Err(_)) | Err(_) => false,
    };
    assert!(!survived, "disks that never synced kept everything");
}

#[tokio::test]
async fn a_node_whose_disk_fails_stops_and_the_others_go_on() {
    let mut cluster = Cluster::start_on(disks()).await;
    put(cluster.node(1), "/before", "x").await;
    let broken = cluster.leader().await;
    let disk = &cluster.disks[&broken];
    disk.fail_calls_from(disk.calls(), Fault::InputOutput);
    let survivor = *cluster.nodes.keys().find(|id| **id != broken).unwrap();
    assert!(put(cluster.node(survivor), "/after", "x").await.outcome.is_ok());
    let failure = tokio::time::timeout(PATIENCE, cluster.node(broken).failed())
        .await
        .unwrap();
    assert!(failure.contains("simulated input/output error"), "{failure}");
    assert!(cluster.node(broken).not_ready().is_some());
    cluster.stop_all().await;
}
