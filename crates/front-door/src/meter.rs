//! Counts of the callers of a door, for metrics; and the limit of log lines about those that were not let in.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use crate::log_limit::LogLimit;
use crate::places::{LiveBounds, NoPlace, subscriber};

/// What is counted at a door. Cheap to clone: all clones count together.
#[derive(Debug, Clone, Default)]
pub struct DoorMeter(Arc<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    bounds: OnceLock<LiveBounds>,
    open: AtomicUsize,
    accepted: AtomicU64,
    full: AtomicU64,
    too_many: AtomicU64,
    unheard: AtomicU64,
    strangers: LogLimit<IpAddr>,
}

/// What was counted, at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DoorCounts {
    /// How many connections there may be; 0 while nothing listens.
    pub limit: usize,
    /// How many there are.
    pub open: usize,
    /// How many there were, with those that are.
    pub accepted: u64,
    /// How many callers found all places taken.
    pub full: u64,
    /// How many callers had as many connections as one address may have.
    pub too_many: u64,
    /// How many requests were refused before anything of them was looked at but their first line.
    pub unheard: u64,
}

/// What was counted is no part of what is configured, beside which it stands.
impl PartialEq for DoorMeter {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for DoorMeter {}

impl DoorMeter {
    /// What was counted so far.
    pub fn counts(&self) -> DoorCounts {
        let numbers = &self.0;
        DoorCounts {
            limit: numbers.bounds.get().map_or(0, |bounds| bounds.get().in_all),
            open: numbers.open.load(Relaxed),
            accepted: numbers.accepted.load(Relaxed),
            full: numbers.full.load(Relaxed),
            too_many: numbers.too_many.load(Relaxed),
            unheard: numbers.unheard.load(Relaxed),
        }
    }

    /// Returns whether a line of the log may say that this caller was not let in, and how many such lines were left out since the last one.
    pub fn admit_line(&self, address: IpAddr) -> Option<u64> {
        self.0.strangers.admit(subscriber(address))
    }

    /// Whoever is behind the door has refused a request before it was looked at.
    pub fn refused_unheard(&self) {
        self.0.unheard.fetch_add(1, Relaxed);
    }

    /// The first door that opens with this meter says how many connections there may be.
    pub(crate) fn opens(&self, bounds: &LiveBounds) {
        self.0.bounds.get_or_init(|| bounds.clone());
    }

    /// A connection that counts until it is dropped.
    pub(crate) fn connection(&self) -> Connection {
        self.0.accepted.fetch_add(1, Relaxed);
        self.0.open.fetch_add(1, Relaxed);
        Connection(self.clone())
    }

    pub(crate) fn refused(&self, why: NoPlace) {
        let counter = match why {
            NoPlace::Full => &self.0.full,
            NoPlace::TooMany => &self.0.too_many,
        };
        counter.fetch_add(1, Relaxed);
    }
}

/// See [`DoorMeter::connection`].
pub(crate) struct Connection(DoorMeter);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Relaxed);
    }
}
