//! Members without a vote, as ZooKeeper's observers: they serve reads, watches and sessions.

use lock_node::znode_store::{Command, Identities, Op};
use lock_node::znode_watch::WatchKind;
use lock_node::{Node, Role};

use crate::cluster::{Cluster, TIMEOUT, eventually, path, put, request};

const OBSERVERS: [u64; 2] = [4, 5];

async fn set(node: &Node, data: &str) {
    let op = Op::Set {
        path: path("/config"),
        data: data.into(),
        version: -1,
    };
    node.propose(request(Command::Write(op)))
        .await
        .unwrap()
        .outcome
        .unwrap();
}

fn data(node: &Node) -> String {
    let (data, _) = node.read(|store| store.get(&path("/config"))).unwrap();
    String::from_utf8(data.as_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn observers_serve_during_a_failover_and_have_no_vote() {
    let mut cluster = Cluster::start(3).await;
    put(cluster.node(1), "/config", "first").await;
    for id in OBSERVERS {
        cluster.join(1, id).await;
    }
    assert_eq!(cluster.voters(4), [1, 2, 3]);
    let session = cluster
        .node(4)
        .open_session(None, "reader", "", None)
        .await
        .unwrap()
        .session;
    let mut watchers = Vec::new();
    for id in OBSERVERS {
        let (_, watcher) = cluster
            .node(id)
            .read_and_watch(&path("/config"), WatchKind::Data, Identities::none(), |_| ())
            .unwrap();
        watchers.push(watcher);
    }

    // The leader stops. The observers continue to serve, and a client reads its own write at its observer.
    let leader = cluster.leader().await;
    assert!(!OBSERVERS.contains(&leader));
    cluster.stop(leader).await;
    set(cluster.node(4), "second").await;
    assert_eq!(data(cluster.node(4)), "second");
    for watcher in watchers {
        let notice = tokio::time::timeout(TIMEOUT, watcher.fired()).await.unwrap();
        assert!(notice.is_some(), "the watch at an observer has fired");
    }
    cluster.node(4).heartbeat(session).await.unwrap();
    cluster.node(5).read_barrier().await.unwrap();
    assert_eq!(data(cluster.node(5)), "second");
    assert!(cluster.node(5).read(|store| store.session(session).is_some()));

    // One voter of three and two observers are three of five members, and no quorum.
    let second = cluster.leader().await;
    assert!(!OBSERVERS.contains(&second));
    cluster.stop(second).await;
    for id in OBSERVERS {
        let node = cluster.node(id);
        eventually("nobody leads", || node.not_ready().is_some()).await;
        assert_eq!(node.status().role, Role::Learner);
        assert_eq!(data(node), "second", "local reads are still served");
    }
    cluster.restart(second).await.unwrap();
    cluster.wait_ready().await;
    set(cluster.node(5), "third").await;

    // They are still no voters.
    assert_eq!(cluster.voters(5), [1, 2, 3]);
    assert!(!OBSERVERS.contains(&cluster.leader().await));
    cluster.stop_all().await;
}
