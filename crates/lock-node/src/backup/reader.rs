//! Reader of a backup from the first byte to the last, from any source of bytes. It returns nothing that it has not checked.

use std::io::{self, Read};

use bytes::Bytes;
use znode_store::{Restorer, SnapshotPart, Store};

use super::BackupError;
use super::format::{
    BackupHead, END_BYTES, END_MAGIC, FRAME_BYTES, START_BYTES, Tally, check_part, frame_length,
};
use raft_node::codec::{self, BadBytes};

/// Reader of a backup. It checks each part before it returns it.
pub struct BackupReader<R> {
    from: Counted<R>,
    head: BackupHead,
    tally: Tally,
    ended: bool,
}

struct Counted<R> {
    from: R,
    bytes: u64,
}

impl<R: Read> Counted<R> {
    /// Fills the buffer. If the source ends before that, the backup is truncated.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), BackupError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.from.read(&mut buffer[filled..]) {
                Ok(0) => return Err(BackupError::Cut(self.bytes + filled as u64)),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.bytes += filled as u64;
        Ok(())
    }
}

impl<R: Read> BackupReader<R> {
    /// Reads and checks the head.
    pub fn open(from: R) -> Result<Self, BackupError> {
        let mut from = Counted { from, bytes: 0 };
        let mut start = [0; START_BYTES];
        match from.fill(&mut start) {
            // Too short to be recognized.
            Err(BackupError::Cut(bytes)) if bytes < 8 || start[..8] != super::format::MAGIC => {
                return Err(BackupError::Foreign);
            }
            filled => filled?,
        }
        let mut rest = vec![0; BackupHead::rest(&start)?];
        from.fill(&mut rest)?;
        let (head, chain) = BackupHead::decode(&start, &rest)?;
        Ok(Self {
            from,
            head,
            tally: Tally::new(chain),
            ended: false,
        })
    }

    /// Returns the head.
    pub fn head(&self) -> &BackupHead {
        &self.head
    }

    /// Returns the number of bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.from.bytes
    }

    /// Returns the next part. Returns `None` after the last one, once the end and all checksums have proved correct and nothing follows.
    pub fn next_part(&mut self) -> Result<Option<Bytes>, BackupError> {
        if self.ended {
            return Ok(None);
        }
        let mut frame = [0; FRAME_BYTES];
        self.from.fill(&mut frame)?;
        if frame == END_MAGIC {
            let mut end = [0; END_BYTES];
            end[..FRAME_BYTES].copy_from_slice(&frame);
            self.from.fill(&mut end[FRAME_BYTES..])?;
            if end != self.tally.end() {
                let what = "its end names other parts than it has";
                return Err(BackupError::Damaged(what.into()));
            }
            match self.from.fill(&mut [0]) {
                Err(BackupError::Cut(_)) => self.ended = true,
                Ok(()) => return Err(BackupError::Damaged("something follows its end".into())),
                Err(error) => return Err(error),
            }
            return Ok(None);
        }
        let mut part = vec![0; frame_length(&frame)?];
        self.from.fill(&mut part)?;
        let crc = check_part(self.tally.chain, &frame, &part)?;
        self.tally.count(&part, crc);
        Ok(Some(part.into()))
    }

    /// Reads the remaining parts, and builds a state from them. Checks that its digest is the one in the backup.
    pub fn load(&mut self) -> Result<Store, BackupError> {
        let mut restorer = Restorer::new();
        while let Some(bytes) = self.next_part()? {
            restorer.add(decode_part(&bytes)?)?;
        }
        Ok(restorer.finish()?)
    }
}

/// Decodes one part of a state. It is not inside the generic `load`, because each crate that loads a backup would then compile the decoders
/// of the whole state again.
fn decode_part(bytes: &[u8]) -> Result<SnapshotPart, BadBytes> {
    codec::decode(bytes)
}
