//! Encodes records into a buffer, and creates segments with their initial records. The writer decides when.

use std::path::Path;

use bytes::Bytes;

use super::format::{
    FLAG_ALL, FLAG_COMMITTED, FLAG_VOTED, HeaderBytes, RECORD_HEADER_BYTES, RecordHeader, RecordKind,
    SegmentHeader, offset_u32, record_start, segment_name,
};
use super::preallocator::SegmentPreallocator;
use super::recover::{Active, Markers};
use super::{LogPos, VoteRecord, WalEntry, WalIdentity};
use crate::disk::Disk;
use crate::error::StorageError;
use fault_injection::fail_step;

/// Segment to create.
pub(super) struct NewSegment<'a> {
    pub dir: &'a Path,
    pub identity: WalIdentity,
    pub bytes: usize,
    pub sequence: u64,
    /// Checksum of the last record of the previous segment.
    pub chain: u32,
    /// Markers that the segment repeats.
    pub markers: &'a Markers,
}

/// Creates a segment with its header and the repeated markers, durable under its final name.
pub(super) fn begin_segment(
    disk: &dyn Disk,
    preallocator: &SegmentPreallocator,
    segment: NewSegment<'_>,
) -> Result<Active, StorageError> {
    let NewSegment {
        dir,
        identity,
        bytes,
        sequence,
        mut chain,
        markers,
    } = segment;
    let spare = preallocator.take(bytes)?;
    let header = SegmentHeader {
        segment_bytes: offset_u32(bytes)?,
        sequence,
        identity,
        chain,
    };
    let mut buffer = header.encode().to_vec();
    let synced_to = buffer.len();
    let vote = markers.vote.as_ref().map(Record::vote);
    let purged = markers.purged.map(Record::purge);
    let committed = markers.committed.map(Record::committed);
    for record in [vote, purged, committed].into_iter().flatten() {
        let start = record_start(buffer.len());
        buffer.resize(start, 0);
        let place = RecordPlace {
            sequence,
            chain,
            synced_to,
        };
        chain = record.push(&mut buffer, place)?;
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

/// Record without the fields that follow from its place and its payload.
pub(super) struct Record<'a> {
    kind: RecordKind,
    flags: u8,
    index: u64,
    term: u64,
    pub payload: &'a [u8],
}

/// Place of a record in the log.
pub(super) struct RecordPlace {
    /// Sequence number of the segment.
    pub sequence: u64,
    /// Checksum of the previous record.
    pub chain: u32,
    /// Offset up to which the segment is synced.
    pub synced_to: usize,
}

impl<'a> Record<'a> {
    pub fn entry(entry: &'a WalEntry) -> Self {
        Self {
            payload: &entry.payload,
            ..Self::marker(RecordKind::Entry, 0, entry.pos)
        }
    }

    pub fn vote(vote: &VoteRecord) -> Self {
        let voted = if vote.node_id.is_some() { FLAG_VOTED } else { 0 };
        let committed = if vote.committed { FLAG_COMMITTED } else { 0 };
        let at = LogPos {
            term: vote.term,
            index: vote.node_id.unwrap_or(0),
        };
        Self::marker(RecordKind::Vote, voted | committed, at)
    }

    pub fn truncate(after: Option<u64>) -> Self {
        let flags = if after.is_none() { FLAG_ALL } else { 0 };
        let index = after.unwrap_or(0);
        Self::marker(RecordKind::Truncate, flags, LogPos { term: 0, index })
    }

    pub fn purge(upto: LogPos) -> Self {
        Self::marker(RecordKind::Purge, 0, upto)
    }

    pub fn committed(upto: LogPos) -> Self {
        Self::marker(RecordKind::Committed, 0, upto)
    }

    fn marker(kind: RecordKind, flags: u8, LogPos { term, index }: LogPos) -> Self {
        Self {
            kind,
            flags,
            index,
            term,
            payload: &[],
        }
    }

    /// Appends the record to the buffer. Returns the next link of the chain.
    pub fn push(&self, buffer: &mut Vec<u8>, place: RecordPlace) -> Result<u32, StorageError> {
        let header = RecordHeader {
            kind: self.kind,
            flags: self.flags,
            index: self.index,
            term: self.term,
            payload_len: offset_u32(self.payload.len())?,
            payload_crc: crc32c::crc32c(self.payload),
            chain: place.chain,
            synced_to: offset_u32(place.synced_to)?,
        };
        let (bytes, crc) = header.encode(place.sequence);
        buffer.extend_from_slice(&bytes);
        buffer.extend_from_slice(self.payload);
        Ok(crc)
    }
}

/// Appends the record of an entry as the first one of the first segment. Used to measure its size and cost.
pub fn push_entry(buffer: &mut Vec<u8>, entry: &WalEntry) -> Result<u32, StorageError> {
    let place = RecordPlace {
        sequence: 1,
        chain: 0,
        synced_to: 0,
    };
    Record::entry(entry).push(buffer, place)
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
