//! Tests of a complete data directory on a real disk, opened as a node opens it.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on may say so shortly, also in its helpers"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;

use bytes::Bytes;
use raft_log::{LogPos, RealDisk, SnapshotMeta, StorageError, WalEntry, WalOptions};
use raft_node::storage::Storage;

fn open(path: &Path) -> Result<Storage, StorageError> {
    let options = WalOptions {
        segment_bytes: 65536,
        ..WalOptions::default()
    };
    Storage::open(Arc::new(RealDisk), path, "tests", 1, options)
}

/// Appends entries 1 to `count` and waits until they are durable.
fn append(storage: &Storage, count: u64) {
    let (sender, receiver) = mpsc::channel();
    let entry = |index| WalEntry {
        pos: LogPos { term: 1, index },
        payload: Bytes::from_static(b"entry"),
    };
    let done = Box::new(move |result| sender.send(result).unwrap());
    storage
        .wal
        .append((1..=count).map(entry).collect(), done)
        .unwrap();
    receiver.recv().unwrap().unwrap();
}

fn snapshot(storage: &Storage, index: u64) {
    let last = Some(LogPos { term: 1, index });
    let meta = SnapshotMeta {
        last,
        membership: Bytes::new(),
        snapshot_id: "s".into(),
        made_ms: 1,
    };
    storage.snapshots.create(meta).unwrap().finish().unwrap();
}

#[test]
fn directory_is_exclusive_and_its_contents_survive_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path()).unwrap();
    storage.set_cluster_id([7; 16]).unwrap();
    append(&storage, 100);
    snapshot(&storage, 60);
    let second = open(dir.path()).map(|_| ()).unwrap_err();
    assert!(matches!(second, StorageError::InUse(_)), "{second}");
    drop(storage);
    let storage = open(dir.path()).unwrap();
    assert_eq!(storage.dir.identity().cluster_id, Some([7; 16]));
    assert_eq!(storage.wal.range(), 1..101);
    assert_eq!(
        storage.snapshots.latest().unwrap().meta().last,
        Some(LogPos { term: 1, index: 60 })
    );
}

#[test]
fn purged_log_without_its_snapshot_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path()).unwrap();
    append(&storage, 100);
    snapshot(&storage, 60);
    storage
        .wal
        .purge(LogPos { term: 1, index: 60 }, Box::new(Result::unwrap))
        .unwrap();
    let path = storage.snapshots.latest().unwrap().path().to_owned();
    storage.close().unwrap();
    drop(storage);
    drop(open(dir.path()).unwrap());
    std::fs::remove_file(path).unwrap();
    let refused = open(dir.path()).map(|_| ()).unwrap_err();
    assert!(matches!(refused, StorageError::Damaged(_)), "{refused}");
    assert!(
        refused
            .to_string()
            .contains("covers entry 1-60, and there is no snapshot"),
        "{refused}"
    );
}

#[test]
fn truncated_segment_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path()).unwrap();
    append(&storage, 100);
    drop(storage);
    let path = dir.path().join("log/0000000000000001.wal");
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    for len in [65535, 4096, 512, 511, 1, 0] {
        file.set_len(len).unwrap();
        let refused = open(dir.path()).map(|_| ()).unwrap_err();
        assert!(matches!(refused, StorageError::Damaged(_)), "{refused}");
    }
}

#[test]
fn log_and_snapshots_of_another_directory_are_rejected() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (dir, id) in [(&ours, [1; 16]), (&theirs, [2; 16])] {
        let storage = open(dir.path()).unwrap();
        storage.set_cluster_id(id).unwrap();
        append(&storage, 100);
        snapshot(&storage, 60);
    }
    for part in ["log", "snapshots"] {
        let (here, there) = (ours.path().join(part), theirs.path().join(part));
        let kept = ours.path().join("kept");
        std::fs::rename(&here, &kept).unwrap();
        std::fs::rename(&there, &here).unwrap();
        let refused = open(ours.path()).map(|_| ()).unwrap_err();
        assert!(matches!(refused, StorageError::Foreign(_)), "{refused}");
        std::fs::remove_dir_all(&here).unwrap();
        std::fs::rename(&kept, &here).unwrap();
        drop(open(ours.path()).unwrap());
    }
}
