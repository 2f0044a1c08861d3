//! Recovery at the start: rebuilds the log from its segments, or rejects them with an error that says what to
//! do.
//!
//! The rules, and why they suffice:
//!
//! * All segments but the last were synced before the next one got its name, so any flaw in them is damage.
//! * In the last one, unsynced bytes may be on disk in part: each sector as it was before (zero) or as it was
//!   written. A header lies in one sector, so it is complete or zero; a payload may have lost sectors.
//! * So a header that is neither zero nor valid is damage. A bad payload without a lost sector is damage.
//!   Bytes that look torn are damage, too, if a later valid record says that this offset had been synced.
//! * Everything else that looks torn was never reported durable, as far as can be known, and is cut off.
//!
//! The kept part of the unsynced end is written and synced again before a caller can rely on it: the fact
//! that it can be read proves only that it is in the machine's memory.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::format::{
    FLAG_ALL, FLAG_COMMITTED, FLAG_VOTED, HeaderBytes, RecordHeader, RecordKind, SegmentHeader,
    parse_segment_name, possible_record_starts, segment_name,
};
use super::log_index::{LogIndex, RecordLocation};
use super::preallocator::is_spare_name;
use super::segment::{Scan, ScanEnd, header_at};
use super::{LogPos, MAX_POSITION, VoteRecord, WalIdentity, WalOptions};
use crate::disk::{Disk, DiskFile, read_all};
use crate::error::StorageError;

/// Advice at the end of every message about damage.
const OPERATOR_ADVICE: &str = "The node does not start, because it may have lost votes or entries that it acknowledged to the \
    cluster. Keep a copy of the data directory, remove this member from the cluster, and let a new member with a \
    new node id and an empty data directory take its place; it gets everything from the others";

/// Result of a recovery.
pub(super) struct Recovered {
    pub log_index: LogIndex,
    pub tail: Tail,
}

/// Position at which the writer continues.
pub(super) struct Tail {
    /// Segments, oldest first, the active one last.
    pub segments: VecDeque<SegmentInfo>,
    /// The last segment, unless the log is new.
    pub active: Option<Active>,
    pub markers: Markers,
}

/// Data that the writer needs to remove a segment later.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentInfo {
    pub sequence: u64,
    /// Highest index of any entry that was ever written to it.
    pub max_index: Option<u64>,
}

/// The active segment, to which the writer appends.
pub(super) struct Active {
    pub sequence: u64,
    pub file: Arc<dyn DiskFile>,
    pub bytes: usize,
    /// End of the last record.
    pub end: usize,
    /// Offset up to which it is synced.
    pub synced_to: usize,
    /// Checksum of the last record.
    pub chain: u32,
}

/// Markers that are repeated at the beginning of each segment, so that older segments can be removed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Markers {
    pub vote: Option<VoteRecord>,
    pub purged: Option<LogPos>,
    pub committed: Option<LogPos>,
}

/// Reads the log of a directory, which is created if missing.
pub(super) fn recover(
    disk: &dyn Disk,
    dir: &Path,
    identity: &WalIdentity,
    options: &WalOptions,
) -> Result<Recovered, StorageError> {
    disk.create_dir_all(dir)
        .map_err(|source| StorageError::io("create", dir, source))?;
    let sequences = list_segments(disk, dir, options)?;
    // A visible name is not necessarily durable: the previous process may have ended before the sync of the
    // directory.
    disk.sync_dir(dir)
        .map_err(|source| StorageError::io("sync", dir, source))?;

    let first_is_missing = sequences.first().is_some_and(|first| *first > 1);
    let mut replay = Replay {
        log_index: LogIndex::new(options.cached_bytes),
        first_is_missing,
        max_index: None,
    };
    let mut tail = Tail {
        segments: VecDeque::new(),
        active: None,
        markers: Markers::default(),
    };
    let mut expected: Option<(u64, u32)> = None;
    for (at, sequence) in sequences.iter().copied().enumerate() {
        let path = dir.join(segment_name(sequence));
        if let Some((last, _)) = expected
            && sequence != last + 1
        {
            let missing = dir.join(segment_name(last + 1));
            return Err(damaged(
                &missing,
                0,
                "is missing, while older and newer segments are there",
            ));
        }
        let is_last = at + 1 == sequences.len();
        let active = read_segment(disk, path, sequence, identity, expected, is_last, &mut replay)?;
        expected = Some((sequence, active.chain));
        tail.segments.push_back(SegmentInfo {
            sequence,
            max_index: replay.max_index.take(),
        });
        replay.log_index.add_file(sequence, active.file.clone());
        replay.log_index.evict();
        tail.active = Some(active);
    }

    let log_index = replay.log_index;
    let range = log_index.range();
    // A segment is removed only when all its entries are purged: without a purge point, none can be missing.
    let begins_late = match log_index.purged() {
        None => true,
        Some(purged) => !range.is_empty() && purged.index + 1 < range.start,
    };
    if first_is_missing && begins_late {
        let why = "does not begin at the purge point: older segments are missing";
        return Err(damaged(&dir.join(segment_name(sequences[0])), 0, why));
    }
    // Committed entries were appended before, and are never truncated.
    if let (Some(committed), Some(newest)) = (log_index.committed, sequences.last())
        && log_index.last().is_none_or(|last| last.index < committed.index)
    {
        let why = format!("lacks the end of the log: {committed} is committed and missing");
        return Err(damaged(&dir.join(segment_name(*newest)), 0, &why));
    }
    tail.markers = Markers {
        vote: log_index.vote,
        purged: log_index.purged(),
        committed: log_index.committed,
    };
    Ok(Recovered { log_index, tail })
}

/// Returns the sequence numbers of the segments, after the removal of files that a crash left incomplete.
fn list_segments(disk: &dyn Disk, dir: &Path, options: &WalOptions) -> Result<Vec<u64>, StorageError> {
    let mut sequences = Vec::new();
    for name in disk
        .list(dir)
        .map_err(|source| StorageError::io("list", dir, source))?
    {
        let path = dir.join(&name);
        if options.preallocator_thread && is_spare_name(&name) {
            // The preallocator checks it. On a full disk it could not be created again.
        } else if name.ends_with(".tmp") {
            disk.remove(&path)
                .map_err(|source| StorageError::io("remove", &path, source))?;
        } else if let Some(sequence) = parse_segment_name(&name) {
            sequences.push(sequence);
        } else {
            tracing::warn!(path = %path.display(), "log: unknown file in the directory of the log");
        }
    }
    sequences.sort_unstable();
    Ok(sequences)
}

/// Replays one segment. The last one is prepared for appending.
fn read_segment(
    disk: &dyn Disk,
    path: PathBuf,
    sequence: u64,
    identity: &WalIdentity,
    expected: Option<(u64, u32)>,
    is_last: bool,
    replay: &mut Replay,
) -> Result<Active, StorageError> {
    let file = disk
        .open(&path)
        .map_err(|source| StorageError::io("open", &path, source))?;
    let bytes = read_all(file.as_ref()).map_err(|source| StorageError::io("read", &path, source))?;
    let header = SegmentHeader::decode(&bytes).map_err(|why| damaged(&path, 0, &why))?;
    check_identity(&path, &header.identity, identity)?;
    if header.sequence != sequence {
        return Err(damaged(
            &path,
            0,
            &format!("is segment {:016x} by its header", header.sequence),
        ));
    }
    if header.segment_bytes as usize != bytes.len() {
        let why = format!("has {} bytes instead of {}", bytes.len(), header.segment_bytes);
        return Err(damaged(&path, 0, &why));
    }
    if let Some((_, chain)) = expected
        && header.chain != chain
    {
        return Err(damaged(
            &path,
            0,
            "does not follow the segment before it, whose last records are missing",
        ));
    }

    let mut scan = Scan::new(&bytes, sequence, header.chain);
    while let Some((start, record, payload)) = scan.next_record() {
        let place = RecordLocation {
            segment: sequence,
            offset: start as u32,
            payload_len: record.payload_len,
        };
        replay
            .apply(&record, payload, place)
            .map_err(|why| damaged(&path, start, &why))?;
    }
    let end = scan.end;
    match scan.stop.expect("a scan ends with a reason") {
        ScanEnd::Damaged(why) => return Err(damaged(&path, end, why)),
        ScanEnd::Torn if !is_last => return Err(damaged(&path, end, "the payload of a record is damaged")),
        ScanEnd::Clean | ScanEnd::Torn => {}
    }
    if is_last {
        if let Some(place) = record_after(&bytes, sequence, end) {
            let why =
                format!("a record is damaged that was on disk before the one at byte {place} was written");
            return Err(damaged(&path, end, &why));
        }
        repair_tail(file.as_ref(), &bytes, scan.synced_to, end)
            .map_err(|source| StorageError::io("write the end of", &path, source))?;
    }
    Ok(Active {
        sequence,
        file,
        bytes: bytes.len(),
        end,
        synced_to: end,
        chain: scan.chain,
    })
}

/// Searches for a record after the end which proves that bytes after the end had been synced.
fn record_after(bytes: &[u8], sequence: u64, end: usize) -> Option<usize> {
    possible_record_starts(end, bytes.len()).find(|place| {
        let header = header_at(bytes, *place).expect("possible_record_starts leaves room for a header");
        match RecordHeader::decode(header, sequence) {
            HeaderBytes::Valid(header, _) => header.synced_to as usize > end,
            HeaderBytes::Zero | HeaderBytes::Invalid => false,
        }
    })
}

/// Makes the end of the last segment durable, and overwrites everything after it with zeros.
///
/// Records that no later record proves to be synced are written again: a failed sync of the previous process
/// may have left them in the page cache, marked as clean.
fn repair_tail(file: &dyn DiskFile, bytes: &[u8], synced_to: usize, end: usize) -> std::io::Result<()> {
    if synced_to < end {
        file.write_all_at(&bytes[synced_to..end], synced_to as u64)?;
    }
    if let Some(last) = bytes[end..].iter().rposition(|byte| *byte != 0) {
        file.write_all_at(&vec![0; last + 1], end as u64)?;
        tracing::info!(
            end,
            torn = last + 1,
            "log: removed an incomplete write at the end of the log, left by a crash"
        );
    }
    file.sync_data()
}

fn check_identity(path: &Path, found: &WalIdentity, ours: &WalIdentity) -> Result<(), StorageError> {
    let foreign = |what: &str, found: String, ours: String| {
        Err(StorageError::Foreign(format!(
            "{} belongs to {what} {found}, but this is {what} {ours}. Data directories must not be mixed or reused; \
             give each node its own",
            path.display()
        )))
    };
    if found.node_id != ours.node_id {
        return foreign("node", found.node_id.to_string(), ours.node_id.to_string());
    }
    if found.disk_id != ours.disk_id {
        return foreign("data directory", hex(&found.disk_id), hex(&ours.disk_id));
    }
    if found.cluster_id != ours.cluster_id && found.cluster_id != [0; 16] {
        return foreign("cluster", hex(&found.cluster_id), hex(&ours.cluster_id));
    }
    Ok(())
}

fn hex(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn damaged(path: &Path, offset: usize, why: &str) -> StorageError {
    StorageError::Damaged(format!(
        "{} is damaged at byte {offset}: {why}. {OPERATOR_ADVICE}",
        path.display()
    ))
}

/// Returns whether the record's index field is a node id. The index field of a vote has the node that
/// received it, and operators choose node ids freely.
fn names_no_position(record: &RecordHeader) -> bool {
    record.kind == RecordKind::Vote && record.term <= MAX_POSITION
}

/// Applies records in their order.
struct Replay {
    log_index: LogIndex,
    /// Older segments have been removed, so the predecessors of the first entries may be missing.
    first_is_missing: bool,
    /// Highest index of an entry in this segment.
    max_index: Option<u64>,
}

impl Replay {
    fn apply(&mut self, record: &RecordHeader, payload: &[u8], place: RecordLocation) -> Result<(), String> {
        let pos = LogPos {
            term: record.term,
            index: record.index,
        };
        // Its successor would overflow.
        if record.term.max(record.index) > MAX_POSITION && !names_no_position(record) {
            return Err(format!("{pos} is beyond the highest valid position"));
        }
        match record.kind {
            RecordKind::Entry => {
                let may_have_gap = self.first_is_missing && self.log_index.range().is_empty();
                if let Some(last) = self.log_index.last()
                    && pos.index != last.index + 1
                    && !(may_have_gap && pos.index > last.index)
                {
                    return Err(format!("entry {pos} comes after {last}"));
                }
                self.log_index.push(pos, Bytes::copy_from_slice(payload), place);
                self.max_index = self.max_index.max(Some(pos.index));
            }
            RecordKind::Vote => {
                if self.log_index.vote.is_some_and(|vote| vote.term > record.term) {
                    return Err(format!("a vote of term {} comes after a newer one", record.term));
                }
                let node_id = (record.flags & FLAG_VOTED != 0).then_some(record.index);
                let committed = record.flags & FLAG_COMMITTED != 0;
                self.log_index.vote = Some(VoteRecord {
                    term: record.term,
                    node_id,
                    committed,
                });
            }
            RecordKind::Committed => self.log_index.committed = Some(pos),
            RecordKind::Truncate => {
                let all = record.flags & FLAG_ALL != 0;
                self.log_index.truncate_after((!all).then_some(record.index));
            }
            RecordKind::Purge => self.log_index.purge(pos),
        }
        Ok(())
    }
}
