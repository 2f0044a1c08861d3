//! The process group of a command, and the terminal that it may be using.

use std::io::{IsTerminal, stdin};

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};

/// A command and whatever it has started.
pub struct ProcessGroup {
    id: Pid,
    /// Whether the terminal was handed over.
    has_terminal: bool,
    /// Tells that the state of a child has changed.
    changes: tokio::signal::unix::Signal,
}

impl ProcessGroup {
    /// The group that `child` leads. If this program is in the foreground of a terminal the group is from now on: it can
    /// read from it, and Ctrl-C goes to it.
    pub fn of(child: &Child) -> anyhow::Result<Self> {
        let mut group = Self {
            id: super::pid_of(child)?,
            has_terminal: false,
            changes: signal(SignalKind::child()).context("listening for the command's state")?,
        };
        group.pass_terminal();
        Ok(group)
    }

    /// Hands the terminal over, if it is this program's.
    fn pass_terminal(&mut self) {
        let stdin = stdin();
        let in_foreground = stdin.is_terminal() && tcgetpgrp(&stdin) == Ok(getpgrp());
        // That the command is gone already is fine: then it needs no terminal.
        self.has_terminal |= in_foreground && tcsetpgrp(&stdin, self.id).is_ok();
    }

    /// Waits until the command is suspended: because of Ctrl-Z, or because it wanted to read while it was in the background.
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
        // Its end is somebody else's to hear of.
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
        matches!(
            waitid(Id::Pid(self.id), flags),
            Ok(WaitStatus::Stopped(
                _,
                Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU
            ))
        )
    }

    /// Wakes the command, with the terminal if it is this program's.
    pub fn wake(&mut self) -> anyhow::Result<()> {
        self.pass_terminal();
        self.send(Signal::SIGCONT)
    }

    /// Sends all of it a signal. That nobody is left is fine.
    pub fn send(&self, signal: Signal) -> anyhow::Result<()> {
        match killpg(self.id, signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(errno) => Err(errno).with_context(|| format!("sending {signal} to the command")),
        }
    }

    /// Takes the terminal back, if it was handed over.
    pub fn reclaim_terminal(&mut self) {
        if !std::mem::take(&mut self.has_terminal) {
            return;
        }
        // Whoever takes a terminal from the background is stopped by this signal, unless it is blocked.
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGTTOU);
        let taken = blocked
            .thread_block()
            .and_then(|()| tcsetpgrp(stdin(), getpgrp()));
        if let Err(errno) = taken {
            tracing::debug!(%errno, "the terminal was not taken back");
        }
    }
}
