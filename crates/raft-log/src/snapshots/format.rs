//! Format of a snapshot file: header, framed parts, footer. `docs/internals/format.md` shows it as tables.
//! This module does no I/O and does not know what the parts or the membership mean.

use bytes::Bytes;

use super::SnapshotMeta;
use crate::wal::LogPos;

const MAGIC: [u8; 8] = *b"LOCKSNAP";
const FOOTER_MAGIC: [u8; 8] = *b"SNAPDONE";
const VERSION: u32 = 2;
/// Length of the header's fixed part.
pub(super) const FIXED_HEADER_BYTES: usize = 80;
/// Length of a part's frame: its length and checksum.
pub(super) const FRAME_BYTES: usize = 8;
/// Length of the footer.
pub(super) const FOOTER_BYTES: usize = 32;
/// Maximum length of a header. Ids are short, and a membership has a few hundred bytes per member.
pub(super) const MAX_HEADER_BYTES: usize = 16 * 1024 * 1024;
/// Maximum length of a part, so that a damaged length cannot make the reader allocate all memory.
pub const MAX_PART_BYTES: usize = 64 * 1024 * 1024;

/// Header of a snapshot file.
///
/// | offset | bytes | what |
/// |---:|---:|---|
/// | 0 | 8 | `LOCKSNAP` |
/// | 8 | 4 | version, 2 |
/// | 12 | 4 | length of the header with its checksum |
/// | 16 | 16 | cluster id, or zero |
/// | 32 | 8 | id of the node that wrote it |
/// | 40 | 1 | 1 if there is a last entry, 0 if the snapshot covers none |
/// | 41 | 7 | zero |
/// | 48 | 8 | term of the last entry covered |
/// | 56 | 8 | index of the last entry covered |
/// | 64 | 4 | length *a* of the snapshot's id |
/// | 68 | 4 | length *b* of the membership |
/// | 72 | 8 | when it was begun, in milliseconds since 1970 by the clock of the node that wrote it |
/// | 80 | *a* | the snapshot's id, UTF-8 |
/// | 80 + *a* | *b* | the membership |
/// | 80 + *a* + *b* | 4 | CRC32C of everything before |
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub cluster_id: [u8; 16],
    pub node_id: u64,
    pub meta: SnapshotMeta,
}

impl Header {
    /// Returns the header's bytes and its checksum, which is the first link of the checksum chain over the
    /// parts.
    pub fn encode(&self) -> (Vec<u8>, u32) {
        let SnapshotMeta {
            last,
            membership,
            snapshot_id,
            made_ms,
        } = &self.meta;
        let len = FIXED_HEADER_BYTES + snapshot_id.len() + membership.len() + 4;
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&length(len));
        bytes.extend_from_slice(&self.cluster_id);
        bytes.extend_from_slice(&self.node_id.to_le_bytes());
        bytes.extend_from_slice(&[u8::from(last.is_some()), 0, 0, 0, 0, 0, 0, 0]);
        let last = last.unwrap_or(LogPos { term: 0, index: 0 });
        bytes.extend_from_slice(&last.term.to_le_bytes());
        bytes.extend_from_slice(&last.index.to_le_bytes());
        bytes.extend_from_slice(&length(snapshot_id.len()));
        bytes.extend_from_slice(&length(membership.len()));
        bytes.extend_from_slice(&made_ms.to_le_bytes());
        bytes.extend_from_slice(snapshot_id.as_bytes());
        bytes.extend_from_slice(membership);
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        (bytes, crc)
    }

    /// Returns the length of the header that begins with these [`FIXED_HEADER_BYTES`].
    pub fn length(fixed: &[u8; FIXED_HEADER_BYTES]) -> Result<usize, String> {
        if fixed[0..8] != MAGIC {
            return Err("does not begin as a snapshot".into());
        }
        let version = u32_at(fixed, 8);
        if version != VERSION {
            return Err(format!(
                "has version {version} of the format, and this program knows version {VERSION}"
            ));
        }
        let len = u32_at(fixed, 12) as usize;
        let parts =
            FIXED_HEADER_BYTES as u64 + u64::from(u32_at(fixed, 64)) + u64::from(u32_at(fixed, 68)) + 4;
        if len > MAX_HEADER_BYTES || len as u64 != parts {
            return Err("has a damaged header".into());
        }
        Ok(len)
    }

    /// Decodes a complete header. Returns it with its checksum.
    pub fn decode(bytes: &[u8]) -> Result<(Self, u32), String> {
        let fixed = bytes.first_chunk().ok_or("is shorter than a header")?;
        if Self::length(fixed)? != bytes.len() {
            return Err("has a damaged header".into());
        }
        let (body, crc_bytes) = bytes.split_at(bytes.len() - 4);
        let crc = crc32c::crc32c(body);
        if crc.to_le_bytes() != crc_bytes {
            return Err("has a damaged header".into());
        }
        let id_end = FIXED_HEADER_BYTES + u32_at(fixed, 64) as usize;
        let snapshot_id = String::from_utf8(body[FIXED_HEADER_BYTES..id_end].to_vec())
            .map_err(|_| "has a damaged header: an id is not UTF-8")?;
        let last = LogPos {
            term: u64_at(fixed, 48),
            index: u64_at(fixed, 56),
        };
        let meta = SnapshotMeta {
            last: (fixed[40] == 1).then_some(last),
            membership: Bytes::copy_from_slice(&body[id_end..]),
            snapshot_id,
            made_ms: u64_at(fixed, 72),
        };
        let cluster_id = fixed[16..32].try_into().expect("sixteen bytes");
        Ok((
            Self {
                cluster_id,
                node_id: u64_at(fixed, 32),
                meta,
            },
            crc,
        ))
    }
}

/// Returns the frame of a part: its length, and the CRC32C over the previous checksum, the length and the
/// part. Also returns the checksum.
pub(super) fn encode_frame(chain: u32, part: &[u8]) -> ([u8; FRAME_BYTES], u32) {
    let len = length(part.len());
    let crc = part_crc(chain, &len, part);
    let mut frame = [0; FRAME_BYTES];
    frame[..4].copy_from_slice(&len);
    frame[4..].copy_from_slice(&crc.to_le_bytes());
    (frame, crc)
}

/// Returns the length of the part that follows this frame.
pub(super) fn frame_length(frame: &[u8; FRAME_BYTES]) -> Result<usize, String> {
    let len = u32_at(frame, 0) as usize;
    if len > MAX_PART_BYTES {
        return Err(format!("has a part of {len} bytes, more than the maximum"));
    }
    Ok(len)
}

/// Returns the checksum of a part if it matches its frame.
pub(super) fn check_part(chain: u32, frame: &[u8; FRAME_BYTES], part: &[u8]) -> Result<u32, String> {
    let crc = part_crc(chain, &frame[..4], part);
    if crc != u32_at(frame, 4) {
        Err("has a damaged part".into())
    } else {
        Ok(crc)
    }
}

fn part_crc(chain: u32, len: &[u8], part: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&chain.to_le_bytes()), len);
    crc32c::crc32c_append(crc, part)
}

/// Footer of a complete snapshot.
///
/// | offset | bytes | what |
/// |---:|---:|---|
/// | 0 | 8 | `SNAPDONE` |
/// | 8 | 8 | number of parts |
/// | 16 | 8 | bytes of all parts, without their frames |
/// | 24 | 4 | the checksum of the last part, or of the header if there is none |
/// | 28 | 4 | CRC32C of bytes 0 to 27 |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footer {
    pub parts: u64,
    pub part_bytes: u64,
    pub chain: u32,
}

impl Footer {
    pub fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut bytes = [0; FOOTER_BYTES];
        bytes[0..8].copy_from_slice(&FOOTER_MAGIC);
        bytes[8..16].copy_from_slice(&self.parts.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.part_bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.chain.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..28]);
        bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; FOOTER_BYTES]) -> Result<Self, String> {
        if bytes[0..8] != FOOTER_MAGIC || crc32c::crc32c(&bytes[..28]) != u32_at(bytes, 28) {
            return Err("has no valid end, so it is incomplete".into());
        }
        Ok(Self {
            parts: u64_at(bytes, 8),
            part_bytes: u64_at(bytes, 16),
            chain: u32_at(bytes, 24),
        })
    }
}

fn length(len: usize) -> [u8; 4] {
    u32::try_from(len).expect("lengths were checked").to_le_bytes()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
