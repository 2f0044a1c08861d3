//! A new file for a secret that is about to be made: its place is taken before, so that no secret is made that cannot be kept.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// For its owner alone.
const MODE: u32 = 0o600;

/// The file while there is nothing in it. Goes when it is dropped.
#[derive(Debug)]
pub struct SecretFile {
    path: PathBuf,
    file: File,
    is_kept: bool,
}

impl SecretFile {
    /// Takes the place. Nothing is ever replaced: what is there may be in use.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let opened = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(MODE)
            .open(path);
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                anyhow::bail!("{} is there already, and is not replaced", path.display())
            }
            opened => opened.with_context(|| path.display().to_string())?,
        };
        Ok(Self {
            path: path.to_owned(),
            file,
            is_kept: false,
        })
    }

    /// Writes the secret, durably.
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
            tracing::warn!(path = %self.path.display(), %error, "an empty file stays behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_secret_is_its_owners_and_replaces_nothing() {
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
            refused.ends_with("is there already, and is not replaced"),
            "{refused}"
        );
        assert!(path.exists());
    }
}
