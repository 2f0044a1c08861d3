//! Orphans: processes whose parents have ended. As the first process of a container, a program becomes their parent, and has to collect
//! them when they end; else they stay as zombies and use up process ids.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use anyhow::Context;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};

/// Initial value of [`Orphans::spared`]: no process has this id.
const NOBODY: i32 = 0;

/// Collector of all children that have ended, except one for which its owner waits.
#[derive(Debug, Clone)]
pub struct Orphans {
    spared: Arc<AtomicI32>,
}

impl Orphans {
    /// Starts the collection as a task of the current runtime.
    pub fn collect() -> anyhow::Result<Self> {
        let mut endings = signal(SignalKind::child()).context("listening for the end of children")?;
        let orphans = Self {
            spared: Arc::new(AtomicI32::new(NOBODY)),
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

    /// Excludes a child, so that its owner can wait for it. To be called right after the child was started, before the task of the
    /// current-thread runtime runs.
    pub fn spare(&self, child: Pid) {
        self.spared.store(child.as_raw(), Ordering::Relaxed);
    }
}

/// Collects children that have ended. It stops at the spared child, because the kernel shows no other one before that is collected; the
/// next call collects the rest.
fn collect_ended(spared: Pid) {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Ok(WaitStatus::Exited(child, _) | WaitStatus::Signaled(child, ..)) = waitid(Id::All, look) {
        if child == spared {
            return;
        }
        // An error: it was not a child any more.
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
    fn children_are_collected_except_the_one_that_is_spared() {
        let mut spared = Command::new("sleep").arg("1000").spawn().unwrap();
        let mut other = Command::new("true").spawn().unwrap();
        let pid = |child: &std::process::Child| Pid::from_raw(child.id() as i32);
        let ended = waitid(Id::Pid(pid(&other)), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
        assert_eq!(ended, WaitStatus::Exited(pid(&other), 0));
        collect_ended(pid(&spared));
        assert!(other.wait().is_err(), "it was collected");
        spared.kill().unwrap();
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(pid(&spared)), look).unwrap();
        collect_ended(pid(&spared));
        assert!(spared.wait().is_ok(), "it was left to its parent");
    }
}
