//! Notifications to the supervisor that started this process: systemd, or a program with the same protocol
//! (`NOTIFY_SOCKET`). Without a supervisor they do nothing.
//!
//! A node is ready when it listens, not when it has a leader: otherwise the supervisor would take the first
//! of three nodes for failed. `/readyz` reports whether a node can serve.

use std::time::Duration;

use sd_notify::NotifyState;
use tracing::{info, warn};

/// Watchdog notifications per timeout, after which the supervisor takes the process for dead.
const PINGS_PER_TIMEOUT: u32 = 3;

/// Channel to the supervisor.
#[derive(Debug)]
pub struct Supervisor {
    watchdog_interval: Option<Duration>,
}

impl Supervisor {
    /// Creates the channel from the variables of the environment.
    pub fn from_environment() -> Self {
        let timeout = sd_notify::watchdog_enabled();
        if let Some(timeout) = timeout {
            info!(
                timeout_ms = timeout.as_millis() as u64,
                "the supervisor expects watchdog notifications and ends this process without them"
            );
        }
        Self {
            watchdog_interval: timeout.map(|timeout| timeout / PINGS_PER_TIMEOUT),
        }
    }

    /// Notifies the supervisor that the node listens.
    pub fn ready(&self, status: &str) {
        notify(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Notifies the supervisor that a reload has begun; [`Supervisor::ready`] ends it.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => notify(&[NotifyState::Reloading, now]),
            Err(error) => warn!(%error, "cannot notify the supervisor of a reload"),
        }
    }

    /// Notifies the supervisor that the node transfers leadership and stops.
    pub fn stopping(&self) {
        notify(&[
            NotifyState::Stopping,
            NotifyState::Status("transferring leadership and stopping"),
        ]);
    }

    /// Sends watchdog notifications while it is polled. Poll it from the task that serves, so that a stalled
    /// runtime sends none.
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
        warn!(%error, "cannot notify the supervisor");
    }
}
