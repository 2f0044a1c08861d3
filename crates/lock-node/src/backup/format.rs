//! Byte format of a backup: head, framed parts, end. `docs/internals/format.md` shows it as tables. This module touches no file, and does not
//! know what the parts mean.

use serde::{Deserialize, Serialize};

use super::BackupError;
use raft_node::NodeId;
use raft_node::codec;

pub(super) const MAGIC: [u8; 8] = *b"LOCKBACK";
pub(super) const END_MAGIC: [u8; 8] = *b"BACKDONE";
pub(super) const VERSION: u32 = 1;
/// Size of the start of the head: magic, version, and the length of the rest of the head.
pub(super) const START_BYTES: usize = 16;
/// Size of the frame before each part: length and checksum. The magic of the end has the same size, and cannot be mistaken for a frame: read
/// as a length it is larger than any part.
pub(super) const FRAME_BYTES: usize = 8;
/// Size of the end, with its magic.
pub(super) const END_BYTES: usize = 32;
/// Maximum size of a head. A member takes a few hundred bytes.
pub(super) const MAX_HEAD_BYTES: usize = 1024 * 1024;
/// Maximum size of a part, so that a damaged length cannot make the reader allocate all memory.
pub(super) const MAX_PART_BYTES: usize = codec::MAX_ENCODED_BYTES;

/// Head of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupHead {
    /// Version of the program that made the backup.
    pub program: String,
    /// Name of the cluster.
    pub cluster: String,
    /// Id of the cluster.
    pub cluster_id: [u8; 16],
    /// Node that made the backup.
    pub node_id: NodeId,
    /// Clock of that node when the backup was requested, in milliseconds since 1970. The backup contains every write that was acknowledged
    /// before.
    pub made_at_ms: u64,
    /// Term of the last log entry that the backup covers.
    pub term: u64,
    /// Index of that entry.
    pub index: u64,
    /// Members of the cluster at that entry.
    pub members: Vec<BackupMember>,
}

/// A member of the cluster that was backed up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupMember {
    /// Node id.
    pub node_id: NodeId,
    /// Address for peers.
    pub peer: String,
    /// Address for HTTP.
    pub http: String,
    /// True if the member had a vote.
    pub voter: bool,
}

impl BackupHead {
    /// Returns the bytes of the head, and their checksum, which is the first link of the chain over the parts.
    ///
    /// | offset | bytes | content |
    /// |---:|---:|---|
    /// | 0 | 8 | `LOCKBACK` |
    /// | 8 | 4 | version, 1 |
    /// | 12 | 4 | length *n* |
    /// | 16 | *n* | the fields in order of declaration, bincode 2 |
    /// | 16 + *n* | 4 | CRC32C of everything before |
    pub(super) fn encode(&self) -> (Vec<u8>, u32) {
        let body = codec::encode(self);
        let mut bytes = Vec::with_capacity(START_BYTES + body.len() + 4);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&length(body.len()));
        bytes.extend_from_slice(&body);
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        (bytes, crc)
    }

    /// Returns the number of bytes of the head that follow its start, with the checksum.
    pub(super) fn rest(start: &[u8; START_BYTES]) -> Result<usize, BackupError> {
        if start[..8] != MAGIC {
            return Err(BackupError::Foreign);
        }
        match u32_at(start, 8) {
            VERSION => {}
            version => return Err(BackupError::UnknownVersion(version)),
        }
        match u32_at(start, 12) as usize {
            len @ ..=MAX_HEAD_BYTES => Ok(len + 4),
            len => Err(BackupError::Damaged(format!("a head of {len} bytes"))),
        }
    }

    /// Decodes the head, and returns it with its checksum.
    pub(super) fn decode(start: &[u8; START_BYTES], rest: &[u8]) -> Result<(Self, u32), BackupError> {
        let (body, crc_bytes) = rest.split_at(rest.len() - 4);
        let crc = crc32c::crc32c_append(crc32c::crc32c(start), body);
        if crc.to_le_bytes() != crc_bytes {
            return Err(BackupError::Damaged("the checksum of its head is wrong".into()));
        }
        Ok((codec::decode(body)?, crc))
    }
}

/// Returns the frame before a part, and the part's checksum. The frame is the length of the part and that checksum: the CRC32C of the previous
/// checksum, the length and the part.
pub(super) fn frame(chain: u32, part: &[u8]) -> ([u8; FRAME_BYTES], u32) {
    let len = length(part.len());
    let crc = part_crc(chain, &len, part);
    let mut frame = [0; FRAME_BYTES];
    frame[..4].copy_from_slice(&len);
    frame[4..].copy_from_slice(&crc.to_le_bytes());
    (frame, crc)
}

/// Returns the length of the part after a frame.
pub(super) fn frame_length(frame: &[u8; FRAME_BYTES]) -> Result<usize, BackupError> {
    match u32_at(frame, 0) as usize {
        len @ ..=MAX_PART_BYTES => Ok(len),
        len => Err(BackupError::Damaged(format!("a part of {len} bytes"))),
    }
}

/// Returns the checksum of a part, or an error if it is not the one in the frame.
pub(super) fn check_part(chain: u32, frame: &[u8; FRAME_BYTES], part: &[u8]) -> Result<u32, BackupError> {
    match part_crc(chain, &frame[..4], part) {
        crc if crc == u32_at(frame, 4) => Ok(crc),
        _ => Err(BackupError::Damaged("the checksum of a part is wrong".into())),
    }
}

fn part_crc(chain: u32, len: &[u8], part: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&chain.to_le_bytes()), len);
    crc32c::crc32c_append(crc, part)
}

/// Counts of the parts so far, for the end of the backup, which has these bytes:
///
/// | offset | bytes | content |
/// |---:|---:|---|
/// | 0 | 8 | `BACKDONE` |
/// | 8 | 8 | number of parts |
/// | 16 | 8 | bytes of all parts, without their frames |
/// | 24 | 4 | the checksum of the last part |
/// | 28 | 4 | CRC32C of bytes 0 to 27 |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    pub parts: u64,
    pub part_bytes: u64,
    pub chain: u32,
}

impl Tally {
    /// Returns the counts after a head with the checksum `chain`.
    pub fn new(chain: u32) -> Self {
        Self {
            parts: 0,
            part_bytes: 0,
            chain,
        }
    }

    /// Counts a part, whose checksum becomes the last link of the chain.
    pub fn count(&mut self, part: &[u8], crc: u32) {
        self.parts += 1;
        self.part_bytes += part.len() as u64;
        self.chain = crc;
    }

    pub fn end(&self) -> [u8; END_BYTES] {
        let mut bytes = [0; END_BYTES];
        bytes[..8].copy_from_slice(&END_MAGIC);
        bytes[8..16].copy_from_slice(&self.parts.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.part_bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.chain.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

fn length(len: usize) -> [u8; 4] {
    u32::try_from(len).expect("lengths were checked").to_le_bytes()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
