//! Membership changes under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lock_node::znode_store::{CreateMode, Identities, Reply};
use lock_node::znode_watch::WatchKind;
use lock_node::{
    ClusterStatus, MAX_PROMOTE_LAG, MemberAddress, MembershipError, MembershipRefusal, Node, NodeId, Role,
    StartError,
};
use tokio::net::TcpListener;

use crate::cluster::{Cluster, TIMEOUT, create, eventually, path, put, request, small_snapshots};

/// Callers that write continuously and count the answers.
struct Writers {
    done: Arc<AtomicBool>,
    written: Arc<AtomicUsize>,
    tasks: tokio::task::JoinSet<()>,
}

impl Writers {
    fn start(node: &Node, name: &'static str) -> Self {
        let (done, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = tokio::task::JoinSet::new();
        for writer in 0..3 {
            let (node, done, written) = (node.clone(), done.clone(), written.clone());
            tasks.spawn(async move {
                while !done.load(Ordering::Relaxed) {
                    let command = create(
                        &format!("/{name}{writer}-"),
                        "x",
                        CreateMode::PersistentSequential,
                    );
                    let applied = node.propose(request(command)).await.unwrap();
                    assert!(matches!(applied.outcome, Ok(Reply::Created { .. })));
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self { done, written, tasks }
    }

    async fn finish(self) -> usize {
        self.done.store(true, Ordering::Relaxed);
        self.tasks.join_all().await;
        self.written.load(Ordering::Relaxed)
    }
}

/// Promotes the learner as soon as it has caught up.
async fn promote(by: &Node, id: NodeId) {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    loop {
        match by.promote_member(id).await {
            Ok(_) => return,
            Err(MembershipError::Refused(MembershipRefusal::NotCaughtUp { .. })) => {
                assert!(
                    tokio::time::Instant::now() < deadline,
                    "node {id} never catches up"
                );
            }
            Err(other) => panic!("{other}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn refusal<T: std::fmt::Debug>(outcome: Result<T, MembershipError>) -> MembershipRefusal {
    match outcome {
        Err(MembershipError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

/// Waits until a node has learnt that it was removed.
async fn wait_until_removed(node: &Node) {
    let reason = tokio::time::timeout(TIMEOUT, node.failed())
        .await
        .expect("the node learns of its removal");
    assert!(reason.contains("was removed from the cluster"), "{reason}");
    assert!(node.was_removed());
    assert_eq!(node.not_ready(), Some(reason.clone()));
    let refused = node
        .propose(request(create("/late", "x", CreateMode::Persistent)))
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("was removed"), "{refused}");
}

fn retired(status: &ClusterStatus) -> Vec<(u64, u64)> {
    status
        .retired_node_ids
        .iter()
        .map(|range| (range.first, range.last))
        .collect()
}

#[tokio::test]
async fn cluster_grows_to_five_and_shrinks_to_one_under_load() {
    let mut cluster = Cluster::start(1).await;
    put(cluster.node(1), "/first", "x").await;
    let writers = Writers::start(cluster.node(1), "w");
    for id in 2..=5 {
        cluster.join(1, id).await;
        assert_eq!(cluster.node(id).status().role, Role::Learner);
        promote(&cluster.node(id).clone(), id).await;
    }
    assert_eq!(cluster.voters(1), [1, 2, 3, 4, 5]);
    assert!(cluster.node(5).read(|store| store.get(&path("/first")).is_some()));
    let written = writers.written.load(Ordering::Relaxed);
    // In ascending order: the leader is removed first, and node 5 remains.
    for id in 1..=4 {
        if id == 1 {
            // The node of the writers is removed.
            continue;
        }
        let removed = cluster.node(5).remove_member(id, false).await.unwrap();
        assert!(removed.changed);
        wait_until_removed(cluster.node(id)).await;
        cluster.stop(id).await;
    }
    eventually("the writers still write", || {
        writers.written.load(Ordering::Relaxed) > written + 10
    })
    .await;
    let written = writers.finish().await;
    cluster.node(5).remove_member(1, false).await.unwrap();
    wait_until_removed(cluster.node(1)).await;
    cluster.stop(1).await;
    assert_eq!(cluster.leader().await, 5);
    let status = cluster.node(5).status();
    assert_eq!((retired(&status), status.next_node_id), (vec![(1, 4)], 6));
    cluster.node(5).read_barrier().await.unwrap();
    let there = cluster.node(5).read(|store| {
        let names = store.children(&lock_node::znode_store::ZPath::root()).unwrap();
        names.iter().filter(|name| name.starts_with('w')).count()
    });
    assert_eq!(there, written, "each acknowledged write was applied once");
    assert_eq!(
        refusal(cluster.node(5).remove_member(5, true).await),
        MembershipRefusal::LastVoter(5)
    );
    cluster.stop_all().await;
}

#[tokio::test]
async fn learner_catches_up_by_snapshot_and_serves() {
    let mut cluster = Cluster::start_with(3, small_snapshots).await;
    for n in 0..200 {
        put(cluster.node(1), &format!("/n{n}"), "x").await;
    }
    for node in cluster.nodes.values() {
        eventually("a snapshot is made", || node.status().snapshot_index > 150).await;
    }
    cluster.join(2, 4).await;
    let learner = cluster.node(4);
    assert_eq!(learner.status().role, Role::Learner);
    assert!(
        learner.status().snapshot_index > 150,
        "the beginning of the log is purged on all nodes"
    );
    assert_eq!(
        learner.read(|store| store.digest()),
        cluster.node(1).read(|store| store.digest())
    );
    // A learner serves writes, sessions, heartbeats and watches like every node.
    let session = learner.open_session(None, "s", "", None).await.unwrap();
    learner.heartbeat(session.session).await.unwrap();
    let (_, watcher) = learner
        .read_and_watch(&path("/n7"), WatchKind::Data, Identities::none(), |_| ())
        .unwrap();
    put(learner, "/n7/child", "x").await;
    let delete = lock_node::znode_store::Op::Delete {
        path: path("/n7/child"),
        version: -1,
    };
    let command = lock_node::znode_store::Command::Write(delete);
    learner.propose(request(command)).await.unwrap();
    let set = lock_node::znode_store::Op::Set {
        path: path("/n7"),
        data: "y".into(),
        version: -1,
    };
    let command = lock_node::znode_store::Command::Write(set);
    cluster.node(1).propose(request(command)).await.unwrap();
    let notice = tokio::time::timeout(TIMEOUT, watcher.fired()).await.unwrap();
    assert!(notice.is_some(), "{notice:?}");
    cluster.stop_all().await;
}

#[tokio::test]
async fn only_a_learner_that_has_caught_up_is_promoted() {
    let mut cluster = Cluster::start(3).await;
    cluster.join(1, 4).await;
    cluster.stop(4).await;
    let by = cluster.node(2).clone();
    assert!(matches!(
        refusal(by.promote_member(4).await),
        MembershipRefusal::NotCaughtUp { node_id: 4, .. }
    ));
    assert_eq!(
        refusal(by.promote_member(9).await),
        MembershipRefusal::NoMember(9)
    );
    assert_eq!(
        refusal(by.move_leader(Some(4)).await),
        MembershipRefusal::NotAVoter(4)
    );
    // After its restart it lags too much to be promoted.
    for n in 0..MAX_PROMOTE_LAG / 100 {
        put(cluster.node(1), &format!("/n{n}"), "x").await;
    }
    cluster.restart(4).await.unwrap();
    promote(&by, 4).await;
    assert_eq!(cluster.voters(2), [1, 2, 3, 4]);
    assert!(!by.promote_member(4).await.unwrap().changed);
    // It is a learner again.
    assert!(by.demote_member(4, false).await.unwrap().changed);
    assert!(!by.demote_member(4, false).await.unwrap().changed);
    assert_eq!(cluster.voters(2), [1, 2, 3]);
    put(cluster.node(4), "/after", "x").await;
    cluster.stop_all().await;
}

#[tokio::test]
async fn demoted_or_removed_leader_hands_over_first() {
    let mut cluster = Cluster::start(3).await;
    let writers = Writers::start(cluster.node(1), "w");
    let leader = cluster.leader().await;
    let by = cluster.follower().await;
    let demoted = cluster.node(by).demote_member(leader, false).await.unwrap();
    assert!(demoted.changed);
    assert_eq!(
        demoted.warnings.len(),
        1,
        "two voters tolerate no more failures than one"
    );
    assert_ne!(cluster.leader().await, leader);
    eventually("it is a learner", || {
        cluster.node(leader).status().role == Role::Learner
    })
    .await;
    promote(cluster.node(by), leader).await;
    writers.finish().await;

    // The leader removes itself.
    let leader = cluster.leader().await;
    let removed = cluster.node(leader).remove_member(leader, false).await;
    match removed {
        Ok(removed) => assert!(removed.changed),
        // The answer may arrive after the notice of the removal.
        Err(MembershipError::OutcomeUnknown(_) | MembershipError::Unavailable(_)) => {}
        Err(other) => panic!("{other}"),
    }
    wait_until_removed(cluster.node(leader)).await;
    cluster.stop(leader).await;
    let left = cluster.leader().await;
    assert!(
        !cluster
            .node(left)
            .remove_member(leader, false)
            .await
            .unwrap()
            .changed
    );
    put(cluster.node(left), "/after", "x").await;
    cluster.stop_all().await;
}

#[tokio::test]
async fn change_that_leaves_no_majority_is_rejected() {
    let mut cluster = Cluster::start(3).await;
    let (a, b) = (cluster.leader().await, cluster.follower().await);
    let dead = *cluster.nodes.keys().find(|id| ![a, b].contains(id)).unwrap();
    cluster.stop(dead).await;
    assert_eq!(
        refusal(cluster.node(a).remove_member(b, false).await),
        MembershipRefusal::NoMajority {
            voters: 2,
            reachable: 1
        }
    );
    // The dead node may be removed and replaced.
    cluster.node(b).remove_member(dead, false).await.unwrap();
    cluster.join(b, 4).await;
    promote(cluster.node(b), 4).await;
    let leader = cluster.leader().await;
    put(cluster.node(leader), "/after", "x").await;
    cluster.stop_all().await;
}

#[tokio::test]
async fn removed_ids_stay_retired() {
    let mut cluster = Cluster::start_with(3, small_snapshots).await;
    cluster.join(1, 4).await;
    for id in [4, 3] {
        let by = if id == 3 { 2 } else { 1 };
        cluster.node(by).remove_member(id, false).await.unwrap();
        wait_until_removed(cluster.node(id)).await;
        cluster.stop(id).await;
    }
    // Later, the retired ids are in snapshots only.
    for n in 0..100 {
        put(cluster.node(1), &format!("/n{n}"), "x").await;
    }
    for id in [1, 2] {
        let node = cluster.node(id).clone();
        eventually("a snapshot is made", || node.status().snapshot_index > 80).await;
    }
    cluster.stop_all().await;
    for id in [1, 2] {
        cluster.restart(id).await.unwrap();
    }
    cluster.wait_ready().await;
    cluster.join(1, 5).await;
    for id in [1, 2, 5] {
        let status = cluster.node(id).status();
        assert_eq!(
            (retired(&status), status.next_node_id),
            (vec![(3, 4)], 6),
            "node {id}"
        );
    }
    let address = |n: u16| MemberAddress {
        peer: format!("127.0.0.1:{n}"),
        http: format!("127.0.0.1:{n}"),
    };
    for id in [3, 4] {
        assert_eq!(
            refusal(cluster.node(5).add_member(id, address(1)).await),
            MembershipRefusal::RetiredId {
                node_id: id,
                next_free: 6
            }
        );
    }
    // A removed node learns of its removal when it restarts on its old directory, and also on a new one.
    cluster.restart(3).await.unwrap();
    wait_until_removed(cluster.node(3)).await;
    cluster.stop(3).await;
    std::fs::remove_dir_all(&cluster.configs[&3].raft.data_dir).unwrap();
    cluster.restart(3).await.unwrap();
    wait_until_removed(cluster.node(3)).await;
    cluster.stop_all().await;
}

#[tokio::test]
async fn repeated_change_succeeds_and_an_invalid_one_is_rejected() {
    let mut cluster = Cluster::start(3).await;
    let address = cluster.start_joining(4).await;
    let waiting = cluster.node(4).not_ready().unwrap();
    assert!(waiting.contains("waits to be added"), "{waiting}");
    let by = 2;
    let add = |id, address: &MemberAddress| {
        let (node, address) = (cluster.node(by).clone(), address.clone());
        async move { node.add_member(id, address).await }
    };
    assert!(add(4, &address).await.unwrap().changed);
    assert!(!add(4, &address).await.unwrap().changed);

    let elsewhere = MemberAddress {
        peer: "127.0.0.1:1".into(),
        http: "127.0.0.1:1".into(),
    };
    assert!(matches!(
        refusal(add(4, &elsewhere).await),
        MembershipRefusal::MemberExists { node_id: 4, .. }
    ));
    assert!(matches!(
        refusal(add(5, &address).await),
        MembershipRefusal::AddressTaken { used_by: 4, .. }
    ));
    assert!(matches!(
        refusal(add(5, &elsewhere).await),
        MembershipRefusal::Unreachable { node_id: 5, .. }
    ));
    assert!(matches!(
        refusal(add(0, &elsewhere).await),
        MembershipRefusal::Nonsense(_)
    ));
    // A node of another cluster is rejected, without an effect on it or on the only node of this one.
    let mut other = Cluster::start(1).await;
    let stranger = other.configs[&1].raft.members[&1].clone();
    assert!(matches!(
        refusal(add(1, &stranger).await),
        MembershipRefusal::MemberExists { .. }
    ));
    let mut lonely = Cluster::start(1).await;
    let theirs = cluster.configs[&2].raft.members[&2].clone();
    assert!(matches!(
        refusal(lonely.node(1).add_member(2, theirs).await),
        MembershipRefusal::Unreachable { node_id: 2, .. }
    ));
    put(lonely.node(1), "/unharmed", "x").await;
    put(other.node(1), "/unharmed", "x").await;
    lonely.stop_all().await;
    other.stop_all().await;
    cluster.stop_all().await;
}

#[tokio::test]
async fn concurrent_membership_changes_are_rejected() {
    let mut cluster = Cluster::start(3).await;
    // Peer that accepts the connection and sends nothing: the change hangs for as long as a handshake may take.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = silent.local_addr().unwrap().to_string();
    let address = MemberAddress {
        peer: place.clone(),
        http: place,
    };
    let by = cluster.node(1).clone();
    let first = tokio::spawn(async move { by.add_member(9, address).await });
    let (_connection, _) = silent.accept().await.unwrap();
    assert_eq!(
        refusal(cluster.node(2).demote_member(3, false).await),
        MembershipRefusal::InProgress
    );
    drop(_connection);
    assert!(matches!(
        refusal(first.await.unwrap()),
        MembershipRefusal::Unreachable { node_id: 9, .. }
    ));
    cluster.stop_all().await;
}

#[tokio::test]
async fn node_that_missed_the_replacement_of_all_others_rejoins() {
    let mut cluster = Cluster::start_with(3, small_snapshots).await;
    let sleeper = 3;
    cluster.stop(sleeper).await;
    for id in [4, 5] {
        let by = *cluster.nodes.keys().next().unwrap();
        cluster.join(by, id).await;
        promote(cluster.node(by), id).await;
    }
    for id in [1, 2] {
        cluster.node(5).remove_member(id, false).await.unwrap();
        wait_until_removed(cluster.node(id)).await;
        cluster.stop(id).await;
    }
    put(cluster.node(5), "/news", "x").await;
    // All nodes that it knows were removed; nodes that it does not know connect to it.
    cluster.restart(sleeper).await.unwrap();
    let node = cluster.node(sleeper).clone();
    eventually("it catches up", || {
        node.not_ready().is_none() && node.read(|store| store.get(&path("/news")).is_some())
    })
    .await;
    assert_eq!(cluster.voters(sleeper), [3, 4, 5]);
    cluster.stop_all().await;
}

#[tokio::test]
async fn moved_nodes_report_their_new_addresses() {
    let mut cluster = Cluster::start(3).await;
    // One by one, so that in the end no configuration has a present address.
    for id in 1..=3 {
        cluster.stop(id).await;
        let new = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = new.local_addr().unwrap().to_string();
        let config = cluster.configs.get_mut(&id).unwrap();
        let own = config.raft.members.get_mut(&id).unwrap();
        own.peer = place.clone();
        own.http = place.clone();
        let node = Node::start_on(config.clone(), new).await.unwrap();
        cluster.nodes.insert(id, node);
        cluster.wait_ready().await;
        for node in cluster.nodes.values() {
            eventually("every node knows its new address", || {
                let members = node.status().members;
                members
                    .iter()
                    .any(|member| member.node_id == id && member.peer == place && member.http == place)
            })
            .await;
        }
    }
    // All at once: only the configurations have the new addresses.
    cluster.stop_all().await;
    let mut listeners = Vec::new();
    for id in 1..=3 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = listener.local_addr().unwrap().to_string();
        for config in cluster.configs.values_mut() {
            let member = config.raft.members.get_mut(&id).unwrap();
            member.peer = place.clone();
            member.http = place.clone();
        }
        listeners.push(listener);
    }
    for (id, listener) in (1..=3).zip(listeners) {
        let node = Node::start_on(cluster.configs[&id].clone(), listener)
            .await
            .unwrap();
        cluster.nodes.insert(id, node);
    }
    cluster.wait_ready().await;
    put(cluster.node(2), "/after", "x").await;
    let members = &cluster.configs[&1].raft.members;
    for node in cluster.nodes.values() {
        eventually("all new addresses are known", || {
            let seen = node.status().members;
            seen.iter()
                .all(|member| members[&member.node_id].peer == member.peer)
        })
        .await;
    }
    cluster.stop_all().await;
}

/// Membership changes in quick succession have panicked openraft (databendlabs/openraft#1544).
#[tokio::test]
async fn quick_successive_changes_succeed() {
    let mut cluster = Cluster::start(3).await;
    let writers = Writers::start(cluster.node(1), "w");
    cluster.join(1, 4).await;
    for round in 0..30 {
        let by = cluster.node(1 + round % 4).clone();
        promote(&by, 4).await;
        by.move_leader(None).await.ok();
        promote(cluster.node(1), 4).await;
        loop {
            match by.demote_member(4, false).await {
                Ok(_) => break,
                // The new leader has not reached enough voters yet.
                Err(MembershipError::Refused(
                    MembershipRefusal::NoMajority { .. } | MembershipRefusal::NoSuccessor(_),
                )) => {}
                Err(other) => panic!("round {round}: {other}"),
            }
        }
    }
    assert!(writers.finish().await > 0);
    assert_eq!(cluster.voters(1), [1, 2, 3]);
    let digests = cluster.nodes.values().map(|node| async {
        node.read_barrier().await.unwrap();
        node.read(|store| store.digest())
    });
    let digests = futures_util::future::join_all(digests).await;
    assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "{digests:?}");
    cluster.stop_all().await;
}

#[tokio::test]
async fn recreated_directory_is_rejected() {
    let mut cluster = Cluster::start(3).await;
    cluster.join(1, 4).await;
    cluster.stop(4).await;
    let data_dir = cluster.configs[&4].raft.data_dir.clone();
    std::fs::remove_dir_all(&data_dir).unwrap();
    match cluster.restart(4).await {
        Err(StartError::Identity(_)) => {}
        Err(other) => panic!("{other}"),
        Ok(()) => {
            let reason = tokio::time::timeout(TIMEOUT, cluster.node(4).failed())
                .await
                .unwrap();
            assert!(reason.contains("created again"), "{reason}");
        }
    }
    cluster.stop_all().await;
}
