//! Counters of a listener's connections, and the log rate limit for rejected clients.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use crate::connection_limits::{LimitReached, LiveConnectionLimits, client_network};
use crate::log_limit::LogLimit;

/// Counters of one or more listeners. Cheap to clone: all clones share the counters.
#[derive(Debug, Clone, Default)]
pub struct ConnectionMetrics(Arc<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    limits: OnceLock<LiveConnectionLimits>,
    open: AtomicUsize,
    accepted: AtomicU64,
    rejected_total_limit: AtomicU64,
    rejected_address_limit: AtomicU64,
    shed: AtomicU64,
    rejection_log: LogLimit<IpAddr>,
}

/// Values of the counters at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Maximum number of connections; 0 while nothing listens.
    pub limit: usize,
    /// Open connections.
    pub open: usize,
    /// Connections accepted so far, including the open ones.
    pub accepted: u64,
    /// Connections rejected because the total limit was reached.
    pub rejected_total_limit: u64,
    /// Connections rejected because the limit of their address was reached.
    pub rejected_address_limit: u64,
    /// Requests rejected by load shedding, from their request line alone.
    pub shed: u64,
}

/// Counters are no part of the configuration that contains them, so they always compare equal.
impl PartialEq for ConnectionMetrics {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ConnectionMetrics {}

impl ConnectionMetrics {
    /// Returns the current values of the counters.
    pub fn counts(&self) -> ConnectionCounts {
        let numbers = &self.0;
        ConnectionCounts {
            limit: numbers.limits.get().map_or(0, |limits| limits.get().total),
            open: numbers.open.load(Relaxed),
            accepted: numbers.accepted.load(Relaxed),
            rejected_total_limit: numbers.rejected_total_limit.load(Relaxed),
            rejected_address_limit: numbers.rejected_address_limit.load(Relaxed),
            shed: numbers.shed.load(Relaxed),
        }
    }

    /// Admits a log line about a rejected client, and returns the number of lines suppressed since the last
    /// one. Returns `None` above the rate limit.
    pub fn admit_line(&self, address: IpAddr) -> Option<u64> {
        self.0.rejection_log.admit(client_network(address))
    }

    /// Counts a request that the front end rejected by load shedding.
    pub fn count_shed_request(&self) {
        self.0.shed.fetch_add(1, Relaxed);
    }

    /// Records the connection limits. The first listener that uses these metrics sets them.
    pub(crate) fn set_limits(&self, limits: &LiveConnectionLimits) {
        self.0.limits.get_or_init(|| limits.clone());
    }

    /// Counts an accepted connection, which is open until the returned guard is dropped.
    pub(crate) fn connection(&self) -> Connection {
        self.0.accepted.fetch_add(1, Relaxed);
        self.0.open.fetch_add(1, Relaxed);
        Connection(self.clone())
    }

    pub(crate) fn count_rejected(&self, limit: LimitReached) {
        let counter = match limit {
            LimitReached::Total => &self.0.rejected_total_limit,
            LimitReached::PerAddress => &self.0.rejected_address_limit,
        };
        counter.fetch_add(1, Relaxed);
    }
}

/// See [`ConnectionMetrics::connection`].
pub(crate) struct Connection(ConnectionMetrics);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Relaxed);
    }
}
