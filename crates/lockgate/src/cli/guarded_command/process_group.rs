//! The process group of a command, and the terminal that it may be using.

use std::io::{IsTerminal, stdin};

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};

/// Command with the processes that it has started.
pub struct ProcessGroup {
    id: Pid,
    /// `true` while the command has the terminal.
    has_terminal: bool,
    /// Signal that the state of a child has changed.
    changes: tokio::signal::unix::Signal,
}

impl ProcessGroup {
    /// Returns the group that `child` leads. If this program is in the foreground of a terminal, it makes the
    /// group the foreground one: the command can read from the terminal, and gets Ctrl-C.
    pub fn of(child: &Child) -> anyhow::Result<Self> {
        let mut group = Self {
            id: super::pid_of(child)?,
            has_terminal: false,
            changes: signal(SignalKind::child()).context("listening for the command's state")?,
        };
        group.pass_terminal();
        Ok(group)
    }

    /// Makes the group the foreground one, if this program is in the foreground.
    fn pass_terminal(&mut self) {
        let stdin = stdin();
        let in_foreground = stdin.is_terminal() && tcgetpgrp(&stdin) == Ok(getpgrp());
        // Fails if the command has ended, and then it needs no terminal.
        self.has_terminal |= in_foreground && tcsetpgrp(&stdin, self.id).is_ok();
    }

    /// Waits until the command is suspended: by Ctrl-Z, or because it tried to read in the background.
    pub async fn suspended(&mut self) {
        loop {
            if self.is_suspended() {
                return;
            }
            if self.changes.recv().await.is_none() {
                std::future::pending().await
            }
        }
    }

    fn is_suspended(&self) -> bool {
        // Without WEXITED: the owner of the child process waits for its end.
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
        matches!(
            waitid(Id::Pid(self.id), flags),
            Ok(WaitStatus::Stopped(
                _,
                Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU
            ))
        )
    }

    /// Resumes the command, in the foreground if this program is there.
    pub fn wake(&mut self) -> anyhow::Result<()> {
        self.pass_terminal();
        self.send(Signal::SIGCONT)
    }

    /// Sends a signal to all processes of the group. An empty group is no error.
    pub fn send(&self, signal: Signal) -> anyhow::Result<()> {
        match killpg(self.id, signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(errno) => Err(errno).with_context(|| format!("sending {signal} to the command")),
        }
    }

    /// Makes this program's group the foreground one again, if it was before.
    pub fn reclaim_terminal(&mut self) {
        if !std::mem::take(&mut self.has_terminal) {
            return;
        }
        // The kernel stops a background process that takes a terminal with this signal, unless it is blocked.
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGTTOU);
        let taken = blocked
            .thread_block()
            .and_then(|()| tcsetpgrp(stdin(), getpgrp()));
        if let Err(errno) = taken {
            tracing::debug!(%errno, "cannot take the terminal back");
        }
    }
}
