//! Sizes of the files of a data directory, for operators. Reads the real file system; files on a simulated
//! disk are not seen.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use super::{LOG_DIR, SNAPSHOT_DIR};

/// Directories of a node's log and snapshots, and their sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSizes {
    /// Directory of the snapshots.
    pub snapshot_dir: PathBuf,
    /// Bytes of all snapshots.
    pub snapshot_bytes: u64,
    /// Directory of the log.
    pub log_dir: PathBuf,
    /// Bytes of the log, including preallocated files.
    pub log_bytes: u64,
}

impl FileSizes {
    /// Measures the data directory `path`. Blocks on the disk.
    pub fn measure(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let (snapshot_dir, log_dir) = (path.join(SNAPSHOT_DIR), path.join(LOG_DIR));
        Ok(Self {
            snapshot_bytes: size_of(&snapshot_dir)?,
            log_bytes: size_of(&log_dir)?,
            snapshot_dir,
            log_dir,
        })
    }
}

/// Returns the bytes of all files in a directory without subdirectories.
fn size_of(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        match entry?.metadata() {
            Ok(metadata) => bytes += Metadata::len(&metadata),
            // The file was removed in the meantime.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_and_snapshots_are_measured_separately() {
        let dir = tempfile::tempdir().unwrap();
        for (file, bytes) in [("log/1", 3), ("log/2", 4), ("snapshots/1", 5), ("lock", 6)] {
            let file = dir.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, vec![0; bytes]).unwrap();
        }
        let sizes = FileSizes::measure(dir.path()).unwrap();
        assert_eq!((sizes.log_bytes, sizes.snapshot_bytes), (7, 5));
        assert_eq!(sizes.log_dir, dir.path().join("log"));
    }
}
