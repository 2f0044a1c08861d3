//! Checks for planted bugs: for each bug, a short program that behaves differently if the bug is planted.

use std::pin::Pin;
use std::time::Duration;

use lock_node::znode_store::planted::{self, Bug};
use lock_node::znode_store::{Acl, Command, CreateMode, Identities, Op, Reply, Request};
use lock_node::{NodeConfig, ProposeError, WatchKind};

use crate::cluster::{Cluster, create, eventually, path, put, request};
use crate::rolled_back::copy;

/// Returns whether the bug is planted.
type Check = fn() -> Pin<Box<dyn Future<Output = bool>>>;

/// Checks that need no network faults.
pub const ALL: [(Bug, Check); 9] = [
    (Bug::StaleRead, || Box::pin(reads_alone())),
    (Bug::UnprovenLeader, || Box::pin(confirms_alone())),
    (Bug::LostWatches, || Box::pin(forgets_watches())),
    (Bug::OwnClock, || Box::pin(differs_in_times())),
    (Bug::CountedAbsent, || Box::pin(commits_alone())),
    (Bug::AccessAtTheDoor, || Box::pin(lets_in_late())),
    (Bug::TrustedReturn, || Box::pin(believes_an_old_image())),
    (Bug::CountedStarts, || {
        Box::pin(believes_an_image_of_a_directory_in_use())
    }),
    (Bug::UncomparedState, || Box::pin(serves_a_state_that_differs())),
];

/// Timeout of an event that must not come.
fn impatient(config: &mut NodeConfig) {
    config.raft.propose_timeout = Duration::from_secs(3);
}

/// Starts a cluster whose leader has lost all other nodes.
async fn leader_alone() -> Cluster {
    let mut cluster = Cluster::start_with(3, impatient).await;
    let leader = cluster.leader().await;
    let others: Vec<_> = cluster.nodes.keys().copied().filter(|id| *id != leader).collect();
    for id in others {
        cluster.stop(id).await;
    }
    cluster
}

async fn reads_alone() -> bool {
    let mut cluster = leader_alone().await;
    let node = cluster.nodes.values().next().unwrap().clone();
    let read = node.read_barrier().await.is_ok();
    cluster.stop_all().await;
    read
}

async fn confirms_alone() -> bool {
    let mut cluster = Cluster::start_with(3, impatient).await;
    let leader = cluster.leader().await;
    let session = cluster
        .node(leader)
        .open_session(None, "", "", None)
        .await
        .unwrap()
        .session;
    let others: Vec<_> = cluster.nodes.keys().copied().filter(|id| *id != leader).collect();
    for id in others {
        cluster.stop(id).await;
    }
    let confirmed = cluster.node(leader).heartbeat(session).await.is_ok();
    cluster.stop_all().await;
    confirmed
}

async fn forgets_watches() -> bool {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let here = cluster.follower().await;
    let client = cluster.node(here).connect_watcher(Identities::none());
    client.read().arm(WatchKind::Data, &path("/a")).unwrap();
    cluster.stop(leader).await;
    cluster.leader().await;
    put(cluster.node(here), "/a", "x").await;
    // The notice is queued before the answer.
    let told = client.try_next().unwrap().is_some();
    cluster.stop_all().await;
    !told
}

async fn differs_in_times() -> bool {
    let mut cluster = Cluster::start(3).await;
    for number in 0..200 {
        put(cluster.node(1), &format!("/n{number}"), "x").await;
    }
    let mut digests = Vec::new();
    for node in cluster.nodes.values() {
        node.read_barrier().await.unwrap();
        digests.push(node.read(|store| store.digest()));
    }
    cluster.stop_all().await;
    digests.iter().any(|digest| *digest != digests[0])
}

async fn commits_alone() -> bool {
    let mut cluster = leader_alone().await;
    let node = cluster.nodes.values().next().unwrap().clone();
    let proposed = node
        .propose(request(create("/a", "x", CreateMode::Persistent)))
        .await;
    let committed = match proposed {
        Ok(applied) => applied.outcome.is_ok(),
        Err(ProposeError::OutcomeUnknown(_) | ProposeError::Unavailable(_)) => false,
    };
    cluster.stop_all().await;
    committed
}

/// Revokes the right to write while a write is under way; with the bug, the write succeeds.
async fn lets_in_late() -> bool {
    let mut cluster = Cluster::start(1).await;
    let node = cluster.node(1).clone();
    put(&node, "/a", "x").await;
    let set_acl = Op::SetAcl {
        path: path("/a"),
        acl: Acl::read_only(),
        aversion: -1,
    };
    let set = Op::Set {
        path: path("/a"),
        data: "y".into(),
        version: -1,
    };
    let revoked = node.submit(request(Command::Write(set_acl))).unwrap();
    let written = node.submit(request(Command::Write(set))).unwrap();
    assert!(matches!(revoked.await.unwrap().outcome, Ok(Reply::AclSet(_))));
    let written = written.await.unwrap().outcome.is_ok();
    cluster.stop_all().await;
    written
}

/// Restarts a node on an old image of its directory; with the bug, its peers accept it.
async fn believes_an_old_image() -> bool {
    let mut cluster = Cluster::start(3).await;
    let id = cluster.follower().await;
    cluster.stop(id).await;
    let dir = cluster.configs[&id].raft.data_dir.clone();
    let image = dir.with_extension("image");
    copy(&dir, &image);
    cluster.restart(id).await.unwrap();
    cluster.wait_ready().await;
    put(cluster.node(id), "/a", "x").await;
    cluster.stop(id).await;
    std::fs::remove_dir_all(&dir).unwrap();
    copy(&image, &dir);
    cluster.restart(id).await.unwrap();
    let node = cluster.node(id).clone();
    eventually("it is decided", || {
        node.not_ready().is_none() || node.is_stopping()
    })
    .await;
    let believed = !node.is_stopping();
    cluster.stop_all().await;
    believed
}

/// The same with an image of a directory in use, which only later acknowledgements distinguish.
async fn believes_an_image_of_a_directory_in_use() -> bool {
    let mut cluster = Cluster::start(3).await;
    let id = cluster.follower().await;
    let leader = cluster.leader().await;
    put(cluster.node(id), "/a", "x").await;
    let dir = cluster.configs[&id].raft.data_dir.clone();
    let image = dir.with_extension("image");
    copy(&dir, &image);
    for n in 0..20 {
        put(cluster.node(id), &format!("/n{n}"), "x").await;
    }
    cluster.stop(id).await;
    std::fs::remove_dir_all(&dir).unwrap();
    copy(&image, &dir);
    cluster.restart(id).await.unwrap();
    let (node, leading) = (cluster.node(id).clone(), cluster.node(leader).clone());
    // In builds with assertions, openraft stops a leader whose follower has lost entries.
    eventually("it is decided", || {
        node.not_ready().is_none() || node.is_stopping() || leading.is_stopping()
    })
    .await;
    let believed = !node.is_stopping();
    cluster.stop_all().await;
    believed
}

/// Starts replicas from different snapshots; with the bug, they continue to serve.
async fn serves_a_state_that_differs() -> bool {
    let bug = [Bug::UncomparedState].into_iter().find(|bug| planted::is(*bug));
    let mut cluster = Cluster::start_with(3, |config| {
        config.raft.audit_interval = Duration::from_secs(3_600)
    })
    .await;
    // Each replica applies some commands at a different time.
    planted::plant(Some(Bug::OwnClock));
    for n in 0..50 {
        put(cluster.node(1), &format!("/n{n}"), "x").await;
    }
    for node in cluster.nodes.values() {
        node.read_barrier().await.unwrap();
        node.make_snapshot().await.unwrap();
    }
    cluster.stop_all().await;
    planted::plant(bug);
    for id in 1..=3 {
        cluster.configs.get_mut(&id).unwrap().raft.audit_interval = Duration::from_millis(50);
        cluster.restart(id).await.unwrap();
    }
    let leader = cluster.leader().await;
    let node = cluster.node(leader).clone();
    let found = async {
        while node.serving().is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let serves = tokio::time::timeout(Duration::from_secs(5), found).await.is_err();
    cluster.stop_all().await;
    serves
}
