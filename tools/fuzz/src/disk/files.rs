//! The target `log`: arbitrary bytes as the identity and the segments of a node's log.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use lock_node::fuzz::{MAX_POSITION, record_start};
use raft_log::sim_disk::SimDisk;
use raft_log::wal::{RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, Step};
use raft_log::{LogPos, WalEntry};

use super::directory::{self, CLUSTER, DATA_DIR, LOG_DIR, NODE, State, open, put};

/// Id of the directory, in all inputs without an identity.
const DISK_ID: [u8; 16] = [1; 16];
const CLUSTER_ID: [u8; 16] = [0xc1; 16];

/// Maximum number of files in an input.
const MAX_FILES: usize = 16;

/// A file of an input: number 0 is the identity, any other number is the segment with that number.
pub type NumberedFile = (u8, Vec<u8>);

/// Opens a directory with the files, first unchanged and then with corrected checksums. Returns whether
/// either directory held a log.
pub fn run(bytes: &[u8]) -> bool {
    let Some(mut files) = files_of(bytes) else {
        return false;
    };
    let unchanged = try_files(&files);
    files.iter_mut().for_each(|(number, bytes)| match number {
        0 => repair_identity(bytes),
        _ => repair_segment(bytes),
    });
    // Each segment continues the chain of checksums of the one before.
    files.sort_by_key(|(number, _)| *number);
    let mut chain = None;
    for (_, bytes) in files.iter_mut().filter(|(number, _)| *number > 0) {
        chain = link(bytes, chain);
    }
    try_files(&files) || unchanged
}

/// Splits an input into files. Each file is a number, its length (little endian) and its bytes.
pub fn files_of(mut bytes: &[u8]) -> Option<Vec<NumberedFile>> {
    let mut files = Vec::new();
    while let Some((number, rest)) = bytes.split_first() {
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (file, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        files.push((*number, file.to_vec()));
        bytes = rest;
    }
    (!files.is_empty() && files.len() <= MAX_FILES).then_some(files)
}

/// Joins files to an input.
pub fn input_of(files: &[NumberedFile]) -> Vec<u8> {
    let mut input = Vec::new();
    for (number, file) in files {
        input.push(*number);
        input.extend_from_slice(&(file.len() as u32).to_le_bytes());
        input.extend_from_slice(file);
    }
    input
}

fn try_files(files: &[NumberedFile]) -> bool {
    let disk = SimDisk::new();
    let mut seen = [false; 256];
    let bring_identity = files.iter().any(|(number, _)| *number == 0);
    let own = (!bring_identity).then(|| (0, identity()));
    for (number, bytes) in files.iter().chain(&own) {
        // Of two files with the same name, the first one counts.
        if !std::mem::replace(&mut seen[usize::from(*number)], true) {
            put(&disk, Path::new(&file_path(*number)), bytes);
        }
    }
    let Ok(opened) = open(&disk) else { return false };
    let before = State::of(&opened.wal);
    drop(opened);
    check_append(&disk, before);
    true
}

fn file_path(number: u8) -> String {
    match number {
        0 => format!("{DATA_DIR}/identity"),
        number => format!("{LOG_DIR}/{number:016x}.wal"),
    }
}

/// Reads the log a second time, appends an entry and reads it a third time.
fn check_append(disk: &SimDisk, mut state: State) {
    let mut opened = open(disk).unwrap_or_else(|error| panic!("the log cannot be opened again: {error}"));
    assert_eq!(
        State::of(&opened.wal),
        state,
        "opening the log again yields different contents"
    );
    let last = state.last().unwrap_or(LogPos { term: 0, index: 0 });
    if last.index == MAX_POSITION {
        return;
    }
    let (term, index) = (last.term, last.index + 1);
    let payload = Bytes::from_static(b"one more");
    let entry = WalEntry {
        pos: LogPos { term, index },
        payload: payload.clone(),
    };
    let durable = Arc::new(AtomicBool::new(false));
    let note = durable.clone();
    let done = Box::new(move |result: Result<(), _>| {
        result.unwrap_or_else(|error| panic!("the disk has no faults: {error}"));
        note.store(true, Ordering::Relaxed);
    });
    opened
        .wal
        .append(vec![entry], done)
        .expect("the entry is the next one");
    assert_eq!(opened.writer.step(false), Step::Worked);
    assert!(
        durable.load(Ordering::Relaxed),
        "the entry was reported as durable"
    );
    drop(opened);
    state.entries.insert(index, (term, payload));
    let opened = open(disk).unwrap_or_else(|error| panic!("the log cannot be opened again: {error}"));
    assert_eq!(
        State::of(&opened.wal),
        state,
        "a durable entry is lost, or other contents have changed"
    );
}

/// Identity of a node that is a member of a formed cluster.
fn identity() -> Vec<u8> {
    let mut bytes = b"LOCKIDEN".to_vec();
    bytes.extend_from_slice(&7u32.to_le_bytes());
    bytes.extend_from_slice(&(CLUSTER.len() as u16).to_le_bytes());
    bytes.extend_from_slice(&[1, 0]);
    bytes.extend_from_slice(&NODE.to_le_bytes());
    bytes.extend_from_slice(&DISK_ID);
    bytes.extend_from_slice(&CLUSTER_ID);
    bytes.extend_from_slice(CLUSTER.as_bytes());
    bytes.extend_from_slice(&[0; 4]);
    repair_identity(&mut bytes);
    bytes
}

/// Returns the path and contents of the identity of a new directory.
pub(super) fn fresh() -> (String, Vec<u8>) {
    (file_path(0), identity())
}

fn repair_identity(bytes: &mut [u8]) {
    if let Some(at) = bytes.len().checked_sub(4) {
        let crc = crc32c::crc32c(&bytes[..at]);
        bytes[at..].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Corrects the length in the header of a segment.
fn repair_segment(bytes: &mut [u8]) {
    if bytes.len() >= SEGMENT_HEADER_BYTES {
        let length = bytes.len() as u32;
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
    }
}

/// Corrects the checksums of a segment and its records. They continue `chain`, or without one the value in
/// the header. Returns the last checksum.
fn link(bytes: &mut [u8], chain: Option<u32>) -> Option<u32> {
    if bytes.len() < SEGMENT_HEADER_BYTES {
        return None;
    }
    if let Some(chain) = chain {
        bytes[64..68].copy_from_slice(&chain.to_le_bytes());
    }
    let crc = crc32c::crc32c(&bytes[..68]);
    bytes[68..72].copy_from_slice(&crc.to_le_bytes());
    let sequence: [u8; 8] = bytes[16..24].try_into().expect("eight bytes");
    let mut chain = u32::from_le_bytes(bytes[64..68].try_into().expect("four bytes"));
    let mut end = SEGMENT_HEADER_BYTES;
    loop {
        let start = record_start(end);
        let from = start + RECORD_HEADER_BYTES;
        let Some(header) = bytes.get(start..from) else {
            break;
        };
        if header.iter().all(|byte| *byte == 0) {
            break;
        }
        let length = u32::from_le_bytes(header[4..8].try_into().expect("four bytes")) as usize;
        let Some(payload) = from.checked_add(length).and_then(|to| bytes.get(from..to)) else {
            break;
        };
        let payload_crc = crc32c::crc32c(payload);
        bytes[start + 8..start + 12].copy_from_slice(&payload_crc.to_le_bytes());
        bytes[start + 12..start + 16].copy_from_slice(&chain.to_le_bytes());
        chain = crc32c::crc32c_append(crc32c::crc32c(&sequence), &bytes[start + 4..from]);
        bytes[start..start + 4].copy_from_slice(&chain.to_le_bytes());
        end = from + length;
    }
    Some(chain)
}

/// Returns inputs for [`run`]: the files of a directory that a node has written, after some of its calls, and
/// the first segment alone.
pub fn inputs() -> Vec<Vec<u8>> {
    let mut inputs = vec![input_of(&[(0, identity())])];
    for calls in super::rot::lengths() {
        let files = super::rot::written(calls);
        let numbered: Vec<NumberedFile> = files
            .iter()
            .map(|(path, bytes)| (number_of(path), bytes.clone()))
            .collect();
        inputs.push(input_of(&numbered));
        // Without the zeros at its end a segment is read faster.
        let trimmed: Vec<NumberedFile> = numbered
            .iter()
            .filter(|(number, _)| *number == 1)
            .map(|(number, bytes)| {
                let length = bytes
                    .iter()
                    .rposition(|byte| *byte != 0)
                    .map_or(0, |last| last + 1);
                (*number, bytes[..length.max(SEGMENT_HEADER_BYTES)].to_vec())
            })
            .collect();
        inputs.push(input_of(&trimmed));
    }
    inputs.retain(|input| files_of(input).is_some());
    inputs
}

fn number_of(path: &Path) -> u8 {
    let name = path
        .file_stem()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    match directory::is_segment(path) {
        true => u8::from_str_radix(name, 16).expect("the directory has few segments"),
        false => 0,
    }
}
