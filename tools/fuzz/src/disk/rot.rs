//! The target `rot`: a directory that a node has written, and what the bytes say that becomes of it: bits that flip, sectors
//! that come back empty or with the contents of others, files that lose their ends or go missing.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use bytes::Bytes;
use raft_log::sim_disk::SimDisk;
use raft_log::wal::{SECTOR_BYTES, Step};
use raft_log::{LogPos, VoteRecord, WalEntry};

use super::directory::{State, contents, open, put};

/// An edit is a kind, a file, a place in it (two bytes, little endian), and what the kind makes of one byte.
const EDIT_BYTES: usize = 5;

/// More edits are not looked at.
const MAX_EDITS: usize = 32;

/// The smallest change that a log makes as a whole.
#[derive(Clone)]
enum Record {
    Entry(WalEntry),
    Vote(VoteRecord),
    Truncate(u64),
    Purge(LogPos),
}

/// A file and what is in it.
pub type Contents = (PathBuf, Vec<u8>);

/// What the directory is after all calls.
static FILES: LazyLock<Vec<Contents>> = LazyLock::new(|| written(calls().len()));

/// Damages the directory. Answers whether it was a log still.
pub fn run(bytes: &[u8]) -> bool {
    let mut files: Vec<(PathBuf, Option<Vec<u8>>)> = FILES
        .iter()
        .map(|(path, bytes)| (path.clone(), Some(bytes.clone())))
        .collect();
    for edit in bytes.chunks_exact(EDIT_BYTES).take(MAX_EDITS) {
        let [kind, file, low, high, what] = edit else {
            unreachable!("it has five bytes")
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
    // Without an identity and without a log it is a new directory: that it was one before is written nowhere else.
    if files.iter().all(|(_, bytes)| bytes.is_none()) {
        return false;
    }
    let Ok(opened) = open(&disk) else { return false };
    let found = State::of(&opened.wal);
    let mut state = State::default();
    let mut moments: Vec<State> = calls()
        .into_iter()
        .flatten()
        .map(|record| state.after(&record))
        .collect();
    moments.push(State::default());
    assert!(
        moments.iter().any(|moment| found.may_be(moment, &state)),
        "this was never the log: {found:?}"
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

/// After how many calls a directory is worth being a first input.
pub fn lengths() -> impl Iterator<Item = usize> {
    (0..=calls().len()).step_by(3)
}

/// The files after so many calls, each of which was written and synced for itself.
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
            queued.expect("the calls are in order");
        }
        assert_eq!(opened.writer.step(false), Step::Worked);
    }
    drop(opened);
    contents(&disk)
}

/// The calls: votes, entries of all sizes, some taken back by the next leader, and what a snapshot covers let go.
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
            // No zeros, which a lost sector would look like.
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
    /// Whether this is what the log was at a moment, but for entries that a snapshot covers at the end: the segments that had
    /// them are gone by right, also if the record that says so is damaged.
    fn may_be(&self, moment: &Self, end: &Self) -> bool {
        let covered = end.purged.map_or(0, |purged| purged.index);
        let wanted = |(index, entry): (&u64, &_)| *index <= covered || self.entries.get(index) == Some(entry);
        self.vote == moment.vote
            && self.purged == moment.purged
            && moment.entries.iter().all(wanted)
            && self
                .entries
                .iter()
                .all(|(index, entry)| moment.entries.get(index) == Some(entry))
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

/// Inputs for [`run`]: no damage, and one of each kind in each file.
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
