//! Tests of snapshot files on a real disk: writing, sending, receiving, replacing, damage.

use super::*;
use crate::disk::RealDisk;

const CLUSTER: [u8; 16] = [3; 16];

fn open(dir: &Path) -> SnapshotStore {
    SnapshotStore::open(Arc::new(RealDisk), dir, CLUSTER, 1).unwrap()
}

fn meta(index: u64) -> SnapshotMeta {
    SnapshotMeta {
        last: Some(LogPos { term: 2, index }),
        membership: Bytes::from_static(b"everybody"),
        snapshot_id: format!("snapshot {index}"),
        made_ms: 7,
    }
}

fn write(store: &SnapshotStore, index: u64, parts: &[&[u8]]) -> SnapshotFile {
    let mut writer = store.create(meta(index)).unwrap();
    parts.iter().for_each(|part| writer.write_part(part).unwrap());
    writer.finish().unwrap()
}

fn read(file: &SnapshotFile) -> Result<Vec<Bytes>, StorageError> {
    file.read()?.collect()
}

fn names(dir: &Path) -> Vec<String> {
    RealDisk.list(dir).unwrap()
}

#[test]
fn newest_two_snapshots_survive_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    assert!(store.latest().is_none());
    let first = write(&store, 5, &[b"one", b"", b"two"]);
    write(&store, 9, &[]);
    write(&store, 7, &[b"late"]);
    assert_eq!(names(dir.path()).len(), 2);
    assert_eq!(
        read(&first).unwrap(),
        [&b"one"[..], b"", b"two"],
        "readable after it was replaced"
    );
    let unfinished = store.create(meta(20)).unwrap();
    std::mem::forget(unfinished);

    let store = open(dir.path());
    let latest = store.latest().unwrap();
    assert_eq!(latest.meta(), &meta(9));
    assert_eq!(latest.written_by(), 1);
    assert_eq!(names(dir.path()).len(), 2, "the unfinished one is gone");
    assert!(read(&latest).unwrap().is_empty());
}

#[test]
fn received_snapshot_has_identical_bytes() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let parts: Vec<Vec<u8>> = (0..50).map(|i| vec![i; usize::from(i) * 100]).collect();
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let sent = write(&open(from.path()), 5, &parts);
    let receiver_store = SnapshotStore::open(Arc::new(RealDisk), to.path(), [0; 16], 2).unwrap();
    let mut receiver = receiver_store.receive(sent.key()).unwrap();
    loop {
        // The connection breaks repeatedly.
        if receiver.received().is_multiple_of(7000) {
            let received = receiver.received();
            drop(receiver);
            receiver = receiver_store.receive(sent.key()).unwrap();
            assert_eq!(receiver.received(), received, "the received bytes are kept");
        }
        let bytes = sent.read_raw(receiver.received(), 1000).unwrap();
        if bytes.is_empty() {
            break;
        }
        receiver.write(&bytes).unwrap();
    }
    let received = receiver.finish().unwrap();
    assert_eq!(received.meta(), sent.meta());
    assert_eq!(received.bytes(), sent.bytes());
    assert_eq!(read(&received).unwrap(), parts);

    // A snapshot of another cluster, an incomplete one and a damaged one are rejected, and nothing is
    // replaced.
    let mut broken = receiver_store.receive(sent.key()).unwrap();
    broken.write(&sent.read_raw(0, 4000).unwrap()).unwrap();
    assert!(matches!(broken.finish(), Err(StorageError::Contract(_))));
    let mut longer = receiver_store.receive(sent.key()).unwrap();
    longer.write(&sent.read_raw(0, usize::MAX).unwrap()).unwrap();
    assert!(matches!(longer.write(b"x"), Err(StorageError::Contract(_))));
    drop(longer);
    let mut damaged = receiver_store.receive(sent.key()).unwrap();
    assert_eq!(damaged.received(), 0, "a failed reception leaves no bytes");
    let mut bytes = sent.read_raw(0, usize::MAX).unwrap().to_vec();
    bytes[4000] ^= 1;
    damaged.write(&bytes).unwrap();
    assert!(matches!(damaged.finish(), Err(StorageError::Damaged(_))));
    receiver_store.set_cluster_id([4; 16]);
    let mut foreign = receiver_store.receive(sent.key()).unwrap();
    foreign.write(&sent.read_raw(0, usize::MAX).unwrap()).unwrap();
    assert!(matches!(foreign.finish(), Err(StorageError::Foreign(_))));
    assert_eq!(names(to.path()).len(), 1);
    assert!(SnapshotStore::open(Arc::new(RealDisk), to.path(), [4; 16], 2).is_err());
}

#[test]
fn partial_reception_of_another_snapshot_is_removed() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sender = open(from.path());
    let (old, new) = (write(&sender, 5, &[&[1; 5000]]), write(&sender, 6, &[&[2; 5000]]));
    let store = open(to.path());
    let part_of = |sent: &SnapshotFile| {
        let mut receiver = store.receive(sent.key()).unwrap();
        receiver.write(&sent.read_raw(0, 4000).unwrap()).unwrap();
    };
    part_of(&old);
    assert_eq!(names(to.path()).len(), 1);
    assert_eq!(store.receive(new.key()).unwrap().received(), 0);
    part_of(&new);
    assert_eq!(store.receive(new.key()).unwrap().received(), 4000);
    assert_eq!(names(to.path()).len(), 1, "one at a time");
    // A newer snapshot exists: no peer will send this one again.
    write(&store, 7, &[b"own"]);
    assert_eq!(names(to.path()).len(), 1);
    // The next process removes the leftovers of the previous one.
    std::mem::forget(store.receive(new.key()).unwrap());
    assert_eq!(names(to.path()).len(), 2);
    drop(store);
    open(to.path());
    assert_eq!(names(to.path()).len(), 1);
}

#[test]
fn every_flipped_bit_and_truncation_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(&open(dir.path()), 5, &[b"one", b"two"]);
    let path = file.path().to_owned();
    let good = std::fs::read(&path).unwrap();
    let whole = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        SnapshotFile::open(&RealDisk, &path)
            .and_then(|file| read(&file))
            .is_ok()
    };
    assert!(whole(&good));
    for bit in 0..good.len() * 8 {
        let mut flipped = good.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(!whole(&flipped), "bit {bit}");
    }
    for len in 0..good.len() {
        assert!(!whole(&good[..len]), "{len} bytes");
    }
    assert!(!whole(&[&good[..], b"x"].concat()));
}
