//! openraft's side of the state machine: entries go to the replica, snapshots to files and back.
//!
//! A snapshot is drawn in small portions while entries are applied; the store keeps what the snapshot still
//! needs of what changes meanwhile. Encoding and disk happen on other threads.

use std::io;
use std::sync::Arc;

use futures_util::{Stream, TryStreamExt};
use openraft::EntryPayload;
use openraft::alias::SnapshotOf;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use tokio::sync::mpsc;
use znode_store::SnapshotPart;

use crate::codec;
use crate::panics::Alarm;
use crate::peers::Gate;
use crate::replica::{LogPosition, Replica};
use crate::snapshot_file::{self, SnapshotHandle};
use crate::storage::SnapshotStore;
use crate::storage::error::is_full_disk;
use crate::types::{LogId, Snapshot, SnapshotMeta, StoredMembership, TypeConfig, term_of};

/// Znodes in one portion of a snapshot: a fraction of a millisecond in which nothing is applied.
const PORTION: usize = 512;

/// Portions that wait for the disk: bounds the memory of a snapshot that is being written.
const PORTIONS_QUEUED: usize = 16;

/// The state machine as openraft drives it.
pub struct StateMachine {
    replica: Arc<Replica>,
    snapshots: SnapshotStore,
    /// openraft notices late that a state machine has panicked, and never that a snapshot has.
    gate: Arc<Gate>,
    last_applied: Option<LogId>,
    membership: StoredMembership,
}

impl StateMachine {
    /// Feeds `replica`, and keeps snapshots in `snapshots`. A panic of either ends the node of `gate`.
    pub fn new(replica: Arc<Replica>, snapshots: SnapshotStore, gate: Arc<Gate>) -> Self {
        Self {
            replica,
            snapshots,
            gate,
            last_applied: None,
            membership: StoredMembership::default(),
        }
    }

    fn meta(&self) -> SnapshotMeta {
        SnapshotMeta {
            last_log_id: self.last_applied,
            last_membership: self.membership.clone(),
        }
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = SnapshotHandle;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.last_applied, self.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + Send,
    {
        let _alarm = Alarm::new(&self.gate, "the state machine");
        while let Some((entry, responder)) = entries.try_next().await? {
            let at = LogPosition {
                index: entry.log_id.index,
                term: term_of(&entry.log_id),
            };
            match entry.payload {
                EntryPayload::Blank => self.replica.apply_blank(at),
                EntryPayload::Normal(proposal) => {
                    self.replica.apply_commands(at, &proposal).map_err(|error| {
                        io::Error::new(io::ErrorKind::InvalidData, format!("entry {}: {error}", at.index))
                    })?;
                }
                EntryPayload::Membership(membership) => {
                    self.membership = StoredMembership::new(Some(entry.log_id), membership);
                    self.replica.apply_blank(at);
                }
            }
            self.last_applied = Some(entry.log_id);
            if let Some(responder) = responder {
                responder.send(());
            }
            // A long log is applied without a pause otherwise, and nobody else gets to work.
            tokio::task::coop::consume_budget().await;
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        let _alarm = Alarm::new(&self.gate, "the state machine");
        // No entry is applied while this runs: the frozen state is the one at `last_applied`.
        let generation = {
            let mut store = self.replica.store.write();
            store.begin_snapshot();
            self.replica.generation()
        };
        Builder {
            replica: self.replica.clone(),
            snapshots: self.snapshots.clone(),
            gate: self.gate.clone(),
            meta: self.meta(),
            generation,
        }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: SnapshotHandle,
    ) -> Result<(), io::Error> {
        let _alarm = Alarm::new(&self.gate, "the state machine");
        let restored = snapshot_file::blocking(move || snapshot.restore()).await?;
        let at = meta.last_log_id.map_or(LogPosition::default(), |id| LogPosition {
            index: id.index,
            term: term_of(&id),
        });
        tracing::info!(
            at.index,
            at.term,
            znodes = restored.node_count(),
            "the state comes from a snapshot"
        );
        self.replica.replace(at, restored);
        self.last_applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        snapshot_file::current(&self.snapshots)
    }
}

/// Writes the state that was frozen when it was made.
pub struct Builder {
    replica: Arc<Replica>,
    snapshots: SnapshotStore,
    gate: Arc<Gate>,
    meta: SnapshotMeta,
    generation: u64,
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = SnapshotHandle;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<TypeConfig, SnapshotHandle>, io::Error> {
        let _alarm = Alarm::new(&self.gate, "the snapshot of the state");
        // `None` is the end; a channel that is closed without it was abandoned, and so is the file.
        let (portions, mut queue) = mpsc::channel::<Option<SnapshotPart>>(PORTIONS_QUEUED);
        let (snapshots, meta) = (self.snapshots.clone(), self.meta.clone());
        let written = snapshot_file::blocking(move || {
            snapshot_file::write(&snapshots, &meta, || match queue.blocking_recv() {
                Some(part) => Ok(part.map(|part| codec::encode(&part))),
                None => Err(io::Error::other("the snapshot was abandoned")),
            })
        });
        let drawn = async {
            let portions = portions;
            loop {
                let part = self.next_portion()?;
                let end = part.is_none();
                // A writer that has failed says so itself.
                if portions.send(part).await.is_err() || end {
                    return Ok::<_, io::Error>(());
                }
                tokio::task::yield_now().await;
            }
        };
        let (drawn, written) = tokio::join!(drawn, written);
        drawn?;
        let snapshot = match written {
            Ok(snapshot) => snapshot,
            // A node with a full disk goes on. The file that was begun is gone again.
            Err(error) if is_full_disk(&error) => {
                tracing::warn!(%error, "no space for a snapshot");
                return snapshot_file::instead_of_new(&self.snapshots);
            }
            Err(error) => return Err(error),
        };
        tracing::info!(at = ?self.meta.last_log_id.map(|id| id.index), "a snapshot is written");
        Ok(Snapshot {
            meta: self.meta.clone(),
            snapshot,
        })
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        // After a failure the store need not keep what nobody will draw.
        let mut store = self.replica.store.write();
        if self.replica.generation() == self.generation {
            store.abandon_snapshot();
        }
    }
}

impl Builder {
    fn next_portion(&self) -> Result<Option<SnapshotPart>, io::Error> {
        let mut store = self.replica.store.write();
        match self.replica.generation() == self.generation {
            true => Ok(store.next_snapshot_part(PORTION)),
            false => Err(io::Error::other(
                "the state was replaced while a snapshot of it was written",
            )),
        }
    }
}
