//! The process group of a command, and the terminal that it may be using.

use std::io::{IsTerminal, stdin};

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};
use tokio::process::Child;

/// A command and whatever it has started.
pub struct Group {
    id: Pid,
    /// Whether the terminal was handed over.
    has_terminal: bool,
}

impl Group {
    /// The group that `child` leads. If this program is in the foreground of a terminal the group is from now on: it can
    /// read from it, and Ctrl-C goes to it.
    pub fn of(child: &Child) -> anyhow::Result<Self> {
        let id = child.id().context("the command was just started")?;
        let id = Pid::from_raw(i32::try_from(id).context("a process id")?);
        let stdin = stdin();
        let in_foreground = stdin.is_terminal() && tcgetpgrp(&stdin) == Ok(getpgrp());
        // That it is gone already is fine: then it needs no terminal.
        let has_terminal = in_foreground && tcsetpgrp(&stdin, id).is_ok();
        Ok(Self { id, has_terminal })
    }

    /// Sends all of it a signal. That nobody is left is fine.
    pub fn send(&self, signal: Signal) -> anyhow::Result<()> {
        match killpg(self.id, signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(errno) => Err(errno).with_context(|| format!("sending {signal} to the command")),
        }
    }

    /// Takes the terminal back, if it was handed over.
    pub fn give_terminal_back(&mut self) {
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
