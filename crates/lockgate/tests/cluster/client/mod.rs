//! The Rust client against clusters of real processes.

mod acquire;
mod bounds;
mod commands;
mod curator;
mod elections;
mod events;
mod faults;
mod leader;
mod leases;
mod library_leases;
mod lock_command;
mod mcp;
mod modes;
mod namespaces;
mod paused;
pub mod proxy;
mod recipes;
mod terminal;

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use lock_client::{LockClient, LockSession};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Child;

use crate::harness::TestCluster;

/// Minimum timeout that a server allows, for sessions that expire soon.
pub const SHORT_TTL: Duration = Duration::from_secs(2);

/// Timeout of sessions that must survive on a busy machine, with frequent heartbeats.
pub const BRISK_TTL: Duration = Duration::from_secs(9);

impl TestCluster {
    /// Returns a client of the library with the addresses of all nodes.
    pub fn lock_client(&self) -> LockClient {
        LockClient::new(self.http_addresses()).unwrap()
    }

    /// Opens a session of the client library that outlives any test.
    pub async fn lock_session(&self, name: &str) -> LockSession {
        self.lock_client()
            .session()
            .name(name)
            .ttl(crate::harness::LONG_TTL)
            .open()
            .await
            .unwrap()
    }
}

/// Process that is killed with its test, together with all its descendants.
pub struct ProcessTree(Option<Child>);

impl ProcessTree {
    pub fn of(child: Child) -> Self {
        Self(Some(child))
    }

    /// Returns the process, for the caller to wait for its end.
    pub fn into_child(mut self) -> Child {
        self.0.take().expect("it is taken once")
    }
}

impl Deref for ProcessTree {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().expect("it is taken at the end")
    }
}

impl DerefMut for ProcessTree {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().expect("it is taken at the end")
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        if let Some(pid) = self.0.as_ref().and_then(Child::id) {
            kill_all(Pid::from_raw(i32::try_from(pid).unwrap()));
        }
    }
}

fn kill_all(process: Pid) {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    // The process first, so that it cannot react to the end of its children. It may have ended already.
    let _ = kill(process, Signal::SIGKILL);
    for child in children.unwrap_or_default().split_whitespace() {
        kill_all(Pid::from_raw(child.parse().unwrap()));
    }
}
