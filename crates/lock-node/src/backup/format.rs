//! The bytes of a backup: head, framed parts, end. `docs/internals/format.md` shows them as tables. Nothing here touches a
//! file, and nothing here knows what the parts mean.

use serde::{Deserialize, Serialize};

use super::BackupError;
use raft_node::NodeId;
use raft_node::codec;

pub(super) const MAGIC: [u8; 8] = *b"LOCKBACK";
pub(super) const END_MAGIC: [u8; 8] = *b"BACKDONE";
pub(super) const VERSION: u32 = 1;
/// Magic, version, and the length of the rest of the head.
pub(super) const START_BYTES: usize = 16;
/// Length and checksum before each part; also the length of the end's magic, which can be no frame: as a length it is
/// larger than any part.
pub(super) const FRAME_BYTES: usize = 8;
/// The end, with its magic.
pub(super) const END_BYTES: usize = 32;
/// No head is longer: a member has a few hundred bytes.
pub(super) const MAX_HEAD_BYTES: usize = 1024 * 1024;
/// No part is longer, so that a damaged length cannot ask for all the memory.
pub(super) const MAX_PART_BYTES: usize = codec::MAX_ENCODED_BYTES;

/// Head of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupHead {
    /// The version of the program that made it.
    pub program: String,
    /// The cluster's name.
    pub cluster: String,
    /// The cluster's id.
    pub cluster_id: [u8; 16],
    /// The node that made it.
    pub node_id: NodeId,
    /// Clock of that node when the backup was requested, in milliseconds since 1970. Everything that was acknowledged before is in it.
    pub made_at_ms: u64,
    /// The term of the last log entry that it covers.
    pub term: u64,
    /// The index of that entry.
    pub index: u64,
    /// The cluster's members at that entry.
    pub members: Vec<BackupMember>,
}

/// A member of the cluster that was backed up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupMember {
    /// Its id.
    pub node_id: NodeId,
    /// Address for peers.
    pub peer: String,
    /// Address for HTTP.
    pub http: String,
    /// It voted.
    pub voter: bool,
}

impl BackupHead {
    /// The bytes, and their checksum: the first link of the chain over the parts.
    ///
    /// | offset | bytes | what |
    /// |---:|---:|---|
    /// | 0 | 8 | `LOCKBACK` |
    /// | 8 | 4 | version, 1 |
    /// | 12 | 4 | length *n* |
    /// | 16 | *n* | the fields in their order, bincode 2 |
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

    /// Returns the number of bytes that follow these, with the checksum.
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

    /// Decodes the head. Returns it with its checksum.
    pub(super) fn decode(start: &[u8; START_BYTES], rest: &[u8]) -> Result<(Self, u32), BackupError> {
        let (body, crc_bytes) = rest.split_at(rest.len() - 4);
        let crc = crc32c::crc32c_append(crc32c::crc32c(start), body);
        if crc.to_le_bytes() != crc_bytes {
            return Err(BackupError::Damaged("the checksum of its head is wrong".into()));
        }
        Ok((codec::decode(body)?, crc))
    }
}

/// The frame before a part (its length, and the CRC32C of the checksum before, the length and the part), and the
/// checksum.
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

/// The checksum after a part, if it is the one that was written.
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

/// Counts of the parts so far, for the end of the backup.
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
    /// After the head.
    pub fn new(chain: u32) -> Self {
        Self {
            parts: 0,
            part_bytes: 0,
            chain,
        }
    }

    /// A part went by, with this checksum.
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
