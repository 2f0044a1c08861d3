//! Full disks: the requests that are still accepted, the nodes that continue, and the recovery without an operator.

use std::time::Duration;

use lock_node::znode_store::{
    AttemptId, Command, CreateMode, Identities, LockCommand, LockMode, LockName, LockWish, Op, Reply,
    Request, SessionId,
};
use lock_node::{AlarmKind, Node, NodeConfig, NodeId, ProposeError};

use crate::cluster::{Cluster, create, eventually, path, put, request};

const TTL: Duration = Duration::from_secs(60);
const SEGMENT_BYTES: u64 = 64 * 1024;
const LOW_WATER_BYTES: u64 = 8 * SEGMENT_BYTES;
const RESUME_BYTES: u64 = 10 * SEGMENT_BYTES;

/// Interval of disk checks. A leader drops its report of a member's full disk after six intervals without an answer, and then the
/// cluster is not read-only any more. So the interval is longer than the delays of a busy machine, some tenths of a second, and so short
/// that no test waits for it.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Small thresholds and files, and a check interval that delays no test.
fn small_disk(config: &mut NodeConfig) {
    config.raft.log.segment_bytes = SEGMENT_BYTES as usize;
    config.raft.disk.low_water_bytes = LOW_WATER_BYTES;
    config.raft.disk.resume_bytes = RESUME_BYTES;
    config.raft.disk.check_interval = CHECK_INTERVAL;
    config.raft.disk.hand_over_pause = Duration::from_millis(500);
    config.raft.propose_timeout = Duration::from_secs(5);
}

fn alarms(node: &Node) -> Vec<(Option<NodeId>, AlarmKind)> {
    let alarms = node.status().alarms;
    alarms.iter().map(|alarm| (alarm.node_id, alarm.kind)).collect()
}

fn of(session: SessionId, command: Command) -> Request {
    Request {
        session: Some(session),
        request_id: None,
        caller: Identities::none(),
        command,
    }
}

fn acquire(lock: &str, guid: u128) -> Command {
    Command::Lock(LockCommand::Acquire {
        wish: LockWish {
            lock: LockName::parse(lock).unwrap(),
            mode: LockMode::Exclusive,
            permits: 1,
            owner: "".into(),
            reentrant: true,
            note: "".into(),
            address: "".into(),
            lock_delay_ms: 0,
            names: Default::default(),
        },
        guid,
        attempt: AttemptId(guid as u64),
        wait: true,
    })
}

fn set(at: &str, data: &str) -> Command {
    Command::Write(Op::Set {
        path: path(at),
        data: data.into(),
        version: -1,
    })
}

fn delete(at: &str) -> Op {
    Op::Delete {
        path: path(at),
        version: -1,
    }
}

async fn assert_read_only(node: &Node, request: Request) {
    let what = request.to_string();
    match node.propose(request).await {
        Err(ProposeError::Unavailable(unavailable)) if unavailable.read_only => {}
        other => panic!("{what} was answered by {other:?}"),
    }
}

async fn assert_taken(node: &Node, request: Request) -> Reply {
    let what = request.to_string();
    match node.propose(request).await {
        Ok(applied) => applied
            .outcome
            .unwrap_or_else(|refusal| panic!("{what}: {refusal}")),
        Err(error) => panic!("{what}: {error}"),
    }
}

#[tokio::test]
async fn cluster_without_space_accepts_releases_and_recovers_by_itself() {
    let mut cluster = Cluster::start_troubled(3, small_disk).await;
    let leader = cluster.leader().await;
    let node = cluster.node(cluster.follower().await).clone();
    let session = node.open_session(Some(TTL), "s", "", None).await.unwrap().session;
    let other = node.open_session(Some(TTL), "o", "", None).await.unwrap().session;
    for at in ["/a", "/b", "/c"] {
        put(&node, at, "some data").await;
    }
    let Reply::Granted(grant) = assert_taken(&node, of(session, acquire("l", 1))).await else {
        panic!("the lock was free");
    };
    let Reply::Queued(place) = assert_taken(&node, of(other, acquire("l", 2))).await else {
        panic!("the lock is held");
    };

    // Two of three nodes: a quorum has no space, under any leader.
    for (id, disk) in cluster.troubled.iter().filter(|(id, _)| **id != leader) {
        assert!(!cluster.node(*id).status().read_only);
        disk.set_free(LOW_WATER_BYTES / 2);
    }
    for node in cluster.nodes.values() {
        eventually("the cluster is read-only, and every node says so", || {
            node.status().read_only && alarms(node).len() == 3
        })
        .await;
        let kinds: Vec<AlarmKind> = alarms(node).iter().map(|(_, kind)| *kind).collect();
        assert_eq!(
            kinds,
            [AlarmKind::ReadOnly, AlarmKind::DiskLow, AlarmKind::DiskLow]
        );
    }

    for node in cluster.nodes.values() {
        assert_read_only(node, request(create("/d", "x", CreateMode::Persistent))).await;
        assert_read_only(node, request(set("/a", "some more data"))).await;
        assert_read_only(node, of(session, acquire("m", 3))).await;
        let mixed = vec![delete("/a"), delete("/b")];
        let Command::Write(creation) = create("/d", "x", CreateMode::Persistent) else {
            unreachable!("it creates");
        };
        let mixed = mixed.into_iter().chain([creation]).collect();
        assert_read_only(node, request(Command::Multi(mixed))).await;
        node.open_session(Some(TTL), "", "", None).await.unwrap_err();
        // Requests that need no space, or release it.
        assert_eq!(node.heartbeat(session).await, Ok(TTL));
        assert_taken(node, request(set("/a", "less data"))).await;
        assert_taken(node, of(session, acquire("l", 4))).await;
    }
    assert!(node.read(|store| store.stat(&path("/d")).is_none()));
    assert_taken(&node, request(Command::Multi(vec![delete("/b"), delete("/c")]))).await;
    for _ in 0..=cluster.nodes.len() {
        let release = LockCommand::Release {
            lock: LockName::parse("l").unwrap(),
            holder: grant.holder.clone(),
        };
        assert_taken(&node, of(session, Command::Lock(release))).await;
    }
    // The next waiter was granted the lock.
    let held = node.read(|store| store.contender_state(&LockName::parse("l").unwrap(), &place.holder));
    assert!(
        matches!(held, Some(lock_node::znode_store::ContenderState::Holds(_))),
        "{held:?}"
    );
    assert_taken(&node, request(Command::CloseSession { session })).await;

    cluster.troubled.values().for_each(|disk| disk.make_room());
    for node in cluster.nodes.values() {
        eventually("it goes on by itself", || {
            !node.status().read_only && alarms(node).is_empty()
        })
        .await;
    }
    put(&node, "/d", "x").await;
    node.open_session(Some(TTL), "", "", None).await.unwrap();
    cluster.stop_all().await;
}

#[tokio::test]
async fn full_follower_blocks_no_commit_and_catches_up_by_itself() {
    let mut cluster = Cluster::start_troubled(3, small_disk).await;
    let full = cluster.follower().await;
    let leader = cluster.leader().await;
    let disk = cluster.troubled[&full].clone();
    disk.set_free(0);
    let node = cluster.node(leader).clone();
    let data = "x".repeat(4 * 1024);
    let mut written = 0;
    while !alarms(&node).contains(&(Some(full), AlarmKind::LogFull)) {
        put(&node, &format!("/n{written}"), &data).await;
        written += 1;
        assert!(written < 200, "the log of a full disk never runs out of space");
    }
    assert!(!node.status().read_only);
    // It reports that it lags, and runs.
    for _ in 0..20 {
        put(&node, &format!("/n{written}"), &data).await;
        written += 1;
    }
    let behind = cluster.node(full).clone();
    assert!(disk.refused() > 0, "no write failed");
    assert!(behind.status().applied_index < node.status().applied_index);
    assert_eq!(behind.disk_report().free_bytes, Some(0));
    drop(behind);

    // A start needs no space.
    cluster.stop(full).await;
    cluster.restart(full).await.unwrap();
    put(&node, &format!("/n{written}"), &data).await;
    written += 1;
    assert_eq!(
        cluster.leader().await,
        leader,
        "a lagging node cannot win an election"
    );

    disk.make_room();
    let behind = cluster.node(full).clone();
    eventually("it catches up", || {
        behind.status().applied_index == node.status().applied_index
    })
    .await;
    let count = |node: &Node| node.read(|store| store.node_count());
    assert_eq!(count(&behind), count(&node));
    assert!(count(&node) > written);
    eventually("the alarms are over", || alarms(&node).is_empty()).await;
    cluster.stop_all().await;
}

#[tokio::test]
async fn completely_full_disks_leave_room_for_releases_and_starts() {
    /// Number of releases that fit into the preallocated segment alone: each takes some 500 bytes of log.
    const AT_LEAST: usize = 100;
    const LOCKS: u128 = 700;
    let mut cluster = Cluster::start_troubled(3, small_disk).await;
    let node = cluster.node(cluster.leader().await).clone();
    let session = node.open_session(Some(TTL), "s", "", None).await.unwrap().session;
    let mut held = Vec::new();
    for n in 0..LOCKS {
        let lock = format!("l{n}");
        match assert_taken(&node, of(session, acquire(&lock, n))).await {
            Reply::Granted(grant) => held.push((LockName::parse(&lock).unwrap(), grant.holder)),
            other => panic!("{lock} was free: {other}"),
        }
    }
    // The reserve is usually preallocated long before a disk is full; here the disk becomes full at once.
    for config in cluster.configs.values() {
        let made = |slot| {
            let spare = config.raft.data_dir.join(format!("log/spare-{slot}.tmp"));
            std::fs::metadata(spare).is_ok_and(|spare| spare.len() == SEGMENT_BYTES)
        };
        eventually("the reserve is made", || made(0) && made(1)).await;
    }
    cluster.troubled.values().for_each(|disk| disk.set_free(0));
    eventually("the cluster is read-only", || node.status().read_only).await;

    let mut kept = held.clone();
    let mut in_doubt = false;
    while let Some((lock, holder)) = kept.pop() {
        let release = LockCommand::Release {
            lock: lock.clone(),
            holder: holder.clone(),
        };
        match node.propose(of(session, Command::Lock(release))).await {
            Ok(applied) => assert!(applied.outcome.is_ok(), "{applied:?}"),
            Err(ProposeError::Unavailable(unavailable)) if unavailable.read_only => {
                kept.push((lock, holder));
                break;
            }
            // The leader had space for it; the followers, whose logs are some bytes longer, had none. It is in the leader's log,
            // and the leader of the time when there is space decides.
            Err(ProposeError::OutcomeUnknown(_)) => {
                kept.push((lock, holder));
                in_doubt = true;
                break;
            }
            Err(error) => panic!("a release was answered by {error}"),
        }
    }
    let released = held.len() - kept.len();
    assert!(released >= AT_LEAST, "{released} releases had room");
    assert!(!kept.is_empty(), "the log of a full disk never runs out of space");
    drop(node);

    // All restart, elect a leader, and have what they acknowledged.
    cluster.stop_all().await;
    for id in [1, 2, 3] {
        cluster.restart(id).await.unwrap();
    }
    let leader = cluster.leader().await;
    let node = cluster.node(leader).clone();
    eventually("the leader says what is the matter", || {
        alarms(&node).contains(&(None, AlarmKind::ReadOnly))
    })
    .await;
    for disk in cluster.troubled.values() {
        assert!(disk.refused() > 0, "no write failed");
        disk.make_room();
    }
    cluster.wait_ready().await;
    eventually("the alarms are over", || alarms(&node).is_empty()).await;
    put(&node, "/after", "x").await;
    for node in cluster.nodes.values() {
        node.read_barrier().await.unwrap();
        let left = node.read(|store| store.contenders_of(session));
        let left: Vec<_> = left.into_iter().map(|(lock, holder, _)| (lock, holder)).collect();
        // A lost entry shows at the first node; the others have the same state.
        if std::mem::take(&mut in_doubt) && left.len() < kept.len() {
            kept.pop();
        }
        assert_eq!(left, kept, "in the order of their arrival");
    }
    cluster.stop_all().await;
}

#[tokio::test]
async fn leader_with_a_nearly_full_disk_hands_over() {
    let mut cluster = Cluster::start_troubled(3, small_disk).await;
    let low = cluster.leader().await;
    cluster.troubled[&low].set_free(LOW_WATER_BYTES / 2);
    let node = cluster
        .node(*cluster.nodes.keys().find(|id| **id != low).unwrap())
        .clone();
    eventually("another one leads", || {
        node.status().leader.is_some_and(|leader| leader != low)
    })
    .await;
    put(&node, "/a", "x").await;
    eventually("there is an alarm", || {
        alarms(&node) == [(Some(low), AlarmKind::DiskLow)]
    })
    .await;
    assert!(!node.status().read_only);
    cluster.stop_all().await;
}
