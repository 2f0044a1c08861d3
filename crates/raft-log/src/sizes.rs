//! How large the files of a data directory are, for people who ask. It looks at the file system itself: what a simulated
//! disk has is not seen.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use super::{LOG_DIR, SNAPSHOT_DIR};

/// Where a node keeps its log and its snapshots, and how large that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSizes {
    /// Where its snapshots are.
    pub snapshot_dir: PathBuf,
    /// How many bytes they have.
    pub snapshot_bytes: u64,
    /// Where its log is.
    pub log_dir: PathBuf,
    /// How many bytes it has, with the files that are made ahead.
    pub log_bytes: u64,
}

impl FileSizes {
    /// Those of the data directory `path`. Waits for the disk.
    pub fn look(path: &Path) -> io::Result<Self> {
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

/// The files of a directory. It has no directories in it.
fn size_of(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        match entry?.metadata() {
            Ok(metadata) => bytes += Metadata::len(&metadata),
            // It was removed meanwhile.
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
    fn log_and_snapshots_apart() {
        let dir = tempfile::tempdir().unwrap();
        for (file, bytes) in [("log/1", 3), ("log/2", 4), ("snapshots/1", 5), ("lock", 6)] {
            let file = dir.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, vec![0; bytes]).unwrap();
        }
        let sizes = FileSizes::look(dir.path()).unwrap();
        assert_eq!((sizes.log_bytes, sizes.snapshot_bytes), (7, 5));
        assert_eq!(sizes.log_dir, dir.path().join("log"));
    }
}
