//! Node processes: who runs a node, and how to end it. Knows nothing of clusters, ports or HTTP.
//!
//! A process id in a file proves nothing: the process may be gone and its id another's. So a node holds a POSIX
//! record lock on its pid file for as long as it lives, and whoever wants to signal it asks the kernel who holds
//! that lock. The kernel releases it at the process's death, however it dies. (`flock` would not do: it does not
//! tell who holds it.)

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::Instant;

/// How often the end of a process is looked for. Its lock is gone at that moment, but nobody is told.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A claimed pid file. The claim ends with the process, or when this is dropped.
#[derive(Debug)]
pub struct PidFile {
    /// Never read again: closing any handle of the file would give the lock up.
    _file: File,
}

/// Why a pid file cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another process runs this node.
    #[error("process {pid} runs this node already (it holds {})", path.display())]
    Taken {
        /// Which process.
        pid: i32,
        /// The pid file.
        path: PathBuf,
    },
    /// The operating system refused something.
    #[error("{}: {source}", path.display())]
    Io {
        /// The pid file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

impl PidFile {
    /// Claims `path` for this process.
    pub fn claim(path: &Path) -> Result<Self, ClaimError> {
        let io = |source: io::Error| ClaimError::Io {
            path: path.to_owned(),
            source,
        };
        let mut file = open(path, true).map_err(io)?;
        match fcntl(&file, FcntlArg::F_SETLK(&whole_file(libc::F_WRLCK))) {
            Ok(_) => {}
            Err(Errno::EACCES | Errno::EAGAIN) => {
                let pid = holder(&file).map_err(io)?.map_or(0, Pid::as_raw);
                return Err(ClaimError::Taken {
                    pid,
                    path: path.to_owned(),
                });
            }
            Err(errno) => return Err(io(errno.into())),
        }
        // For people; the launcher asks the kernel. So a full disk does not keep a node from starting: what stood in the
        // file before is written over, which needs no space.
        let id = format!("{}\n", std::process::id());
        match file
            .write_all(id.as_bytes())
            .and_then(|()| file.set_len(id.len() as u64))
        {
            Err(error) if error.kind() != io::ErrorKind::StorageFull => return Err(io(error)),
            Ok(()) | Err(_) => {}
        }
        Ok(Self { _file: file })
    }
}

/// The living process that has claimed `path`. Must not be asked by that process itself: POSIX gives all its
/// locks on a file up when it closes any handle of it.
pub fn claimant(path: &Path) -> io::Result<Option<Pid>> {
    match open(path, false) {
        Ok(file) => holder(&file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sends `signal` to `pid`. That it is gone already is fine.
pub fn send_signal(pid: Pid, signal: Signal) -> io::Result<()> {
    match kill(pid, signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Waits until nobody claims `path` any more, at most for `timeout`. Says whether that came.
pub async fn wait_unclaimed(path: &Path, timeout: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + timeout;
    while claimant(path)?.is_some() {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(true)
}

fn open(path: &Path, create: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(create)
        .truncate(false)
        .open(path)
}

fn holder(file: &File) -> io::Result<Option<Pid>> {
    let mut question = whole_file(libc::F_WRLCK);
    fcntl(file, FcntlArg::F_GETLK(&mut question))?;
    let free = question.l_type == libc::F_UNLCK as libc::c_short;
    Ok((!free).then(|| Pid::from_raw(question.l_pid)))
}

fn whole_file(lock_type: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: lock_type as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_nobody_claims_names_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        assert_eq!(claimant(&path).unwrap(), None);
        // What stands in it does not matter: not even this living process's id.
        std::fs::write(&path, format!("{}\n", std::process::id())).unwrap();
        assert_eq!(claimant(&path).unwrap(), None);
        let _claim = PidFile::claim(&path).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            format!("{}\n", std::process::id())
        );
    }
}
