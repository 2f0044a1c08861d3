//! Tests with damaged and truncated files: records that can still be read are true, or the index is refused.
//! Nothing panics, and no record is invented.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use lock_history::{Index, IndexError};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::support::{OWNER, bounds, lock, open, report};

const RECORDS: u64 = 300;

fn written() -> TempDir {
    let dir = TempDir::new().unwrap();
    let mut index = open(&dir, 1_000);
    for token in 1..=RECORDS {
        report(&mut index, "a", token * 2, token * 2 + 1);
        if token % 7 == 0 {
            index.commit(true).unwrap();
        }
    }
    index.shut().unwrap();
    dir
}

/// Reads all records and checks them, or returns `None` if the index is refused. True records have even
/// tokens and ended at the next position.
fn count_true_records(dir: &Path) -> Option<usize> {
    let mut index = Index::open(dir, OWNER, bounds(1_000)).ok()?;
    let page = index.page(&lock("a"), None, usize::MAX).ok()?;
    let whole = crate::support::hold("a", 2);
    for record in &page.records {
        let token = record.hold.fencing_token.0;
        let expected = crate::support::hold("a", token);
        assert!(token % 2 == 0 && token <= RECORDS * 2);
        assert_eq!(record.hold, *expected);
        assert_eq!(record.hold.note, whole.note);
    }
    Some(page.records.len())
}

#[derive(Debug, Clone)]
enum Harm {
    Flip(prop::sample::Index, u8),
    Zero(prop::sample::Index, usize),
    Cut(prop::sample::Index),
    Garbage(u8),
}

fn any_harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        4 => (any::<prop::sample::Index>(), 0u8..8).prop_map(|(at, bit)| Harm::Flip(at, bit)),
        2 => (any::<prop::sample::Index>(), 1usize..5_000).prop_map(|(at, length)| Harm::Zero(at, length)),
        1 => any::<prop::sample::Index>().prop_map(Harm::Cut),
        1 => any::<u8>().prop_map(Harm::Garbage),
    ]
}

fn do_harm(bytes: &mut Vec<u8>, harm: &Harm) {
    if bytes.is_empty() {
        return;
    }
    match harm {
        Harm::Flip(at, bit) => {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        Harm::Zero(at, length) => {
            let at = at.index(bytes.len());
            let end = bytes.len().min(at + length);
            bytes[at..end].fill(0);
        }
        Harm::Cut(at) => bytes.truncate(at.index(bytes.len())),
        Harm::Garbage(byte) => bytes.fill(*byte),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn damaged_index_yields_true_records_or_is_refused(
        harm in any_harm(),
        // The used part of the database file, or any byte of any file.
        used in prop_oneof![3 => Just(true), 1 => Just(false)],
        which in any::<prop::sample::Index>(),
    ) {
        let dir = written();
        let history = dir.path().join("history");
        let mut files: Vec<_> = fs::read_dir(&history)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file())
            .collect();
        files.sort();
        let file = match used {
            true => history.join("db"),
            false => files[which.index(files.len())].clone(),
        };
        let mut bytes = fs::read(&file).unwrap();
        if used {
            // The rest of the file is zeros.
            let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
            let mut data = bytes[..end].to_vec();
            do_harm(&mut data, &harm);
            bytes.splice(..end, data);
        } else {
            do_harm(&mut bytes, &harm);
        }
        fs::write(&file, bytes).unwrap();
        if let Some(records) = count_true_records(&history) {
            prop_assert!(records <= RECORDS as usize);
        } else {
            // A new index can be created in its place.
            lock_history::set_aside(&history).unwrap();
            prop_assert_eq!(count_true_records(&history), Some(0));
        }
    }
}

#[test]
fn full_disk_is_an_error() {
    let dir = TempDir::new().unwrap();
    let history = dir.path().join("history");
    fs::create_dir(&history).unwrap();
    // A device that is always full.
    std::os::unix::fs::symlink("/dev/full", history.join("db")).unwrap();
    let failed = Index::open(&history, OWNER, bounds(100)).and_then(|mut index| {
        report(&mut index, "a", 1, 2);
        index.commit(true)?;
        index.flush()
    });
    assert!(failed.is_err());
}

/// Copies an index that was just closed. sled holds its lock on the files a little longer than its handle;
/// `Index::open` would wait for it, but nobody locks a copy.
fn copied(history: &Path, copy: &Path) -> PathBuf {
    fs::create_dir(copy).unwrap();
    for file in fs::read_dir(history).unwrap().map(Result::unwrap) {
        if file.file_type().unwrap().is_file() {
            fs::copy(file.path(), copy.join(file.file_name())).unwrap();
        }
    }
    copy.to_owned()
}

/// Returns the error of opening an index after `harm` changed its values, with checksums that match.
fn open_harmed(harm: impl FnOnce(&sled::Db)) -> Option<IndexError> {
    let dir = written();
    let copy = copied(&dir.path().join("history"), &dir.path().join("copy"));
    let db = sled::open(&copy).unwrap();
    harm(&db);
    drop(db);
    Index::open(&copy, OWNER, bounds(1_000)).err()
}

#[test]
fn empty_index_of_a_killed_node_does_not_count_as_lost() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir, 1_000);
    assert!(!index.was_lost(), "it is new");
    // The files as a killed process leaves them.
    let copy = copied(&dir.path().join("history"), &dir.path().join("copy"));
    let again = Index::open(&copy, OWNER, bounds(1_000)).unwrap();
    assert!(!again.was_lost(), "nothing was in it");
    again.shut().unwrap();
    index.shut().unwrap();

    let spoilt = written();
    let file = spoilt.path().join("history/db");
    let length = fs::metadata(&file).unwrap().len();
    fs::write(&file, vec![0; usize::try_from(length).unwrap()]).unwrap();
    if let Ok(index) = Index::open(&spoilt.path().join("history"), OWNER, bounds(1_000)) {
        assert!(index.was_lost(), "the file was overwritten from its beginning");
    }
}

fn chunks(db: &sled::Db) -> Vec<sled::IVec> {
    db.scan_prefix(b"c").keys().map(Result::unwrap).collect()
}

#[test]
fn missing_and_truncated_chunks_are_detected() {
    assert_eq!(open_harmed(|_| {}), None);
    let is_damage = |error: Option<IndexError>| matches!(error, Some(IndexError::Damaged(_)));
    assert!(is_damage(open_harmed(|db| {
        let chunks = chunks(db);
        db.remove(&chunks[chunks.len() / 2]).unwrap();
    })));
    assert!(is_damage(open_harmed(|db| {
        db.remove(chunks(db).last().unwrap()).unwrap();
    })));
    assert!(is_damage(open_harmed(|db| {
        let key = chunks(db).swap_remove(3);
        let bytes = db.get(&key).unwrap().unwrap();
        db.insert(key, &bytes[..bytes.len() - 1]).unwrap();
    })));
}

#[test]
fn other_versions_are_refused() {
    let refused = open_harmed(|db| {
        let mut bytes = db.get(b"m").unwrap().unwrap().to_vec();
        bytes[0] = 1;
        db.insert(b"m", bytes).unwrap();
    });
    assert_eq!(refused, Some(IndexError::OtherVersion(1)));
    assert!(!refused.unwrap().may_pass());
}

#[test]
fn index_directory_is_readable_by_its_owner_alone() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("history");
    for mode in [0o755, 0o700] {
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let index = Index::open(&path, OWNER, bounds(10)).unwrap();
        index.shut().unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
