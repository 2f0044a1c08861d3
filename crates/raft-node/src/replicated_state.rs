//! Interface between replication and the state: everything that brings entries to a state, or snapshots of it to a disk, goes through
//! [`ReplicatedState`] and knows nothing of locks and sessions.

use znode_store::{SnapshotPart, Store};

use crate::codec::BadBytes;
use crate::types::Proposal;

/// Position in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition {
    /// Index of the entry.
    pub index: u64,
    /// Term of the entry.
    pub term: u64,
}

#[cfg(feature = "simulation")]
impl From<LogPosition> for crate::simulation::Place {
    fn from(at: LogPosition) -> Self {
        Self {
            term: at.term,
            index: at.index,
        }
    }
}

/// State to which the committed entries of the log are applied, one after the other and in order.
///
/// A state is replaced as a whole when a snapshot is installed. Each replacement begins a new *generation*; a snapshot of an older
/// generation cannot be continued.
pub trait ReplicatedState: Send + Sync {
    /// Applies an entry without commands.
    fn apply_blank(&self, at: LogPosition);

    /// Applies the commands of an entry. Returns an error if they cannot be decoded; then the node must not go on.
    fn apply_commands(&self, at: LogPosition, proposal: &Proposal) -> Result<(), BadBytes>;

    /// Begins a snapshot of the state as it is. Returns the state's generation.
    fn begin_snapshot(&self) -> u64;

    /// Returns the next part of the snapshot, with about `znodes` znodes, or `Some(None)` after the last one. Returns `None` if
    /// `generation` is not the state's any more.
    fn next_snapshot_part(&self, generation: u64, znodes: usize) -> Option<Option<SnapshotPart>>;

    /// Ends the snapshot, if `generation` is still the state's.
    fn abandon_snapshot(&self, generation: u64);

    /// Replaces the state by that of a snapshot, which ends at `at`. Returns the former state, unless an observer took it: freeing a
    /// large one takes a while and belongs on a thread of its own.
    #[must_use = "the former state should be dropped on a thread of its own"]
    fn replace(&self, at: LogPosition, restored: Store) -> Option<Store>;
}
