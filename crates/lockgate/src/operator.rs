//! Token of the node's operator. The operator is anyone who can read the node's data directory: at each start
//! the node generates a random secret and writes it to a file there. The node grants every right to a caller
//! that sends the secret. With it the operator secures the cluster, and regains access when no administrator
//! is left.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use lock_api::http::OperatorToken;

/// Mode of the file: only its owner can read it.
const MODE: u32 = 0o600;

/// File with the operator's token, which exists while the node runs.
#[derive(Debug)]
pub(crate) struct OperatorFile {
    path: PathBuf,
}

impl OperatorFile {
    /// Generates a token and writes it into the data directory, which this process must own. A file of an
    /// earlier process is replaced by a rename, so no reader sees an incomplete token.
    pub fn create(data_dir: &Path) -> io::Result<(Self, OperatorToken)> {
        let (known, text) = OperatorToken::draw();
        let path = data_dir.join(OperatorToken::FILE_NAME);
        let new = path.with_extension("new");
        // Left by a process that ended before the rename, with unknown permissions.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(MODE)
            .open(&new)?;
        // The umask applies to the mode at creation, and may remove the owner's permission to read.
        file.set_permissions(Permissions::from_mode(MODE))?;
        file.write_all(format!("{text}\n").as_bytes())?;
        fs::rename(&new, &path)?;
        Ok((Self { path }, known))
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file. The token in it is no longer valid in any case: the next process generates another.
    pub fn remove(&self) {
        if let Err(error) = fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the file with the operator's token, which is no longer valid");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_start_generates_a_token_that_only_its_owner_can_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("operator.new"), "half").unwrap();
        let (file, first) = OperatorFile::create(dir.path()).unwrap();
        let read = || fs::read_to_string(file.path()).unwrap();
        let text = read();
        assert!(
            text.starts_with("lg_operator_") && text.len() == 12 + 64 + 1,
            "{} bytes",
            text.len()
        );
        assert_eq!(OperatorToken::parse(text.trim_end()), Some(first.clone()));
        let mode = fs::metadata(file.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (_, second) = OperatorFile::create(dir.path()).unwrap();
        assert_ne!(first, second);
        assert_ne!(read(), text);
        file.remove();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        file.remove();
    }
}
