//! Watches at one node for changes that are made at others.

use lock_node::znode_store::{Command, CreateMode, Identities, Request};
use lock_node::{WatchKind, WatchLists, WatchesLost};

use crate::cluster::{Cluster, TIMEOUT, create, eventually, path, put, small_snapshots};

#[tokio::test]
async fn watch_fires_for_changes_at_another_node() {
    let mut cluster = Cluster::start(3).await;
    let (there, here) = (cluster.leader().await, cluster.follower().await);
    let session = cluster
        .node(there)
        .open_session(None, "", "", None)
        .await
        .unwrap()
        .session;
    let client = cluster.node(here).connect_watcher(Identities::none());
    let since = {
        let read = client.read();
        read.arm(WatchKind::Data, &path("/service")).unwrap();
        read.arm(WatchKind::Children, &path("/")).unwrap();
        read.store().zxid()
    };
    let created = cluster
        .node(there)
        .propose(Request {
            session: Some(session),
            ..Request::anonymous(create("/service", "x", CreateMode::Ephemeral))
        })
        .await
        .unwrap();
    let mut told = Vec::new();
    for _ in 0..2 {
        let next = tokio::time::timeout(TIMEOUT, client.next()).await.unwrap();
        told.push(next.unwrap().to_string());
    }
    let zxid = created.zxid;
    let expected = [
        format!("created /service at {zxid}"),
        format!("children of / changed at {zxid}"),
    ];
    assert_eq!(told, expected);

    // The client reconnects to another node, which reports the sessions that ended in the meantime.
    drop(client);
    let close = Request::anonymous(Command::CloseSession { session });
    cluster.node(here).propose(close).await.unwrap().outcome.unwrap();
    cluster.node(there).read_barrier().await.unwrap();
    let client = cluster.node(there).connect_watcher(Identities::none());
    let lists = WatchLists {
        data: vec![path("/service")],
        children: vec![path("/zookeeper")],
        ..WatchLists::default()
    };
    client.read().rearm(since, &lists).unwrap();
    let told = client.try_next().unwrap().unwrap();
    assert_eq!(told.path, path("/service"));
    assert_eq!(client.try_next(), Ok(None));
    assert_eq!(cluster.node(there).watch_counts().watches, 1);
    cluster.stop_all().await;
    assert_eq!(client.try_next(), Err(WatchesLost::NodeStops));
}

#[tokio::test]
async fn client_of_a_node_that_installs_a_snapshot_misses_nothing() {
    let mut cluster = Cluster::start_with(3, small_snapshots).await;
    let away = cluster.follower().await;
    cluster.stop(away).await;
    let here = *cluster.nodes.keys().next().unwrap();
    for n in 0..200 {
        put(cluster.node(here), &format!("/n{n}"), "x").await;
    }
    let node = cluster.node(here).clone();
    eventually("a snapshot is made", || node.status().snapshot_index > 150).await;
    cluster.restart(away).await.unwrap();
    let client = cluster.node(away).connect_watcher(Identities::none());
    for n in [3, 150] {
        let path = path(&format!("/n{n}"));
        let read = client.read();
        if read.store().stat(&path).is_none() {
            read.arm(WatchKind::Data, &path).unwrap();
            drop(read);
            let told = tokio::time::timeout(TIMEOUT, client.next()).await.unwrap();
            assert_eq!(told.unwrap().path, path);
        }
    }
    cluster.stop_all().await;
}
