//! What whoever started this process is told of it: systemd, or what speaks like it (`NOTIFY_SOCKET`). Where nobody asks for it,
//! nothing happens.
//!
//! Ready is a node that listens, not one that has a leader: the first of three nodes would else be taken for one that failed.
//! Whether it can serve, `/readyz` says.

use std::time::Duration;

use sd_notify::NotifyState;
use tracing::{info, warn};

/// Signs of life within the time after which a process without any is taken for dead.
const PINGS_PER_TIMEOUT: u32 = 3;

/// The channel to it.
#[derive(Debug)]
pub struct Supervisor {
    watchdog_interval: Option<Duration>,
}

impl Supervisor {
    /// As the environment says.
    pub fn from_environment() -> Self {
        let timeout = sd_notify::watchdog_enabled();
        if let Some(timeout) = timeout {
            info!(
                timeout_ms = timeout.as_millis() as u64,
                "whoever started this process gets signs of life, and ends it without"
            );
        }
        Self {
            watchdog_interval: timeout.map(|timeout| timeout / PINGS_PER_TIMEOUT),
        }
    }

    /// The node listens.
    pub fn ready(&self, status: &str) {
        notify(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// The configuration is being read again; [`Supervisor::ready`] ends that.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => notify(&[NotifyState::Reloading, now]),
            Err(error) => warn!(%error, "the supervisor is not told of a reload"),
        }
    }

    /// The node hands over what it has, and ends.
    pub fn stopping(&self) {
        notify(&[
            NotifyState::Stopping,
            NotifyState::Status("handing over and stopping"),
        ]);
    }

    /// Gives signs of life for as long as it is waited for. To be waited for by the task that serves: when the runtime stands still,
    /// there are none.
    pub async fn run_watchdog(&self) {
        let Some(interval) = self.watchdog_interval else {
            return std::future::pending().await;
        };
        let mut ticks = tokio::time::interval(interval);
        loop {
            ticks.tick().await;
            notify(&[NotifyState::Watchdog]);
        }
    }
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!(%error, "the supervisor cannot be told how this process is");
    }
}
