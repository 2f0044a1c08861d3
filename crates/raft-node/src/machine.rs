//! openraft's side of the state machine: entries go to the replica, snapshots to files and back.
//!
//! A snapshot is drawn in small portions while entries are applied; the store keeps what the snapshot still
//! needs of what changes meanwhile. Encoding and disk happen on other threads. When one is made is decided in
//! `compaction.rs`; openraft only learns of it when it is there, since it takes a snapshot that cannot be written for
//! the end of the node.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use futures_util::{Stream, TryStreamExt};
use openraft::EntryPayload;
use openraft::alias::SnapshotOf;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use tokio::sync::mpsc;
use znode_store::SnapshotPart;

use crate::codec;
use crate::config::NodeId;
use crate::fail_step;
use crate::membership::RetiredIds;
use crate::panics::Alarm;
use crate::peers::Gate;
use crate::replica::{LogPosition, Replica};
use crate::snapshot_file::{self, SnapshotHandle};
use crate::storage::SnapshotStore;
use crate::types::{LogId, Snapshot, SnapshotMeta, StoredMembership, TypeConfig, term_of};

/// Znodes in one portion of a snapshot: a fraction of a millisecond in which nothing is applied.
pub const PORTION: usize = 512;

/// Portions that wait for the disk: bounds the memory of a snapshot that is being written.
const PORTIONS_QUEUED: usize = 16;

/// The state machine as openraft drives it.
pub struct StateMachine {
    replica: Arc<Replica>,
    snapshots: SnapshotStore,
    /// openraft notices late that a state machine has panicked.
    gate: Arc<Gate>,
    last_applied: Option<LogId>,
    membership: StoredMembership,
    /// Who was a member and is none any more; told to the gate.
    retired: RetiredIds,
    /// A snapshot that was made, and that openraft does not know yet.
    offered: Option<Snapshot>,
}

impl StateMachine {
    /// Feeds `replica`, keeps snapshots in `snapshots`, and tells `gate` who was removed. A panic ends the node of `gate`.
    pub fn new(replica: Arc<Replica>, snapshots: SnapshotStore, gate: Arc<Gate>) -> Self {
        Self {
            replica,
            snapshots,
            gate,
            last_applied: None,
            membership: StoredMembership::default(),
            retired: RetiredIds::default(),
            offered: None,
        }
    }

    /// Has openraft learn of a snapshot of this state when it asks for one the next time.
    pub fn offer(&mut self, made: Snapshot) {
        assert!(
            made.meta.last_log_id <= self.last_applied,
            "a snapshot of this state cannot be ahead of it"
        );
        self.offered = Some(made);
    }

    /// The membership changes here: whoever is no member any more has had an id that is not given again.
    fn change_membership(&mut self, next: StoredMembership) {
        let present: BTreeSet<NodeId> = next.nodes().map(|(id, _)| *id).collect();
        let gone = self.membership.nodes().map(|(id, _)| *id);
        let gone: Vec<NodeId> = gone.filter(|id| !present.contains(id)).collect();
        for id in &gone {
            self.retired.insert(*id, &present);
        }
        if !gone.is_empty() {
            tracing::info!(nodes = ?gone, "members were removed");
            self.gate.set_retired(self.retired.clone());
        }
        self.membership = next;
    }

    /// Freezes the state as it is after the last entry that was applied, to be written by [`Drawing::write`].
    pub fn freeze(&mut self) -> Drawing {
        let _alarm = Alarm::new(&self.gate, "the state machine");
        fail_step!("snapshot::before_freeze");
        // No entry is applied while this runs: the frozen state is the one at `last_applied`.
        let generation = {
            let mut store = self.replica.store.write();
            store.begin_snapshot();
            self.replica.generation()
        };
        Drawing {
            replica: self.replica.clone(),
            snapshots: self.snapshots.clone(),
            gate: self.gate.clone(),
            meta: SnapshotMeta {
                last_log_id: self.last_applied,
                last_membership: self.membership.clone(),
            },
            retired: self.retired.clone(),
            generation,
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
            fail_step!(async "apply::before_entry");
            let at = LogPosition {
                index: entry.log_id.index,
                term: term_of(&entry.log_id),
            };
            #[cfg(feature = "simulation")]
            let stored = crate::storage::log_entry::encode_entry(&entry).payload;
            match entry.payload {
                EntryPayload::Blank => self.replica.apply_blank(at),
                EntryPayload::Normal(proposal) => {
                    self.replica.apply_commands(at, &proposal).map_err(|error| {
                        io::Error::new(io::ErrorKind::InvalidData, format!("entry {}: {error}", at.index))
                    })?;
                }
                EntryPayload::Membership(membership) => {
                    self.change_membership(StoredMembership::new(Some(entry.log_id), membership));
                    self.replica.apply_blank(at);
                }
            }
            #[cfg(feature = "simulation")]
            crate::simulation::ask(|host| host.applied(at.into(), &stored));
            fail_step!(async "apply::after_entry");
            self.last_applied = Some(entry.log_id);
            if let Some(responder) = responder {
                responder.send(());
            }
            // A long log is applied without a pause otherwise, and nobody else gets to work.
            tokio::task::coop::consume_budget().await;
        }
        Ok(())
    }

    async fn try_create_snapshot_builder(&mut self, _force: bool) -> Option<Builder> {
        // Only what was offered. The newest file may have come from the leader and wait to be installed: taken for one of
        // this state, it would never be.
        self.offered.take().map(Builder::Made)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder::Draw(self.freeze())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: SnapshotHandle,
    ) -> Result<(), io::Error> {
        let _alarm = Alarm::new(&self.gate, "the state machine");
        let retired = snapshot.retired()?;
        fail_step!(async "install::before_restore", |error| error);
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
        fail_step!(async "install::before_replace", |error| error);
        let before = self.replica.replace(at, restored);
        fail_step!(async "install::after_replace", |error| error);
        snapshot_file::blocking(move || {
            drop(before);
            Ok(())
        })
        .await?;
        self.last_applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        self.retired = retired;
        self.gate.set_retired(self.retired.clone());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        snapshot_file::current(&self.snapshots)
    }
}

/// What openraft gets a snapshot from.
pub enum Builder {
    /// It is there already.
    Made(Snapshot),
    /// It has to be written.
    Draw(Drawing),
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = SnapshotHandle;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<TypeConfig, SnapshotHandle>, io::Error> {
        match self {
            Self::Made(snapshot) => Ok(snapshot.clone()),
            Self::Draw(drawing) => drawing.write().await,
        }
    }
}

/// A state that was frozen when this was made, on its way to the disk. Dropped, it is given up.
pub struct Drawing {
    replica: Arc<Replica>,
    snapshots: SnapshotStore,
    gate: Arc<Gate>,
    meta: SnapshotMeta,
    retired: RetiredIds,
    generation: u64,
}

impl Drawing {
    /// The last entry whose effects are in it.
    pub fn last(&self) -> Option<LogId> {
        self.meta.last_log_id
    }

    /// Writes it beside the other snapshots, reads it again, and puts it among them. After an error nothing is left.
    pub async fn write(&mut self) -> io::Result<Snapshot> {
        let _alarm = Alarm::new(&self.gate, "the snapshot of the state");
        #[cfg(feature = "simulation")]
        if crate::simulation::is_on() {
            return self.write_alone().await;
        }
        // `None` is the end; a channel that is closed without it was abandoned, and so is the file.
        let (portions, mut queue) = mpsc::channel::<Option<SnapshotPart>>(PORTIONS_QUEUED);
        let (snapshots, meta) = (self.snapshots.clone(), self.meta.clone());
        let retired = self.retired.clone();
        let written = snapshot_file::blocking(move || {
            snapshot_file::write(&snapshots, &meta, retired, || match queue.blocking_recv() {
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
        Ok(Snapshot {
            meta: self.meta.clone(),
            snapshot: written?,
        })
    }

    /// The same without a second thread: a simulated node has one. Entries are applied between two portions here, too.
    #[cfg(feature = "simulation")]
    async fn write_alone(&mut self) -> io::Result<Snapshot> {
        let mut parts = std::collections::VecDeque::new();
        while let Some(part) = self.next_portion()? {
            parts.push_back(codec::encode(&part));
            crate::simulation::wait_for_disk(crate::simulation::DiskWork::Other).await;
        }
        let (snapshots, meta) = (self.snapshots.clone(), self.meta.clone());
        let retired = self.retired.clone();
        let written = snapshot_file::blocking(move || {
            snapshot_file::write(&snapshots, &meta, retired, || Ok(parts.pop_front()))
        });
        Ok(Snapshot {
            meta: self.meta.clone(),
            snapshot: written.await?,
        })
    }

    fn next_portion(&self) -> Result<Option<SnapshotPart>, io::Error> {
        fail_step!("snapshot::before_portion", |error| error);
        let mut store = self.replica.store.write();
        match self.replica.generation() == self.generation {
            true => Ok(store.next_snapshot_part(PORTION)),
            false => Err(io::Error::other(
                "the state was replaced while a snapshot of it was written",
            )),
        }
    }
}

impl Drop for Drawing {
    fn drop(&mut self) {
        // After a failure the store need not keep what nobody will draw.
        let mut store = self.replica.store.write();
        if self.replica.generation() == self.generation {
            store.abandon_snapshot();
        }
    }
}
