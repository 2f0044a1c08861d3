//! Download of a backup into a file: into a partial file beside it first, which is read again and checked,
//! and only then gets the final name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cli_support::api_client::request_id;
use cli_support::credentials::Credentials;
use cli_support::http_client;
use cli_support::progress::Progress;
use lock_node::backup::{BackupError, Inspection, inspect_with_progress};

/// Mode of the file: only its owner can read it, because a backup contains the passwords of sessions.
const PRIVATE: u32 = 0o600;

/// Error of a backup that was not saved. The partial file is removed.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The file exists.
    #[error("{} exists and is not replaced", .0.display())]
    Exists(PathBuf),
    /// The node sent an error instead of a backup.
    #[error("the node answered {status}: {detail}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Reason in words.
        detail: String,
    },
    /// The download was interrupted.
    #[error("the download failed: {0}")]
    Download(io::Error),
    /// The downloaded file is no complete backup.
    #[error("the downloaded file is no backup: {0}")]
    Bad(#[from] BackupError),
    /// The file cannot be written.
    #[error("{}: {error}", path.display())]
    File {
        /// Path of the file or its directory.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
}

impl SaveError {
    /// Returns whether another node may send a backup: this one cannot be reached, or cannot serve now.
    pub fn may_be_better_elsewhere(&self) -> bool {
        matches!(
            self,
            Self::Download(_)
                | Self::Refused {
                    status: 429 | 503,
                    ..
                }
        )
    }
}

/// No server could send a backup, for these reasons.
#[derive(Debug, thiserror::Error)]
#[error("no server has sent a backup: {0}")]
pub struct NoBackup(pub String);

/// Downloads a backup from the node at `node` (`host:port`) into `file`, durably, after every checksum and
/// the state's digest are verified. Returns a summary of its contents. With `linearizable` the backup
/// contains everything that was acknowledged before; without it, the node's own state.
pub async fn save(
    node: &str,
    credentials: &Credentials,
    file: &Path,
    linearizable: bool,
) -> Result<Inspection, SaveError> {
    if fs::symlink_metadata(file).is_ok() {
        return Err(SaveError::Exists(file.to_owned()));
    }
    let mut part = PartialFile::create(file)?;
    let path = format!("/v1/snapshot?linearizable={linearizable}");
    let mut failed = None;
    let (mut progress, mut received) = (Progress::new("downloading the backup"), 0);
    let downloaded = http_client::download(node, credentials, &path, |bytes, of| {
        received += bytes.len() as u64;
        progress.at(received, of);
        part.file.write_all(bytes).inspect_err(|error| {
            failed = Some(io::Error::new(error.kind(), error.to_string()));
        })
    });
    let answer = downloaded.await;
    drop(progress);
    match (answer, failed) {
        (_, Some(error)) => return Err(part.error(error)),
        (Err(error), None) => return Err(SaveError::Download(error)),
        (Ok(response), None) if response.status != 200 => {
            let document = response.json();
            let detail = document["detail"].as_str().map(str::to_owned);
            return Err(SaveError::Refused {
                status: response.status,
                detail: detail.unwrap_or_else(|| String::from_utf8_lossy(&response.body).into_owned()),
            });
        }
        (Ok(_), None) => {}
    }
    part.file.sync_all().map_err(|error| part.error(error))?;
    let inspection = {
        let mut progress = super::read_progress(&part.path, "checking the backup");
        inspect_with_progress(&part.path, &mut progress, |_| ())?.0
    };
    part.publish(file)?;
    Ok(inspection)
}

/// Partial file, which is removed when it is dropped.
struct PartialFile {
    path: PathBuf,
    file: File,
}

impl PartialFile {
    fn create(whole: &Path) -> Result<Self, SaveError> {
        let mut name = whole.file_name().unwrap_or_default().to_owned();
        // The request id makes the name unique, also among concurrent saves of the same file.
        name.push(format!(".{}.part", request_id()));
        let path = whole.with_file_name(name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(PRIVATE)
            .open(&path)
            .map_err(|error| SaveError::File {
                path: path.clone(),
                error,
            })?;
        Ok(Self { path, file })
    }

    /// Gives the file its final name, unless another process has created that file meanwhile, and makes the
    /// name durable.
    fn publish(self, whole: &Path) -> Result<(), SaveError> {
        let error = |error| SaveError::File {
            path: whole.to_owned(),
            error,
        };
        // A link instead of a rename, which would replace an existing file.
        match fs::hard_link(&self.path, whole) {
            Ok(()) => {}
            Err(taken) if taken.kind() == io::ErrorKind::AlreadyExists => {
                return Err(SaveError::Exists(whole.to_owned()));
            }
            // The file system has no links.
            Err(_) if fs::symlink_metadata(whole).is_err() => fs::rename(&self.path, whole).map_err(error)?,
            Err(other) => return Err(error(other)),
        }
        let dir = match whole.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        // The partial name is removed before the sync, so that it does not come back after a crash.
        drop(self);
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(error)
    }

    fn error(&self, error: io::Error) -> SaveError {
        SaveError::File {
            path: self.path.clone(),
            error,
        }
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove an incomplete backup");
        }
    }
}
