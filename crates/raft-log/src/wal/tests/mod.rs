//! Tests of the log on a real disk, through its public interface.

mod full_disk;

use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::disk::RealDisk;
use crate::sim_disk::{Fault, SimDisk};

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
        preallocator_thread: true,
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

/// Calls and waits until the operation is durable.
fn durably(call: impl FnOnce(OnDurable) -> Result<(), StorageError>) -> Result<(), StorageError> {
    let (sender, receiver) = mpsc::channel();
    call(Box::new(move |result| sender.send(result).unwrap()))?;
    receiver.recv().expect("the writer answers")
}

#[test]
fn restart_restores_entries_vote_and_marks() {
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
fn appended_entries_are_readable_before_they_are_durable() {
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

/// Starts a log on a simulated disk with its threads.
fn simulated(idle_flush: Option<Duration>) -> (SimDisk, Wal) {
    let disk = SimDisk::new();
    let options = WalOptions {
        idle_flush,
        ..options()
    };
    let wal = Wal::start(Arc::new(disk.clone()), Path::new("/log"), IDENTITY, options).unwrap();
    (disk, wal)
}

/// Opens the log as a new process does after the old one was killed.
fn reopen(disk: &SimDisk) -> Wal {
    let mut model = disk.crash_model();
    disk.advance(&mut model, disk.events());
    let left = Arc::new(model.crash(1));
    Wal::open(
        left,
        Path::new("/log"),
        IDENTITY,
        WalOptions {
            preallocator_thread: false,
            ..options()
        },
    )
    .unwrap()
    .0
}

#[test]
fn commit_mark_is_written_when_idle() {
    let (disk, wal) = simulated(Some(Duration::from_millis(1)));
    durably(|done| wal.append(entries(1, 1..10), done)).unwrap();
    for index in [5, 9] {
        let mark = LogPos { term: 1, index };
        wal.save_committed(mark).unwrap();
        while reopen(&disk).committed() != Some(mark) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn idle_log_keeps_no_payload_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let options = WalOptions {
        cached_bytes: usize::MAX,
        ..options()
    };
    let (wal, mut writer) = Wal::open(Arc::new(RealDisk), dir.path(), IDENTITY, options).unwrap();
    wal.append(entries(1, 1..20), Box::new(|written| written.unwrap()))
        .unwrap();
    assert_eq!(writer.step(false), Step::Worked);
    assert!(
        !wal.plan_read(1..20, usize::MAX).needs_disk(),
        "it was just appended"
    );
    // An idle log writes the mark alone.
    wal.save_committed(LogPos { term: 1, index: 19 }).unwrap();
    assert_eq!(writer.step(false), Step::Worked);
    assert!(wal.plan_read(1..20, usize::MAX).needs_disk());
    assert_eq!(wal.read(1..20).unwrap(), entries(1, 1..20));
    wal.append(entries(1, 20..22), Box::new(|written| written.unwrap()))
        .unwrap();
    assert!(
        !wal.plan_read(20..22, usize::MAX).needs_disk(),
        "payloads that are not on disk are in memory"
    );
    assert_eq!(wal.read(1..22).unwrap(), entries(1, 1..22));
}

#[test]
fn many_callers_share_a_sync() {
    let (disk, wal) = simulated(None);
    let next = Mutex::new(1);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    durably(|done| {
                        let mut next = next.lock();
                        *next += 1;
                        wal.append(entries(1, *next - 1..*next), done)
                    })
                    .unwrap();
                }
            });
        }
    });
    wal.close().unwrap();
    assert_eq!(reopen(&disk).read(0..1000).unwrap(), entries(1, 1..401));
}

#[tokio::test]
async fn failure_reaches_all_callers_and_is_permanent() {
    let (disk, wal) = simulated(None);
    durably(|done| wal.append(entries(1, 1..3), done)).unwrap();
    let failed = tokio::spawn({
        let wal = wal.clone();
        async move { wal.failed().await }
    });
    // The failing call may be the writer's or the preallocator's, which the writer will need.
    disk.fail_calls_from(disk.calls() + 1, Fault::InputOutput);
    let mut index = 3;
    let first = loop {
        match durably(|done| wal.append(entries(1, index..index + 1), done)) {
            Ok(()) => index += 1,
            Err(error) => break error,
        }
    };
    assert!(first.to_string().contains("simulated"), "{first}");
    assert!(failed.await.unwrap().to_string().contains("simulated"));
    let vote = VoteRecord {
        term: 2,
        node_id: None,
        committed: false,
    };
    let later = durably(|done| wal.save_vote(vote, done)).unwrap_err();
    assert!(matches!(later, StorageError::Failed(_)), "{later}");
    wal.wait_for_room().await;
    assert!(wal.close().is_err());
}

#[test]
fn segments_are_removed_once_their_entries_are_purged() {
    let (disk, wal) = simulated(None);
    durably(|done| wal.append(entries(1, 1..500), done)).unwrap();
    let before = disk.files().len();
    assert!(before > 5);
    let reader = wal.plan_read(400..450, usize::MAX);
    durably(|done| wal.purge(LogPos { term: 1, index: 450 }, done)).unwrap();
    wal.close().unwrap();
    // The preallocator ends after the writer, once its work is done.
    drop(wal);
    while disk.files().len() > before / 2 {
        std::thread::yield_now();
    }
    assert_eq!(
        reader.load().unwrap(),
        entries(1, 400..450),
        "a planned read still succeeds"
    );
    assert_eq!(reopen(&disk).range(), 451..500);
}

/// Votes have no index that would reveal a gap or a swap, and votes of one batch have no sync mark that
/// would: only the chain over all records does.
#[test]
fn lost_or_swapped_sectors_of_votes_are_detected() {
    for votes_in_a_batch in [1, 200] {
        let dir = tempfile::tempdir().unwrap();
        let options = WalOptions {
            preallocator_thread: false,
            ..options()
        };
        let open = || Wal::open(Arc::new(RealDisk), dir.path(), IDENTITY, options.clone());
        let (wal, mut writer) = open().unwrap();
        for node_id in 1..=200 {
            let vote = VoteRecord {
                term: 5,
                node_id: Some(node_id),
                committed: false,
            };
            wal.save_vote(vote, Box::new(Result::unwrap)).unwrap();
            if node_id % votes_in_a_batch == 0 {
                assert_eq!(writer.step(false), Step::Worked);
            }
        }
        assert_eq!(open().unwrap().0.vote().unwrap().node_id, Some(200));

        let refuses = |segment: &str, damage: &dyn Fn(&mut [u8])| {
            let path = dir.path().join(segment);
            let good = std::fs::read(&path).unwrap();
            let mut bad = good.clone();
            damage(&mut bad);
            assert_ne!(good, bad);
            std::fs::write(&path, bad).unwrap();
            let refused = open().map(|_| ()).unwrap_err();
            assert!(matches!(refused, StorageError::Damaged(_)), "{refused}");
            std::fs::write(&path, good).unwrap();
            open().unwrap();
        };
        let (oldest, newest) = ("0000000000000001.wal", "0000000000000003.wal");
        for segment in [oldest, newest] {
            refuses(segment, &|bytes| bytes[512..1536].rotate_left(512));
            refuses(segment, &|bytes| bytes.copy_within(1024..1536, 512));
        }
        refuses(oldest, &|bytes| bytes[3584..].fill(0));
        refuses(oldest, &|bytes| bytes[512..].fill(0));
    }
}
