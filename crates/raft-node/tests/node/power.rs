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
/// and the paths of all that was acknowledged. With a `lie` the disks tell it once the cluster is formed, and lose
/// all that they may.
async fn run_and_cut(
    disks: BTreeMap<u64, SimDisk>,
    seed: u64,
    lie: Option<Lie>,
) -> (BTreeMap<u64, SimDisk>, BTreeSet<ZPath>) {
    let mut cluster = Cluster::start_on(disks).await;
    for disk in cluster.disks.values() {
        lie.into_iter().for_each(|lie| disk.tell_lies(lie));
    }
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
        // Another mixture of what was not synced for each disk; 0 keeps nothing of it.
        let mixture = if lie.is_some() { 0 } else { seed * 3 + id - 1 };
        (*id, model.crash(mixture))
    });
    let left = left.collect();
    cut.store(true, Ordering::Relaxed);
    writers.join_all().await;
    cluster.stop_all().await;
    (left, promised)
}

/// What of `promised` the cluster does not have.
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
        let (left, more) = run_and_cut(disks, seed, None).await;
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
    let (left, promised) = run_and_cut(disks(), 0, Some(Lie::SyncData)).await;
    // The cluster comes back, as it was before its disks began to lie.
    let mut cluster = Cluster::start_on(left).await;
    let gone = missing(&cluster, &promised).await;
    assert!(
        gone.len() >= WRITES,
        "only {} of {} acknowledged writes are gone",
        gone.len(),
        promised.len()
    );
    cluster.stop_all().await;
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
