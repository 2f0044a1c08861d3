//! Admission control. Each proposal of this node's clients needs a permit before it is encoded or queued. It holds the permit until nothing of
//! it is in flight any more.
//!
//! New work and work that keeps or releases something ([`Work`]) have separate permits, so locks can be released under any load. The number
//! of permits follows the rate at which proposals are applied (`pace.rs`), below a fixed bound. When a leader is overloaded, all nodes admit
//! fewer proposals, and answer the admitted ones soon.
//!
//! When half of the permits of a kind are in use, the others are shared out: one caller (a principal, or the address of a caller without one)
//! gets half of them, so that there are permits for others. Below that nobody needs to know whose permits are in use. A caller with few permits
//! gets one also while others have more than the limit, which may have fallen since.

mod caller;
mod caller_pace;
mod large_write_wait;
mod namespaces;
mod openings;
mod pace;
mod work;

use std::sync::Arc;
use std::time::Duration;

use listener::{Share, Shares};
use tokio::sync::Notify;
use tokio::time::Instant;
use znode_store::{Identities, Principal, Request};

pub use self::caller::{Caller, shared_by};
pub use self::caller_pace::PaceBounds;
pub use self::large_write_wait::LargeWriteWait;
pub use self::namespaces::Namespaces;
pub use self::openings::{OpeningBounds, TooFast};
pub use self::work::{Work, written_bytes};

use self::caller_pace::{CallerPace, Taken};
use self::openings::Openings;
use self::pace::Pace;
use raft_log::sync::Mutex;
use raft_node::Unavailable;

/// Minimum of the limit of new proposals in flight, however slow the cluster is. On a disk whose every sync takes longer than the target, a
/// lower limit would make nothing faster.
pub const LEAST_OUTSTANDING: usize = 128;

/// Permits for work that keeps or releases something, as a multiple of the maximum of new proposals. It holds however slow the cluster is:
/// whatever was granted has to be released, and many releases come at a time.
pub const MAINTENANCE_PERMITS_PER_NEW: usize = 4;

/// Time after which a rejected client should retry. The admitted proposals are complete by then.
pub const BUSY_RETRY: Duration = Duration::from_secs(1);

/// Number of permits that a caller gets also while more than the limit are in use: those that others took before the limit fell do not count
/// against it.
const FEW_PERMITS: usize = 32;

/// Interval at which a caller that has its share of the permits, and waits, asks whether it gets another one. The permits are free again
/// within milliseconds unless the node is overloaded.
const SHARE_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Settings of admission control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmissionConfig {
    /// Target duration of a proposal. While all proposals take longer, fewer are admitted.
    pub target: Duration,
    /// Maximum number of new proposals in flight. For proposals that keep or release something it is [`MAINTENANCE_PERMITS_PER_NEW`] times as high.
    pub max_outstanding: usize,
    /// Maximum size of all proposals of one kind in flight, in bytes.
    pub max_outstanding_bytes: usize,
    /// Rate at which sessions may be opened.
    pub openings: OpeningBounds,
    /// Pace of each caller's refused requests.
    pub refusals: PaceBounds,
    /// Pace of each caller's long requests beside other callers, in milliseconds of processor time.
    pub long_requests: PaceBounds,
    /// Pace of each caller's large writes beside other callers, in KiB of data.
    pub large_writes: PaceBounds,
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Self {
            // Many times the duration of a commit on a good disk, and an eighth of the shortest session timeout.
            target: Duration::from_millis(250),
            // One for each possible connection. At about a kilobyte each they are no burden while they are applied quickly. When they are
            // applied slowly, the pace admits fewer.
            max_outstanding: 10_000,
            // Together with the queues of the log and of the peers, a small part of a small machine's memory.
            max_outstanding_bytes: 64 * 1024 * 1024,
            openings: OpeningBounds::default(),
            refusals: PaceBounds::OF_REFUSALS,
            long_requests: PaceBounds::OF_LONG_REQUESTS,
            large_writes: PaceBounds::OF_LARGE_WRITES,
        }
    }
}

/// Load of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdmissionCounts {
    /// New proposals in flight.
    pub new: usize,
    /// Proposals in flight that keep or release something.
    pub kept: usize,
    /// Size of all proposals in flight, in bytes.
    pub bytes: usize,
    /// Current limit of new proposals in flight.
    pub limit: usize,
    /// Rejected proposals since the node started: new ones, then those that keep or release something.
    pub refused: [u64; 2],
    /// Session openings that the rate limit rejected since the node started.
    pub openings_refused: u64,
    /// Answers to refused and to long requests that had to wait since the node started.
    pub answers_delayed: u64,
}

#[derive(Debug)]
struct Usage {
    proposals: usize,
    /// Those of them that were admitted while as many as the limit, or more, were in flight.
    beyond_limit: usize,
    bytes: usize,
    refused: u64,
    /// Permits that were taken while half of all were in use, by caller.
    shares: Arc<Shares>,
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            proposals: 0,
            beyond_limit: 0,
            bytes: 0,
            refused: 0,
            // Each permit is taken below the current limit.
            shares: Shares::of(usize::MAX),
        }
    }
}

#[derive(Debug)]
struct State {
    config: AdmissionConfig,
    pace: Pace,
    new: Usage,
    keep: Usage,
    openings: Openings,
    openings_refused: u64,
    refusals: CallerPace,
    long_requests: CallerPace,
    large_writes: CallerPace,
    answers_delayed: u64,
}

/// Admission control of a node: hands out permits, and counts what is in flight.
#[derive(Debug)]
pub struct Admission {
    state: Mutex<State>,
    namespaces: Namespaces,
    /// Wakes waiters one by one when there is room: for new work, then for work that keeps or releases something.
    room: [Notify; 2],
}

/// Rejection of a proposal: no permit is free for its kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this node is overloaded: {outstanding} requests are in flight, and more would not complete in time")]
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
            new: Usage::default(),
            keep: Usage::default(),
            openings: Openings::new(config.openings, Instant::now()),
            openings_refused: 0,
            refusals: CallerPace::new(config.refusals),
            long_requests: CallerPace::new(config.long_requests),
            large_writes: CallerPace::new(config.large_writes),
            answers_delayed: 0,
            config,
        };
        Self {
            state: Mutex::new(state),
            namespaces: Namespaces::default(),
            room: [Notify::new(), Notify::new()],
        }
    }

    /// Returns the rates of namespaces, and the refusals by their quotas.
    pub fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// Changes the settings. Admitted proposals keep their permits. The pace is measured from the beginning, and the buckets of
    /// callers are full again, those of session openings only if their rate changed.
    pub fn reconfigure(&self, config: AdmissionConfig) {
        let mut state = self.state.lock();
        if state.config == config {
            return;
        }
        state.pace = Pace::new(config.target, LEAST_OUTSTANDING, config.max_outstanding);
        if state.config.openings != config.openings {
            state.openings = Openings::new(config.openings, Instant::now());
        }
        state.refusals = CallerPace::new(config.refusals);
        state.long_requests = CallerPace::new(config.long_requests);
        state.large_writes = CallerPace::new(config.large_writes);
        state.config = config;
        drop(state);
        // There may be room now. A woken waiter wakes the next one.
        self.room.iter().for_each(Notify::notify_one);
    }

    /// Returns a permit for a request, or counts its rejection.
    pub fn permit(self: &Arc<Self>, request: &Request) -> Result<AdmissionPermit, Busy> {
        let permit = self.permit_to_wait(request);
        if permit.is_err()
            && let Some(usage) = self.state.lock().usage_mut(Work::of(request))
        {
            usage.refused += 1;
        }
        permit
    }

    /// Returns a permit for a request of a connected client. Without a permit the client waits, so a failure is not counted as a rejection.
    pub fn permit_to_wait(self: &Arc<Self>, request: &Request) -> Result<AdmissionPermit, Busy> {
        self.permit_for(Work::of(request), work::weight(request), &request.caller)
    }

    fn permit_for(
        self: &Arc<Self>,
        work: Work,
        bytes: usize,
        caller: &Identities,
    ) -> Result<AdmissionPermit, Busy> {
        let mut state = self.state.lock();
        let room = state.room(work);
        let (mut share, is_beyond_limit) = (None, room == Room::BeyondLimit);
        if let Some(usage) = state.usage_mut(work) {
            let is_admitted = room.share().is_none_or(|most| {
                share = usage.shares.take_below(shared_by(caller), 1, most);
                share.is_some()
            });
            if !is_admitted || room == Room::None {
                return Err(Busy {
                    outstanding: usage.proposals,
                });
            }
            usage.proposals += 1;
            usage.beyond_limit += usize::from(is_beyond_limit);
            usage.bytes += bytes;
        }
        drop(state);
        let admission = self.clone();
        Ok(AdmissionPermit {
            admission,
            work,
            bytes,
            is_beyond_limit,
            _share: share,
        })
    }

    /// Returns whether there is room for such work. A caller that rejects work for this reason alone counts it with [`Admission::refuse`].
    pub fn has_room(&self, work: Work) -> bool {
        self.state.lock().room(work) != Room::None
    }

    /// Returns whether there is room for such work of this caller.
    pub fn has_room_for(&self, work: Work, caller: &Identities) -> bool {
        let state = self.state.lock();
        let (room, usage) = (state.room(work), state.usage(work));
        match (room.share(), usage) {
            (Some(most), Some(usage)) => usage.shares.has_room_below(&shared_by(caller), most),
            _ => room != Room::None,
        }
    }

    /// Returns whether new work that has waited for `waited` can still complete in time. Half of the target duration is reserved for the
    /// commit.
    pub fn is_in_time(&self, waited: Duration) -> bool {
        waited <= self.state.lock().config.target / 2
    }

    /// Counts the rejection of new work that was rejected before its body was read.
    pub fn refuse(&self) -> Busy {
        let mut state = self.state.lock();
        state.new.refused += 1;
        Busy {
            outstanding: state.new.proposals,
        }
    }

    /// Waits until a permit of the caller for such work may be free. Another caller may take the permit first.
    pub async fn room(&self, work: Work, caller: &Identities) {
        let Some(room) = self.notify(work) else {
            return;
        };
        loop {
            // A notification says that any permit is free. A caller that has its share leaves it to others.
            while self.has_room(work) && !self.has_room_for(work, caller) {
                tokio::time::sleep(SHARE_POLL_INTERVAL).await;
            }
            let mut woken = std::pin::pin!(room.notified());
            woken.as_mut().enable();
            if self.has_room(work) {
                // This waiter may use less than all the room, or may need none any more. So it wakes the next one.
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

    /// Returns how long the refusal of this caller's request has to wait for its answer. Each call counts.
    pub fn refusal_wait(&self, caller: Caller) -> Duration {
        self.take(caller, 1.0, |state| &mut state.refusals).wait
    }

    /// Returns how long a request of this caller that kept its thread for `worked` has to wait for its answer. Each call counts.
    pub fn long_request_wait(&self, caller: Caller, worked: Duration) -> Duration {
        let worked_ms = worked.as_secs_f64() * 1_000.0;
        self.take(caller, worked_ms, |state| &mut state.long_requests)
            .wait
    }

    /// Returns the wait of a write of this caller with so much data before it is proposed, if it has to wait. Each call counts.
    pub fn large_write_wait(self: &Arc<Self>, caller: Caller, bytes: usize) -> Option<LargeWriteWait> {
        let kib = bytes as f64 / 1_024.0;
        let taken = self.take(caller.clone(), kib, |state| &mut state.large_writes);
        (!taken.wait.is_zero()).then(|| LargeWriteWait::new(self.clone(), caller, taken))
    }

    fn give_back_large_write(&self, caller: &Caller, tokens: f64) {
        self.state.lock().large_writes.give_back(caller, tokens);
    }

    /// Takes tokens of a caller's pace. An operator needs none, because it has to reach the node under any load, its own included.
    fn take(&self, caller: Caller, tokens: f64, pace: impl FnOnce(&mut State) -> &mut CallerPace) -> Taken {
        if caller == Caller::Principal(Principal::Operator) {
            return Taken::default();
        }
        let mut state = self.state.lock();
        let taken = pace(&mut state).take(caller, tokens, Instant::now());
        state.answers_delayed += u64::from(!taken.wait.is_zero());
        taken
    }

    /// Takes a token of the rate limit for a session that is about to be opened from `address`.
    pub fn open_session(&self, address: &str) -> Result<(), TooFast> {
        let mut state = self.state.lock();
        let token = state.openings.take(Instant::now(), address);
        if token.is_err() {
            state.openings_refused += 1;
        }
        token
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
            answers_delayed: state.answers_delayed,
        }
    }
}

/// Room for one more proposal of a kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    /// For any caller.
    Free,
    /// For callers that have fewer scarce permits than this.
    Scarce(usize),
    /// For callers that have fewer than [`FEW_PERMITS`], because as many as the limit, or more, are in use.
    BeyondLimit,
    /// For none.
    None,
}

impl Room {
    /// Returns the number of scarce permits that a caller may have, if they are shared out.
    fn share(self) -> Option<usize> {
        match self {
            Self::Free | Self::None => None,
            Self::Scarce(most) => Some(most),
            Self::BeyondLimit => Some(FEW_PERMITS),
        }
    }
}

impl State {
    /// Returns the counters of a kind of work, or `None` for the cluster's own work, which is not counted.
    fn usage(&self, work: Work) -> Option<&Usage> {
        match work {
            Work::New => Some(&self.new),
            Work::Keep => Some(&self.keep),
            Work::Own => None,
        }
    }

    fn usage_mut(&mut self, work: Work) -> Option<&mut Usage> {
        match work {
            Work::New => Some(&mut self.new),
            Work::Keep => Some(&mut self.keep),
            Work::Own => None,
        }
    }

    /// Returns the room for one more proposal of this kind. The last admitted one may exceed the bound of bytes: otherwise the largest allowed
    /// request might never be admitted. Beyond the limit half of it is admitted at most, so that proposals take little longer than the target.
    fn room(&self, work: Work) -> Room {
        let Some(usage) = self.usage(work) else {
            return Room::Free;
        };
        let most = self.config.max_outstanding;
        let (limit, most) = match work {
            Work::New => (self.pace.limit(), most),
            Work::Keep | Work::Own => {
                let most = most.saturating_mul(MAINTENANCE_PERMITS_PER_NEW);
                (most, most)
            }
        };
        if usage.proposals >= most || usage.bytes >= self.config.max_outstanding_bytes {
            Room::None
        } else if usage.proposals < limit / 2 {
            Room::Free
        } else if usage.proposals < limit {
            Room::Scarce(limit / 4)
        } else if usage.beyond_limit < limit / 2 {
            Room::BeyondLimit
        } else {
            Room::None
        }
    }
}

/// Permit of one proposal. Dropping it returns it.
#[derive(Debug)]
pub struct AdmissionPermit {
    admission: Arc<Admission>,
    work: Work,
    bytes: usize,
    is_beyond_limit: bool,
    /// Part of the caller's share, if permits were scarce.
    _share: Option<Share>,
}

impl AdmissionPermit {
    /// Records that the proposal was applied, and returns the permit.
    pub fn record_applied(self) {
        if self.work == Work::New {
            let mut state = self.admission.state.lock();
            let others = state.new.proposals - 1;
            state.pace.record_applied(Instant::now(), others);
        }
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        let mut state = self.admission.state.lock();
        if let Some(usage) = state.usage_mut(self.work) {
            usage.proposals -= 1;
            usage.beyond_limit -= usize::from(self.is_beyond_limit);
            usage.bytes -= self.bytes;
        }
        let has_room = state.room(self.work) != Room::None;
        drop(state);
        if has_room && let Some(room) = self.admission.notify(self.work) {
            room.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
