//! What a run of the model came to.

use crate::{Nanos, SECOND};

/// See the module. Times are from the sending of a request to the receiving of its answer.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Requests that were answered in a second, reads and writes.
    pub operations_per_second: f64,
    /// How long they took.
    pub times: Times,
    /// The same of reads alone.
    pub reads: Times,
    /// The same of those that take several locks.
    pub multi: Times,
    /// The part of its cores' time that each machine was busy.
    pub busy: Vec<f64>,
    /// Writes in an entry of the log, on average.
    pub batch: f64,
    /// If a machine was lost: the part of all requests whose group had no leader, by how much each group is wanted.
    pub waited_share: f64,
    /// If a machine was lost: answered in a second before, and after all groups had leaders again.
    pub before_and_after: (f64, f64),
    /// If a machine was lost: how many groups each machine leads in the end.
    pub leads: Vec<usize>,
}

/// Some durations, sorted.
#[derive(Debug, Clone, Default)]
pub struct Times(Vec<Nanos>);

impl Times {
    /// These.
    pub fn new(mut times: Vec<Nanos>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// So large a part of them took no longer, in milliseconds. None: NaN.
    pub fn at(&self, part: f64) -> f64 {
        let Some(last) = self.0.len().checked_sub(1) else {
            return f64::NAN;
        };
        self.0[(last as f64 * part).round() as usize] as f64 / 1e6
    }

    /// Their mean, in seconds.
    pub fn mean(&self) -> f64 {
        let sum: u128 = self.0.iter().map(|time| u128::from(*time)).sum();
        sum as f64 / self.0.len() as f64 / SECOND as f64
    }
}
