//! For each bug a short program that behaves otherwise if it is there.

use std::pin::Pin;
use std::time::Duration;

use raft_node::znode_store::planted::Bug;
use raft_node::znode_store::{Acl, Command, CreateMode, Identities, Op, Reply, Request};
use raft_node::{NodeConfig, ProposeError, WatchKind};

use crate::cluster::{Cluster, create, eventually, path, put, request};
use crate::crash::crash_everywhere;

/// Says whether the bug is there.
type Check = fn() -> Pin<Box<dyn Future<Output = bool>>>;

/// All that a node without network faults can show.
pub const ALL: [(Bug, Check); 9] = [
    (Bug::UnsyncedLog, || Box::pin(async { crash_suite_fails() })),
    (Bug::UnsyncedVote, || Box::pin(async { crash_suite_fails() })),
    (Bug::UnsyncedName, || Box::pin(async { crash_suite_fails() })),
    (Bug::StaleRead, || Box::pin(reads_alone())),
    (Bug::UnprovenLeader, || Box::pin(confirms_alone())),
    (Bug::LostWatches, || Box::pin(forgets_watches())),
    (Bug::OwnClock, || Box::pin(differs_in_times())),
    (Bug::CountedAbsent, || Box::pin(commits_alone())),
    (Bug::AccessAtTheDoor, || Box::pin(lets_in_late())),
];

/// So many programs may be needed.
const PROGRAMS: u64 = 5;

fn crash_suite_fails() -> bool {
    (1..=PROGRAMS).any(|seed| crash_everywhere(seed, None).is_err())
}

/// Nobody waits long for what cannot come.
fn impatient(config: &mut NodeConfig) {
    config.propose_timeout = Duration::from_secs(3);
}

/// A cluster whose leader has lost all others.
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
    client.look().arm(WatchKind::Data, &path("/a")).unwrap();
    cluster.stop(leader).await;
    cluster.leader().await;
    put(cluster.node(here), "/a", "x").await;
    // The notice is there before the answer.
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

/// The right to write is taken away, and the next request, which is on its way already, writes.
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
