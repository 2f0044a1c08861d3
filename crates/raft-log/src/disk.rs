//! File operations that the storage is built from ([`Disk`]), and their implementation on the real file
//! system.
//!
//! Everything that must survive a crash goes through [`Disk`], so that the same code runs on
//! [`crate::sim_disk::SimDisk`], which can build every state that a power cut may leave. This module does not
//! know what the bytes mean.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::Path;
use std::sync::Arc;

/// Mode of created directories. Only the node's own user may read them: snapshots and the log contain the
/// passwords of sessions.
const PRIVATE: u32 = 0o700;

/// File system operations that the storage needs.
///
/// A change of names (create, rename, remove) is durable only after [`Disk::sync_dir`] of the directory.
/// Bytes and length of a file are durable only after [`DiskFile::sync_data`].
pub trait Disk: Send + Sync + 'static {
    /// Creates a directory, readable by this user only, and its missing parents. Durable when it returns.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Creates an empty file for reading and writing. Fails if the name exists.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Renames a file within its directory. Replaces a file that has the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a name. A process that has the file open can still read it.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Lists the names of the files in a directory, sorted, without directories.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Returns the number of bytes that this process can still write to the directory's file system.
    fn free_space(&self, dir: &Path) -> io::Result<u64>;
    /// Takes an exclusive lock on the file `path`, which is created if missing. Returns `None` if another
    /// process holds it. The lock is released when the value is dropped, or when the process ends in any way.
    fn try_lock(&self, path: &Path) -> io::Result<Option<DiskLock>>;
}

/// An open file.
pub trait DiskFile: Send + Sync + 'static {
    /// Fills the buffer from an offset. Fails if the file ends before the buffer is full.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all bytes at an offset.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Returns the length of the file in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Returns whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Makes bytes and length durable (`fdatasync`).
    fn sync_data(&self) -> io::Result<()>;
}

/// An exclusive lock, held until it is dropped.
pub struct DiskLock {
    _held: Box<dyn Send + Sync>,
}

impl DiskLock {
    /// Creates a lock that lasts as long as `held` is not dropped.
    pub fn new(held: impl Send + Sync + 'static) -> Self {
        Self {
            _held: Box::new(held),
        }
    }
}

impl std::fmt::Debug for DiskLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DiskLock")
    }
}

/// Reads a whole file.
pub fn read_all(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let len = file.len()?;
    let len = usize::try_from(len).map_err(|_| io::Error::other("the file is larger than the memory"))?;
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The machine's real file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut missing = Vec::new();
        let mut above = Some(dir);
        while let Some(path) = above {
            if path.as_os_str().is_empty() || path.is_dir() {
                break;
            }
            missing.push(path);
            above = path.parent();
        }
        if let Some(parent) = dir.parent() {
            std::fs::create_dir_all(parent)?;
        }
        match DirBuilder::new().mode(PRIVATE).create(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !dir.is_dir() => return Err(error),
            Ok(()) | Err(_) => {}
        }
        // A new directory is a new name in its parent, so the parent is synced.
        for path in missing.iter().rev() {
            match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => self.sync_dir(parent)?,
                _ => self.sync_dir(Path::new("."))?,
            }
        }
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        Ok(Arc::new(file))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Arc::new(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_type()?.is_file()
                && let Some(name) = entry.file_name().to_str()
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        let stat = nix::sys::statvfs::statvfs(dir)?;
        Ok(stat.blocks_available().saturating_mul(stat.fragment_size()))
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<DiskLock>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(DiskLock::new(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl DiskFile for File {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }
}
