//! A whole data directory, and a backup: today's program writes the same bytes, reads the old ones, and serves their state.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, mpsc};

use tokio::net::TcpListener;
use znode_store::{Identities, LockMode, LockName, Principal, Request, Right, Store, TokenId, ZPath};

use super::material::{CLUSTER, CLUSTER_ID, DISK_ID, TIME_MS, alone, batches, member};
use super::{golden, place};
use crate::backup::{BackupHead, BackupMember, BackupReader, inspect, write_backup};
use crate::config::NodeConfig;
use crate::envelope::Envelope;
use crate::node::Node;
use raft_log::disk::read_all;
use raft_log::sim_disk::SimDisk;
use raft_log::{DataDir, Disk, Identity, LogPos, SnapshotMeta, VoteRecord, WalOptions};
use raft_node::Proposal;
use raft_node::codec::{self};
use raft_node::command_batch::CommandBatch;
use raft_node::fuzz::{Entry, Payload, StoredMembership, log_id};
use raft_node::membership::RetiredIds;
use raft_node::storage::Storage;
use raft_node::storage::log_entry::{SnapshotMembers, encode_entry, encode_membership};

/// Newest entry that the snapshot covers; the rest is in the log only.
const SNAPSHOT_AT: u64 = 4;

/// All files of a data directory, with the directory's version before their names.
const FILES: [&str; 3] = [
    "identity",
    "log/0000000000000001.wal",
    "snapshots/0000000000000004-0000000000000001.snap",
];

const DIR: &str = "data-7";

fn options() -> WalOptions {
    WalOptions {
        segment_bytes: 64 * 1024,
        ..WalOptions::default()
    }
}

/// Returns the entries: the membership, a leader's blank entry, and all commands.
fn entries() -> Vec<Entry> {
    let first = Entry {
        log_id: log_id(0, 0),
        payload: Payload::Membership(alone()),
    };
    let blank = Entry {
        log_id: log_id(1, 1),
        payload: Payload::Blank,
    };
    let proposals = (2..).zip(batches()).map(|(index, commands)| Entry {
        log_id: log_id(1, index),
        payload: Payload::Normal(Proposal { term: 1, commands }),
    });
    [first, blank].into_iter().chain(proposals).collect()
}

/// Returns the state after the entries up to `index`.
fn state_at(index: u64) -> Store {
    let mut store = Store::new();
    for entry in entries().into_iter().filter(|entry| entry.log_id.index <= index) {
        let Payload::Normal(proposal) = entry.payload else {
            continue;
        };
        let batch = CommandBatch::decode(proposal.commands).unwrap();
        let context = znode_store::EntryContext {
            time_ms: batch.time_ms,
            term: 1,
        };
        for bytes in batch.envelopes {
            let request: Request = Envelope::decode(&bytes).unwrap().request;
            store.apply(&context, request, &mut Vec::new());
        }
    }
    store
}

/// Writes the directory as a node does, and syncs each step before the next.
fn write_directory(disk: &SimDisk, dir: &Path) {
    let identity = Identity {
        cluster: CLUSTER.into(),
        cluster_id: Some(CLUSTER_ID),
        node_id: 1,
        disk_id: DISK_ID,
    };
    drop(
        DataDir::create(Arc::new(disk.clone()), dir, identity, || Ok(()))
            .unwrap()
            .unwrap(),
    );
    let storage = Storage::open(Arc::new(disk.clone()), dir, CLUSTER, 1, options()).unwrap();
    let (sender, receiver) = mpsc::channel();
    let done = || {
        let sender = sender.clone();
        Box::new(move |result: Result<(), _>| {
            result.unwrap();
            sender.send(()).unwrap();
        })
    };
    let vote = VoteRecord {
        term: 1,
        node_id: Some(1),
        committed: true,
    };
    for entry in entries() {
        storage.wal.append(vec![encode_entry(&entry)], done()).unwrap();
        receiver.recv().unwrap();
        if entry.log_id.index == 0 {
            storage.wal.save_vote(vote, done()).unwrap();
            receiver.recv().unwrap();
        }
    }
    let membership = encode_membership(&SnapshotMembers {
        membership: StoredMembership::new(Some(log_id(0, 0)), alone()),
        retired: RetiredIds::from_ranges(vec![(2, 4), (7, 7)]).unwrap(),
    });
    let meta = SnapshotMeta {
        last: Some(LogPos {
            term: 1,
            index: SNAPSHOT_AT,
        }),
        membership,
        snapshot_id: format!("1-{SNAPSHOT_AT}"),
        made_ms: TIME_MS,
    };
    let mut writer = storage.snapshots.create(meta).unwrap();
    let mut store = state_at(SNAPSHOT_AT);
    store.begin_snapshot();
    while let Some(part) = store.next_snapshot_part(4) {
        writer.write_part(&codec::encode(&part)).unwrap();
    }
    writer.finish().unwrap();
    storage.close().unwrap();
}

fn read(disk: &SimDisk, path: &Path) -> Vec<u8> {
    let file = disk
        .open(path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    read_all(file.as_ref()).unwrap()
}

#[tokio::test]
async fn golden_data_directory() {
    let disk = SimDisk::new();
    let written = Path::new("/data");
    write_directory(&disk, written);
    let copy = tempfile::tempdir().unwrap();
    for name in FILES {
        let bytes = golden(&format!("{DIR}/{name}"), &read(&disk, &written.join(name)));
        let path = copy.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    let members = BTreeMap::from([(1, member(1).address)]);
    let mut config = NodeConfig::new(1, CLUSTER, members, copy.path());
    config.raft.log = options();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let node = Node::start_on(config, listener).await.unwrap();
    node.read_barrier().await.unwrap();
    let expected = state_at(u64::MAX);
    node.read(|store| {
        assert_eq!(store.node_count(), expected.node_count());
        let config = ZPath::parse("/app/config").unwrap();
        assert_eq!(store.get(&config), expected.get(&config));
        let lock = LockName::parse("orders/42").unwrap();
        assert_eq!(store.lock(&lock), expected.lock(&lock));
        assert_eq!(store.sessions(), expected.sessions());
    });
    node.stop().await;
}

#[test]
fn golden_directory_has_the_expected_state() {
    let store = state_at(u64::MAX);
    let names = |path: &str| {
        let names = store.children(&ZPath::parse(path).unwrap()).unwrap();
        names
            .iter()
            .map(|name| name.to_string())
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(names("/"), "app box locks soon zookeeper");
    assert_eq!(names("/app"), "alive config guarded");
    let lock = LockName::parse("orders/42").unwrap();
    let lock = store.lock(&lock).unwrap();
    assert_eq!((lock.holders.len(), lock.queue.len()), (1, 0), "{lock:?}");
    let holder = &lock.holders[0];
    assert_eq!(holder.mode, LockMode::Exclusive);
    let answer = holder.revoke.as_ref().and_then(|revoke| revoke.answer.as_deref());
    assert_eq!(answer, Some("in a minute"));
    let pool = store.lock(&LockName::parse("pool").unwrap()).unwrap();
    assert_eq!(
        (pool.limit, pool.draining, pool.holders.len()),
        (Some(5), true, 1),
        "{pool:?}"
    );
    let owners: Vec<_> = store
        .sessions()
        .into_iter()
        .map(|session| session.owner)
        .collect();
    assert_eq!(owners, [Principal::Nobody, Principal::Token(TokenId([1; 16]))]);
    let operator = Identities::new([znode_store::Identity::Super]);
    let seen = store.seen_by(&operator);
    assert_eq!(seen.tokens().unwrap().len(), 2);
    assert_eq!(seen.roles().unwrap().len(), 2, "anonymous and workers");
    assert_eq!(seen.certificates().unwrap().len(), 1);
    let worker = Identities::new([znode_store::Identity::X509("CN=worker".into())]);
    let config = ZPath::parse("/app/config").unwrap();
    assert!(store.seen_by(&worker).may(Right::Administer, &config).is_ok());
}

#[test]
fn golden_backup() {
    let head = BackupHead {
        program: "0.1.0".into(),
        cluster: CLUSTER.into(),
        cluster_id: CLUSTER_ID,
        node_id: 1,
        made_at_ms: TIME_MS,
        term: 1,
        index: SNAPSHOT_AT,
        members: vec![BackupMember {
            node_id: 1,
            peer: member(1).address.peer,
            http: member(1).address.http,
            voter: true,
        }],
    };
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("/backup")).unwrap();
    let mut state = state_at(SNAPSHOT_AT);
    write_backup(&disk, Path::new("/backup"), &head, &mut state).unwrap();
    let bytes = golden("backup-1", &read(&disk, Path::new("/backup/restored")));
    let mut reader = BackupReader::open(&bytes[..]).unwrap();
    let store = reader.load().unwrap();
    assert_eq!(reader.head(), &head);
    assert_eq!(store.digest(), state_at(SNAPSHOT_AT).digest());
    let seen = inspect(&place("backup-1")).unwrap();
    assert_eq!((seen.zxid, seen.digest), (store.zxid().0, store.digest()));
}
