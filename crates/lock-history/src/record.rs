//! Records of past holds, and pages of them.

use serde::{Deserialize, Serialize};
use znode_store::{ContenderEnd, Hold};

/// Position in the history of the tree, and its time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Zxid of the last command.
    pub zxid: u64,
    /// Time of that command in milliseconds since 1970, by the leader's clock.
    pub time_ms: u64,
}

/// Hold that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldRecord {
    /// The hold. `since_ms` is `None` if its beginning was missed.
    pub hold: Hold,
    /// End of the hold.
    pub end: End,
}

/// End of a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The hold was ended by a known command.
    Known {
        /// Position of the command.
        at: Position,
        /// Kind of the end.
        how: ContenderEnd,
        /// Identity that ended the hold, if known.
        by: Option<String>,
    },
    /// The hold ended at an unknown position within a gap.
    Hidden {
        /// Last position at which the hold still existed.
        not_before: Position,
        /// First known position at which the hold had ended.
        not_after: Position,
    },
}

/// Part of the past of which the index knows nothing. Holds that began and ended in it are missing; of others
/// the beginning or the end may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryGap {
    /// Last position before the gap.
    pub after: Position,
    /// Last position in the gap.
    pub until: Position,
}

/// Page of a lock's records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryPage {
    /// Records, the newest first.
    pub records: Vec<HoldRecord>,
    /// Fencing token before which the next page begins; `None` on the last page.
    pub next_before: Option<u64>,
    /// Gaps within the time of this page, the oldest first, in which records of any lock may be missing.
    pub gaps: Vec<HistoryGap>,
    /// Beginning of the history: records of holds that ended up to here are gone.
    pub since: Position,
}
