//! Records of past holds, and pages of them.

use serde::{Deserialize, Serialize};
use znode_store::{ContenderEnd, Hold};

/// A position in the history of the tree, and its time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The zxid of the last command.
    pub zxid: u64,
    /// Its time in milliseconds since 1970, by the leader's clock.
    pub time_ms: u64,
}

/// A hold that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Who held what. `since_ms` is `None` if nobody saw the beginning.
    pub hold: Hold,
    /// How it ended.
    pub end: End,
}

/// How a hold ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// By this command.
    Known {
        /// Where and when.
        at: Position,
        /// How.
        how: ContenderEnd,
        /// Who took it away, as far as that is known.
        by: Option<String>,
    },
    /// In a gap.
    Hidden {
        /// It still held then.
        not_before: Position,
        /// It held no more then.
        not_after: Position,
    },
}

/// A piece of the past of which the index knows nothing. Holds that began and ended in it are missing, of others the
/// beginning or the end may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The last position before it.
    pub after: Position,
    /// The last position in it.
    pub until: Position,
}

/// Some of a lock's records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The latest first.
    pub records: Vec<Record>,
    /// The token before which the next page begins; `None` on the last one.
    pub next_before: Option<u64>,
    /// Where something may be missing, in the time of this page, the oldest first. Not only of this lock.
    pub gaps: Vec<Gap>,
    /// There are no records of what ended up to here.
    pub since: Position,
}
