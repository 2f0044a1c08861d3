//! Suspension of this program and its process group, so that the shell that waits for it gets its terminal
//! back.

use anyhow::Context;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgid, getpgrp, getsid};

/// Suspends this program, and returns when the shell resumes it (`fg`, `bg`). Returns at once without a shell
/// that could.
pub fn suspend() -> anyhow::Result<()> {
    if is_orphaned() {
        return Ok(());
    }
    // Not SIGTSTP, which this program catches.
    killpg(getpgrp(), Signal::SIGSTOP).context("suspending")
}

/// Returns whether the group is orphaned: no ancestor in the same session is in another group, so no shell
/// could resume it. The kernel applies the same rule before it suspends a process that does not handle the
/// signal.
fn is_orphaned() -> bool {
    let (group, session) = (getpgrp(), getsid(None));
    let mut process = Pid::this();
    loop {
        let Some(parent) = parent_of(process).filter(|parent| getsid(Some(*parent)) == session) else {
            return true;
        };
        match getpgid(Some(parent)) {
            Ok(of_parent) if of_parent == group => process = parent,
            other => return other.is_err(),
        }
    }
}

fn parent_of(process: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before it may contain any character, also parentheses.
    let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
    parent.parse().ok().map(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use nix::unistd::getppid;

    use super::*;

    #[test]
    fn parent_is_found() {
        assert_eq!(parent_of(Pid::this()), Some(getppid()));
        assert_eq!(parent_of(Pid::from_raw(i32::MAX)), None);
    }
}
