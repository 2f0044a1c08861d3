//! Consistency when nodes stop, and the behaviour of a node without a quorum.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_node::znode_store::{CreateMode, Reply, Store};
use lock_node::{HeartbeatError, ProposeError, StartError};

use crate::cluster::{Cluster, TIMEOUT, create, eventually, path, put, request};

#[tokio::test]
async fn leadership_moves_when_the_leader_stops_and_writes_continue() {
    let mut cluster = Cluster::start(3).await;
    put(cluster.node(1), "/before", "x").await;
    let leader = cluster.leader().await;
    let survivor = cluster.follower().await;

    // Calls are submitted continuously, whether earlier ones are answered or not, so that some are in flight at every moment of the
    // failover: none may fail, and none may be applied twice.
    let done = Arc::new(AtomicBool::new(false));
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let (node, done) = (cluster.node(survivor).clone(), done.clone());
        writers.spawn(async move {
            let mut calls = tokio::task::JoinSet::new();
            while !done.load(Ordering::Relaxed) {
                let node = node.clone();
                calls.spawn(async move {
                    let command = create(&format!("/w{writer}-"), "x", CreateMode::PersistentSequential);
                    match node.propose(request(command)).await.unwrap().outcome {
                        Ok(Reply::Created { path, .. }) => path,
                        other => panic!("{other:?}"),
                    }
                });
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            calls.join_all().await
        });
    }
    let node = cluster.node(survivor).clone();
    let written = || node.read(|store| store.node_count());
    let before = written();
    eventually("the writers write", || written() > before + 50).await;
    cluster.stop(leader).await;
    assert_ne!(cluster.leader().await, leader);
    let after = written();
    eventually("the writers go on", || written() > after + 50).await;
    done.store(true, Ordering::Relaxed);

    let paths: Vec<_> = writers.join_all().await.into_iter().flatten().collect();
    let distinct: std::collections::BTreeSet<_> = paths.iter().cloned().collect();
    assert_eq!(distinct.len(), paths.len(), "each sequence number was given once");
    let node = cluster.node(survivor);
    node.read_barrier().await.unwrap();
    let there = node.read(|store| {
        let names = store.children(&lock_node::znode_store::ZPath::root()).unwrap();
        names.iter().filter(|name| name.starts_with('w')).count()
    });
    assert_eq!(
        there,
        paths.len(),
        "each acknowledged call was applied exactly once"
    );
    cluster.stop_all().await;
}

#[tokio::test]
async fn state_survives_a_restart_of_all_nodes() {
    let mut cluster = Cluster::start(3).await;
    for n in 0..20 {
        put(cluster.node(1 + n % 3), &format!("/n{n}"), "x").await;
    }
    let zxid = cluster.node(1).read(|store| store.zxid());
    cluster.stop_all().await;
    for id in 1..=3 {
        cluster.restart(id).await.unwrap();
    }
    cluster.wait_ready().await;
    for node in cluster.nodes.values() {
        node.read_barrier().await.unwrap();
        let count = node.read(|store| store.node_count());
        assert_eq!(count, Store::new().node_count() + 20);
        assert!(node.read(|store| store.zxid()) >= zxid);
    }
    cluster.stop_all().await;
}

#[tokio::test]
async fn requests_without_a_quorum_are_unavailable() {
    let mut cluster =
        Cluster::start_with(3, |config| config.raft.propose_timeout = Duration::from_secs(2)).await;
    let session = cluster
        .node(1)
        .open_session(None, "", "", None)
        .await
        .unwrap()
        .session;
    let alone = cluster.follower().await;
    let others: Vec<u64> = cluster.nodes.keys().copied().filter(|id| *id != alone).collect();
    for id in others {
        cluster.stop(id).await;
    }
    let node = cluster.node(alone);
    eventually("the node notices that it is alone", || node.not_ready().is_some()).await;
    let command = request(create("/a", "x", CreateMode::Persistent));
    match node.propose(command).await {
        Err(ProposeError::Unavailable(_) | ProposeError::OutcomeUnknown(_)) => {}
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        node.heartbeat(session).await,
        Err(HeartbeatError::Unavailable(_))
    ));
    assert!(node.read_barrier().await.is_err());
    assert!(node.read(|store| store.get(&path("/a")).is_none()));
    cluster.stop_all().await;
}

#[tokio::test]
async fn node_with_a_lost_directory_is_rejected() {
    let mut cluster = Cluster::start(3).await;
    put(cluster.node(1), "/a", "x").await;
    // The first node, too: it would draw another cluster id.
    for id in [3, 1] {
        cluster.stop(id).await;
        let lost = cluster.configs[&id].raft.data_dir.clone();
        let kept = lost.with_extension("kept");
        std::fs::rename(&lost, &kept).unwrap();
        cluster.restart(id).await.unwrap();
        let failure = tokio::time::timeout(TIMEOUT, cluster.node(id).failed())
            .await
            .unwrap();
        assert!(failure.contains("data directory"), "{failure}");
        cluster.stop(id).await;

        std::fs::remove_dir_all(&lost).unwrap();
        std::fs::rename(&kept, &lost).unwrap();
        cluster.restart(id).await.unwrap();
        cluster.wait_ready().await;
    }
    put(cluster.node(3), "/b", "x").await;
    cluster.stop_all().await;
}

#[tokio::test]
async fn directory_of_another_node_is_rejected() {
    let mut cluster = Cluster::start(3).await;
    cluster.stop(3).await;
    cluster.stop(2).await;
    let dirs: BTreeMap<u64, _> = cluster
        .configs
        .iter()
        .map(|(id, config)| (*id, config.raft.data_dir.clone()))
        .collect();
    cluster.configs.get_mut(&3).unwrap().raft.data_dir = dirs[&2].clone();
    match cluster.restart(3).await {
        Err(StartError::Identity(text)) => assert!(text.contains("belongs to node 2"), "{text}"),
        other => panic!("{:?}", other.err()),
    }
    cluster.stop_all().await;
}

/// A restarted node does not know its former commit index, and must not serve an older state all the same.
#[tokio::test]
async fn restarted_node_serves_no_older_state_than_before() {
    let mut cluster = Cluster::start(3).await;
    let written = put(cluster.node(1), "/a", "x").await;
    let node = cluster.node(1);
    assert_eq!(node.caught_up_with(written.zxid).await, Ok(true));
    let future = lock_node::znode_store::Zxid(written.zxid.0 + 1_000);
    assert_eq!(
        node.caught_up_with(future).await,
        Ok(false),
        "no node has reached that position"
    );
    cluster.stop_all().await;

    cluster.restart(1).await.unwrap();
    let alone = cluster.node(1).clone();
    assert!(
        alone.caught_up_once().await.is_err(),
        "without a leader it does not know the commit index"
    );
    for id in [2, 3] {
        cluster.restart(id).await.unwrap();
    }
    let sees = || alone.read(|store| store.get(&path("/a")).is_some());
    // While it knows no leader, the node answers at once.
    let caught_up = async {
        while alone.caught_up_once().await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, caught_up)
        .await
        .expect("they elect a leader");
    assert!(sees());
    // From now on it serves its state, also alone.
    for id in [2, 3] {
        cluster.stop(id).await;
    }
    assert_eq!(alone.caught_up_once().await, Ok(()));
    cluster.stop_all().await;
}
