//! Encodes records into a buffer, and creates segments with their initial records. The writer decides when.

use std::path::Path;

use bytes::Bytes;

use super::format::{
    FLAG_COMMITTED, FLAG_VOTED, HeaderBytes, RECORD_HEADER_BYTES, RecordHeader, RecordKind, SegmentHeader,
    offset_u32, record_start, segment_name,
};
use super::preallocator::SegmentPreallocator;
use super::recover::{Active, Markers};
use super::{LogPos, VoteRecord, WalEntry, WalIdentity};
use crate::disk::Disk;
use crate::error::StorageError;
use fault_injection::fail_step;

/// Creates a segment with its header and the repeated markers, durable under its final name.
#[allow(
    clippy::too_many_arguments,
    reason = "called in two places with what the caller has in pieces"
)]
pub(super) fn begin_segment(
    disk: &dyn Disk,
    dir: &Path,
    preallocator: &SegmentPreallocator,
    identity: WalIdentity,
    bytes: usize,
    sequence: u64,
    chain: u32,
    markers: &Markers,
) -> Result<Active, StorageError> {
    let spare = preallocator.take(bytes)?;
    let header = SegmentHeader {
        segment_bytes: offset_u32(bytes)?,
        sequence,
        identity,
        chain,
    };
    let mut buffer = header.encode().to_vec();
    let synced_to = buffer.len();
    let mut chain = chain;
    let mut restate = |kind, flags, index, term| {
        let start = record_start(buffer.len());
        buffer.resize(start, 0);
        chain = push_record(
            &mut buffer,
            sequence,
            chain,
            synced_to,
            kind,
            flags,
            index,
            term,
            &[],
        )?;
        Ok::<_, StorageError>(())
    };
    if let Some(vote) = &markers.vote {
        let (flags, index) = vote_fields(vote);
        restate(RecordKind::Vote, flags, index, vote.term)?;
    }
    if let Some(purged) = markers.purged {
        restate(RecordKind::Purge, 0, purged.index, purged.term)?;
    }
    if let Some(committed) = markers.committed {
        restate(RecordKind::Committed, 0, committed.index, committed.term)?;
    }
    let path = dir.join(segment_name(sequence));
    fail_step!("segment::before_write", |e| StorageError::io(
        "write to",
        &spare.path,
        e
    ));
    spare
        .file
        .write_all_at(&buffer, 0)
        .map_err(|source| StorageError::io("write to", &spare.path, source))?;
    fail_step!("segment::before_sync", |e| StorageError::io(
        "sync",
        &spare.path,
        e
    ));
    spare
        .file
        .sync_data()
        .map_err(|source| StorageError::io("sync", &spare.path, source))?;
    fail_step!("segment::before_rename", |e| StorageError::io(
        "rename to",
        &path,
        e
    ));
    disk.rename(&spare.path, &path)
        .map_err(|source| StorageError::io("rename to", &path, source))?;
    fail_step!("segment::after_rename", |e| StorageError::io("sync", dir, e));
    disk.sync_dir(dir)
        .map_err(|source| StorageError::io("sync", dir, source))?;
    fail_step!("segment::after_dir_sync", |e| StorageError::io("sync", dir, e));
    preallocator.confirm_taken();
    let end = buffer.len();
    Ok(Active {
        sequence,
        file: spare.file,
        bytes,
        end,
        synced_to: end,
        chain,
    })
}

/// Appends a record to the buffer. Returns the next link of the chain.
#[allow(clippy::too_many_arguments, reason = "these are the fields of a record")]
pub(super) fn push_record(
    buffer: &mut Vec<u8>,
    sequence: u64,
    chain: u32,
    synced_to: usize,
    kind: RecordKind,
    flags: u8,
    index: u64,
    term: u64,
    payload: &[u8],
) -> Result<u32, StorageError> {
    let header = RecordHeader {
        kind,
        flags,
        index,
        term,
        payload_len: offset_u32(payload.len())?,
        payload_crc: crc32c::crc32c(payload),
        chain,
        synced_to: offset_u32(synced_to)?,
    };
    let (bytes, crc) = header.encode(sequence);
    buffer.extend_from_slice(&bytes);
    buffer.extend_from_slice(payload);
    Ok(crc)
}

/// Returns a vote's flags and the value of its index field.
pub(super) fn vote_fields(vote: &VoteRecord) -> (u8, u64) {
    let voted = if vote.node_id.is_some() { FLAG_VOTED } else { 0 };
    let committed = if vote.committed { FLAG_COMMITTED } else { 0 };
    (voted | committed, vote.node_id.unwrap_or(0))
}

/// Appends the record of an entry as the first one of the first segment. Used to measure its size and cost.
pub fn push_entry(buffer: &mut Vec<u8>, entry: &WalEntry) -> Result<u32, StorageError> {
    let LogPos { term, index } = entry.pos;
    push_record(buffer, 1, 0, 0, RecordKind::Entry, 0, index, term, &entry.payload)
}

/// Returns the entry of a record that [`push_entry`] wrote, if its checksums are right.
pub fn entry_of_record(record: Bytes) -> Option<WalEntry> {
    let HeaderBytes::Valid(header, _) = RecordHeader::decode(record.first_chunk()?, 1) else {
        return None;
    };
    let payload = record.slice(RECORD_HEADER_BYTES..);
    header.payload_matches(&payload).then_some(WalEntry {
        pos: LogPos {
            term: header.term,
            index: header.index,
        },
        payload,
    })
}
