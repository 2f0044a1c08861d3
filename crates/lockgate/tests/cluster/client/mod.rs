//! The Rust client against clusters of real processes.

mod acquire;
mod commands;
mod faults;
mod lock_command;
mod paused;
mod proxy;
mod recipes;
mod terminal;

use std::time::Duration;

use lock_client::{LockClient, LockSession};

use crate::harness::TestCluster;

/// The shortest that a server allows: what has to end is over soon.
pub const SHORT_TTL: Duration = Duration::from_secs(2);

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
