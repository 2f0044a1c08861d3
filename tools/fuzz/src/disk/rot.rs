//! The target `rot`: damage to a directory that a node has written. The input lists the damage: flipped bits,
//! sectors that are empty or hold the contents of others, and files that are cut short or missing.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use bytes::Bytes;
use raft_log::sim_disk::SimDisk;
use raft_log::wal::{SECTOR_BYTES, Step};
use raft_log::{LogPos, VoteRecord, WalEntry};

use super::directory::{State, contents, open, put};

/// Length of an edit: a kind, a file, a position in it (two bytes, little endian), and a parameter of the
/// kind.
const EDIT_BYTES: usize = 5;

/// Maximum number of edits.
const MAX_EDITS: usize = 32;

/// The smallest atomic change of a log.
#[derive(Clone)]
enum Record {
    Entry(WalEntry),
    Vote(VoteRecord),
    Truncate(u64),
    Purge(LogPos),
}

/// Path and contents of a file.
pub type Contents = (PathBuf, Vec<u8>);

/// The directory after all calls.
static FILES: LazyLock<Vec<Contents>> = LazyLock::new(|| written(calls().len()));

/// Damages the directory. Returns whether it still opened as a log.
pub fn run(bytes: &[u8]) -> bool {
    let mut files: Vec<(PathBuf, Option<Vec<u8>>)> = FILES
        .iter()
        .map(|(path, bytes)| (path.clone(), Some(bytes.clone())))
        .collect();
    for edit in bytes.chunks_exact(EDIT_BYTES).take(MAX_EDITS) {
        let [kind, file, low, high, what] = edit else {
            unreachable!("an edit has five bytes")
        };
        let at = usize::from(u16::from_le_bytes([*low, *high]));
        let file = usize::from(*file) % files.len();
        damage(&mut files[file].1, *kind, at, *what);
    }
    let disk = SimDisk::new();
    for (path, bytes) in &files {
        if let Some(bytes) = bytes {
            put(&disk, path, bytes);
        }
    }
    // A directory without identity and log counts as new: nothing else records that it was in use.
    if files.iter().all(|(_, bytes)| bytes.is_none()) {
        return false;
    }
    let Ok(opened) = open(&disk) else { return false };
    let found = State::of(&opened.wal);
    let mut state = State::default();
    let mut states: Vec<State> = calls()
        .into_iter()
        .flatten()
        .map(|record| state.after(&record))
        .collect();
    states.push(State::default());
    assert!(
        states.iter().any(|state_then| found.matches(state_then, &state)),
        "the log never had these contents: {found:?}"
    );
    true
}

fn damage(file: &mut Option<Vec<u8>>, kind: u8, at: usize, what: u8) {
    let Some(bytes) = file.as_mut().filter(|bytes| !bytes.is_empty()) else {
        return;
    };
    let at = at % bytes.len();
    let sector = |place: usize| {
        let from = place / SECTOR_BYTES * SECTOR_BYTES;
        from..(from + SECTOR_BYTES).min(bytes.len())
    };
    match kind % 6 {
        0 => bytes[at] ^= 1 << (what % 8),
        1 => {
            let range = sector(at);
            bytes[range].fill(0);
        }
        2 => {
            let from = sector(usize::from(what) * SECTOR_BYTES % bytes.len());
            let to = sector(at);
            let length = from.len().min(to.len());
            bytes.copy_within(from.start..from.start + length, to.start);
        }
        3 => bytes[at..].fill(0),
        4 => bytes.truncate(at),
        _ => *file = None,
    }
}

/// Returns the numbers of calls after which a directory becomes a first input.
pub fn lengths() -> impl Iterator<Item = usize> {
    (0..=calls().len()).step_by(3)
}

/// Returns the files after `calls_made` calls, each of which was written and synced on its own.
pub fn written(calls_made: usize) -> Vec<Contents> {
    let disk = SimDisk::new();
    let files = super::files::fresh();
    put(&disk, Path::new(&files.0), &files.1);
    let mut opened = open(&disk).unwrap_or_else(|error| panic!("a new directory: {error}"));
    for call in calls().into_iter().take(calls_made) {
        for record in call {
            let done = Box::new(|result: Result<(), _>| {
                result.unwrap_or_else(|error| panic!("the disk has no faults: {error}"));
            });
            let queued = match record {
                Record::Entry(entry) => opened.wal.append(vec![entry], done),
                Record::Vote(vote) => opened.wal.save_vote(vote, done),
                Record::Truncate(after) => opened.wal.truncate_after(Some(after), done),
                Record::Purge(upto) => opened.wal.purge(upto, done),
            };
            queued.expect("the calls have the right order");
        }
        assert_eq!(opened.writer.step(false), Step::Worked);
    }
    drop(opened);
    contents(&disk)
}

/// Returns the calls: votes, entries of all sizes, entries truncated by the next leader, and purges of
/// entries that a snapshot covers.
fn calls() -> Vec<Vec<Record>> {
    let vote = |term, node_id, committed| {
        let node_id = Some(node_id);
        Record::Vote(VoteRecord {
            term,
            node_id,
            committed,
        })
    };
    let entry = |term, index: u64, length: usize| {
        Record::Entry(WalEntry {
            pos: LogPos { term, index },
            // Not zeros, which a lost sector holds.
            payload: Bytes::from(vec![b'a' + (index % 26) as u8; length]),
        })
    };
    vec![
        vec![vote(1, 1, false)],
        vec![vote(1, 1, true), entry(1, 1, 10)],
        vec![entry(1, 2, 600), entry(1, 3, 0), entry(1, 4, 1500)],
        vec![entry(1, 5, 40), entry(1, 6, 40)],
        vec![vote(2, 2, false)],
        vec![Record::Truncate(4), entry(2, 5, 700)],
        vec![entry(2, 6, 1200)],
        vec![entry(2, 7, 5000)],
        vec![entry(2, 8, 30), entry(2, 9, 30)],
        vec![Record::Purge(LogPos { term: 1, index: 4 })],
        vec![vote(4, 3, true)],
        vec![entry(4, 10, 900), entry(4, 11, 900), entry(4, 12, 900)],
        vec![entry(4, 13, 1)],
        vec![Record::Purge(LogPos { term: 4, index: 20 })],
        vec![entry(5, 21, 100), entry(5, 22, 513)],
    ]
}

impl State {
    /// Returns whether the log had these contents at `state_then`, except for entries that a snapshot covers at
    /// the end. The segments of such entries may be deleted, even if the record of the purge is damaged.
    fn matches(&self, state_then: &Self, end: &Self) -> bool {
        let covered = end.purged.map_or(0, |purged| purged.index);
        let wanted = |(index, entry): (&u64, &_)| *index <= covered || self.entries.get(index) == Some(entry);
        self.vote == state_then.vote
            && self.purged == state_then.purged
            && state_then.entries.iter().all(wanted)
            && self
                .entries
                .iter()
                .all(|(index, entry)| state_then.entries.get(index) == Some(entry))
    }

    fn after(&mut self, record: &Record) -> Self {
        match record {
            Record::Entry(WalEntry { pos, payload }) => {
                self.entries.insert(pos.index, (pos.term, payload.clone()));
            }
            Record::Vote(vote) => self.vote = Some(*vote),
            Record::Truncate(last) => self.entries.retain(|index, _| index <= last),
            Record::Purge(upto) => {
                self.entries.retain(|index, _| *index > upto.index);
                self.purged = Some(*upto);
            }
        }
        self.clone()
    }
}

/// Returns inputs for [`run`]: no damage, and damage of each kind in each file.
pub fn inputs() -> Vec<Vec<u8>> {
    let mut inputs = vec![Vec::new()];
    for file in 0..FILES.len() as u8 {
        for kind in 0..6 {
            let at = 0x0200 + 0x0111 * u16::from(kind);
            let [low, high] = at.to_le_bytes();
            inputs.push(vec![kind, file, low, high, 3]);
        }
    }
    inputs
}
