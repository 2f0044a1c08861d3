//! Damage at rest: flipped bits, zeroed sectors, missing files. The log detects each, unless it is harmless;
//! it never silently becomes a different log.

use std::path::{Path, PathBuf};

use raft_log::sim_disk::{CrashModel, Random, SimDisk};
use raft_log::{Disk, StorageError};

use crate::node::{DATA_DIR, History, Node, run, segments};
use crate::state::State;

/// Number of calls in a program.
const CALLS: usize = 80;
/// Number of programs whose disks are damaged everywhere.
const PROGRAMS: u64 = 8;
const SECTOR_BYTES: usize = 512;

struct Written {
    disk: SimDisk,
    durable: CrashModel,
    history: History,
    /// Number of records in the batches before the last one.
    before_last_batch: usize,
}

/// Returns a disk after a program that ended without a failure.
fn written(seed: u64) -> Written {
    let mut random = Random::new(seed);
    let (disk, mut history) = (SimDisk::new(), History::default());
    let mut node = run(&disk, &mut history, &mut random, CALLS).unwrap();
    while node.step_writer() {}
    let before_last_batch = history.acknowledged_records();
    // One more batch of several records that span several sectors.
    let records = history.records.len();
    while history.records.len() < records + 5 {
        history.call_append(&mut node, &mut random).unwrap();
    }
    node.step(&mut history).unwrap();
    let mut durable = disk.crash_model();
    disk.advance(&mut durable, disk.events());
    Written {
        disk,
        durable,
        history,
        before_last_batch,
    }
}

impl Written {
    /// Returns a copy of the durable disk.
    fn copy(&self) -> SimDisk {
        self.durable.crash(1)
    }

    /// Opens a damaged copy. Returns the number of records found, or the error.
    fn open(&self, damaged: &SimDisk) -> Result<usize, StorageError> {
        let node = Node::open(damaged)?;
        let found = State::of(&node.wal);
        let all = self.history.records.len();
        let count = (0..=all)
            .rev()
            .find(|records| self.history.state(*records) == found);
        Ok(count.expect("the log found is one of its earlier states"))
    }
}

fn is_refusal(error: &StorageError) -> bool {
    matches!(error, StorageError::Damaged(_) | StorageError::Foreign(_))
}

fn contents(disk: &SimDisk, path: &Path) -> Vec<u8> {
    let file = disk.open(path).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn write(disk: &SimDisk, path: &Path, at: usize, bytes: &[u8]) {
    disk.open(path).unwrap().write_all_at(bytes, at as u64).unwrap();
}

/// The log's segments, the identity and the snapshots.
fn all_files(disk: &SimDisk) -> Vec<PathBuf> {
    disk.files()
        .into_iter()
        .filter(|path| !path.ends_with("lock"))
        .collect()
}

#[test]
fn flipped_bit_is_detected_or_harmless() {
    let seed = 1;
    let written = written(seed);
    let mut random = Random::new(seed);
    let all = written.history.records.len();
    let (mut noticed, mut harmless) = (0, 0);
    for path in segments(&written.disk)
        .into_iter()
        .chain([Path::new(DATA_DIR).join("identity")])
    {
        for (at, byte) in contents(&written.disk, &path).into_iter().enumerate() {
            // In unwritten space a sample suffices.
            if byte == 0 && random.below(16) > 0 {
                continue;
            }
            let damaged = written.copy();
            write(&damaged, &path, at, &[byte ^ (1 << random.below(8))]);
            match written.open(&damaged) {
                Ok(found) => {
                    assert_eq!(
                        found,
                        all,
                        "seed {seed}: {} byte {at} was flipped",
                        path.display()
                    );
                    harmless += 1;
                }
                Err(error) => {
                    assert!(
                        is_refusal(&error),
                        "seed {seed}: {} byte {at}: {error}",
                        path.display()
                    );
                    noticed += 1;
                }
            }
        }
    }
    println!(
        "{} bits flipped: {noticed} noticed, {harmless} harmless",
        noticed + harmless
    );
    assert!(noticed > harmless, "{noticed} were noticed, {harmless} harmless");
}

#[test]
fn lost_sector_is_detected_unless_a_torn_last_write_explains_it() {
    let (mut cut, mut proven) = (0, 0);
    for seed in 1..=PROGRAMS {
        let written = written(seed);
        for path in segments(&written.disk) {
            let bytes = contents(&written.disk, &path);
            for at in (0..bytes.len()).step_by(SECTOR_BYTES) {
                if bytes[at..at + SECTOR_BYTES].iter().all(|byte| *byte == 0) {
                    continue;
                }
                let damaged = written.copy();
                write(&damaged, &path, at, &[0; SECTOR_BYTES]);
                match written.open(&damaged) {
                    Ok(found) => {
                        let least = written.before_last_batch;
                        assert!(
                            found >= least,
                            "seed {seed}: {} byte {at}: {found}",
                            path.display()
                        );
                        cut += 1;
                    }
                    Err(error) => {
                        assert!(is_refusal(&error), "seed {seed}: {error}");
                        proven += u32::from(error.to_string().contains("was on disk before"));
                    }
                }
            }
        }
    }
    assert!(cut > 0, "a last batch has several sectors");
    assert!(proven > 0, "a newest segment has several batches");
}

#[test]
fn truncated_segment_is_detected_unless_newest() {
    for seed in 1..=PROGRAMS {
        let written = written(seed);
        let all = written.history.records.len();
        let paths = segments(&written.disk);
        for path in &paths[..paths.len() - 1] {
            let bytes = contents(&written.disk, path);
            for at in (0..bytes.len()).step_by(SECTOR_BYTES) {
                let damaged = written.copy();
                write(&damaged, path, at, &vec![0; bytes.len() - at]);
                match written.open(&damaged) {
                    Ok(found) => assert_eq!(found, all, "seed {seed}: {} from byte {at}", path.display()),
                    Err(error) => assert!(is_refusal(&error), "seed {seed}: {error}"),
                }
            }
        }
    }
}

#[test]
fn swapped_sectors_are_detected() {
    for seed in 1..=PROGRAMS {
        let written = written(seed);
        let mut random = Random::new(seed);
        for path in segments(&written.disk) {
            let bytes = contents(&written.disk, &path);
            let sectors: Vec<&[u8]> = bytes.chunks(SECTOR_BYTES).collect();
            for (to, old) in sectors
                .iter()
                .enumerate()
                .filter(|(_, old)| old.iter().any(|byte| *byte != 0))
            {
                let from = sectors[random.below(sectors.len() as u64) as usize];
                if from == *old || from.iter().all(|byte| *byte == 0) {
                    continue;
                }
                let damaged = written.copy();
                write(&damaged, &path, to * SECTOR_BYTES, from);
                let error = written.open(&damaged).expect_err("a sector is wrong");
                assert!(is_refusal(&error), "seed {seed}: {error}");
            }
        }
    }
}

#[test]
fn missing_file_is_detected() {
    for seed in 1..=PROGRAMS {
        let written = written(seed);
        let newest = segments(&written.disk).pop().unwrap();
        let all = written.history.records.len();
        for path in all_files(&written.disk) {
            // No other file records that the newest segment exists.
            if path == newest || path.extension().is_some_and(|it| it == "snap") {
                continue;
            }
            let damaged = written.copy();
            damaged.remove(&path).unwrap();
            match written.open(&damaged) {
                // All its entries were purged or truncated.
                Ok(found) => assert_eq!(found, all, "seed {seed}: {} is missing", path.display()),
                Err(error) => assert!(is_refusal(&error), "seed {seed}: {error}"),
            }
        }
    }
}
