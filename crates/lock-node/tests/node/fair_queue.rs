//! Callers take turns on the way to the leader.

use std::net::Ipv4Addr;

use futures_util::future::join_all;
use lock_node::znode_store::{CreateMode, Identities, Identity, Request};

use crate::cluster::{Cluster, create, settings_applied};

/// Maximum number of one caller's commands in transit to the leader, beside another caller (`crates/lock-node/src/in_transit.rs`).
const SHARE: u64 = 64;

fn request(caller: [u8; 4], path: &str) -> Request {
    Request {
        caller: Identities::new([Identity::Ip(Ipv4Addr::from(caller).into())]),
        ..Request::anonymous(create(path, "", CreateMode::Persistent))
    }
}

#[tokio::test]
async fn caller_with_many_proposals_delays_another_by_those_in_transit() {
    let mut cluster = Cluster::start(3).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    settings_applied(cluster.node(leader)).await;
    for id in [leader, follower] {
        let node = cluster.node(id);
        let submit = |caller, path: String| node.submit(request(caller, &path)).unwrap();
        let flood: Vec<_> = (0..5_000)
            .map(|number| submit([192, 0, 2, 1], format!("/flood-{id}-{number}")))
            .collect();
        // The flood has all the room of the node until others propose.
        let mut others = Vec::new();
        for attempt in 0..5 {
            let path = format!("/other-{id}-{attempt}");
            let other = submit([192, 0, 2, 2], path).await.unwrap();
            others.push(other.zxid.0);
        }
        let between = others[4] - others[3];
        assert!(
            between <= 2 * SHARE,
            "node {id}: {between} positions between two proposals of the other caller: {others:?}"
        );
        let flood = join_all(flood).await.into_iter();
        let positions: Vec<u64> = flood.map(|applied| applied.unwrap().zxid.0).collect();
        assert!(positions.is_sorted(), "the order of one caller's proposals stays");
    }
    cluster.stop_all().await;
}
