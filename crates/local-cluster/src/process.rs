//! Node processes: finding and signalling the process of a node. The module knows nothing of clusters, ports
//! or HTTP.
//!
//! A process id in a file proves nothing: the process may have ended and its id may belong to another one.
//! Therefore a node holds a POSIX record lock on its pid file while it lives, and the launcher queries the
//! kernel for the lock's holder before it signals the process. The kernel releases the lock when the process
//! ends, however it ends. (`flock` would not suffice: it does not report its holder.)

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::time::Instant;

/// Poll interval for the end of a process. The kernel releases its lock at once but notifies nobody.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Claimed pid file. The claim ends with the process, or when this value is dropped.
#[derive(Debug)]
pub struct PidFile {
    /// Kept open: closing any handle of the file would release the lock.
    _file: File,
}

/// Reason why a pid file cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another process runs this node.
    #[error("this node is already running as process {pid}, which has locked {}", path.display())]
    Taken {
        /// Process id.
        pid: i32,
        /// Path of the pid file.
        path: PathBuf,
    },
    /// The operating system reported an error.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the pid file.
        path: PathBuf,
        /// Error of the operating system.
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
        match fcntl(&file, FcntlArg::F_SETLK(&write_lock(0, 0))) {
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
        // The id is for people; the launcher queries the kernel. Therefore a full disk does not prevent the
        // node's start: the previous contents are overwritten, which needs no space.
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

/// Returns the live process that has claimed `path`. The claiming process itself must not call it: POSIX
/// releases all locks of a process on a file when it closes any handle of that file.
pub fn claimant(path: &Path) -> io::Result<Option<Pid>> {
    match open(path, false) {
        Ok(file) => holder(&file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether a child process of this program lives: it has been started and has not ended. Leaves its exit status to be read.
pub fn child_lives(pid: Pid) -> io::Result<bool> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    Ok(waitid(Id::Pid(pid), flags)? == WaitStatus::StillAlive)
}

/// Sends `signal` to `pid`. A process that has already ended is no error.
pub fn send_signal(pid: Pid, signal: Signal) -> io::Result<()> {
    match kill(pid, signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Waits until no process claims `path`, at most for `timeout`. Returns whether that happened.
pub async fn wait_unclaimed(path: &Path, timeout: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + timeout;
    while claimant(path)?.is_some() {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
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
    let mut query = write_lock(0, 0);
    fcntl(file, FcntlArg::F_GETLK(&mut query))?;
    let free = query.l_type == libc::F_UNLCK as libc::c_short;
    Ok((!free).then(|| Pid::from_raw(query.l_pid)))
}

/// Returns the POSIX record lock for writing of `count` bytes from byte `start`; 0 bytes are all to the end of the file.
pub(crate) fn write_lock(start: libc::off_t, count: libc::off_t) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: count,
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unclaimed_pid_file_has_no_claimant() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        assert_eq!(claimant(&path).unwrap(), None);
        // The contents do not matter, even if they are the id of this live process.
        std::fs::write(&path, format!("{}\n", std::process::id())).unwrap();
        assert_eq!(claimant(&path).unwrap(), None);
        let _claim = PidFile::claim(&path).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            format!("{}\n", std::process::id())
        );
    }
}
