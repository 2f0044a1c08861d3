//! Orphans: processes whose parents have ended. As the first process of a container, a program becomes their parent, and has to collect
//! them when they end; else they stay as zombies and use up process ids.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use anyhow::Context;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};

/// No process: what [`Orphans`] has before it is told of one.
const NOBODY: i32 = 0;

/// Collector of all children that have ended, but one that somebody else waits for.
#[derive(Debug, Clone)]
pub struct Orphans {
    spared: Arc<AtomicI32>,
}

impl Orphans {
    /// Collects them from now on, on this runtime.
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

    /// Leaves this child to whoever has started it. Has to be said before the runtime's thread does anything else.
    pub fn spare(&self, child: Pid) {
        self.spared.store(child.as_raw(), Ordering::Relaxed);
    }
}

/// Collects what has ended by now, up to the child that is spared: behind it the kernel shows no other. Those are collected later.
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
