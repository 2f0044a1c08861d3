//! Source of a backup on a node: makes the chunks of the file, one after the other, from a snapshot on the disk.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::sync::OwnedSemaphorePermit;

use super::format::{BackupHead, BackupMember, END_BYTES, FRAME_BYTES, Tally, frame};
use raft_log::{SnapshotFile, SnapshotReader};
use raft_node::SnapshotMember;
use raft_node::blocking;

/// Backup that a node is sending. Only one part of the snapshot at a time is in memory, regardless of the size of the state and the speed of
/// the receiver.
pub struct Backup {
    head: BackupHead,
    /// Size of all chunks together, in bytes.
    bytes: u64,
    first: Option<Bytes>,
    parts: Option<SnapshotReader>,
    tally: Tally,
    /// Permit that limits the number of backups made at a time.
    _permit: OwnedSemaphorePermit,
}

impl Backup {
    /// Returns a backup of the snapshot `file`, and fills the position and the members of the head in from it.
    pub(crate) fn of(
        file: &SnapshotFile,
        mut head: BackupHead,
        permit: OwnedSemaphorePermit,
    ) -> io::Result<Self> {
        let meta = file.meta();
        if let Some(last) = meta.last {
            (head.term, head.index) = (last.term, last.index);
        }
        let members = SnapshotMember::all_of(file)?.into_iter();
        head.members = members
            .map(|member| BackupMember {
                node_id: member.node_id,
                peer: member.address.peer,
                http: member.address.http,
                voter: member.is_voter,
            })
            .collect();
        let (first, chain) = head.encode();
        let frames = file.parts() * FRAME_BYTES as u64;
        Ok(Self {
            bytes: first.len() as u64 + frames + file.part_bytes() + END_BYTES as u64,
            head,
            first: Some(first.into()),
            parts: Some(file.read()?),
            tally: Tally::new(chain),
            _permit: permit,
        })
    }

    /// Returns the head.
    pub fn head(&self) -> &BackupHead {
        &self.head
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the next bytes of the file, or `None` after the last. After an error the backup is incomplete, and its reader detects the
    /// missing end.
    pub async fn next_chunk(&mut self) -> io::Result<Option<Bytes>> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let Some(mut parts) = self.parts.take() else {
            return Ok(None);
        };
        let read = blocking::run(move || -> io::Result<_> {
            let part = parts.next_part()?;
            Ok((parts, part))
        });
        let (parts, part) = read.await??;
        let Some(part) = part else {
            return Ok(Some(Bytes::copy_from_slice(&self.tally.end())));
        };
        self.parts = Some(parts);
        let (frame, crc) = frame(self.tally.chain, &part);
        self.tally.count(&part, crc);
        let mut chunk = BytesMut::with_capacity(FRAME_BYTES + part.len());
        chunk.put_slice(&frame);
        chunk.put_slice(&part);
        Ok(Some(chunk.freeze()))
    }
}
