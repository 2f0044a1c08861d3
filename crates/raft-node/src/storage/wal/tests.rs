//! The log on a real disk: what a caller sees.

use std::sync::mpsc;

use super::*;
use crate::storage::disk::RealDisk;

const IDENTITY: WalIdentity = WalIdentity {
    cluster_id: [0; 16],
    disk_id: [7; 16],
    node_id: 1,
};

fn options() -> WalOptions {
    WalOptions {
        segment_bytes: 4096,
        cached_bytes: 1024,
        idle_flush: None,
        janitor_thread: true,
    }
}

fn start(dir: &Path, options: WalOptions) -> Wal {
    Wal::start(Arc::new(RealDisk), dir, IDENTITY, options).unwrap()
}

fn entry(term: u64, index: u64) -> WalEntry {
    let payload = Bytes::from(format!("entry {index} of term {term} ").repeat(index as usize % 7));
    WalEntry {
        pos: LogPos { term, index },
        payload,
    }
}

fn entries(term: u64, range: Range<u64>) -> Vec<WalEntry> {
    range.map(|index| entry(term, index)).collect()
}

/// Calls and waits until it is durable.
fn durably(call: impl FnOnce(OnDurable) -> Result<(), StorageError>) -> Result<(), StorageError> {
    let (sender, receiver) = mpsc::channel();
    call(Box::new(move |result| sender.send(result).unwrap()))?;
    receiver.recv().expect("the writer answers")
}

#[test]
fn everything_is_there_again_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let wal = start(dir.path(), options());
    let vote = VoteRecord {
        term: 3,
        node_id: Some(2),
        committed: true,
    };
    durably(|done| wal.append(entries(1, 1..200), done)).unwrap();
    durably(|done| wal.truncate_after(Some(150), done)).unwrap();
    durably(|done| wal.append(entries(3, 151..300), done)).unwrap();
    durably(|done| wal.save_vote(vote, done)).unwrap();
    wal.save_committed(LogPos { term: 3, index: 299 }).unwrap();
    durably(|done| wal.purge(LogPos { term: 1, index: 100 }, done)).unwrap();
    wal.close().unwrap();
    drop(wal);

    let wal = start(dir.path(), options());
    assert_eq!(wal.vote(), Some(vote));
    assert_eq!(wal.committed(), Some(LogPos { term: 3, index: 299 }));
    assert_eq!(wal.purged(), Some(LogPos { term: 1, index: 100 }));
    assert_eq!(wal.range(), 101..300);
    let expected: Vec<_> = entries(1, 101..151)
        .into_iter()
        .chain(entries(3, 151..300))
        .collect();
    assert!(
        wal.plan_read(0..400, usize::MAX).needs_disk(),
        "the cache holds 1 KiB"
    );
    assert_eq!(wal.read(0..400).unwrap(), expected);
    wal.close().unwrap();
}

#[test]
fn what_is_appended_is_readable_at_once_and_durable_later() {
    let dir = tempfile::tempdir().unwrap();
    let (wal, mut writer) = Wal::open(Arc::new(RealDisk), dir.path(), IDENTITY, options()).unwrap();
    let (sender, receiver) = mpsc::channel();
    for index in 1..4 {
        let sender = sender.clone();
        let done =
            Box::new(move |result: Result<(), StorageError>| sender.send((index, result.is_ok())).unwrap());
        wal.append(entries(1, index..index + 1), done).unwrap();
    }
    assert_eq!(wal.read(1..4).unwrap(), entries(1, 1..4));
    assert!(receiver.try_recv().is_err(), "nothing is on disk yet");
    assert_eq!(writer.step(false), Step::Worked);
    let told: Vec<_> = receiver.try_iter().collect();
    assert_eq!(told, [(3, true), (2, true), (1, true)], "newest first");
    assert_eq!(writer.step(false), Step::Idle);
}
