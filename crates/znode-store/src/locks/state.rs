//! State of a lock, besides its queue, that does not follow from the tree: settings of an operator, a lock-delay, and the remains of an upgrade.
//! Most locks have no such state. It goes into snapshots.

use serde::{Deserialize, Serialize};

use crate::model::ids::Zxid;
use crate::model::lock::LockMode;

/// Maximum lock-delay in milliseconds. It blocks all waiters, so it is meant for messages in transit at the death of a client, not for the
/// repair of the client.
pub const MAX_LOCK_DELAY_MS: u32 = 60_000;

/// Maximum number of locks with such a state. Beyond it no further lock is configured, or acquired with a minimum time of the hold. Each takes some
/// hundred bytes, and a snapshot copies all of them when it begins.
pub const MAX_CONFIGURED_LOCKS: usize = 10_000;

/// State of a lock besides its queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LockState {
    /// Number of permits, which replaces the limit of the first user.
    pub limit: Option<u32>,
    /// True if the lock accepts and grants no new contenders.
    pub draining: bool,
    /// Lock-delay during which the lock grants nothing.
    pub closed: Option<Closed>,
    /// Largest token of a grant out of the order of arrival. An earlier contender that is granted later gets a new token. Zero: no such
    /// contender is left in the queue.
    pub floor: Zxid,
    /// True if a holder waits to be the only one. The other holders then do not follow from the queue.
    pub upgrading: bool,
}

/// Lock-delay of a closed lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Closed {
    /// Position at which the holder was lost.
    pub at: Zxid,
    /// Time of that position, for views.
    pub at_ms: u64,
    /// Lock-delay in milliseconds.
    pub delay_ms: u32,
    /// Part of the delay that has passed, as leaders have counted. It is less than the whole delay.
    pub passed_ms: u32,
}

/// Part of the state that decides about grants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Limit of the semaphore, if it was changed.
    pub limit: Option<u32>,
    /// True if the lock accepts no new contenders.
    pub draining: bool,
    /// True if the lock grants nothing.
    pub closed: bool,
}

impl LockState {
    pub fn terms(&self) -> Terms {
        Terms {
            limit: self.limit,
            draining: self.draining,
            closed: self.closed.is_some(),
        }
    }
}

impl Terms {
    /// Returns whether the lock grants nothing.
    pub fn is_shut(self) -> bool {
        self.draining || self.closed
    }

    /// Returns the mode with the limit that is in force.
    pub fn in_force(self, mode: LockMode) -> LockMode {
        match mode {
            LockMode::Semaphore { limit } => LockMode::Semaphore {
                limit: self.limit.unwrap_or(limit),
            },
            LockMode::Exclusive | LockMode::Shared | LockMode::Upgradeable => mode,
        }
    }
}

/// Returns whether a change only removes settings.
pub(crate) fn only_removes_settings(limit: Option<Option<u32>>, draining: Option<bool>) -> bool {
    matches!((limit, draining), (None | Some(None), None | Some(false)))
}
