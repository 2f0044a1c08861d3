//! Looking into a backup without a cluster: is it whole, and what is in it.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use serde::Serialize;
use znode_store::Store;

use super::{BackupError, BackupHead, BackupReader};

/// Size of a read.
const READ_BYTES: usize = 256 * 1024;

/// Contents of a complete backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// Head.
    #[serde(flatten)]
    pub head: BackupHead,
    /// The position of the state.
    pub zxid: u64,
    /// The time of its last command, by the leaders' clocks, in milliseconds since 1970.
    pub last_command_at_ms: u64,
    /// Number of znodes.
    pub znodes: u64,
    /// Number of sessions.
    pub sessions: u64,
    /// Number of locks with holders or waiters.
    pub locks: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// The digest of the state: that of every replica at the same position.
    pub digest: u64,
}

/// Reads all of the backup in `file`, and checks every checksum and the state's digest.
pub fn inspect(file: &Path) -> Result<Inspection, BackupError> {
    inspect_with(file, |_| ()).map(|(inspection, ())| inspection)
}

/// The same, with a look at the state.
pub fn inspect_with<T>(file: &Path, look: impl FnOnce(&Store) -> T) -> Result<(Inspection, T), BackupError> {
    inspect_told(file, &mut |_| {}, look)
}

/// The same; `told` learns how many bytes were read so far.
pub fn inspect_told<T>(
    file: &Path,
    told: &mut dyn FnMut(u64),
    look: impl FnOnce(&Store) -> T,
) -> Result<(Inspection, T), BackupError> {
    let mut reader = open(file, told)?;
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
    Ok((inspection, look(&store)))
}

/// Opens the backup in `file`, and reads its head. `told` learns how many bytes were read so far.
pub(super) fn open<'a>(
    file: &Path,
    told: &'a mut dyn FnMut(u64),
) -> Result<BackupReader<BufReader<ProgressReader<'a>>>, BackupError> {
    let from = ProgressReader {
        from: File::open(file)?,
        bytes: 0,
        told,
    };
    BackupReader::open(BufReader::with_capacity(READ_BYTES, from))
}

/// A file of which somebody follows how far it was read.
pub(super) struct ProgressReader<'a> {
    from: File,
    bytes: u64,
    told: &'a mut dyn FnMut(u64),
}

impl Read for ProgressReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.bytes += count as u64;
        (self.told)(self.bytes);
        Ok(count)
    }
}
