//! Reaping of orphans, processes whose parents have ended. A program that runs as the first process of a
//! container becomes their parent, and has to reap them when they end. Otherwise they stay as zombies and use
//! up process ids.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use anyhow::Context;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};

/// Initial value of [`Orphans::spared`]: no process has this id.
const NO_PROCESS: i32 = 0;

/// Reaper of all children that have ended, except one for which its owner waits.
#[derive(Debug, Clone)]
pub struct Orphans {
    spared: Arc<AtomicI32>,
}

impl Orphans {
    /// Starts the reaper as a task of the current runtime.
    pub fn collect() -> anyhow::Result<Self> {
        let mut endings = signal(SignalKind::child()).context("installing the handler of SIGCHLD")?;
        let orphans = Self {
            spared: Arc::new(AtomicI32::new(NO_PROCESS)),
        };
        let spared = orphans.spared.clone();
        tokio::spawn(async move {
            loop {
                collect_ended(Pid::from_raw(spared.load(Ordering::Relaxed)));
                if endings.recv().await.is_none() {
                    return;
                }
            }
        });
        Ok(orphans)
    }

    /// Excludes a child, so that its owner can wait for it. The caller has to call it right after it started
    /// the child, before the task of the current-thread runtime runs.
    pub fn spare(&self, child: Pid) {
        self.spared.store(child.as_raw(), Ordering::Relaxed);
    }
}

/// Reaps children that have ended. It stops at the spared child, because the kernel reports no other child
/// before that one is reaped; the next call reaps the rest.
fn collect_ended(spared: Pid) {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Ok(WaitStatus::Exited(child, _) | WaitStatus::Signaled(child, ..)) = waitid(Id::All, flags) {
        if child == spared {
            return;
        }
        // On an error the process was no longer a child.
        if waitpid(child, Some(WaitPidFlag::WNOHANG)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn all_children_except_the_spared_one_are_reaped() {
        let mut spared = Command::new("sleep").arg("1000").spawn().unwrap();
        let mut other = Command::new("true").spawn().unwrap();
        let pid = |child: &std::process::Child| Pid::from_raw(child.id() as i32);
        let ended = waitid(Id::Pid(pid(&other)), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
        assert_eq!(ended, WaitStatus::Exited(pid(&other), 0));
        collect_ended(pid(&spared));
        assert!(other.wait().is_err(), "it was reaped");
        spared.kill().unwrap();
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(pid(&spared)), flags).unwrap();
        collect_ended(pid(&spared));
        assert!(spared.wait().is_ok(), "it is left to its owner");
    }
}
