//! Reader of snapshot files: as verified parts, or as raw bytes for a peer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::format::{
    FIXED_HEADER_BYTES, FOOTER_BYTES, FRAME_BYTES, Footer, Header, check_part, frame_length,
};
use super::{SnapshotKey, SnapshotMeta};
use crate::disk::{Disk, DiskFile};
use crate::error::StorageError;

/// A complete snapshot file. Stays readable as long as a clone of it exists, even after newer files have
/// replaced it.
#[derive(Clone)]
pub struct SnapshotFile {
    inner: Arc<Opened>,
    path: Arc<PathBuf>,
}

struct Opened {
    file: Arc<dyn DiskFile>,
    header: Header,
    /// Offset of the first part.
    header_bytes: u64,
    /// Checksum of the header.
    chain: u32,
    footer: Footer,
    bytes: u64,
}

impl SnapshotFile {
    /// Reads header and footer.
    pub(super) fn open(disk: &dyn Disk, path: &Path) -> Result<Self, StorageError> {
        let io = |source| StorageError::io("read", path, source);
        let bad = |why: String| damaged(path, 0, &why);
        let file = disk
            .open(path)
            .map_err(|source| StorageError::io("open", path, source))?;
        let bytes = file.len().map_err(io)?;
        if bytes < (FIXED_HEADER_BYTES + FOOTER_BYTES) as u64 {
            return Err(bad(format!("has {bytes} bytes and is incomplete")));
        }
        let mut fixed = [0; FIXED_HEADER_BYTES];
        file.read_exact_at(&mut fixed, 0).map_err(io)?;
        let header_len = Header::length(&fixed).map_err(bad)?;
        if bytes < (header_len + FOOTER_BYTES) as u64 {
            return Err(bad("is incomplete".into()));
        }
        let mut header = vec![0; header_len];
        file.read_exact_at(&mut header, 0).map_err(io)?;
        let (header, chain) = Header::decode(&header).map_err(bad)?;
        let mut footer = [0; FOOTER_BYTES];
        file.read_exact_at(&mut footer, bytes - FOOTER_BYTES as u64)
            .map_err(io)?;
        let footer = Footer::decode(&footer).map_err(bad)?;
        let inner = Opened {
            file,
            header,
            header_bytes: header_len as u64,
            chain,
            footer,
            bytes,
        };
        Ok(Self {
            inner: Arc::new(inner),
            path: Arc::new(path.to_owned()),
        })
    }

    pub(super) fn renamed(&self, path: PathBuf) -> Self {
        Self {
            inner: self.inner.clone(),
            path: Arc::new(path),
        }
    }

    pub(super) fn order(&self) -> (u64, u64) {
        self.meta().last.map_or((0, 0), |last| (last.index, last.term))
    }

    pub(super) fn cluster_id(&self) -> [u8; 16] {
        self.inner.header.cluster_id
    }

    /// Returns the description of the snapshot.
    pub fn meta(&self) -> &SnapshotMeta {
        &self.inner.header.meta
    }

    /// Returns the id of the node that wrote it.
    pub fn written_by(&self) -> u64 {
        self.inner.header.node_id
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the key that identifies the file.
    pub fn key(&self) -> SnapshotKey {
        SnapshotKey {
            index: self.order().0,
            bytes: self.inner.bytes,
            header_crc: self.inner.chain,
            parts_crc: self.inner.footer.chain,
        }
    }

    /// Returns the length of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.inner.bytes
    }

    /// Returns the number of parts.
    pub fn parts(&self) -> u64 {
        self.inner.footer.parts
    }

    /// Returns the number of bytes of all parts, without their frames.
    pub fn part_bytes(&self) -> u64 {
        self.inner.footer.part_bytes
    }

    /// Returns a reader that starts at the first part.
    pub fn read(&self) -> Result<SnapshotReader, StorageError> {
        let opened = &self.inner;
        Ok(SnapshotReader {
            file: self.clone(),
            at: opened.header_bytes,
            chain: opened.chain,
            parts: 0,
            part_bytes: 0,
            ended: false,
        })
    }

    /// Returns the file's bytes from an offset for a peer: at most `max`, none at the end.
    pub fn read_raw(&self, offset: u64, max: usize) -> Result<Bytes, StorageError> {
        let left = self.inner.bytes.saturating_sub(offset);
        let count = usize::try_from(left).map_or(max, |left| left.min(max));
        let mut bytes = vec![0; count];
        let read = self.inner.file.read_exact_at(&mut bytes, offset);
        read.map_err(|source| StorageError::io("read", &self.path, source))?;
        Ok(Bytes::from(bytes))
    }
}

impl std::fmt::Debug for SnapshotFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes)", self.path.display(), self.inner.bytes)
    }
}

/// Iterator over the parts of a snapshot, in order. It returns only parts whose checksum is correct.
pub struct SnapshotReader {
    file: SnapshotFile,
    at: u64,
    chain: u32,
    parts: u64,
    part_bytes: u64,
    ended: bool,
}

impl SnapshotReader {
    /// Returns the description of the snapshot.
    pub fn meta(&self) -> &SnapshotMeta {
        self.file.meta()
    }

    /// Returns the next part. Returns `None` after the last part, once number and checksum of all parts are
    /// verified.
    pub fn next_part(&mut self) -> Result<Option<Bytes>, StorageError> {
        if self.ended {
            return Ok(None);
        }
        let opened = &self.file.inner;
        let end = opened.bytes - FOOTER_BYTES as u64;
        if self.at == end {
            let found = Footer {
                parts: self.parts,
                part_bytes: self.part_bytes,
                chain: self.chain,
            };
            if found != opened.footer {
                return Err(self.damaged("does not have the parts that its footer counts"));
            }
            self.ended = true;
            return Ok(None);
        }
        let io = |source| StorageError::io("read", &self.file.path, source);
        let left = end - self.at;
        if left < FRAME_BYTES as u64 {
            return Err(self.damaged("ends within a part"));
        }
        let mut frame = [0; FRAME_BYTES];
        opened.file.read_exact_at(&mut frame, self.at).map_err(io)?;
        let len = frame_length(&frame).map_err(|why| self.damaged(&why))?;
        if left - (FRAME_BYTES as u64) < len as u64 {
            return Err(self.damaged("ends within a part"));
        }
        let mut part = vec![0; len];
        opened
            .file
            .read_exact_at(&mut part, self.at + FRAME_BYTES as u64)
            .map_err(io)?;
        self.chain = check_part(self.chain, &frame, &part).map_err(|why| self.damaged(&why))?;
        self.at += (FRAME_BYTES + len) as u64;
        self.parts += 1;
        self.part_bytes += len as u64;
        Ok(Some(Bytes::from(part)))
    }

    fn damaged(&self, why: &str) -> StorageError {
        damaged(&self.file.path, self.at, why)
    }
}

impl Iterator for SnapshotReader {
    type Item = Result<Bytes, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_part();
        self.ended |= next.is_err();
        next.transpose()
    }
}

fn damaged(path: &Path, at: u64, why: &str) -> StorageError {
    StorageError::Damaged(format!(
        "the snapshot {} {why} (at byte {at}). If this node does not start, keep a copy of its data directory, \
         remove this member from the cluster, and let a new member with a new node id and an empty data directory \
         take its place; it gets everything from the others",
        path.display()
    ))
}
