//! The operator of a node: whoever can read its data directory. At each start the node draws a secret and leaves it there; who shows
//! it to this node may do everything. That is how a cluster is secured, and how one gets back in when no administrator is left.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use lock_api::http::OperatorToken;

/// For its owner alone.
const MODE: u32 = 0o600;

/// The file with the operator's token, for as long as the node runs.
#[derive(Debug)]
pub(crate) struct OperatorFile {
    path: PathBuf,
}

impl OperatorFile {
    /// Draws a token and puts it into the data directory, which has to be this process's. What an earlier process has left there
    /// is replaced in one step, so nobody ever reads half of one.
    pub fn create(data_dir: &Path) -> io::Result<(Self, OperatorToken)> {
        let (known, text) = OperatorToken::draw();
        let path = data_dir.join(OperatorToken::FILE_NAME);
        let new = path.with_extension("new");
        // Left by a process that ended in the middle of this, with whatever permissions.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(MODE)
            .open(&new)?;
        // A file's mode at its creation is less what the process masks, which may be its owner's reading.
        file.set_permissions(Permissions::from_mode(MODE))?;
        file.write_all(format!("{text}\n").as_bytes())?;
        fs::rename(&new, &path)?;
        Ok((Self { path }, known))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes it away. It would count for nothing anyway: the next process draws another.
    pub fn remove(&self) {
        if let Err(error) = fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "the operator's token stays behind, and counts for nothing");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_start_draws_another_token_that_is_its_owners_alone() {
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
