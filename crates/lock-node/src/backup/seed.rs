//! Seed of a new cluster: the file `restored` in a data directory, with the state from which the cluster starts. It is a backup with the new
//! cluster's id in its head. When the cluster is formed, the state becomes the first snapshot, and the file is discarded.

use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use znode_store::Store;

use super::format::{BackupHead, Tally, frame};
use super::{BackupError, BackupReader};
use raft_log::disk::DiskFile;
use raft_log::identity::RESTORED_NAME;
use raft_log::{Disk, StorageError};
use raft_node::codec;
use raft_node::formation::InitialState;
use raft_node::replicated_state::SnapshotParts;

/// Name of the file while it is being written.
const TEMPORARY_NAME: &str = "restored.tmp";

/// Number of znodes in a part, as in a snapshot.
const PORTION: usize = 512;

/// Number of bytes between two syncs, so that the operating system does not hold the whole file in memory until the last sync.
const SYNC_EVERY_BYTES: u64 = 4 * 1024 * 1024;

/// Size of a read, in bytes.
const READ_BYTES: usize = 256 * 1024;

/// State from which a restored cluster starts, in a file of the data directory.
#[derive(Clone)]
pub(crate) struct Seed {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

/// Writes the file into `dir`, and reads it back. On return the file is durable under its name.
pub(crate) fn write(
    disk: &dyn Disk,
    dir: &Path,
    head: &BackupHead,
    store: &mut Store,
) -> Result<(), StorageError> {
    let (path, temporary) = (dir.join(RESTORED_NAME), dir.join(TEMPORARY_NAME));
    remove(disk, &temporary)?;
    let file = disk
        .create(&temporary)
        .map_err(|source| StorageError::io("create", &temporary, source))?;
    write_all(file.as_ref(), head, store).map_err(|source| StorageError::io("write", &temporary, source))?;
    // An unreadable file is found now, and not when the cluster starts.
    read(disk, &temporary)?
        .load()
        .map_err(|error| unreadable(&temporary, &error))?;
    disk.rename(&temporary, &path)
        .map_err(|source| StorageError::io("rename to", &path, source))?;
    disk.sync_dir(dir)
        .map_err(|source| StorageError::io("sync", dir, source))
}

fn write_all(file: &dyn DiskFile, head: &BackupHead, store: &mut Store) -> io::Result<()> {
    let (bytes, chain) = head.encode();
    let mut tally = Tally::new(chain);
    file.write_all_at(&bytes, 0)?;
    let (mut at, mut synced_to) = (bytes.len() as u64, 0);
    store.begin_snapshot();
    while let Some(part) = store.next_snapshot_part(PORTION) {
        let part = codec::encode(&part);
        let (frame, crc) = frame(tally.chain, &part);
        tally.count(&part, crc);
        let bytes = [&frame[..], &part].concat();
        file.write_all_at(&bytes, at)?;
        at += bytes.len() as u64;
        if at - synced_to >= SYNC_EVERY_BYTES {
            file.sync_data()?;
            synced_to = at;
        }
    }
    file.write_all_at(&tally.end(), at)?;
    file.sync_data()
}

impl Seed {
    /// Finds the seed as [`Seed::find`] does, and returns it as an [`InitialState`] for `raft_node`.
    pub fn find_state(
        disk: Arc<dyn Disk>,
        dir: &Path,
        cluster_id: Option<[u8; 16]>,
        begun: bool,
    ) -> Result<Option<Arc<dyn InitialState>>, StorageError> {
        let seed = Self::find(disk, dir, cluster_id, begun)?;
        Ok(seed.map(|seed| -> Arc<dyn InitialState> { Arc::new(seed) }))
    }

    /// Returns the seed in a data directory, if there is one that is still needed. `begun` means that a log or a snapshot exists, which was
    /// made from the seed; then the seed is discarded. Returns an error if the seed belongs to another cluster than the directory.
    pub fn find(
        disk: Arc<dyn Disk>,
        dir: &Path,
        cluster_id: Option<[u8; 16]>,
        begun: bool,
    ) -> Result<Option<Self>, StorageError> {
        let path = dir.join(RESTORED_NAME);
        let names = disk
            .list(dir)
            .map_err(|source| StorageError::io("list", dir, source))?;
        if !names.iter().any(|name| name == RESTORED_NAME) {
            return Ok(None);
        }
        let seed = Self {
            disk,
            dir: dir.to_owned(),
        };
        if begun {
            seed.discard()?;
            return Ok(None);
        }
        let reader = read(seed.disk.as_ref(), &path)?;
        if Some(reader.head().cluster_id) != cluster_id {
            return Err(StorageError::Foreign(format!(
                "{} is not this data directory's: it was restored for another cluster. Restore the backup into an \
                 empty directory",
                path.display()
            )));
        }
        Ok(Some(seed))
    }
}

impl InitialState for Seed {
    fn parts(&self) -> io::Result<SnapshotParts> {
        let mut parts = read(self.disk.as_ref(), &self.dir.join(RESTORED_NAME))?;
        Ok(Box::new(move || parts.next_part().map_err(io::Error::other)))
    }

    fn discard(&self) -> Result<(), StorageError> {
        remove(self.disk.as_ref(), &self.dir.join(RESTORED_NAME))?;
        self.disk
            .sync_dir(&self.dir)
            .map_err(|source| StorageError::io("sync", &self.dir, source))
    }
}

fn remove(disk: &dyn Disk, path: &Path) -> Result<(), StorageError> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StorageError::io("remove", path, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn read(disk: &dyn Disk, path: &Path) -> Result<BackupReader<BufReader<DiskReader>>, StorageError> {
    let file = disk
        .open(path)
        .map_err(|source| StorageError::io("open", path, source))?;
    let left = file
        .len()
        .map_err(|source| StorageError::io("read", path, source))?;
    let reader = BufReader::with_capacity(READ_BYTES, DiskReader { file, at: 0, left });
    BackupReader::open(reader).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &BackupError) -> StorageError {
    StorageError::Damaged(format!(
        "{}: {error}. Restore the backup again, into an empty directory",
        path.display()
    ))
}

/// Reader of a file of a [`Disk`] from the first byte to the last.
struct DiskReader {
    file: Arc<dyn DiskFile>,
    at: u64,
    left: u64,
}

impl Read for DiskReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
        self.file.read_exact_at(&mut buffer[..count], self.at)?;
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}
