//! How this program suspends itself, with whatever shares its process group, so that the shell that waits for it gets its
//! terminal back.

use anyhow::Context;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgid, getpgrp, getsid};

/// Suspends this program, and returns when somebody wakes it (`fg`, `bg`). Where nobody could it returns at once.
pub fn suspend() -> anyhow::Result<()> {
    if is_orphaned() {
        return Ok(());
    }
    // Not SIGTSTP: this program listens to that.
    killpg(getpgrp(), Signal::SIGSTOP).context("suspending")
}

/// Whether there is no shell above that could wake this group: nobody of the same session in another group. The kernel goes by
/// the same rule when it has to suspend somebody who does not listen.
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
    // The name before it may hold anything, parentheses too.
    let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
    parent.parse().ok().map(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use nix::unistd::getppid;

    use super::*;

    #[test]
    fn a_parent_is_found() {
        assert_eq!(parent_of(Pid::this()), Some(getppid()));
        assert_eq!(parent_of(Pid::from_raw(i32::MAX)), None);
    }
}
