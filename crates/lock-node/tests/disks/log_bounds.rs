//! Disk usage stays within the limits however long a cluster writes, also while a member is stopped. The member
//! catches up by snapshot after its restart.

use std::path::Path;

use lock_node::znode_store::{CreateMode, MAX_DATA_BYTES, Op};
use lock_node::{NodeConfig, SnapshotConfig};

use crate::cluster::{Cluster, create, eventually, path, put, request};

const EVERY_BYTES: u64 = 128 * 1024;
const KEEP_BYTES: u64 = 32 * 1024;
const SEGMENT_BYTES: u64 = 64 * 1024;
const DATA_BYTES: usize = 2000;
const WRITERS: usize = 8;
/// Writes of one round: 16 MB together, four times the bound. There are two rounds.
const WRITES: usize = 1000;

/// Maximum size of what is written before old entries are purged: between two checks, while a snapshot is written, and, after a follower's end,
/// until the next attempt to reach it has failed. Together about a second of writes.
const WRITTEN_MEANWHILE: u64 = 3 * 1024 * 1024;

/// Bound of a node's log: four times the size between two snapshots for a lagging follower; what is written meanwhile; the
/// active segment, the preallocated ones, and one that is only partly needed.
const LOG_BOUND: u64 = 4 * EVERY_BYTES + KEEP_BYTES + WRITTEN_MEANWHILE + 4 * SEGMENT_BYTES;

fn small(config: &mut NodeConfig) {
    config.raft.log.segment_bytes = SEGMENT_BYTES as usize;
    config.raft.snapshots = SnapshotConfig {
        every_bytes: EVERY_BYTES,
        keep_bytes: KEEP_BYTES,
        ..SnapshotConfig::default()
    };
}

fn bytes_below(dir: &Path) -> u64 {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        // A file may be deleted meanwhile.
        let Ok(entry) = entry else { continue };
        let Ok(metadata) = entry.metadata() else { continue };
        bytes += match metadata.is_dir() {
            true => bytes_below(&entry.path()),
            false => metadata.len(),
        };
    }
    bytes
}

/// Writes the same few znodes repeatedly, and checks the disk usage.
async fn write_a_lot(cluster: &Cluster) -> u64 {
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let node = cluster
            .nodes
            .values()
            .nth(writer % cluster.nodes.len())
            .unwrap()
            .clone();
        writers.spawn(async move {
            for _ in 0..WRITES {
                let set = Op::Set {
                    path: path(&format!("/n{writer}")),
                    data: vec![b'x'; DATA_BYTES].into(),
                    version: -1,
                };
                let set = lock_node::znode_store::Command::Write(set);
                assert!(node.propose(request(set)).await.unwrap().outcome.is_ok());
            }
        });
    }
    let mut most = 0;
    while !writers.is_empty() {
        tokio::select! {
            ended = writers.join_next() => { ended.unwrap().unwrap(); }
            () = tokio::time::sleep(std::time::Duration::from_millis(20)) => {}
        }
        for id in cluster.nodes.keys() {
            let dir = cluster.dir.path().join(format!("node-{id}"));
            let log = bytes_below(&dir.join("log"));
            assert!(
                log <= LOG_BOUND,
                "the log of node {id} has {log} of {LOG_BOUND} bytes: {:?}",
                cluster.node(*id).status()
            );
            // Two snapshots, and the one in progress; a state of 16 KB each, and some bytes for sessions and frames.
            let snapshots = bytes_below(&dir.join("snapshots"));
            assert!(
                snapshots <= 3 * 64 * 1024,
                "the snapshots of node {id} have {snapshots} bytes"
            );
            most = most.max(log + snapshots);
        }
    }
    most
}

#[tokio::test]
async fn disk_usage_stays_within_the_limits_under_continuous_writes() {
    let mut cluster = Cluster::start_with(3, small).await;
    for writer in 0..WRITERS {
        put(cluster.node(1), &format!("/n{writer}"), "").await;
    }
    let all = write_a_lot(&cluster).await;
    // A stopped member does not make the other logs grow.
    let away = cluster.follower().await;
    cluster.stop(away).await;
    let without = write_a_lot(&cluster).await;
    println!("most on a disk: {all} bytes, with a member away {without} bytes");
    let here = cluster.leader().await;
    let status = cluster.node(here).status();
    assert!(
        status.snapshot_bytes > 0 && status.snapshot_age_ms.is_some() && status.snapshot_failure.is_none()
    );
    assert!(
        status.log_bytes <= LOG_BOUND && status.log_first_index > 1,
        "{status:?}"
    );

    cluster.restart(away).await.unwrap();
    cluster.wait_ready().await;
    cluster.node(away).read_barrier().await.unwrap();
    assert!(cluster.node(away).status().snapshot_index > 0);
    let digest = |id| cluster.node(id).read(|store| (store.zxid(), store.digest()));
    assert_eq!(digest(away), digest(here));
    cluster.stop_all().await;
}

#[tokio::test]
async fn snapshot_is_made_on_request() {
    let mut cluster = Cluster::start_with(1, |config| config.raft.snapshots.keep_bytes = 0).await;
    let node = cluster.node(1).clone();
    for n in 0..20 {
        let applied = node.propose(request(create(
            &format!("/n{n}"),
            &"x".repeat(MAX_DATA_BYTES / 4),
            CreateMode::Persistent,
        )));
        assert!(applied.await.unwrap().outcome.is_ok());
    }
    let before = node.status();
    // Concurrent requests get the same snapshot.
    let (first, second) = tokio::join!(node.make_snapshot(), node.make_snapshot());
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!((first.index, first.bytes), (second.index, second.bytes));
    assert!(first.bytes > 20 * MAX_DATA_BYTES as u64 / 4);
    let status = node.status();
    assert_eq!(
        (status.snapshot_index, status.snapshot_bytes),
        (first.index, first.bytes)
    );
    assert!(first.index >= before.applied_index);
    // Nothing was applied since: the same snapshot, at once.
    assert_eq!(node.make_snapshot().await.unwrap().index, first.index);
    eventually("the log is shortened", || {
        node.status().log_first_index > before.log_first_index
    })
    .await;
    cluster.stop_all().await;
    assert!(
        node.make_snapshot().await.is_err(),
        "a stopped node returns an error"
    );
}
