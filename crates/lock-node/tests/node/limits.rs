//! Limits: the leader's configuration holds for the whole cluster.

use std::collections::BTreeMap;

use lock_node::znode_store::{CreateMode, Limited, Limits, MAX_DATA_BYTES, Refusal, Reply};
use lock_node::{MemberAddress, Node, NodeConfig, StartError};

use crate::cluster::{Cluster, create, eventually, path, put, request};

fn children(count: u32) -> Limits {
    Limits {
        children: count,
        ..Limits::default()
    }
}

fn limits_of(node: &Node) -> Limits {
    node.read(|store| store.limits())
}

#[tokio::test]
async fn configured_limits_hold_and_change_with_the_configuration() {
    let mut cluster = Cluster::start_with(3, |config| config.limits = children(2)).await;
    for node in cluster.nodes.values() {
        eventually("the limits hold", || limits_of(node) == children(2)).await;
    }
    put(cluster.node(1), "/p", "").await;
    for name in ["/p/a", "/p/b"] {
        assert!(put(cluster.node(1), name, "").await.outcome.is_ok());
    }
    let refused = put(cluster.node(2), "/p/c", "").await.outcome;
    let what = Limited::Children(path("/p"));
    assert_eq!(refused, Err(Refusal::LimitReached { what, limit: 2 }));

    cluster.stop_all().await;
    for id in 1..=3 {
        cluster.configs.get_mut(&id).unwrap().limits = children(3);
        cluster.restart(id).await.unwrap();
    }
    cluster.wait_ready().await;
    let node = cluster.node(3);
    eventually("the new limits hold", || limits_of(node) == children(3)).await;
    assert!(put(node, "/p/c", "").await.outcome.is_ok());
    cluster.stop_all().await;
}

#[tokio::test]
async fn limits_are_those_of_the_leader() {
    let own = |config: &mut NodeConfig| config.limits = children(100 + config.raft.node_id as u32);
    let mut cluster = Cluster::start_with(3, own).await;
    let first = cluster.leader().await;
    let node = cluster.node(cluster.follower().await).clone();
    let expected = |leader: u64| children(100 + leader as u32);
    eventually("the leader's limits hold", || limits_of(&node) == expected(first)).await;
    cluster.stop(first).await;
    let second = cluster.leader().await;
    assert_ne!(second, first);
    eventually("the next leader's limits hold", || {
        limits_of(&node) == expected(second)
    })
    .await;
    cluster.stop_all().await;
}

#[tokio::test]
async fn unchanged_limits_are_not_proposed() {
    let mut cluster = Cluster::start(1).await;
    let node = cluster.node(1).clone();
    // The positions are consecutive, so no other command was applied.
    let first = node
        .propose(request(create("/a", "", CreateMode::Persistent)))
        .await
        .unwrap();
    let Ok(Reply::Created { stat, .. }) = first.outcome else {
        panic!("{first:?}");
    };
    assert_eq!(stat.czxid.0, 1);
    cluster.stop_all().await;
}

#[test]
fn nonsensical_limits_are_rejected() {
    let address = MemberAddress {
        peer: "127.0.0.1:7500".into(),
        http: "127.0.0.1:7400".into(),
    };
    let mut config = NodeConfig::new(1, "test", BTreeMap::from([(1, address)]), "data");
    assert!(config.validate().is_ok());
    let sense = Limits::default();
    for limits in [
        Limits {
            data_bytes: 0,
            ..sense
        },
        Limits {
            data_bytes: MAX_DATA_BYTES as u32 + 1,
            ..sense
        },
        children(0),
        Limits {
            ephemerals: 0,
            ..sense
        },
        Limits { sessions: 0, ..sense },
    ] {
        config.limits = limits;
        let refused = matches!(config.validate(), Err(StartError::Config(_)));
        assert!(refused, "{limits}");
    }
}
