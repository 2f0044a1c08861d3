//! Inspection of a backup without a cluster: checks that it is complete, and summarizes its contents.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use serde::Serialize;
use znode_store::Store;

use super::{BackupError, BackupHead, BackupReader};

/// Size of a read, in bytes.
const READ_BYTES: usize = 256 * 1024;

/// Contents of a complete backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// Head of the backup.
    #[serde(flatten)]
    pub head: BackupHead,
    /// Position of the state.
    pub zxid: u64,
    /// Time of the state's last command, by the leaders' clocks, in milliseconds since 1970.
    pub last_command_at_ms: u64,
    /// Number of znodes.
    pub znodes: u64,
    /// Number of sessions.
    pub sessions: u64,
    /// Number of locks with holders or waiters.
    pub locks: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Digest of the state, equal to that of every replica at the same position.
    pub digest: u64,
}

/// Reads the whole backup in `file`, and checks every checksum and the digest of the state.
pub fn inspect(file: &Path) -> Result<Inspection, BackupError> {
    inspect_with(file, |_| ()).map(|(inspection, ())| inspection)
}

/// Inspects a backup as [`inspect`] does, and returns also the result of `read`, which gets its state.
pub fn inspect_with<T>(file: &Path, read: impl FnOnce(&Store) -> T) -> Result<(Inspection, T), BackupError> {
    inspect_with_progress(file, &mut |_| {}, read)
}

/// Inspects a backup as [`inspect_with`] does. `progress` is called after each read with the number of bytes so far.
pub fn inspect_with_progress<T>(
    file: &Path,
    progress: &mut dyn FnMut(u64),
    read: impl FnOnce(&Store) -> T,
) -> Result<(Inspection, T), BackupError> {
    let mut reader = open(file, progress)?;
    let store = reader.load()?;
    let inspection = Inspection {
        head: reader.head().clone(),
        zxid: store.zxid().0,
        last_command_at_ms: store.time_ms(),
        znodes: store.node_count() as u64,
        sessions: store.sessions().len() as u64,
        locks: store.locks("", None, usize::MAX).len() as u64,
        bytes: reader.bytes(),
        digest: store.digest(),
    };
    Ok((inspection, read(&store)))
}

/// Opens the backup in `file`, and reads its head. `progress` is called after each read with the number of bytes so far.
pub(super) fn open<'a>(
    file: &Path,
    progress: &'a mut dyn FnMut(u64),
) -> Result<BackupReader<BufReader<ProgressReader<'a>>>, BackupError> {
    let from = ProgressReader {
        from: File::open(file)?,
        bytes: 0,
        progress,
    };
    BackupReader::open(BufReader::with_capacity(READ_BYTES, from))
}

/// Reader of a file that reports its progress after each read.
pub(super) struct ProgressReader<'a> {
    from: File,
    bytes: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl Read for ProgressReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.bytes += count as u64;
        (self.progress)(self.bytes);
        Ok(count)
    }
}
