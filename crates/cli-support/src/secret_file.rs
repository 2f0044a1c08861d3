//! New file for a secret that is about to be created. The file is created first, so that no secret is created
//! that cannot be stored.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// File mode: readable by the owner alone.
const MODE: u32 = 0o600;

/// Empty file that will hold the secret. It is removed when dropped before [`SecretFile::put`].
#[derive(Debug)]
pub struct SecretFile {
    path: PathBuf,
    file: File,
    is_kept: bool,
}

impl SecretFile {
    /// Creates the file. An existing file may be in use and is never replaced.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let opened = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(MODE)
            .open(path);
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                anyhow::bail!("{} already exists and is not replaced", path.display())
            }
            opened => opened.with_context(|| path.display().to_string())?,
        };
        Ok(Self {
            path: path.to_owned(),
            file,
            is_kept: false,
        })
    }

    /// Writes the secret and syncs the file.
    pub fn put(mut self, secret: &str) -> anyhow::Result<()> {
        let written = self.file.write_all(format!("{secret}\n").as_bytes());
        written
            .and_then(|()| self.file.sync_all())
            .with_context(|| self.path.display().to_string())?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for SecretFile {
    fn drop(&mut self) {
        if !self.is_kept
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the empty file for a secret");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn secret_file_is_private_and_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        drop(SecretFile::create(&path).unwrap());
        assert!(!path.exists());
        SecretFile::create(&path).unwrap().put("secret").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "secret\n");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let refused = SecretFile::create(&path).unwrap_err().to_string();
        assert!(
            refused.ends_with("already exists and is not replaced"),
            "{refused}"
        );
        assert!(path.exists());
    }
}
