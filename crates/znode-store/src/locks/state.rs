//! What holds for a lock beside its queue, and follows from nothing in the tree: terms that an operator has set, that it
//! is closed for a while, and what is left of an upgrade. Most locks have none of it and are not in any table here.
//! It goes into snapshots.

use serde::{Deserialize, Serialize};

use crate::model::ids::Zxid;
use crate::model::lock::LockMode;

/// The longest lock-delay in milliseconds. It holds up everybody who waits, so it is for what is on its way when a client
/// dies, not for its repair.
pub const MAX_LOCK_DELAY_MS: u32 = 60_000;

/// How many locks may have a state of their own before an operator can configure no more of them. Each is some hundred
/// bytes, and all of them are copied when a snapshot is begun.
pub const MAX_CONFIGURED_LOCKS: usize = 10_000;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LockState {
    /// How many permits there are, whatever the semaphore's first user said.
    pub limit: Option<u32>,
    /// Nobody is let in, nor into the queue.
    pub draining: bool,
    /// Nobody is let in until the lock is opened.
    pub closed: Option<Closed>,
    /// The largest token of a grant that was given out of the order of arrival. Whoever came before it and is let in
    /// later gets a new token. Zero: nobody such is left in the queue.
    pub floor: Zxid,
    /// A holder waits to be the only one. Who else holds the lock does then not follow from the queue.
    pub upgrading: bool,
}

/// Since when a lock is closed, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Closed {
    /// The position of the loss.
    pub at: Zxid,
    /// Its time, for people.
    pub at_ms: u64,
    /// How long it stays closed.
    pub delay_ms: u32,
    /// How much of that has passed, as leaders have counted: less than all.
    pub passed_ms: u32,
}

/// What of it decides who is let in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The limit of the semaphore, if it was changed.
    pub limit: Option<u32>,
    /// Nobody new stands in the queue.
    pub draining: bool,
    /// Nobody is let in.
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
    /// Whether nobody is let in.
    pub fn is_shut(self) -> bool {
        self.draining || self.closed
    }

    /// The mode with the limit that is in force.
    pub fn in_force(self, mode: LockMode) -> LockMode {
        match mode {
            LockMode::Semaphore { limit } => LockMode::Semaphore {
                limit: self.limit.unwrap_or(limit),
            },
            LockMode::Exclusive | LockMode::Shared | LockMode::Upgradeable => mode,
        }
    }
}

/// Whether nothing is set, at most taken back.
pub(crate) fn lifts(limit: Option<Option<u32>>, draining: Option<bool>) -> bool {
    matches!((limit, draining), (None | Some(None), None | Some(false)))
}
