//! Admission control. Every proposal of this node's clients first gets a permit here, before it is encoded or queued, and keeps it until
//! nothing of it is in flight any more.
//!
//! There are permits for new work and others for work that keeps or releases something ([`Work`]), so locks can be released under any load.
//! The number of permits follows the duration of proposals (`pace.rs`), below a fixed bound. When a leader is overloaded, all nodes admit
//! less, and what was admitted is answered soon.

mod openings;
mod pace;
mod work;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use znode_store::{Request, Step};

pub use self::openings::{OpeningBounds, TooFast};
pub use self::work::Work;

use self::openings::Openings;
use self::pace::Pace;
use raft_log::sync::Mutex;
use raft_node::Unavailable;

/// Number of proposals of each kind that may be in flight, however slow the cluster is. On a disk whose every sync takes longer than the
/// target, a lower number would make nothing faster.
pub const LEAST_OUTSTANDING: usize = 128;

/// Number of permits for work that keeps or releases something, for each permit for new work, however slow the cluster is: what was granted
/// has to be released, and much of that comes at a time.
pub const KEPT_PLACES: usize = 4;

/// Time after which a rejected client should try again: what was admitted is complete by then.
pub const BUSY_RETRY: Duration = Duration::from_secs(1);

/// Settings of admission control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmissionConfig {
    /// Target of the duration of a proposal. While all proposals take longer, fewer are admitted.
    pub target: Duration,
    /// Maximum number of proposals in flight that want something new; of the others [`KEPT_PLACES`] times as many.
    pub max_outstanding: usize,
    /// Maximum size of all proposals of one kind in flight.
    pub max_outstanding_bytes: usize,
    /// Rate at which sessions may be opened.
    pub openings: OpeningBounds,
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Self {
            // Many times what a commit takes on a good disk, and an eighth of the shortest session.
            target: Duration::from_millis(250),
            // One for each possible connection. At about a kilobyte each they are no burden while they are applied quickly, and otherwise
            // there are fewer.
            max_outstanding: 10_000,
            // With the log's own queue, and that of the peers, a small part of a small machine's memory.
            max_outstanding_bytes: 64 * 1024 * 1024,
            openings: OpeningBounds::default(),
        }
    }
}

/// Load of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdmissionCounts {
    /// Proposals on their way that want something new.
    pub new: usize,
    /// Proposals in flight that keep or release something.
    pub kept: usize,
    /// The bytes of both.
    pub bytes: usize,
    /// Present maximum of new proposals.
    pub limit: usize,
    /// Proposals that were rejected since the node started: new ones, others.
    pub refused: [u64; 2],
    /// Sessions that were not opened because too many were, since then.
    pub openings_refused: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Taken {
    proposals: usize,
    bytes: usize,
    refused: u64,
}

#[derive(Debug)]
struct State {
    config: AdmissionConfig,
    pace: Pace,
    new: Taken,
    keep: Taken,
    openings: Openings,
    openings_refused: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Admission {
    state: Mutex<State>,
    /// Notified one by one when there is room for new work, or for work that keeps something.
    room: [Notify; 2],
}

/// No place is free for such work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this node has as much to do as it can do in time ({outstanding} requests are on their way)")]
pub struct Busy {
    /// Number of proposals in flight.
    pub outstanding: usize,
}

impl From<Busy> for Unavailable {
    fn from(busy: Busy) -> Self {
        Self {
            retry_after: BUSY_RETRY,
            ..Self::new(busy.to_string())
        }
    }
}

impl Admission {
    /// Returns an admission control with nothing in flight.
    pub fn new(config: AdmissionConfig) -> Self {
        let state = State {
            pace: Pace::new(config.target, LEAST_OUTSTANDING, config.max_outstanding),
            new: Taken::default(),
            keep: Taken::default(),
            openings: Openings::new(config.openings, Instant::now()),
            openings_refused: 0,
            config,
        };
        Self {
            state: Mutex::new(state),
            room: [Notify::new(), Notify::new()],
        }
    }

    /// Changes the settings. What was admitted stays; the pace is measured anew, and the buckets are full again.
    pub fn reconfigure(&self, config: AdmissionConfig) {
        let mut state = self.state.lock();
        if state.config == config {
            return;
        }
        state.pace = Pace::new(config.target, LEAST_OUTSTANDING, config.max_outstanding);
        if state.config.openings != config.openings {
            state.openings = Openings::new(config.openings, Instant::now());
        }
        state.config = config;
        drop(state);
        // There may be room now. A waiter that is woken wakes the next one.
        self.room.iter().for_each(Notify::notify_one);
    }

    /// A place for a request.
    pub fn place(self: &Arc<Self>, request: &Request) -> Result<AdmissionPermit, Busy> {
        let work = Work::of(request);
        let place = self.permit_for(work, work::weight(request));
        if place.is_err()
            && let Some(taken) = self.state.lock().taken(work)
        {
            taken.refused += 1;
        }
        place
    }

    /// Returns a permit for a step of a connected client. Without one the client waits, and nothing is rejected.
    pub fn permit_for_step(self: &Arc<Self>, step: &Step) -> Result<AdmissionPermit, Busy> {
        self.permit_for(Work::of_step(step), work::weight_of_step(step))
    }

    fn permit_for(self: &Arc<Self>, work: Work, bytes: usize) -> Result<AdmissionPermit, Busy> {
        let mut state = self.state.lock();
        let has_room = state.has_room(work);
        if let Some(taken) = state.taken(work) {
            if !has_room {
                return Err(Busy {
                    outstanding: taken.proposals,
                });
            }
            taken.proposals += 1;
            taken.bytes += bytes;
        }
        drop(state);
        let admission = self.clone();
        Ok(AdmissionPermit {
            admission,
            work,
            bytes,
            since: Instant::now(),
        })
    }

    /// Returns whether there is room for such work. A rejection by this alone has to be counted by [`Admission::refuse`].
    pub fn has_room(&self, work: Work) -> bool {
        self.state.lock().has_room(work)
    }

    /// Returns whether new work that has waited for this time can still complete in time. Half of the time is the commit's.
    pub fn is_in_time(&self, waited: Duration) -> bool {
        waited <= self.state.lock().config.target / 2
    }

    /// Notes that something new was refused before it was even read.
    pub fn refuse(&self) -> Busy {
        let mut state = self.state.lock();
        state.new.refused += 1;
        Busy {
            outstanding: state.new.proposals,
        }
    }

    /// Waits until such work may find a place. Somebody else may take it first.
    pub async fn room(&self, work: Work) {
        let Some(room) = self.notify(work) else {
            return;
        };
        loop {
            let mut woken = std::pin::pin!(room.notified());
            woken.as_mut().enable();
            if self.has_room(work) {
                // The woken waiter may need less than there is, or nothing any more: then the next one goes on.
                room.notify_one();
                return;
            }
            woken.await;
        }
    }

    fn notify(&self, work: Work) -> Option<&Notify> {
        let [new, keep] = &self.room;
        match work {
            Work::New => Some(new),
            Work::Keep => Some(keep),
            Work::Own => None,
        }
    }

    /// A session is about to be opened from `address`.
    pub fn open_session(&self, address: &str) -> Result<(), TooFast> {
        let mut state = self.state.lock();
        let taken = state.openings.take(Instant::now(), address);
        if taken.is_err() {
            state.openings_refused += 1;
        }
        taken
    }

    /// Returns the load.
    pub fn counts(&self) -> AdmissionCounts {
        let state = self.state.lock();
        AdmissionCounts {
            new: state.new.proposals,
            kept: state.keep.proposals,
            bytes: state.new.bytes + state.keep.bytes,
            limit: state.pace.limit(),
            refused: [state.new.refused, state.keep.refused],
            openings_refused: state.openings_refused,
        }
    }
}

impl State {
    /// Returns what is in use by some work; the cluster's own work is not counted.
    fn taken(&mut self, work: Work) -> Option<&mut Taken> {
        match work {
            Work::New => Some(&mut self.new),
            Work::Keep => Some(&mut self.keep),
            Work::Own => None,
        }
    }

    /// The last admitted request may exceed the bound of bytes, so that the largest allowed request is admitted at all.
    fn has_room(&self, work: Work) -> bool {
        let (taken, limit) = match work {
            Work::New => (self.new, self.pace.limit()),
            Work::Keep => (self.keep, self.config.max_outstanding.saturating_mul(KEPT_PLACES)),
            Work::Own => return true,
        };
        taken.proposals < limit && taken.bytes < self.config.max_outstanding_bytes
    }
}

/// Permit of one proposal. Dropping it returns it.
#[derive(Debug)]
pub struct AdmissionPermit {
    admission: Arc<Admission>,
    work: Work,
    bytes: usize,
    since: Instant,
}

impl AdmissionPermit {
    /// Records that the proposal was applied, and how long that took.
    pub fn carried_out(self) {
        let now = Instant::now();
        let took = now.saturating_duration_since(self.since);
        self.admission.state.lock().pace.carried_out(now, took);
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        let mut state = self.admission.state.lock();
        if let Some(taken) = state.taken(self.work) {
            taken.proposals -= 1;
            taken.bytes -= self.bytes;
        }
        let has_room = state.has_room(self.work);
        drop(state);
        if has_room && let Some(room) = self.admission.notify(self.work) {
            room.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
