//! Interface between replication and the state: all components that apply entries to a state, or store
//! snapshots of it, use [`ReplicatedState`] and know nothing of locks and sessions.

use std::io;

use bytes::Bytes;
use tokio::sync::watch;

use crate::audit::comparison::StateDigest;
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

/// Position of the last applied entry, shared between the state that advances it and the tasks that wait for it.
#[derive(Debug, Clone)]
pub struct AppliedPosition(watch::Sender<LogPosition>);

impl Default for AppliedPosition {
    fn default() -> Self {
        Self(watch::Sender::new(LogPosition::default()))
    }
}

impl AppliedPosition {
    /// Returns the position.
    pub fn get(&self) -> LogPosition {
        *self.0.borrow()
    }

    /// Sets the position and returns the previous one.
    ///
    /// # Panics
    ///
    /// If the previous position is later.
    pub fn advance(&self, at: LogPosition) -> LogPosition {
        let before = self.0.send_replace(at);
        assert!(at >= before, "applied {before:?} after {at:?}");
        before
    }

    /// Returns whether a task waits for the next position.
    pub fn is_awaited(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Waits until the entry at `index` is applied.
    pub async fn wait_for_index(&self, index: u64) {
        self.wait_for(|at| at.index >= index).await;
    }

    /// Waits until an entry of `term` or of a later term is applied.
    pub async fn wait_for_term(&self, term: u64) {
        self.wait_for(|at| at.term >= term).await;
    }

    /// Waits until `is_reached` holds. It is called now, and after each applied entry.
    pub async fn wait_for(&self, mut is_reached: impl FnMut(LogPosition) -> bool) {
        let mut applied = self.0.subscribe();
        // The condition may lock mutexes, so none is locked meanwhile.
        while !is_reached(self.get()) {
            applied.changed().await.expect("self has a sender");
        }
    }
}

/// Part of a snapshot that the writing thread still has to encode.
pub type SnapshotPart = Box<dyn FnOnce() -> Vec<u8> + Send>;

/// Source of the encoded parts of a snapshot: one per call, and `None` at the end.
pub type SnapshotParts = Box<dyn FnMut() -> io::Result<Option<Bytes>> + Send>;

/// State to which the committed entries of the log are applied, one by one and in order.
///
/// Installing a snapshot replaces the state as a whole. Each replacement begins a new *generation*; a
/// snapshot of an older generation cannot be continued.
pub trait ReplicatedState: Send + Sync {
    /// Returns the position of the last applied entry.
    fn applied(&self) -> &AppliedPosition;

    /// Returns the number of the last command that was applied.
    fn zxid(&self) -> u64;

    /// Applies an entry without commands.
    fn apply_blank(&self, at: LogPosition);

    /// Applies the commands of an entry. An error means that they cannot be decoded, and the node must stop.
    fn apply_commands(&self, at: LogPosition, proposal: &Proposal) -> Result<(), BadBytes>;

    /// Begins a snapshot of the current state. Returns the state's generation.
    fn begin_snapshot(&self) -> u64;

    /// Returns the next part of the snapshot, with about `items` items of the state, or `Some(None)` after
    /// the last one. Returns `None` if `generation` is outdated.
    fn next_snapshot_part(&self, generation: u64, items: usize) -> Option<Option<SnapshotPart>>;

    /// Ends the snapshot, unless `generation` is outdated.
    fn abandon_snapshot(&self, generation: u64);

    /// Replaces the state by that of a snapshot, which ends at `at` and whose encoded parts `parts` reads.
    /// Blocks. On an error the state is unchanged.
    fn install(&self, at: LogPosition, parts: SnapshotParts) -> io::Result<()>;

    /// Returns the version of digests. Digests of different versions do not compare.
    fn digest_version(&self) -> u32;

    /// Returns digests of some earlier states and of the current one, oldest first.
    fn digests(&self) -> Vec<StateDigest>;

    /// Ends all waits on this node for good, because its state is known to be wrong. Their callers continue
    /// on other nodes.
    fn end_waits(&self);
}
