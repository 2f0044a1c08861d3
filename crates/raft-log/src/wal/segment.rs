//! Segment files: their length, their creation, and the scan of their records. `recover.rs` decides what
//! records mean, and what an invalid one means.

use std::path::Path;
use std::sync::Arc;

use super::format::{
    HeaderBytes, RECORD_HEADER_BYTES, RecordHeader, SECTOR_BYTES, SEGMENT_HEADER_BYTES, payload_range,
    record_start,
};
use super::{MAX_PAYLOAD_BYTES, WalOptions};
use crate::disk::{Disk, DiskFile};
use crate::error::StorageError;
use fault_injection::fail_step;

/// Minimum length of a segment: its header, the repeated markers and a few entries.
const MIN_SEGMENT_BYTES: usize = 2048;
/// Space for the markers that are repeated at the beginning of a segment: vote, purge point and commit mark.
pub(super) const MARKER_BYTES: usize = 3 * RECORD_HEADER_BYTES + SECTOR_BYTES;
/// Maximum number of bytes of a segment beside entries.
pub(super) const OVERHEAD_BYTES: usize = SEGMENT_HEADER_BYTES + MARKER_BYTES + SECTOR_BYTES;
/// Maximum number of bytes of a record beside its payload: its header, and zeros so that the header crosses
/// no sector border.
pub(super) const RECORD_OVERHEAD_BYTES: usize = 2 * RECORD_HEADER_BYTES + 8;
/// Number of zeros that are written and synced at a time, so that the log's own syncs in between wait for
/// little data.
const ZERO_FILL_BYTES: usize = 1024 * 1024;
/// Granularity of segment lengths.
const SEGMENT_GRANULARITY: usize = 4096;

pub(super) fn check_options(options: &WalOptions) -> Result<(), StorageError> {
    if options.segment_bytes < MIN_SEGMENT_BYTES || options.segment_bytes > MAX_PAYLOAD_BYTES {
        let text = format!(
            "a segment of the log has between {MIN_SEGMENT_BYTES} and {MAX_PAYLOAD_BYTES} bytes, not {}",
            options.segment_bytes
        );
        return Err(StorageError::Contract(text));
    }
    Ok(())
}

/// Returns the length of a segment that can hold the payload after its header.
pub(super) fn bytes_for(options: &WalOptions, payload_len: usize) -> usize {
    let needed = SEGMENT_HEADER_BYTES + MARKER_BYTES + SECTOR_BYTES + RECORD_HEADER_BYTES + payload_len;
    if needed <= options.segment_bytes {
        options.segment_bytes
    } else {
        needed.next_multiple_of(SEGMENT_GRANULARITY)
    }
}

/// Creates a file of zeros, durably. Replaces a file with the same name.
pub(super) fn create_zeroed(
    disk: &dyn Disk,
    path: &Path,
    bytes: usize,
) -> Result<Arc<dyn DiskFile>, StorageError> {
    let io = |what: &'static str| move |source| StorageError::io(what, path, source);
    match disk.remove(path) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(StorageError::io("remove", path, error)),
    }
    fail_step!("segment::before_create", io("create"));
    let file = disk.create(path).map_err(io("create"))?;
    fail_step!("segment::after_create", io("create"));
    let zeros = vec![0; ZERO_FILL_BYTES.min(bytes)];
    let mut at = 0;
    while at < bytes {
        let count = zeros.len().min(bytes - at);
        file.write_all_at(&zeros[..count], at as u64)
            .map_err(io("write zeros to"))?;
        file.sync_data().map_err(io("sync"))?;
        at += count;
    }
    fail_step!("segment::after_fill", io("sync"));
    Ok(file)
}

/// Opens a file of zeros that an earlier process created, and makes it durable. Returns `None` if no file of
/// this length exists, if it contains anything but zeros, or if reading it fails.
pub(super) fn adopt_zeroed(disk: &dyn Disk, path: &Path, bytes: usize) -> Option<Arc<dyn DiskFile>> {
    let whole = || {
        let file = disk.open(path)?;
        if file.len()? != bytes as u64 {
            return Ok(None);
        }
        let mut piece = vec![0; ZERO_FILL_BYTES.min(bytes)];
        let mut at = 0;
        while at < bytes {
            let count = piece.len().min(bytes - at);
            file.read_exact_at(&mut piece[..count], at as u64)?;
            if piece[..count].iter().any(|byte| *byte != 0) {
                return Ok(None);
            }
            at += count;
        }
        // The earlier process's last write may be in memory only, without allocated blocks.
        file.sync_data()?;
        Ok::<_, std::io::Error>(Some(file))
    };
    match whole() {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "log: a preallocated segment is unusable and is created again");
            None
        }
    }
}

/// Reason for the end of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanEnd {
    /// Unwritten space, or no space for another record.
    Clean,
    /// Bytes that a torn write may leave.
    Torn,
    /// Bytes that no write leaves.
    Damaged(&'static str),
}

/// Iterator over the records of a segment.
pub(super) struct Scan<'a> {
    bytes: &'a [u8],
    sequence: u64,
    /// End of the last valid record.
    pub end: usize,
    /// Its checksum.
    pub chain: u32,
    /// Offset up to which the segment was synced, according to its records.
    pub synced_to: usize,
    /// Set when there is no next record.
    pub stop: Option<ScanEnd>,
}

/// A record: offset, header and payload.
pub(super) type Record<'a> = (usize, RecordHeader, &'a [u8]);

impl<'a> Scan<'a> {
    pub fn new(bytes: &'a [u8], sequence: u64, chain: u32) -> Self {
        let end = SEGMENT_HEADER_BYTES;
        Self {
            bytes,
            sequence,
            end,
            chain,
            synced_to: end,
            stop: None,
        }
    }

    /// Returns the next valid record.
    pub fn next_record(&mut self) -> Option<Record<'a>> {
        match self.step() {
            Ok(record) => Some(record),
            Err(stop) => {
                self.stop = Some(stop);
                None
            }
        }
    }

    fn step(&mut self) -> Result<Record<'a>, ScanEnd> {
        let start = record_start(self.end);
        let Some(header) = header_at(self.bytes, start) else {
            return Err(ScanEnd::Clean);
        };
        let (header, crc) = match RecordHeader::decode(header, self.sequence) {
            HeaderBytes::Valid(header, crc) => (header, crc),
            HeaderBytes::Zero => return Err(ScanEnd::Clean),
            HeaderBytes::Invalid => return Err(ScanEnd::Damaged("the header of a record is damaged")),
        };
        if header.chain != self.chain {
            return Err(ScanEnd::Damaged("a record does not follow the previous one"));
        }
        if header.synced_to as usize > self.end {
            return Err(ScanEnd::Damaged(
                "a record claims that what comes after it was there before it",
            ));
        }
        let range = payload_range(start, header.payload_len as usize);
        let Some(payload) = self.bytes.get(range.clone()) else {
            return Err(ScanEnd::Damaged("a record is longer than its segment"));
        };
        if !header.payload_matches(payload) {
            return Err(if self.has_lost_sector(range) {
                ScanEnd::Torn
            } else {
                ScanEnd::Damaged("the payload of a record is damaged")
            });
        }
        self.end = range.end;
        self.chain = crc;
        self.synced_to = self.synced_to.max(header.synced_to as usize);
        Ok((start, header, payload))
    }

    /// Returns whether the part of a payload in a whole sector is zero, as if that sector had never been
    /// written. The first part is in the sector of the header, which was written.
    fn has_lost_sector(&self, payload: std::ops::Range<usize>) -> bool {
        let mut from = payload.start.next_multiple_of(SECTOR_BYTES);
        while from < payload.end {
            let to = (from + SECTOR_BYTES).min(payload.end);
            if self.bytes[from..to].iter().all(|byte| *byte == 0) {
                return true;
            }
            from = to;
        }
        false
    }
}

/// Returns the bytes of a header, if there is space for one.
pub(super) fn header_at(bytes: &[u8], start: usize) -> Option<&[u8; RECORD_HEADER_BYTES]> {
    bytes.get(start..start + RECORD_HEADER_BYTES)?.try_into().ok()
}
