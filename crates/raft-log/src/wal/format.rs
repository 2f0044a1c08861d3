//! Format of the log: segment headers and records. `docs/internals/format.md` shows them as tables. This
//! module does no I/O and does not know what an entry's payload means.
//!
//! The recovery (`recover.rs`) relies on three properties:
//!
//! * A record's header never crosses a sector border, so a torn write leaves a header complete or not at all.
//! * A header contains the checksum of the previous record, so records form a chain that cannot lose a link.
//!   The number of its segment is part of its checksum, so it is valid in no other segment.
//! * A header says up to which offset the segment had been synced when the record was written. A valid record
//!   therefore proves that everything below that offset must be on disk.

use std::ops::Range;

use super::WalIdentity;
use crate::error::StorageError;

/// Number of bytes that a disk writes atomically. Smaller than what today's disks promise (4096), and equal
/// to what all of them promise.
pub const SECTOR_BYTES: usize = 512;
/// Length of a segment's header, which occupies a sector of its own.
pub const SEGMENT_HEADER_BYTES: usize = SECTOR_BYTES;
/// Length of a record's header.
pub const RECORD_HEADER_BYTES: usize = 40;
/// Alignment of records, which makes a search for them eight times as fast.
const RECORD_ALIGNMENT: usize = 8;
/// First bytes of a segment.
const MAGIC: [u8; 8] = *b"LOCKGWAL";
/// Version of this format.
const VERSION: u32 = 1;

/// Kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// A log entry: term, index, payload.
    Entry = 1,
    /// A vote: the term, the node that received it in the index field, and flags.
    Vote = 2,
    /// The last entry known to be committed.
    Committed = 3,
    /// Invalidates the entries after the index, or all with [`FLAG_ALL`].
    Truncate = 4,
    /// The entries up to this one are covered by a snapshot and no longer needed.
    Purge = 5,
}

/// Flag of a truncation: no entry is kept.
pub const FLAG_ALL: u8 = 1;
/// Flag of a vote: a node received it.
pub const FLAG_VOTED: u8 = 1;
/// Flag of a vote: a majority gave it.
pub const FLAG_COMMITTED: u8 = 2;

impl RecordKind {
    fn from_byte(byte: u8) -> Option<Self> {
        [
            Self::Entry,
            Self::Vote,
            Self::Committed,
            Self::Truncate,
            Self::Purge,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }
}

/// Header of a record.
///
/// | offset | bytes | what |
/// |---:|---:|---|
/// | 0 | 4 | CRC32C of the segment's sequence number (8 bytes) and of bytes 4 to 39 |
/// | 4 | 4 | length of the payload |
/// | 8 | 4 | CRC32C of the payload |
/// | 12 | 4 | the CRC at offset 0 of the record before |
/// | 16 | 8 | index |
/// | 24 | 8 | term |
/// | 32 | 4 | up to where the segment had been synced when this was written |
/// | 36 | 2 | zero |
/// | 38 | 1 | flags |
/// | 39 | 1 | kind |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// Kind.
    pub kind: RecordKind,
    /// Flags, whose meaning depends on the kind.
    pub flags: u8,
    /// Index of the entry, or another value that depends on the kind.
    pub index: u64,
    /// Term of the entry.
    pub term: u64,
    /// Length of the payload, without padding.
    pub payload_len: u32,
    /// Checksum of the payload.
    pub payload_crc: u32,
    /// Checksum of the previous record.
    pub chain: u32,
    /// Offset up to which the segment had been synced when the record was written.
    pub synced_to: u32,
}

/// Result of decoding a record header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderBytes {
    /// All zeros: nothing was written here.
    Zero,
    /// A valid header with its own checksum, which is the next link of the chain.
    Valid(RecordHeader, u32),
    /// Bytes that no write of this program leaves, complete or torn.
    Invalid,
}

impl RecordHeader {
    /// Returns the header's bytes and its checksum, which is the next link of the chain.
    pub fn encode(&self, sequence: u64) -> ([u8; RECORD_HEADER_BYTES], u32) {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        bytes[4..8].copy_from_slice(&self.payload_len.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.chain.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.index.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.term.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.synced_to.to_le_bytes());
        bytes[38] = self.flags;
        bytes[39] = self.kind as u8;
        let crc = header_crc(sequence, &bytes);
        bytes[0..4].copy_from_slice(&crc.to_le_bytes());
        (bytes, crc)
    }

    /// Decodes a header in the segment with this sequence number.
    pub fn decode(bytes: &[u8; RECORD_HEADER_BYTES], sequence: u64) -> HeaderBytes {
        if bytes.iter().all(|byte| *byte == 0) {
            return HeaderBytes::Zero;
        }
        let crc = u32_at(bytes, 0);
        let Some(kind) = RecordKind::from_byte(bytes[39]) else {
            return HeaderBytes::Invalid;
        };
        if crc != header_crc(sequence, bytes) {
            return HeaderBytes::Invalid;
        }
        let header = RecordHeader {
            kind,
            flags: bytes[38],
            index: u64_at(bytes, 16),
            term: u64_at(bytes, 24),
            payload_len: u32_at(bytes, 4),
            payload_crc: u32_at(bytes, 8),
            chain: u32_at(bytes, 12),
            synced_to: u32_at(bytes, 32),
        };
        HeaderBytes::Valid(header, crc)
    }

    /// Returns whether the payload has the recorded length and checksum.
    pub fn payload_matches(&self, payload: &[u8]) -> bool {
        payload.len() == self.payload_len as usize && crc32c::crc32c(payload) == self.payload_crc
    }
}

fn header_crc(sequence: u64, bytes: &[u8; RECORD_HEADER_BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&sequence.to_le_bytes()), &bytes[4..])
}

/// Returns the offset of the next record after one that ended at `end`: its header must not cross a sector
/// border.
pub fn record_start(end: usize) -> usize {
    let start = end.next_multiple_of(RECORD_ALIGNMENT);
    if SECTOR_BYTES - start % SECTOR_BYTES < RECORD_HEADER_BYTES {
        start.next_multiple_of(SECTOR_BYTES)
    } else {
        start
    }
}

/// Returns the range of bytes of a record's payload.
pub fn payload_range(start: usize, payload_len: usize) -> Range<usize> {
    let from = start + RECORD_HEADER_BYTES;
    from..from + payload_len
}

/// Returns the offsets from `from` up to `bytes` at which a record may start.
pub fn possible_record_starts(from: usize, bytes: usize) -> impl Iterator<Item = usize> {
    let mut place = record_start(from);
    std::iter::from_fn(move || {
        let this = place;
        place = record_start(this + RECORD_ALIGNMENT);
        (this + RECORD_HEADER_BYTES <= bytes).then_some(this)
    })
}

/// Header of a segment.
///
/// | offset | bytes | what |
/// |---:|---:|---|
/// | 0 | 8 | `LOCKGWAL` |
/// | 8 | 4 | version, 1 |
/// | 12 | 4 | length of the segment |
/// | 16 | 8 | sequence number, from 1 |
/// | 24 | 16 | cluster id; zero if the cluster had not been formed |
/// | 40 | 16 | disk id |
/// | 56 | 8 | node id |
/// | 64 | 4 | the checksum of the last record of the segment before; 0 in the first |
/// | 68 | 4 | CRC32C of bytes 0 to 67 |
/// | 72 | 440 | zero |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Length of the segment.
    pub segment_bytes: u32,
    /// Sequence number of the segment.
    pub sequence: u64,
    /// Owner of the log.
    pub identity: WalIdentity,
    /// Checksum of the last record of the previous segment.
    pub chain: u32,
}

impl SegmentHeader {
    /// Returns the header's bytes.
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.segment_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.identity.cluster_id);
        bytes[40..56].copy_from_slice(&self.identity.disk_id);
        bytes[56..64].copy_from_slice(&self.identity.node_id.to_le_bytes());
        bytes[64..68].copy_from_slice(&self.chain.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..68]);
        bytes[68..72].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes a header of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() < SEGMENT_HEADER_BYTES {
            return Err(format!("has {} bytes, fewer than a header", bytes.len()));
        }
        if bytes[0..8] != MAGIC {
            return Err("does not begin as a segment of the log".into());
        }
        let version = u32_at(bytes, 8);
        if crc32c::crc32c(&bytes[..68]) != u32_at(bytes, 68) {
            return Err("has a damaged header".into());
        }
        if version != VERSION {
            return Err(format!(
                "has version {version} of the format, and this program knows version {VERSION}"
            ));
        }
        Ok(Self {
            segment_bytes: u32_at(bytes, 12),
            sequence: u64_at(bytes, 16),
            identity: WalIdentity {
                cluster_id: array_at(bytes, 24),
                disk_id: array_at(bytes, 40),
                node_id: u64_at(bytes, 56),
            },
            chain: u32_at(bytes, 64),
        })
    }
}

/// Returns the name of a segment's file.
pub fn segment_name(sequence: u64) -> String {
    format!("{sequence:016x}.wal")
}

/// Returns the sequence number in a segment's file name.
pub fn parse_segment_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".wal")?;
    let sequence = u64::from_str_radix(digits, 16).ok()?;
    (segment_name(sequence) == name).then_some(sequence)
}

/// Converts an offset within a segment to its stored form. Segments are shorter than 4 GiB.
pub fn offset_u32(offset: usize) -> Result<u32, StorageError> {
    u32::try_from(offset).map_err(|_| StorageError::Contract(format!("offset {offset} is beyond a segment")))
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the range has N bytes")
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_never_cross_a_sector() {
        for end in 0..4096 {
            let start = record_start(end);
            assert!(start >= end && start - end < SECTOR_BYTES);
            assert_eq!(
                start / SECTOR_BYTES,
                (start + RECORD_HEADER_BYTES - 1) / SECTOR_BYTES,
                "from {end}"
            );
        }
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_detected() {
        let header = RecordHeader {
            kind: RecordKind::Entry,
            flags: 0,
            index: 7,
            term: 3,
            payload_len: 0,
            payload_crc: 0,
            chain: 99,
            synced_to: 512,
        };
        let (bytes, crc) = header.encode(5);
        assert_eq!(RecordHeader::decode(&bytes, 5), HeaderBytes::Valid(header, crc));
        assert_eq!(
            RecordHeader::decode(&bytes, 6),
            HeaderBytes::Invalid,
            "valid in its own segment only"
        );
        for bit in 0..RECORD_HEADER_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                RecordHeader::decode(&flipped, 5),
                HeaderBytes::Invalid,
                "bit {bit}"
            );
        }
    }

    #[test]
    fn segment_name_round_trips_its_number() {
        assert_eq!(parse_segment_name(&segment_name(258)), Some(258));
        assert_eq!(parse_segment_name("0000000000000102.wal"), Some(258));
        for other in [
            "spare-0.tmp",
            "102.wal",
            "000000000000010G.wal",
            "+000000000000102.wal",
        ] {
            assert_eq!(parse_segment_name(other), None, "{other}");
        }
    }
}
