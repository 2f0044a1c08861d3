//! Backups: made by any node under load, and restored as a new cluster, with interruptions at every step.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use lock_node::backup::{
    BackupError, BackupReader, MOVED_AT_LEAST, RestoreError, RestoreOptions, Restored, inspect, restore,
    restore_on_disk,
};
use lock_node::storage::Storage;
use lock_node::znode_store::{
    Command, CreateMode, Identities, NamespaceName, NamespaceQuota, Quotas, Refusal, Reply, Request,
    SessionFate, SessionId, Zxid,
};
use lock_node::{BackupRefused, MemberAddress, Node, NodeConfig, StartError};
use raft_log::sim_disk::{Fault, SimDisk};
use raft_log::{Disk as _, StorageError, WalOptions};
use tokio::net::TcpListener;

use crate::cluster::{Cluster, create, eventually, path, put, request, small_snapshots};

/// Returns all bytes of a backup.
async fn download(node: &Node) -> Vec<u8> {
    let mut backup = node.backup(true).await.unwrap();
    let mut bytes = Vec::new();
    while let Some(chunk) = backup.next_chunk().await.unwrap() {
        bytes.extend_from_slice(&chunk);
    }
    assert_eq!(bytes.len() as u64, backup.bytes(), "as it said before");
    bytes
}

fn read(bytes: &[u8]) -> Result<BackupReader<&[u8]>, BackupError> {
    let mut reader = BackupReader::open(bytes)?;
    reader.load()?;
    Ok(reader)
}

async fn open_session(node: &Node) -> SessionId {
    node.open_session(None, "holder", "", None).await.unwrap().session
}

async fn ephemeral(node: &Node, session: SessionId, text: &str) {
    let request = Request {
        session: Some(session),
        request_id: None,
        caller: Identities::none(),
        command: create(text, "x", CreateMode::Ephemeral),
    };
    assert!(node.propose(request).await.unwrap().outcome.is_ok());
}

/// Returns the time in a minute: later than any backup of this test.
fn options() -> RestoreOptions {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    RestoreOptions {
        now_ms: now.as_millis() as u64 + 60_000,
        ..RestoreOptions::default()
    }
}

#[tokio::test]
async fn restored_cluster_continues_at_larger_positions() {
    let mut old = Cluster::start_with(3, small_snapshots).await;
    let follower = old.follower().await;
    let node = old.node(follower);
    let session = open_session(node).await;
    ephemeral(node, session, "/held").await;
    for n in 0..50 {
        put(node, &format!("/n{n}"), "x").await;
    }
    put(node, "/q", "").await;
    let sequential = || request(create("/q/n-", "x", CreateMode::PersistentSequential));
    node.propose(sequential()).await.unwrap();
    let bytes = download(node).await;
    // Later writes are not in it.
    let last = put(old.node(old.leader().await), "/later", "x").await.zxid;
    old.stop_all().await;

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("backup");
    std::fs::write(&file, &bytes).unwrap();
    let seen = inspect(&file).unwrap();
    assert_eq!((seen.sessions, seen.znodes), (1, 1 + 3 + 1 + 50 + 2));
    assert_eq!(seen.bytes, bytes.len() as u64);
    assert_eq!(
        (seen.head.cluster.as_str(), seen.head.node_id),
        ("test", follower)
    );
    assert_eq!(seen.head.members.len(), 3);
    assert!(seen.zxid < last.0);

    let mut new = Cluster::start_with(3, |config| {
        if config.raft.node_id == 1 {
            let restored = restore(&file, config, options()).unwrap();
            assert_eq!(restored.zxid_before, Zxid(seen.zxid));
            assert_eq!(restored.ended_sessions, 1);
            assert!(restored.moved_by > MOVED_AT_LEAST);
            assert_eq!(
                restored.zxid.0,
                seen.zxid + restored.moved_by + 1,
                "the sessions ended"
            );
            let again = restore(&file, config, options()).unwrap_err();
            assert!(matches!(again, RestoreError::NotEmpty { .. }), "{again}");
        }
    })
    .await;
    for node in new.nodes.values() {
        node.read_barrier().await.unwrap();
        node.read(|store| {
            assert_eq!(
                store.node_count() as u64,
                seen.znodes - 1,
                "all but the ephemeral one"
            );
            assert!(store.get(&path("/n49")).is_some() && store.get(&path("/later")).is_none());
            assert_eq!(store.session_fate(session), SessionFate::Ended);
        });
    }
    for node in new.nodes.values() {
        let after = put(node, &format!("/from-{}", node.id()), "x").await;
        assert!(after.zxid.0 > last.0 + MOVED_AT_LEAST);
        assert_ne!(node.status().cluster_id, hex(&seen.head.cluster_id));
        assert!(
            !new.dir
                .path()
                .join(format!("node-{}/restored", node.id()))
                .exists()
        );
    }
    // Sequence numbers continue.
    let next = new.node(2).propose(sequential()).await.unwrap();
    assert!(
        matches!(&next.outcome, Ok(Reply::Created { path, .. }) if path.as_str() == "/q/n-0000000001"),
        "{next:?}"
    );
    // From now on the first node has no special role.
    new.stop(1).await;
    new.restart(1).await.unwrap();
    new.wait_ready().await;
    assert!(new.node(1).read(|store| store.get(&path("/from-3")).is_some()));
    new.stop_all().await;
}

fn hex(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn restore_keeps_sessions_on_request() {
    let mut old = Cluster::start(1).await;
    let session = open_session(old.node(1)).await;
    ephemeral(old.node(1), session, "/held").await;
    let bytes = download(old.node(1)).await;
    old.stop_all().await;
    let file = old.dir.path().join("backup");
    std::fs::write(&file, &bytes).unwrap();
    let keep = RestoreOptions {
        keep_sessions: true,
        ..options()
    };
    let mut new = Cluster::start_with(1, |config| {
        assert_eq!(restore(&file, config, keep).unwrap().ended_sessions, 0);
    })
    .await;
    new.node(1).heartbeat(session).await.unwrap();
    assert!(new.node(1).read(|store| store.get(&path("/held")).is_some()));
    new.stop_all().await;
}

#[tokio::test]
async fn restored_cluster_has_the_quotas_and_counts_their_usage() {
    let mut old = Cluster::start_with(3, small_snapshots).await;
    let node = old.node(old.follower().await).clone();
    let session = open_session(&node).await;
    put(&node, "/tenant", "12345").await;
    ephemeral(&node, session, "/tenant/held").await;
    let namespace = NamespaceName::parse("tenant").unwrap();
    let quotas = Quotas {
        znodes: Some(2),
        requests_per_second: Some(7),
        ..Quotas::default()
    };
    let set = Command::SetQuotas {
        namespace: namespace.clone(),
        quotas: Some(quotas),
    };
    assert!(node.propose(request(set)).await.unwrap().outcome.is_ok());
    let refused = node.propose(request(create("/tenant/more", "x", CreateMode::Persistent)));
    let expected = Refusal::NamespaceQuotaExceeded {
        namespace,
        quota: NamespaceQuota::Znodes,
        limit: 2,
        would_be: 3,
    };
    assert_eq!(refused.await.unwrap().outcome, Err(expected));
    let bytes = download(&node).await;
    old.stop_all().await;

    let file = old.dir.path().join("backup");
    std::fs::write(&file, &bytes).unwrap();
    let mut new = Cluster::start_with(3, |config| {
        if config.raft.node_id == 1 {
            restore(&file, config, options()).unwrap();
        }
    })
    .await;
    for node in new.nodes.values() {
        node.read_barrier().await.unwrap();
        let view = node.read(|store| store.namespace("tenant")).unwrap();
        // The session has ended with its znode.
        assert_eq!(
            (view.quotas, view.usage.znodes, view.usage.sessions),
            (quotas, 1, 0)
        );
        assert_eq!(view.usage.bytes, 5);
    }
    let node = new.node(2).clone();
    let more = |path: &str| node.propose(request(create(path, "x", CreateMode::Persistent)));
    assert!(more("/tenant/more").await.unwrap().outcome.is_ok());
    assert!(more("/tenant/most").await.unwrap().outcome.is_err());
    new.stop_all().await;
}

#[tokio::test]
async fn backups_under_load_are_complete_and_bounded_in_number() {
    let mut cluster = Cluster::start_with(3, small_snapshots).await;
    let writing = cluster.node(cluster.leader().await).clone();
    let writer = tokio::spawn(async move {
        for n in 0..300 {
            put(&writing, &format!("/load-{n}"), "x").await;
        }
    });
    let node = cluster.node(cluster.follower().await).clone();
    for n in 0..10 {
        let at = path(&format!("/before-{n}"));
        let other = cluster.node(1 + n % 3);
        put(other, at.as_str(), "x").await;
        let bytes = download(&node).await;
        let mut reader = BackupReader::open(&bytes[..]).unwrap();
        assert!(reader.load().unwrap().get(&at).is_some(), "{at}");
    }
    writer.await.unwrap();
    let (first, second) = (
        node.backup(true).await.unwrap(),
        node.backup(false).await.unwrap(),
    );
    let third = node.backup(true).await.map(drop).unwrap_err();
    assert!(matches!(third, BackupRefused::TooMany { limit: 2 }), "{third}");
    drop((first, second));
    node.backup(true).await.unwrap();
    cluster.stop_all().await;
}

/// Returns a backup of a few znodes and a session.
async fn small_backup() -> Vec<u8> {
    let mut cluster = Cluster::start(1).await;
    put(cluster.node(1), "/a", "x").await;
    open_session(cluster.node(1)).await;
    let bytes = download(cluster.node(1)).await;
    cluster.stop_all().await;
    bytes
}

#[tokio::test]
async fn truncated_changed_and_foreign_backups_are_rejected_without_effect() {
    let bytes = small_backup().await;
    assert!(read(&bytes).is_ok());
    for len in 0..bytes.len() {
        let error = read(&bytes[..len]).map(drop).unwrap_err();
        match len {
            ..8 => assert!(matches!(error, BackupError::Foreign), "{len}: {error}"),
            _ => assert!(
                matches!(error, BackupError::Cut(at) if at == len as u64),
                "{len}: {error}"
            ),
        }
    }
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&flipped).is_err(), "bit {bit}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    let error = read(&longer).map(drop).unwrap_err();
    assert!(error.to_string().contains("something follows its end"), "{error}");
    let mut newer = bytes.clone();
    newer[8] = 9;
    let error = read(&newer).map(drop).unwrap_err();
    assert!(matches!(error, BackupError::UnknownVersion(9)), "{error}");

    let dir = tempfile::tempdir().unwrap();
    let config = config(1, dir.path().join("data"));
    for (name, content) in [
        (
            "foreign",
            b"PK\x03\x04 something else that is long enough".to_vec(),
        ),
        ("cut", bytes[..bytes.len() - 1].to_vec()),
        ("empty", Vec::new()),
    ] {
        let file = dir.path().join(name);
        std::fs::write(&file, content).unwrap();
        let error = restore(&file, &config, options()).unwrap_err();
        assert!(matches!(error, RestoreError::Backup { .. }), "{error}");
        assert!(error.to_string().contains(name), "{error}");
        assert!(!config.raft.data_dir.exists(), "{name}");
    }
    let missing = restore(&dir.path().join("missing"), &config, options()).unwrap_err();
    assert!(missing.to_string().contains("cannot be read"), "{missing}");
}

fn config(node_id: u64, data_dir: PathBuf) -> NodeConfig {
    let address = |port: u64| MemberAddress {
        peer: format!("127.0.0.1:{port}"),
        http: format!("127.0.0.1:{port}"),
    };
    let members = BTreeMap::from([(1, address(1)), (2, address(2))]);
    NodeConfig::new(node_id, "test", members, data_dir)
}

#[tokio::test]
async fn restore_needs_the_founders_empty_directory_and_a_plausible_clock() {
    let bytes = small_backup().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("backup");
    std::fs::write(&file, &bytes).unwrap();
    let data = dir.path().join("data");
    let other = restore(&file, &config(2, data.clone()), options()).unwrap_err();
    assert!(matches!(other, RestoreError::NotTheFounder(1)), "{other}");
    let mut joins = config(1, data.clone());
    joins.raft.join = true;
    let error = restore(&file, &joins, options()).unwrap_err();
    assert!(matches!(error, RestoreError::Joins), "{error}");
    let early = RestoreOptions {
        now_ms: 1,
        ..options()
    };
    let error = restore(&file, &config(1, data.clone()), early).unwrap_err();
    assert!(matches!(error, RestoreError::ClockBehind { .. }), "{error}");
    let far = RestoreOptions {
        move_at_least: 1 << 60,
        ..options()
    };
    let error = restore(&file, &config(1, data.clone()), far).unwrap_err();
    assert!(matches!(error, RestoreError::TooFar(_)), "{error}");
    assert!(!data.exists());
    std::fs::create_dir_all(data.join("somebodys")).unwrap();
    let error = restore(&file, &config(1, data), options()).unwrap_err();
    assert!(error.to_string().contains("somebodys"), "{error}");
}

fn restore_into(disk: &SimDisk, bytes: &[u8], config: &NodeConfig) -> Result<Restored, RestoreError> {
    let mut backup = BackupReader::open(bytes).unwrap();
    restore_on_disk(
        Arc::new(disk.clone()),
        &mut backup,
        Path::new("backup"),
        config,
        options(),
    )
}

/// Opens the data directory as a node does, and returns the cluster's id.
fn open(disk: &SimDisk, config: &NodeConfig) -> Result<Option<[u8; 16]>, StorageError> {
    let options = WalOptions {
        segment_bytes: 64 * 1024,
        ..WalOptions::default()
    };
    let disk = Arc::new(disk.clone());
    let storage = Storage::open(
        disk,
        &config.raft.data_dir,
        &config.raft.cluster,
        config.raft.node_id,
        options,
    )?;
    Ok(storage.dir.identity().cluster_id)
}

#[tokio::test]
async fn interrupted_restore_can_be_repeated_and_no_node_starts_before() {
    let bytes = small_backup().await;
    let config = config(1, "/data".into());
    let disk = SimDisk::new();
    let restored = restore_into(&disk, &bytes, &config).unwrap();
    let mut model = disk.crash_model();
    let mut finished = 0;
    for events in 0..=disk.events() {
        disk.advance(&mut model, events);
        for mixture in 0..6 {
            let left = || model.crash(mixture);
            let again = left();
            match restore_into(&again, &bytes, &config) {
                // A second restore completes any partial one.
                Ok(second) => {
                    assert_eq!(open(&again, &config).unwrap(), Some(second.cluster_id));
                    assert!(events < disk.events(), "completed steps are not repeated");
                    let names = left().list(&config.raft.data_dir).unwrap_or_default();
                    if names.iter().any(|name| name == "restored") {
                        let refused = open(&left(), &config).unwrap_err();
                        assert!(refused.to_string().contains("interrupted"), "{refused}");
                    }
                }
                Err(RestoreError::NotEmpty { .. }) => {
                    assert_eq!(open(&again, &config).unwrap(), Some(restored.cluster_id));
                    // A directory with an identity has its state: without it the cluster would start empty.
                    let state = again.open(&config.raft.data_dir.join("restored")).unwrap();
                    let mut bytes = vec![0; state.len().unwrap() as usize];
                    state.read_exact_at(&mut bytes, 0).unwrap();
                    read(&bytes).unwrap();
                    finished += 1;
                }
                Err(error) => panic!("after event {events}: {error}"),
            }
        }
    }
    assert!(finished >= 6, "{finished}");

    for call in 1..=disk.calls() {
        let disk = SimDisk::new();
        disk.fail_call(call, Fault::NoSpace);
        let failed = restore_into(&disk, &bytes, &config);
        assert!(
            matches!(failed, Err(RestoreError::Storage(_))),
            "call {call}: {failed:?}"
        );
        match restore_into(&disk, &bytes, &config) {
            Ok(_) => {}
            // Only the sync of the last rename failed.
            Err(RestoreError::NotEmpty { .. }) => drop(open(&disk, &config).unwrap()),
            Err(error) => panic!("after call {call} failed: {error}"),
        }
    }
}

/// Starts a node on a simulated disk with a restored backup.
async fn begin(disk: &SimDisk, config: &NodeConfig) -> Node {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let node = Node::start_on_disk(config.clone(), listener, Arc::new(disk.clone()))
        .await
        .unwrap();
    eventually("the node is ready", || node.not_ready().is_none()).await;
    node
}

#[tokio::test]
async fn interrupted_formation_from_a_backup_is_repeated() {
    let bytes = small_backup().await;
    let mut config = config(1, "/data".into());
    config.raft.members.retain(|id, _| *id == 1);
    config.raft.log.segment_bytes = 64 * 1024;
    let disk = SimDisk::new();
    let restored = restore_into(&disk, &bytes, &config).unwrap();
    let before = disk.events();
    begin(&disk, &config).await.stop().await;
    let after = disk.events();
    let mut model = disk.crash_model();
    let mut checks = tokio::task::JoinSet::new();
    for events in before..=after {
        disk.advance(&mut model, events);
        for mixture in 0..2 {
            let left = model.crash(mixture);
            let config = config.clone();
            checks.spawn(async move {
                let node = begin(&left, &config).await;
                assert_eq!(node.status().cluster_id, hex(&restored.cluster_id));
                node.read(|store| {
                    assert!(store.get(&path("/a")).is_some(), "after event {events}");
                    assert_eq!(store.node_count() as u64, restored.znodes, "after event {events}");
                });
                let next = put(&node, "/next", "x").await;
                assert!(next.zxid > restored.zxid, "after event {events}");
                node.stop().await;
                // The cluster is formed, so the file was deleted.
                let names = left.list(&config.raft.data_dir).unwrap();
                assert!(!names.iter().any(|name| name == "restored"), "{names:?}");
            });
        }
    }
    checks.join_all().await;
}

#[tokio::test]
async fn restored_directory_is_rejected_at_another_node() {
    let bytes = small_backup().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("backup");
    std::fs::write(&file, &bytes).unwrap();
    let config = config(1, dir.path().join("data"));
    restore(&file, &config, options()).unwrap();
    // The state of another restore, in this directory.
    let mut other = config.clone();
    other.raft.data_dir = dir.path().join("other");
    restore(&file, &other, options()).unwrap();
    let mine = std::fs::read(config.raft.data_dir.join("restored")).unwrap();
    std::fs::copy(
        other.raft.data_dir.join("restored"),
        config.raft.data_dir.join("restored"),
    )
    .unwrap();
    let listener = || TcpListener::bind("127.0.0.1:0");
    let refused = Node::start_on(config.clone(), listener().await.unwrap()).await;
    let refused = refused.map(drop).unwrap_err();
    assert!(matches!(refused, StartError::Identity(_)), "{refused}");
    std::fs::write(config.raft.data_dir.join("restored"), mine).unwrap();
    let node = Node::start_on(config, listener().await.unwrap()).await.unwrap();
    node.stop().await;
}
