//! Counts of a client, for the metrics of its program.

use std::collections::BTreeMap;
use std::time::Instant;

use parking_lot::Mutex;
use serde::Serialize;

use crate::encode::millis;
use crate::error::{Error, Loss};

/// Counts since the client was created: [`LockClient::stats`](crate::LockClient::stats).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Requests that have ended; every attempt at a server counts.
    pub requests: u64,
    /// Requests that the cluster refused.
    pub requests_refused: u64,
    /// Requests that executed nothing: the server was unreachable or overloaded.
    pub requests_unavailable: u64,
    /// Requests without a definite answer: the connection broke, or the client stopped waiting.
    pub requests_unknown: u64,
    /// Attempts after the first of a call. Heartbeats are not repeated.
    pub retries: u64,
    /// Heartbeats that were sent.
    pub heartbeats: u64,
    /// Sessions that were opened.
    pub sessions_opened: u64,
    /// Locks and leases that were acquired.
    pub acquired: u64,
    /// Acquires that failed because the lock was not free.
    pub not_free: u64,
    /// Total time of all ended acquires, with their waits.
    pub acquire_ms: u64,
    /// Guards that lost their locks, by [`Loss::word`]. A close or a release by this program is no loss.
    pub lost: BTreeMap<&'static str, u64>,
}

/// Counts of a client and its sessions.
#[derive(Debug, Default)]
pub(crate) struct Counts(Mutex<Stats>);

/// Request in progress. It is counted when this is dropped.
pub(crate) struct Attempt<'c> {
    counts: &'c Counts,
    /// Adds the outcome.
    pub(crate) outcome: fn(&mut Stats),
}

impl Counts {
    pub(crate) fn add(&self, change: impl FnOnce(&mut Stats)) {
        change(&mut self.0.lock());
    }

    pub(crate) fn snapshot(&self) -> Stats {
        self.0.lock().clone()
    }

    /// Counts a request, as unknown if nothing is noted before it is dropped.
    pub(crate) fn attempt(&self) -> Attempt<'_> {
        Attempt {
            counts: self,
            outcome: |stats| stats.requests_unknown += 1,
        }
    }

    /// Runs an acquire of this number of locks, and counts its end.
    pub(crate) async fn acquire<T>(
        &self,
        locks: usize,
        acquire: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let begun = Instant::now();
        let result = acquire.await;
        self.add(|stats| {
            stats.acquire_ms += millis(begun.elapsed());
            match &result {
                Ok(_) => stats.acquired += locks as u64,
                Err(error) => stats.not_free += u64::from(error.is_not_free()),
            }
        });
        result
    }

    /// Counts lost locks.
    pub(crate) fn add_losses(&self, loss: &Loss, locks: usize) {
        if locks > 0 && !loss.is_own_will() {
            self.add(|stats| *stats.lost.entry(loss.word()).or_default() += locks as u64);
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.counts.add(|stats| {
            stats.requests += 1;
            (self.outcome)(stats);
        });
    }
}
