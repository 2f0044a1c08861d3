//! Compaction: snapshots by number of entries and bytes, and on request, and the truncation of the log behind
//! them.
//!
//! openraft counts only entries, stops the node if a snapshot cannot be written, and keeps entries while a
//! follower still reads them. So its own policy is off: this module makes snapshots, reports them to
//! openraft, and requests purges up to an entry. `state_machine.rs` defines the contents of a snapshot,
//! `raft_log::snapshots` its file.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use openraft::Instant as _;
use openraft::async_runtime::watch::WatchReceiver;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::Unavailable;
use crate::ids::NodeId;
use crate::peers::PeerRegistry;
use crate::peers::SnapshotTraffic;
use crate::raft_config::SnapshotConfig;
use crate::replicated_state::AppliedPosition;
use crate::snapshot_file;
use crate::snapshot_file::Snapshot;
use crate::state_machine::Raft;
use fault_injection::fail_step;
use instruments::counters::Counter;
use raft_log::{SnapshotStore, Wal};

/// Interval between checks whether a snapshot is due: a few megabytes at the highest rate of a disk.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Pause after a failed snapshot, most likely because the disk is full.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Maximum random reduction of the interval between snapshots, in percent. The nodes of a cluster apply the same
/// entries at the same time, and should not all write a snapshot at the same time.
const EARLIER_PERCENT: u64 = 20;

/// Maximum length of the log, in multiples of the interval between snapshots, that is kept for a live
/// follower that lags, and for one that is receiving a snapshot. With less, a slow follower would get
/// snapshot after snapshot and never catch up; without a bound, it would fill the disks of the others.
const KEPT_FOR_FOLLOWERS: u64 = 4;

/// Returns [`KEPT_FOR_FOLLOWERS`], or 0 in tests in which every absent node must receive a snapshot.
fn kept_for_followers() -> u64 {
    #[cfg(feature = "failpoints")]
    if fault_injection::fail_points::rare_steps_are_frequent() {
        return 0;
    }
    KEPT_FOR_FOLLOWERS
}

/// Time since the last answer to a heartbeat within which a follower counts as alive. Several elections, so
/// that a busy follower is not considered dead.
const FOLLOWER_ALIVE_TIME: Duration = Duration::from_secs(5);

/// Maximum number of waiting callers. Further ones get an error that asks them to retry.
const MAX_REQUESTS: usize = 64;

/// Result of a requested snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SnapshotMade {
    /// The last log entry that it covers.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Time to make it, in milliseconds.
    pub duration_ms: u64,
}

/// Counters of the snapshots that a node has built.
#[derive(Debug, Default)]
pub struct SnapshotCounters {
    /// Snapshots that are complete.
    pub made: Counter,
    /// Snapshots that failed.
    pub failed: Counter,
}

/// Caller that waits for a snapshot.
type SnapshotRequest = oneshot::Sender<Result<SnapshotMade, Unavailable>>;

/// Handle to request snapshots.
#[derive(Clone)]
pub struct SnapshotRequests {
    queue: mpsc::Sender<SnapshotRequest>,
    failure: watch::Receiver<Option<String>>,
}

impl SnapshotRequests {
    /// Makes a snapshot of the applied state and waits for it. Returns the newest snapshot if nothing was
    /// applied since it was begun.
    pub async fn snapshot(&self) -> Result<SnapshotMade, Unavailable> {
        let (request, made) = oneshot::channel();
        match self.queue.try_send(request) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                return Err(Unavailable::new(
                    "too many callers wait for a snapshot of this node",
                ));
            }
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(stopping()),
        }
        made.await.unwrap_or_else(|_| Err(stopping()))
    }

    /// Requests a snapshot without waiting, unless one is already requested. Returns whether the request was
    /// accepted.
    pub fn begin(&self) -> bool {
        // No caller waits for the answer.
        self.queue.try_send(oneshot::channel().0).is_ok()
    }

    /// Returns the reason why the last snapshot failed, if it did.
    pub fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }
}

fn stopping() -> Unavailable {
    Unavailable::new("this node is stopping")
}

/// Dependencies of the task.
pub struct Compaction {
    /// Knows whether the state may be kept.
    pub registry: Arc<PeerRegistry>,
    /// Is notified of snapshots, and purges.
    pub raft: Raft,
    /// Position of the state.
    pub applied: AppliedPosition,
    /// Files of snapshots.
    pub snapshots: SnapshotStore,
    /// Log that is truncated.
    pub log: Wal,
    /// Snapshots that are being sent.
    pub traffic: Arc<SnapshotTraffic>,
    /// Returns the current settings.
    pub settings: Box<dyn Fn() -> SnapshotConfig + Send + Sync>,
    /// Counters of snapshots.
    pub counters: Arc<SnapshotCounters>,
}

/// Creates a queue of snapshot requests and its handle.
pub fn snapshot_requests() -> (SnapshotRequests, SnapshotRequestQueue) {
    let (queue, snapshot_requests) = mpsc::channel(MAX_REQUESTS);
    let (failure, seen) = watch::channel(None);
    let end = SnapshotRequestQueue {
        snapshot_requests,
        failure,
    };
    (SnapshotRequests { queue, failure: seen }, end)
}

/// Receiver of snapshot requests.
pub struct SnapshotRequestQueue {
    snapshot_requests: mpsc::Receiver<SnapshotRequest>,
    failure: watch::Sender<Option<String>>,
}

/// Makes snapshots and truncates the log until `stop`.
pub async fn run(compaction: Compaction, mut queue: SnapshotRequestQueue, stop: CancellationToken) {
    let mut checks = tokio::time::interval(CHECK_INTERVAL);
    checks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut earlier = random_earlier();
    let mut failed: Option<Instant> = None;
    let mut purged = 0;
    loop {
        let mut waiting = Vec::new();
        tokio::select! {
            _ = checks.tick() => {}
            request = queue.snapshot_requests.recv() => waiting.extend(request),
            () = stop.cancelled() => return,
        }
        let patient = failed.is_none_or(|at| at.elapsed() >= RETRY_AFTER);
        if !waiting.is_empty() || patient && compaction.is_due(earlier) {
            while let Ok(request) = queue.snapshot_requests.try_recv() {
                waiting.push(request);
            }
            let made = tokio::select! {
                made = compaction.make() => made,
                () = stop.cancelled() => return,
            };
            match &made {
                Ok(_) => {
                    earlier = random_earlier();
                    failed = None;
                    compaction.counters.made.up();
                    queue.failure.send_replace(None);
                }
                Err(error) => {
                    tracing::error!(%error, "compaction: a snapshot could not be made");
                    failed = Some(Instant::now());
                    compaction.counters.failed.up();
                    queue.failure.send_replace(Some(error.to_string()));
                }
            }
            for request in waiting {
                // A caller that was dropped needs no answer.
                let _ = request.send(match &made {
                    Ok(made) => Ok(made.clone()),
                    Err(error) => Err(Unavailable::new(format!("no snapshot could be made: {error}"))),
                });
            }
        }
        compaction.purge(&mut purged).await;
    }
}

impl Compaction {
    /// Returns the last entry that the newest snapshot covers, and its size in bytes; zeros if there is none.
    fn newest(&self) -> (u64, u64) {
        self.snapshots.latest().map_or((0, 0), |latest| {
            let index = latest.meta().last.map_or(0, |last| last.index);
            (index, latest.bytes())
        })
    }

    fn is_due(&self, earlier: u64) -> bool {
        let (index, snapshot_bytes) = self.newest();
        let entries = self.applied.get().index.saturating_sub(index);
        entries > 0
            && !self.registry.has_wrong_state()
            && is_due(
                &(self.settings)(),
                entries,
                self.log.bytes_after(index),
                snapshot_bytes,
                earlier,
            )
    }

    /// Makes a snapshot of the applied state, and waits until openraft knows it.
    async fn make(&self) -> io::Result<SnapshotMade> {
        let begin = Instant::now();
        if self.registry.has_wrong_state() {
            return Err(io::Error::other(
                "this node's state differs from that of the other members",
            ));
        }
        fail_step!(async "snapshot::before_make", |error| error);
        let builder = self.raft.with_state_machine(|machine| {
            let builder = machine.begin_snapshot();
            Box::pin(async move { builder })
        });
        let mut builder = builder.await.map_err(io::Error::other)?;
        let last = builder.last();
        let current = self.snapshots.latest().filter(|latest| {
            let covered = latest.meta().last.map(|pos| (pos.index, pos.term));
            covered == last.map(|id| (id.index, crate::types::term_of(&id)))
        });
        let snapshot = match current {
            Some(current) => snapshot_file::of(current)?,
            None => builder.write().await?,
        };
        drop(builder);
        let made = SnapshotMade {
            index: last.map_or(0, |id| id.index),
            term: last.map_or(0, |id| crate::types::term_of(&id)),
            bytes: snapshot.snapshot.key().bytes,
            duration_ms: u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        fail_step!(async "snapshot::before_tell", |error| error);
        self.report_to_raft(snapshot).await?;
        fail_step!(async "snapshot::after_tell", |error| error);
        tracing::info!(
            made.index,
            made.bytes,
            made.duration_ms,
            "compaction: made a snapshot"
        );
        Ok(made)
    }

    async fn report_to_raft(&self, snapshot: Snapshot) -> io::Result<()> {
        let last = snapshot.meta.last_log_id;
        let mut metrics = self.raft.metrics();
        if metrics.borrow_watched().snapshot >= last {
            return Ok(());
        }
        let offered = self.raft.with_state_machine(|machine| {
            machine.offer(snapshot);
            Box::pin(async {})
        });
        offered.await.map_err(io::Error::other)?;
        self.raft.trigger().snapshot().await.map_err(io::Error::other)?;
        loop {
            if metrics.borrow_watched().snapshot >= last {
                return Ok(());
            }
            let changed = metrics.changed().await;
            changed.map_err(|_| io::Error::other("Raft has stopped"))?;
        }
    }

    /// Purges the entries that are no longer needed, unless that was already requested up to `asked`.
    async fn purge(&self, asked: &mut u64) {
        let settings = (self.settings)();
        let config = &settings;
        let covered = self.raft.metrics().borrow_watched().snapshot;
        let covered = covered.map_or(0, |id| id.index);
        let kept_for_bytes = self
            .log
            .first_within(covered, config.keep_bytes)
            .saturating_sub(1);
        let fewest = covered.saturating_sub(config.keep_entries);
        let mut upto = fewest.max(kept_for_bytes).min(covered);
        let purged = self.log.purged().map_or(0, |purged| purged.index);
        let (_, snapshot_bytes) = self.newest();
        let longest = kept_for_followers().saturating_mul(config.every_bytes.max(snapshot_bytes));
        let mut left_behind = false;
        for needed in self.needed_after() {
            // A follower that needs purged entries gets a snapshot in any case.
            if needed < purged || needed >= upto {
                continue;
            }
            match self.log.bytes_after(needed) <= longest {
                true => upto = upto.min(needed),
                false => left_behind = true,
            }
        }
        if upto <= purged.max(*asked) {
            return;
        }
        if left_behind {
            tracing::warn!(
                upto,
                "compaction: a follower lags so far behind that it needs a snapshot"
            );
        }
        // If Raft has stopped, the node is stopped elsewhere.
        if let Err(error) = self.raft.trigger().purge_log(upto).await {
            tracing::debug!(%error, "compaction: the log could not be purged");
        }
        // openraft waits for streams that still need these entries.
        self.traffic.cut_below(upto);
        *asked = upto;
    }

    /// Returns the positions after which entries are needed: the end of the log of each live follower, and of
    /// the snapshot of each follower that is receiving one. Empty on a node that does not lead.
    fn needed_after(&self) -> Vec<u64> {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let answered = metrics.heartbeat.unwrap_or_default();
        let lives = |id: &NodeId| {
            let last = answered.get(id).copied().flatten();
            last.is_some_and(|last| last.elapsed() < FOLLOWER_ALIVE_TIME)
        };
        let followers = metrics.replication.unwrap_or_default().into_iter();
        let followers = followers.filter(|(id, _)| lives(id));
        let mut needed: Vec<u64> = followers
            .filter_map(|(_, matched)| Some(matched?.index))
            .collect();
        needed.extend(self.traffic.oldest_sent());
        needed
    }
}

/// Returns whether `entries` entries with `bytes` bytes since a snapshot of `snapshot_bytes` bytes are enough for the next one.
fn is_due(config: &SnapshotConfig, entries: u64, bytes: u64, snapshot_bytes: u64, earlier: u64) -> bool {
    let soon = |all: u64| all - all / 100 * earlier;
    entries >= soon(config.every_entries) || bytes >= soon(config.every_bytes.max(snapshot_bytes))
}

/// Returns by how many percent the next snapshot is due before the configured limit.
fn random_earlier() -> u64 {
    let mut drawn = [0; 8];
    match getrandom::fill(&mut drawn) {
        Ok(()) => u64::from_le_bytes(drawn) % (EARLIER_PERCENT + 1),
        // The number only spreads the load.
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_is_due_after_enough_entries_or_bytes() {
        let config = SnapshotConfig {
            every_entries: 1000,
            every_bytes: 10_000,
            ..SnapshotConfig::default()
        };
        let due = |entries, bytes, snapshot, earlier| is_due(&config, entries, bytes, snapshot, earlier);
        assert!(!due(999, 9_999, 0, 0));
        assert!(due(1000, 1, 0, 0));
        assert!(due(1, 10_000, 0, 0));
        assert!(
            !due(1, 10_000, 50_000, 0),
            "not before the log has as many bytes as the state"
        );
        assert!(due(1, 50_000, 50_000, 0));
        assert!(due(800, 1, 0, 20));
        assert!(!due(799, 1, 0, 20));
    }
}
