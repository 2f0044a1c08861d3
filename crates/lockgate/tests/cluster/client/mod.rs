//! The Rust client against clusters of real processes.

mod acquire;
mod commands;
mod curator;
mod events;
mod faults;
mod leader;
mod lock_command;
mod modes;
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

/// The shortest that a server allows: what has to end is over soon.
pub const SHORT_TTL: Duration = Duration::from_secs(2);

/// Of sessions that have to live on a busy machine, too, and hear soon what heartbeats bring.
pub const BRISK_TTL: Duration = Duration::from_secs(9);

impl TestCluster {
    /// The client library, with all nodes.
    pub fn lock_client(&self) -> LockClient {
        LockClient::new(self.http_addresses()).unwrap()
    }

    /// A session of the client library that lives as long as any test.
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

/// A process that ends with its test, however that ends, and all that it has started with it.
pub struct ProcessTree(Option<Child>);

impl ProcessTree {
    pub fn of(child: Child) -> Self {
        Self(Some(child))
    }

    /// For whoever waits for its end.
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
    // Itself first: it has nothing to do about the end of its children any more. That it has ended already is fine.
    let _ = kill(process, Signal::SIGKILL);
    for child in children.unwrap_or_default().split_whitespace() {
        kill_all(Pid::from_raw(child.parse().unwrap()));
    }
}
