//! State machine of openraft: applies committed entries to the [`ReplicatedState`], and installs and builds snapshots.
//!
//! A snapshot is built in small portions while entries are applied; the state retains the parts that change
//! before the snapshot has them. Other threads encode and write. `compaction.rs` decides when to build one.
//! openraft learns of a snapshot only when it is complete, since it stops the node if a snapshot cannot be
//! written.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use futures_util::{Stream, TryStreamExt};
use openraft::EntryPayload;
use openraft::alias::SnapshotOf;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use tokio::sync::mpsc;

use crate::ids::NodeId;
use crate::membership::RetiredIds;
use crate::panics::{Failure, PanicGuard};
use crate::replicated_state::{LogPosition, ReplicatedState, SnapshotPart};
use crate::snapshot_file::{self, Snapshot, SnapshotHandle};
use crate::types::{LogId, SnapshotMeta, StoredMembership, TypeConfig, term_of};
use fault_injection::fail_step;
use raft_log::SnapshotStore;

/// Number of znodes in one portion of a snapshot: a fraction of a millisecond in which no entry is applied.
pub const PORTION: usize = 512;

/// Maximum number of portions queued for the disk, which bounds the memory of a snapshot that is being
/// written.
const PORTIONS_QUEUED: usize = 16;

/// A running Raft.
pub type Raft = openraft::Raft<TypeConfig, StateMachine>;

/// Callback with the ids of removed members, called when there are new ones.
pub type RetiredListener = Box<dyn Fn(RetiredIds) + Send + Sync>;

/// State machine of openraft.
pub struct StateMachine {
    state: Arc<dyn ReplicatedState>,
    snapshots: SnapshotStore,
    /// Handle to report a panic, which openraft notices only late.
    failure: Failure,
    last_applied: Option<LogId>,
    membership: StoredMembership,
    /// Ids of removed members.
    retired: RetiredIds,
    on_retired: RetiredListener,
    /// Complete snapshot that openraft does not have yet.
    offered: Option<Snapshot>,
}

impl StateMachine {
    /// Creates a state machine that applies entries to `state` and stores snapshots in `snapshots`. A panic
    /// is reported to `failure`.
    pub fn new(
        state: Arc<dyn ReplicatedState>,
        snapshots: SnapshotStore,
        failure: Failure,
        on_retired: RetiredListener,
    ) -> Self {
        Self {
            state,
            snapshots,
            failure,
            last_applied: None,
            membership: StoredMembership::default(),
            retired: RetiredIds::default(),
            on_retired,
            offered: None,
        }
    }

    /// Offers openraft a complete snapshot of this state, which it gets at its next request for one.
    pub fn offer(&mut self, made: Snapshot) {
        assert!(
            made.meta.last_log_id <= self.last_applied,
            "a snapshot of this state cannot be ahead of it"
        );
        self.offered = Some(made);
    }

    /// Sets the membership. The ids of members that are no longer in it are retired for good.
    fn change_membership(&mut self, next: StoredMembership) {
        let present: BTreeSet<NodeId> = next.nodes().map(|(id, _)| *id).collect();
        let gone = self.membership.nodes().map(|(id, _)| *id);
        let gone: Vec<NodeId> = gone.filter(|id| !present.contains(id)).collect();
        for id in &gone {
            self.retired.insert(*id, &present);
        }
        if !gone.is_empty() {
            tracing::info!(nodes = ?gone, "membership: members were removed");
            (self.on_retired)(self.retired.clone());
        }
        self.membership = next;
    }

    /// Begins a snapshot of the state after the last applied entry; [`SnapshotBuilder::write`] writes it.
    pub fn begin_snapshot(&mut self) -> SnapshotBuilder {
        let _guard = PanicGuard::new(&self.failure, "the state machine");
        fail_step!("snapshot::before_freeze");
        // No entry is applied meanwhile: the snapshot is of the state at `last_applied`.
        SnapshotBuilder {
            generation: self.state.begin_snapshot(),
            state: self.state.clone(),
            snapshots: self.snapshots.clone(),
            failure: self.failure.clone(),
            meta: SnapshotMeta {
                last_log_id: self.last_applied,
                last_membership: self.membership.clone(),
            },
            retired: self.retired.clone(),
        }
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = SnapshotHandle;
    type SnapshotBuilder = SnapshotSource;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.last_applied, self.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + Send,
    {
        let _guard = PanicGuard::new(&self.failure, "the state machine");
        while let Some((entry, responder)) = entries.try_next().await? {
            fail_step!(async "apply::before_entry");
            let at = LogPosition {
                index: entry.log_id.index,
                term: term_of(&entry.log_id),
            };
            #[cfg(feature = "simulation")]
            let stored = crate::storage::log_entry::encode_entry(&entry).payload;
            match entry.payload {
                EntryPayload::Blank => self.state.apply_blank(at),
                EntryPayload::Normal(proposal) => {
                    self.state.apply_commands(at, &proposal).map_err(|error| {
                        io::Error::new(io::ErrorKind::InvalidData, format!("entry {}: {error}", at.index))
                    })?;
                }
                EntryPayload::Membership(membership) => {
                    self.change_membership(StoredMembership::new(Some(entry.log_id), membership));
                    self.state.apply_blank(at);
                }
            }
            #[cfg(feature = "simulation")]
            crate::simulation::request(|host| host.applied(at.into(), &stored));
            fail_step!(async "apply::after_entry");
            self.last_applied = Some(entry.log_id);
            if let Some(responder) = responder {
                responder.send(());
            }
            // A long log would otherwise be applied without a pause, and other tasks would not run.
            tokio::task::coop::consume_budget().await;
        }
        Ok(())
    }

    async fn try_create_snapshot_builder(&mut self, _force: bool) -> Option<SnapshotSource> {
        // Only an offered snapshot. The newest file may be a snapshot from the leader that waits to be
        // installed; if it were returned as a snapshot of this state, it would never be installed.
        self.offered.take().map(SnapshotSource::Complete)
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotSource {
        SnapshotSource::Builder(self.begin_snapshot())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: SnapshotHandle,
    ) -> Result<(), io::Error> {
        let _guard = PanicGuard::new(&self.failure, "the state machine");
        let retired = snapshot.retired()?;
        fail_step!(async "install::before_restore", |error| error);
        let at = meta.last_log_id.map_or(LogPosition::default(), |id| LogPosition {
            index: id.index,
            term: term_of(&id),
        });
        let state = self.state.clone();
        snapshot_file::blocking(move || state.install(at, snapshot.parts()?)).await?;
        self.last_applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        self.retired = retired;
        (self.on_retired)(self.retired.clone());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        snapshot_file::current(&self.snapshots)
    }
}

/// Source of a snapshot for openraft.
pub enum SnapshotSource {
    /// A complete snapshot.
    Complete(Snapshot),
    /// A snapshot that has yet to be written.
    Builder(SnapshotBuilder),
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotSource {
    type SnapshotData = SnapshotHandle;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<TypeConfig, SnapshotHandle>, io::Error> {
        match self {
            Self::Complete(snapshot) => Ok(snapshot.clone()),
            Self::Builder(builder) => builder.write().await,
        }
    }
}

/// A snapshot that has been begun and is not on disk yet. Dropping it abandons the snapshot.
pub struct SnapshotBuilder {
    state: Arc<dyn ReplicatedState>,
    snapshots: SnapshotStore,
    failure: Failure,
    meta: SnapshotMeta,
    retired: RetiredIds,
    /// Generation of the state when the snapshot was begun.
    generation: u64,
}

impl SnapshotBuilder {
    /// Returns the id of the last entry that it covers.
    pub fn last(&self) -> Option<LogId> {
        self.meta.last_log_id
    }

    /// Writes the snapshot to a temporary file, verifies it, and adds it to the snapshots. An error leaves no
    /// file.
    pub async fn write(&mut self) -> io::Result<Snapshot> {
        let _guard = PanicGuard::new(&self.failure, "the snapshot of the state");
        #[cfg(feature = "simulation")]
        if crate::simulation::is_on() {
            return self.write_alone().await;
        }
        // `None` marks the end. A channel that closes without it was abandoned, and so is the file.
        let (portions, mut queue) = mpsc::channel::<Option<SnapshotPart>>(PORTIONS_QUEUED);
        let (snapshots, meta) = (self.snapshots.clone(), self.meta.clone());
        let retired = self.retired.clone();
        let written = snapshot_file::blocking(move || {
            snapshot_file::write(&snapshots, &meta, retired, || match queue.blocking_recv() {
                Some(part) => Ok(part.map(|encode| encode())),
                None => Err(io::Error::other("the snapshot was abandoned")),
            })
        });
        let drawn = async {
            let portions = portions;
            loop {
                let part = self.next_portion()?;
                let end = part.is_none();
                // A failed writer reports its own error.
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

    /// Same as [`SnapshotBuilder::write`] without a second thread, since a simulated node has only one.
    /// Entries are applied between two portions here, too.
    #[cfg(feature = "simulation")]
    async fn write_alone(&mut self) -> io::Result<Snapshot> {
        let mut parts = std::collections::VecDeque::new();
        while let Some(part) = self.next_portion()? {
            parts.push_back(part());
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
        match self.state.next_snapshot_part(self.generation, PORTION) {
            Some(part) => Ok(part),
            None => Err(io::Error::other(
                "the state was replaced while a snapshot of it was written",
            )),
        }
    }
}

impl Drop for SnapshotBuilder {
    fn drop(&mut self) {
        // After a failure the state need not retain parts that will not be written.
        self.state.abandon_snapshot(self.generation);
    }
}
