//! Small file that is overwritten in place: two slots of fixed size, written alternately. A crash during a
//! write leaves the other slot intact. A full disk does not matter, since the space is allocated at creation.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{Disk, DiskFile, read_all};
use super::error::StorageError;

/// Size of a slot, large enough for the record of [`crate::witness::MAX_MEMBERS_KNOWN`] members.
const SLOT_BYTES: usize = 16 * 1024;
/// Size of magic, version, length and sequence number.
const HEADER_BYTES: usize = 24;
const CRC_BYTES: usize = 4;
const MAGIC: [u8; 8] = *b"LOCKWITN";
const VERSION: u32 = 1;

/// Maximum number of bytes of a slot's content.
pub const MAX_CONTENT_BYTES: usize = SLOT_BYTES - HEADER_BYTES - CRC_BYTES;

/// The open file.
pub struct TwoSlots {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    /// Sequence number of the newest slot; 0 if nothing was written yet.
    sequence: u64,
}

impl TwoSlots {
    /// Opens the file, or creates it with two empty slots. Returns the newest content, if any.
    pub fn open(disk: &dyn Disk, dir: &Path, name: &str) -> Result<(Self, Option<Vec<u8>>), StorageError> {
        let path = dir.join(name);
        let file = match disk.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => create(disk, dir, name)?,
            Err(error) => return Err(StorageError::io("open", &path, error)),
        };
        // The previous process may have ended between the rename and the sync of the directory.
        disk.sync_dir(dir)
            .map_err(|source| StorageError::io("sync", dir, source))?;
        let bytes = read_all(file.as_ref()).map_err(|source| StorageError::io("read", &path, source))?;
        let damaged = |what: &str| {
            StorageError::Damaged(format!(
                "{} {what}. Without it, it is unknown whether this directory is the newest that this node had: \
                 remove this member from the cluster and let a new one take its place (`lockgate cluster replace`)",
                path.display()
            ))
        };
        if bytes.len() != 2 * SLOT_BYTES {
            return Err(damaged("has a wrong length"));
        }
        let slots: Vec<Slot> = bytes.chunks(SLOT_BYTES).map(Slot::read).collect();
        let newest = slots
            .iter()
            .filter_map(|slot| match slot {
                Slot::Written { sequence, content } => Some((*sequence, content.clone())),
                Slot::Empty | Slot::Torn | Slot::Newer => None,
            })
            .max_by_key(|(sequence, _)| *sequence);
        if slots.iter().any(|slot| matches!(slot, Slot::Newer)) {
            return Err(damaged("was written by a newer program"));
        }
        let is_empty = |slot: &Slot| matches!(slot, Slot::Empty);
        match newest {
            Some((sequence, content)) => Ok((Self { file, path, sequence }, Some(content))),
            // The very first write may have been torn. A file that was in use has at least one valid slot.
            None if slots.iter().any(is_empty) => Ok((
                Self {
                    file,
                    path,
                    sequence: 0,
                },
                None,
            )),
            None => Err(damaged("is damaged: both of its checksums are wrong")),
        }
    }

    /// Replaces the content. Durable when it returns. Blocks.
    ///
    /// # Panics
    ///
    /// If `content` is longer than [`MAX_CONTENT_BYTES`].
    pub fn write(&mut self, content: &[u8]) -> Result<(), StorageError> {
        assert!(content.len() <= MAX_CONTENT_BYTES, "the content is bounded");
        let sequence = self.sequence + 1;
        let mut slot = Vec::with_capacity(HEADER_BYTES + content.len() + CRC_BYTES);
        slot.extend_from_slice(&MAGIC);
        slot.extend_from_slice(&VERSION.to_le_bytes());
        slot.extend_from_slice(&u32::try_from(content.len()).expect("bounded").to_le_bytes());
        slot.extend_from_slice(&sequence.to_le_bytes());
        slot.extend_from_slice(content);
        let crc = crc32c::crc32c(&slot);
        slot.extend_from_slice(&crc.to_le_bytes());
        let offset = (sequence % 2) * SLOT_BYTES as u64;
        self.file
            .write_all_at(&slot, offset)
            .and_then(|()| self.file.sync_data())
            .map_err(|source| StorageError::io("write", &self.path, source))?;
        self.sequence = sequence;
        Ok(())
    }
}

/// State of one slot on disk.
enum Slot {
    /// Never written.
    Empty,
    /// Torn by an interrupted write, or damaged since.
    Torn,
    /// Written in a newer version of the format.
    Newer,
    Written {
        sequence: u64,
        content: Vec<u8>,
    },
}

impl Slot {
    fn read(bytes: &[u8]) -> Self {
        if bytes.iter().all(|byte| *byte == 0) {
            return Self::Empty;
        }
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let length = number(12) as usize;
        if bytes[..8] != MAGIC || length > MAX_CONTENT_BYTES {
            return Self::Torn;
        }
        let end = HEADER_BYTES + length;
        if crc32c::crc32c(&bytes[..end]) != number(end) {
            return Self::Torn;
        }
        if number(8) != VERSION {
            return Self::Newer;
        }
        Self::Written {
            sequence: u64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes")),
            content: bytes[HEADER_BYTES..end].to_vec(),
        }
    }
}

/// Creates the file under a temporary name first, so that it exists with its full length or not at all.
fn create(disk: &dyn Disk, dir: &Path, name: &str) -> Result<Arc<dyn DiskFile>, StorageError> {
    let (path, temporary) = (dir.join(name), dir.join(format!("{name}.tmp")));
    match disk.remove(&temporary) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(StorageError::io("remove", &temporary, error)),
    }
    let file = disk
        .create(&temporary)
        .map_err(|source| StorageError::io("create", &temporary, source))?;
    file.write_all_at(&[0; 2 * SLOT_BYTES], 0)
        .and_then(|()| file.sync_data())
        .map_err(|source| StorageError::io("write", &temporary, source))?;
    disk.rename(&temporary, &path)
        .map_err(|source| StorageError::io("rename to", &path, source))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RealDisk;

    const NAME: &str = "witness";

    fn open(dir: &Path) -> Result<(TwoSlots, Option<Vec<u8>>), StorageError> {
        TwoSlots::open(&RealDisk, dir, NAME)
    }

    #[test]
    fn reopen_returns_last_write_or_previous_one_if_torn() {
        let dir = tempfile::tempdir().unwrap();
        let (mut file, content) = open(dir.path()).unwrap();
        assert_eq!(content, None);
        for content in [b"one".as_slice(), b"two", b"three"] {
            file.write(content).unwrap();
            let (again, read) = open(dir.path()).unwrap();
            assert_eq!(read.as_deref(), Some(content));
            file = again;
        }
        let path = dir.path().join(NAME);
        let whole = std::fs::read(&path).unwrap();
        // "three" is the third write, in the second slot.
        for byte in SLOT_BYTES..SLOT_BYTES + HEADER_BYTES + 5 + CRC_BYTES {
            let mut torn = whole.clone();
            torn[byte] ^= 1;
            std::fs::write(&path, &torn).unwrap();
            let (_, read) = open(dir.path()).unwrap();
            assert_eq!(read.as_deref(), Some(b"two".as_slice()), "byte {byte}");
        }
        let mut torn = whole;
        torn[9] ^= 1;
        torn[SLOT_BYTES + 9] ^= 1;
        std::fs::write(&path, &torn).unwrap();
        let refused = open(dir.path()).map(|_| ()).unwrap_err();
        assert!(matches!(refused, StorageError::Damaged(_)), "{refused}");
    }
}
