//! The bytes of the log: segment headers and records. `docs/internals/format.md` shows them as tables. Nothing here
//! touches a file, and nothing here knows what an entry's payload means.
//!
//! Three properties carry the recovery (`recover.rs`):
//!
//! * A record's header never crosses a sector border, so a torn write leaves a header whole or not at all.
//! * A header holds the checksum of the record before it, so records form a chain that cannot lose a link,
//!   and the number of its segment is part of its checksum, so it is valid nowhere else.
//! * A header says up to where the segment had been synced when the record was written. A valid record
//!   therefore proves that everything below that mark must be there.

use std::ops::Range;

use super::WalIdentity;
use crate::error::StorageError;

/// Number of bytes that a disk writes as a whole or not at all. Smaller than what today's disks promise (4096), as
/// large as what all of them promise.
pub const SECTOR_BYTES: usize = 512;
/// The header of a segment has a sector for itself.
pub const SEGMENT_HEADER_BYTES: usize = SECTOR_BYTES;
/// The header of a record.
pub const RECORD_HEADER_BYTES: usize = 40;
/// Records start at multiples of this, so that a search for them is eight times as fast.
const RECORD_ALIGNMENT: usize = 8;
/// The first bytes of a segment.
const MAGIC: [u8; 8] = *b"LOCKGWAL";
/// The version of all that is described here.
const VERSION: u32 = 1;

/// Kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// A log entry: term, index, payload.
    Entry = 1,
    /// The vote: the term, who got it in the place of the index, and flags.
    Vote = 2,
    /// The last entry known to be committed.
    Committed = 3,
    /// The entries after the index are void; with [`FLAG_ALL`] all are.
    Truncate = 4,
    /// The entries up to this one are covered by a snapshot and no longer needed.
    Purge = 5,
}

/// Of a truncation: nothing is kept.
pub const FLAG_ALL: u8 = 1;
/// Of a vote: it was given to somebody.
pub const FLAG_VOTED: u8 = 1;
/// Of a vote: a majority gave it.
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

/// The header of a record.
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
    /// Kind of the record.
    pub kind: RecordKind,
    /// Flags. Their meaning depends on the kind.
    pub flags: u8,
    /// The entry's index, or what else the kind puts here.
    pub index: u64,
    /// The entry's term.
    pub term: u64,
    /// Length of the payload, without padding.
    pub payload_len: u32,
    /// The payload's checksum.
    pub payload_crc: u32,
    /// The checksum of the record before.
    pub chain: u32,
    /// Up to where the segment had been synced when this was written.
    pub synced_to: u32,
}

/// Result of decoding the bytes at a record's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderBytes {
    /// Nothing was written here.
    Zero,
    /// A header, and its own checksum: the next link of the chain.
    Valid(RecordHeader, u32),
    /// Bytes that no write of ours, whole or torn, leaves behind.
    Invalid,
}

impl RecordHeader {
    /// The header's bytes, and its checksum: the next link of the chain.
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

    /// Decodes the header of a record in segment `sequence`.
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

    /// Returns whether `payload` has the length and checksum of this header.
    pub fn payload_matches(&self, payload: &[u8]) -> bool {
        payload.len() == self.payload_len as usize && crc32c::crc32c(payload) == self.payload_crc
    }
}

fn header_crc(sequence: u64, bytes: &[u8; RECORD_HEADER_BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&sequence.to_le_bytes()), &bytes[4..])
}

/// Returns the start of the next record after one that ended at `end`: the header must not cross a sector border.
pub fn record_start(end: usize) -> usize {
    let start = end.next_multiple_of(RECORD_ALIGNMENT);
    if SECTOR_BYTES - start % SECTOR_BYTES < RECORD_HEADER_BYTES {
        start.next_multiple_of(SECTOR_BYTES)
    } else {
        start
    }
}

/// Returns the byte range of the payload of a record.
pub fn payload_range(start: usize, payload_len: usize) -> Range<usize> {
    let from = start + RECORD_HEADER_BYTES;
    from..from + payload_len
}

/// The places below `bytes` where a record may start, from `from` on.
pub fn possible_record_starts(from: usize, bytes: usize) -> impl Iterator<Item = usize> {
    let mut place = record_start(from);
    std::iter::from_fn(move || {
        let this = place;
        place = record_start(this + RECORD_ALIGNMENT);
        (this + RECORD_HEADER_BYTES <= bytes).then_some(this)
    })
}

/// The header of a segment.
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
    /// Its place in the order of segments.
    pub sequence: u64,
    /// Owner of the log.
    pub identity: WalIdentity,
    /// The checksum of the last record of the segment before.
    pub chain: u32,
}

impl SegmentHeader {
    /// The header's bytes.
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

    /// Decodes the bytes, which must be a header of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() < SEGMENT_HEADER_BYTES {
            return Err(format!("has {} bytes and not even a whole header", bytes.len()));
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

/// The name of a segment's file.
pub fn segment_name(sequence: u64) -> String {
    format!("{sequence:016x}.wal")
}

/// The sequence number in a segment's file name.
pub fn parse_segment_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".wal")?;
    let sequence = u64::from_str_radix(digits, 16).ok()?;
    (segment_name(sequence) == name).then_some(sequence)
}

/// An offset within a segment as it is stored. Segments are shorter than 4 GiB.
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
    fn every_flipped_bit_of_a_header_is_noticed() {
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
    fn segment_names_are_their_numbers() {
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
