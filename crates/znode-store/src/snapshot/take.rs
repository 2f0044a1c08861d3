//! Snapshots of a running state: begin, next part, abandon.

use crate::snapshot::builder::{Header, SnapshotBuilder};
use crate::snapshot::part::SnapshotPart;
use crate::store::Store;

impl Store {
    /// Begins a snapshot of the state as it is now, and abandons an unfinished one. Visits each session.
    pub fn begin_snapshot(&mut self) {
        let header = Header {
            zxid: self.zxid,
            time_ms: self.time_ms,
            limits: self.limits,
            digest: self.digest_parts(),
        };
        let begun = SnapshotBuilder::begin(header, &mut self.tree, &self.sessions, &self.locks, &self.access);
        self.snapshot = Some(begun.into());
    }

    /// Returns the next part of the snapshot that was begun, of at most about `znodes` znodes (or sessions, or recorded requests).
    /// Returns `None` if it is complete, or none was begun.
    pub fn next_snapshot_part(&mut self, znodes: usize) -> Option<SnapshotPart> {
        let builder = self.snapshot.as_mut()?;
        let part = builder.next_part(&mut self.tree, znodes);
        if builder.is_complete() {
            self.abandon_snapshot();
        }
        Some(part)
    }

    /// Abandons the snapshot that was begun, if there is one.
    pub fn abandon_snapshot(&mut self) {
        self.tree.end_capture();
        self.snapshot = None;
    }
}
