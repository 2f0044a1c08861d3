//! Who may propose anything now. Everything that this node's clients want of the cluster gets a place here first, before it is
//! encoded or queued, and keeps it until nothing of it is on its way any more.
//!
//! There are places for what is new and others for what keeps or gives back ([`Work`]), so however many ask for locks, they
//! can be released. How many there are is learnt from how long proposals take (`pace.rs`), beneath a fixed bound; so when a
//! leader has more to do than it can, all nodes take less in, and what was taken in is answered soon.

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

/// However slow a cluster is, so many proposals may be on their way, of each kind. On a disk whose every sync takes longer than
/// the target, fewer at a time would make nobody faster, only all of them fewer.
pub const LEAST_OUTSTANDING: usize = 128;

/// For each place that there may be at the most for something new, there are so many for what keeps or gives back, however slow
/// everything is: what was let in has to be given back, and much of that comes at a time.
pub const KEPT_PLACES: usize = 4;

/// When who is refused should come again: what was taken in is through several times over by then.
pub const BUSY_RETRY: Duration = Duration::from_secs(1);

/// What this node takes in for the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmissionConfig {
    /// How long a proposal should take at the most. While all take longer, fewer are taken in.
    pub target: Duration,
    /// How many proposals that want something new may be on their way at the most; of the others [`KEPT_PLACES`] times as many.
    pub max_outstanding: usize,
    /// How many bytes those of each kind may have together.
    pub max_outstanding_bytes: usize,
    /// How fast sessions may be opened.
    pub openings: OpeningBounds,
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Self {
            // Many times what a commit takes on a good disk, and an eighth of the shortest session.
            target: Duration::from_millis(250),
            // One for each connection there may be. At a kilobyte or so each they are no burden while they are carried out
            // quickly, and where they are not there are fewer.
            max_outstanding: 10_000,
            // With the log's own queue, and that of the peers, a small part of a small machine's memory.
            max_outstanding_bytes: 64 * 1024 * 1024,
            openings: OpeningBounds::default(),
        }
    }
}

/// How full the node is, for those who look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdmissionCounts {
    /// Proposals on their way that want something new.
    pub new: usize,
    /// Those that keep or give back.
    pub kept: usize,
    /// The bytes of both.
    pub bytes: usize,
    /// How many new ones there may be now.
    pub limit: usize,
    /// How many were refused since the node was started: new ones, others.
    pub refused: [u64; 2],
    /// How many sessions were not opened because too many were, since then.
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
    /// Woken one by one when there is room for something new, or for what is kept up.
    room: [Notify; 2],
}

/// No place is free for such work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this node has as much to do as it can do in time ({outstanding} requests are on their way)")]
pub struct Busy {
    /// How many are on their way.
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
    /// Where nothing is on its way.
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

    /// What holds from now on. What was let in stays; what was learnt of the pace is learnt anew, and buckets are full again.
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
        // There may be room now; whoever is woken wakes the next one.
        self.room.iter().for_each(Notify::notify_one);
    }

    /// A place for a request.
    pub fn place(self: &Arc<Self>, request: &Request) -> Result<Place, Busy> {
        let work = Work::of(request);
        let place = self.place_for(work, work::weight(request));
        if place.is_err()
            && let Some(taken) = self.state.lock().taken(work)
        {
            taken.refused += 1;
        }
        place
    }

    /// A place for a step of a client that stays connected. Where there is none its client waits, and nothing is refused.
    pub fn place_for_step(self: &Arc<Self>, step: &Step) -> Result<Place, Busy> {
        self.place_for(Work::of_step(step), work::weight_of_step(step))
    }

    fn place_for(self: &Arc<Self>, work: Work, bytes: usize) -> Result<Place, Busy> {
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
        Ok(Place {
            admission,
            work,
            bytes,
            since: Instant::now(),
        })
    }

    /// Whether such work would find a place. What is refused by this alone has to be counted by [`Admission::refuse`].
    pub fn has_room(&self, work: Work) -> bool {
        self.state.lock().has_room(work)
    }

    /// Whether something new that waited for so long to be heard can still be done in time. Half of the time is the commit's.
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
                // Whoever is woken may want less than there is, or nothing any more: then the next one goes on.
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

    /// How full it is.
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
    /// What is taken of the places for some work; the cluster's own has none.
    fn taken(&mut self, work: Work) -> Option<&mut Taken> {
        match work {
            Work::New => Some(&mut self.new),
            Work::Keep => Some(&mut self.keep),
            Work::Own => None,
        }
    }

    /// The last one that is let in may pass the bound of bytes: so whatever is as large as a request may be finds a place at all.
    fn has_room(&self, work: Work) -> bool {
        let (taken, limit) = match work {
            Work::New => (self.new, self.pace.limit()),
            Work::Keep => (self.keep, self.config.max_outstanding.saturating_mul(KEPT_PLACES)),
            Work::Own => return true,
        };
        taken.proposals < limit && taken.bytes < self.config.max_outstanding_bytes
    }
}

/// A proposal's place. Given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    admission: Arc<Admission>,
    work: Work,
    bytes: usize,
    since: Instant,
}

impl Place {
    /// The proposal was carried out just now: what there may be is learnt from how long that took.
    pub fn carried_out(self) {
        let now = Instant::now();
        let took = now.saturating_duration_since(self.since);
        self.admission.state.lock().pace.carried_out(now, took);
    }
}

impl Drop for Place {
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
